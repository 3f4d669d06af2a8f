"""The first bytes of a connection that is no HTTP/1: what the client speaks instead."""

from proxy.http.refusal import Refusal, RefusalReason

_PREFACE = b"PRI * HTTP/2.0\r\n"
"""The first line that every HTTP/2 client sends (RFC 9113 3.4)."""

_MALFORMED = Refusal(RefusalReason.BAD_REQUEST, "The request line is malformed.", close=True)
_HTTP2 = Refusal(
    RefusalReason.VERSION,
    "This is HTTP/2. Use HTTP/1.1 here.",
    close=True,
    cause="http2_preface",
)
# In plain text: a TLS client reports a wrong version, which people know as this very mistake. An
# alert would speak of versions of TLS, none of which is spoken here.
_TLS = Refusal(
    RefusalReason.BAD_REQUEST,
    "This is TLS, and TLS is not spoken on this port. Use http:// in place of https://.",
    close=True,
    cause="tls_on_plain_port",
)


def is_tls_hello(start: bytes) -> bool:
    """Whether *start* begins a TLS handshake: a record of type 22, of any version 3.x."""
    return start[:2] == b"\x16\x03"


def refusal_of(start: bytes) -> Refusal:
    """Return the answer to a connection that begins with *start*, which is no request line."""
    if is_tls_hello(start):
        return _TLS
    return _HTTP2 if start.startswith(_PREFACE) else _MALFORMED
