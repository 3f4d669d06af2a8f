"""Header fields that end at this hop, and fields that nobody may take away.

RFC 9110 7.6.1: an intermediary removes ``Connection``, every field that it
names, and the fields known to concern one connection only.
"""

from collections.abc import Iterable

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
