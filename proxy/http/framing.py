"""Body framing (RFC 9112 6): the values that stand in place of a length, and the largest length."""

CHUNKED = -1
"""In place of a length: the body is chunked."""
UNTIL_CLOSE = -2
"""In place of a length: the body ends when the connection is closed."""
LONGEST = 2**63 - 1
"""The longest body that may be announced: beyond it, programs that count in 64 bits disagree."""
