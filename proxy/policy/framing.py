"""Lengths of bodies that have none."""

CHUNKED = -1
"""In place of a length: the body comes in chunks."""
UNTIL_CLOSE = -2
"""In place of a length: the body ends when the connection does."""
