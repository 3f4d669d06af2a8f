"""Header fields: which end at this hop, which stay, and when two values mean the same caller.

RFC 9110 7.6.1: an intermediary removes ``Connection``, every field that it
names, and the fields known to concern one connection only.

Values that tell callers apart count byte for byte. Of credentials alone the scheme has no case
(RFC 9110 11.1), and the blanks behind it count as one: ``bearer  x`` and ``Bearer x`` are one
caller. Else a caller would get another limit, or another name-space for its idempotency keys,
for each spelling.
"""

import re
from collections.abc import Iterable

RawHeaders = tuple[tuple[bytes, bytes], ...]
"""Header fields as they were received: names and values."""

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        # RFC 9110 11.7: proxy credentials are for the next proxy, and that is us.
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        # RFC 7540 3.2.1; an h2c upgrade is never relayed.
        b"http2-settings",
    }
)

# A sender must not list end-to-end fields in Connection (RFC 9110 7.6.1), so
# ignoring such an option is right, and stops the trick of stripping a caller's
# credentials or key on the way.
PROTECTED = frozenset(
    {
        b"authorization",
        b"content-length",
        b"content-type",
        b"cookie",
        b"forwarded",
        b"host",
        b"idempotency-key",
        b"traceparent",
        b"tracestate",
        b"via",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-request-id",
    }
)

# What Connection nearly always holds: these name no field that could be there.
_PLAIN_OPTIONS = frozenset({b"", b"close", b"keep-alive"})


def nominated(
    connection_values: Iterable[bytes], protected: frozenset[bytes] = PROTECTED
) -> frozenset[bytes]:
    """Names of the fields that *Connection* takes away, in lower case; never *protected* ones."""
    names: set[bytes] = set()
    for value in connection_values:
        options = value.lower()
        if options not in _PLAIN_OPTIONS:
            names.update(option.strip(b" \t") for option in options.split(b","))
    return frozenset(names - protected - _PLAIN_OPTIONS)


def has_option(connection_values: Iterable[bytes], option: bytes) -> bool:
    """Whether *Connection* holds exactly this option, not merely as a part of one."""
    return any(
        option == token.strip(b" \t")
        for value in connection_values
        for token in value.lower().split(b",")
    )


CREDENTIALS = frozenset({b"authorization", b"proxy-authorization"})
"""Fields whose value begins with a scheme, in lower case."""

_scheme_and_rest = re.compile(rb"([^ \t]+)[ \t]+(.+)", re.DOTALL).fullmatch


def comparable_credentials(value: bytes) -> bytes:
    """Give all spellings of one credential the same bytes.

    A value without a blank has no scheme before its credential, so it stays as it is.
    """
    parts = _scheme_and_rest(value)
    return value if parts is None else parts[1].lower() + b" " + parts[2]
