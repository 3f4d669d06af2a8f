"""Lengths of bodies: what stands for none, and the longest."""

CHUNKED = -1
"""In place of a length: the body comes in chunks."""
UNTIL_CLOSE = -2
"""In place of a length: the body ends when the connection does."""
LONGEST = 2**63 - 1
"""The longest body that may be announced: beyond it, programs that count in 64 bits disagree."""
