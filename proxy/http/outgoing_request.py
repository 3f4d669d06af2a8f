"""The text of a request as it goes to an upstream: the same bytes for every attempt."""

from proxy.http.framing import CHUNKED
from proxy.http.header_edits import CompiledEdits
from proxy.http.request_head import RequestHead

_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


def lines_after_host(  # noqa: PLR0917 - a call per request: names would cost more than they tell
    method: str,
    head: RequestHead,
    edits: CompiledEdits | None,
    framing: tuple[bytes, ...],
    identity: bytes,
    id_line: bytes,
    version: bytes,
) -> bytes:
    """Write everything after the Host field, up to the empty line that ends the head.

    *identity* are the lines that tell the upstream who the client is, *id_line* is the request's
    id as a field, *version* the HTTP version of the client's request.
    """
    lines = head.lines
    if method == "OPTIONS" and head.max_forwards is not None:
        lines = head.lines_without(frozenset({b"max-forwards"}))
        lines.append(b"Max-Forwards: %d" % (head.max_forwards - 1))
    if edits is None:
        ours: tuple[bytes, ...] = (identity, id_line)
    else:
        lines = edits.apply([*lines, *identity.split(b"\r\n"), id_line])
        ours = ()
    # speed: Python makes a tuple of unpacked parts from a list, so the list saves a copy
    return b"\r\n".join([*lines, *framing, head.via_line(version), *ours, b"", b""])


def framing_lines(method: str, length: int | None, *, upgrade: bool) -> tuple[bytes, ...]:
    """Return the fields that frame the body; *length* is None without a body."""
    if length is None:
        if upgrade:
            return (b"Connection: Upgrade", b"Upgrade: websocket")
        # RFC 9110 8.6: a method that usually has a body says that it has none.
        return (b"Content-Length: 0",) if method in _METHODS_WITH_BODY else ()
    if length != CHUNKED:
        return (b"Content-Length: %d" % length,)
    return (b"Transfer-Encoding: chunked",)
