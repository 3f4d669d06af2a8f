"""The idempotency stage: a request with a key runs once, and its duplicates get the result."""
