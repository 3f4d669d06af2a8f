"""One process that serves: its life, what the admin may do, and what serves one configuration."""
