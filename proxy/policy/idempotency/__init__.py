"""Idempotency keys without I/O: reading a key, its record's states, what is kept of a response."""
