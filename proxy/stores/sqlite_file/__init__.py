"""One SQLite file and the thread that owns it, for whatever tables are kept there."""
