"""Request bodies: streamed or buffered, kept for a replay within shared memory."""
