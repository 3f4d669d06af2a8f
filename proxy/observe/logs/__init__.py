"""The access log and the process's own log: JSON lines that never make the event loop wait."""
