"""When two values of a field mean the same caller.

All values count byte for byte. Of credentials alone the scheme has no case (RFC 9110 11.1),
and the blanks behind it count as one: ``bearer  x`` and ``Bearer x`` are one caller. Else a
caller would get another limit, or another name-space for its idempotency keys, for each
spelling.
"""

import re

CREDENTIALS = frozenset({b"authorization", b"proxy-authorization"})
"""Fields whose value begins with a scheme, in lower case."""

_scheme_and_rest = re.compile(rb"([^ \t]+)[ \t]+(.+)", re.DOTALL).fullmatch


def comparable_credentials(value: bytes) -> bytes:
    """Give all spellings of one credential the same bytes.

    A value without a blank has no scheme before its credential, so it stays as it is.
    """
    parts = _scheme_and_rest(value)
    return value if parts is None else parts[1].lower() + b" " + parts[2]
