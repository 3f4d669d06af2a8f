"""The text of a request as it goes to an upstream: the same bytes for every attempt."""

from proxy.http.framing import CHUNKED
from proxy.http.header_edits import CompiledEdits
from proxy.http.request_head import RequestHead

_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


def lines_after_host(  # noqa: PLR0917 - a call per request: names would cost more than they tell
    method: str,
    head: RequestHead,
    edits: CompiledEdits | None,
    length: int | None,
    identity: bytes,
    id_line: bytes,
    *,
    upgrade: bool,
) -> bytes:
    """Write everything after the Host field, up to the empty line that ends the head.

    *length* is that of the body, None without a body. *identity* are the lines that tell the
    upstream who the client is, *id_line* is the request's id as a field. With *upgrade* the
    request asks for another protocol.
    """
    lines = head.lines
    if method == "OPTIONS" and head.max_forwards is not None:
        lines = head.lines_without(frozenset({b"max-forwards"}))
        lines.append(b"Max-Forwards: %d" % (head.max_forwards - 1))
    framing: tuple[bytes, ...] = ()
    if length == CHUNKED:
        framing = (b"Transfer-Encoding: chunked",)
    elif length is not None:
        framing = (b"Content-Length: %d" % length,)
    elif upgrade:
        framing = (b"Connection: Upgrade", b"Upgrade: websocket")
    elif method in _METHODS_WITH_BODY:
        # RFC 9110 8.6: a method that usually has a body says that it has none.
        framing = (b"Content-Length: 0",)
    if edits is None:
        ours: tuple[bytes, ...] = (identity, id_line)
    else:
        lines = edits.apply([*lines, *identity.split(b"\r\n"), id_line])
        ours = ()
    # A list: of unpacked parts Python makes a tuple from a list, which would be one more copy.
    return b"\r\n".join([*lines, *framing, head.via_line, *ours, b"", b""])
