"""Header fields: hop-by-hop and end-to-end ones, and when two values mean the same caller.

RFC 9110 7.6.1: an intermediary removes ``Connection``, every field that it
names, and the fields known to concern one connection only.

Values that tell callers apart are compared byte for byte. Only the scheme of a credential is
case-insensitive (RFC 9110 11.1), and the blanks after it count as one: ``bearer  x`` and
``Bearer x`` are one caller. Otherwise a caller would get another rate limit, or another
name-space for its idempotency keys, with each spelling.
"""

import re
from collections.abc import Iterable

RawHeaders = tuple[tuple[bytes, bytes], ...]
"""Header fields as received: pairs of name and value."""

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        # RFC 9110 11.7: proxy credentials are for the next proxy, which is this one.
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        # RFC 7540 3.2.1; an h2c upgrade is never relayed.
        b"http2-settings",
    }
)

# A sender must not list end-to-end fields in Connection (RFC 9110 7.6.1), so
# ignoring such an option is right, and stops the attack that strips a caller's
# credentials or idempotency key on the way.
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

# The usual values of Connection: they name no field that could be in the head.
_PLAIN_OPTIONS = frozenset({b"", b"close", b"keep-alive"})


def nominated(
    connection_values: Iterable[bytes], protected: frozenset[bytes] = PROTECTED
) -> frozenset[bytes]:
    """Return the names that *Connection* nominates for removal, in lower case.

    *protected* names are never among them.
    """
    names: set[bytes] = set()
    for value in connection_values:
        options = value.lower()
        if options not in _PLAIN_OPTIONS:
            names.update(option.strip(b" \t") for option in options.split(b","))
    return frozenset(names - protected - _PLAIN_OPTIONS)


def has_option(connection_values: Iterable[bytes], option: bytes) -> bool:
    """Whether *Connection* lists exactly this option, not merely as a part of another."""
    return any(
        option == token.strip(b" \t")
        for value in connection_values
        for token in value.lower().split(b",")
    )


CREDENTIALS = frozenset({b"authorization", b"proxy-authorization"})
"""Names, in lower case, of fields whose value begins with an authentication scheme."""

_scheme_and_rest = re.compile(rb"([^ \t]+)[ \t]+(.+)", re.DOTALL).fullmatch


def comparable_credentials(value: bytes) -> bytes:
    """Normalise a credential, so that all its spellings give the same bytes.

    A value without a blank has no scheme before its credential and is returned unchanged.
    """
    parts = _scheme_and_rest(value)
    return value if parts is None else parts[1].lower() + b" " + parts[2]
