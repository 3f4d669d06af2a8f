"""From the header fields of an upstream's response to what the client may get.

httptools refuses what is malformed; what it lets through and a client could
read differently is refused here, as a response that breaks HTTP. Bodies that
must not be there (HEAD, 204, 304, 205) are settled here too, once.
"""

import re

from proxy.policy.fields import HOP_BY_HOP, PSEUDONYM, has_option, nominated
from proxy.policy.framing import CHUNKED, UNTIL_CLOSE

(
    _DROP,
    _CONNECTION,
    _CONTENT_LENGTH,
    _TRANSFER_ENCODING,
    _KEEP_ALIVE,
    _VIA,
    _DATE,
) = range(7)

_FIELDS: dict[bytes, int] = {
    **dict.fromkeys(HOP_BY_HOP, _DROP),
    b"connection": _CONNECTION,
    b"content-length": _CONTENT_LENGTH,
    b"transfer-encoding": _TRANSFER_ENCODING,
    b"keep-alive": _KEEP_ALIVE,
    b"via": _VIA,
    b"date": _DATE,
    # The request's own id goes back; an echo of it would stand there twice.
    b"x-request-id": _DROP,
}

_KEEP_ALIVE_TIMEOUT = re.compile(rb"(?:^|[,;\s])timeout\s*=\s*(\d{1,6})", re.IGNORECASE)
_VIA_NAME = b" " + PSEUDONYM.encode()
_NO_CONTENT = 204
_RESET_CONTENT = 205
_NOT_MODIFIED = 304


class BadResponse(Exception):
    """The upstream's response breaks HTTP; the argument says how, for the log."""


class ResponseHead:
    """The head of an upstream's final response, ready to be relayed."""

    __slots__ = (
        "content_length",
        "has_body",
        "has_date",
        "keep_alive_timeout",
        "length",
        "lines",
        "raw",
        "reason",
        "reusable",
        "status",
        "via",
    )

    def __init__(self, status: int, reason: bytes, raw: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.reason = reason
        self.raw = raw
        """Header fields as received."""
        self.lines: list[bytes] = []
        """End-to-end fields, each with its CRLF; no length, no Via."""
        self.content_length = -1
        """As announced; -1 if it was not. HEAD and 304 pass it on without a body."""
        self.length = UNTIL_CLOSE
        """Bytes of body that will come, or CHUNKED, or UNTIL_CLOSE."""
        self.has_body = True
        """Whether the client gets a body at all."""
        self.via = b""
        self.has_date = False
        self.reusable = True
        """Whether the connection may carry another request afterwards."""
        self.keep_alive_timeout: float | None = None
        """Seconds after which the upstream itself closes an idle connection."""

    def lines_without(self, names: frozenset[bytes]) -> list[bytes]:
        """The end-to-end lines, less the fields called *names*."""
        return [line for line in self.lines if line[: line.index(b":")].lower() not in names]

    def via_line(self) -> bytes:
        """Our Via, after those of the hops behind us."""
        return b"Via: %b\r\n" % (
            self.via + b", 1.1" + _VIA_NAME if self.via else b"1.1" + _VIA_NAME
        )


def read_response_head(
    method: str, version: str, status: int, reason: bytes, raw: list[tuple[bytes, bytes]]
) -> ResponseHead:
    """Sort the fields of a response; raises :class:`BadResponse`."""
    if version not in ("1.1", "1.0"):
        raise BadResponse("version")
    head = ResponseHead(status, reason, raw)
    keep = head.lines.append
    connection: list[bytes] = []
    transfer_encoding: list[bytes] = []
    for name, value in raw:
        field = _FIELDS.get(name.lower())
        if field is None:
            keep(name + b": " + value + b"\r\n")
        elif field == _DATE:
            head.has_date = True
            keep(name + b": " + value + b"\r\n")
        elif field == _CONTENT_LENGTH:
            # The parser refuses these as well; a length is worth a second look.
            if head.content_length != -1 or not value.isdigit():
                raise BadResponse("content-length")
            head.content_length = int(value)
        elif field == _CONNECTION:
            if value != b"keep-alive":  # which says nothing
                connection.append(value)
        elif field == _KEEP_ALIVE:
            found = _KEEP_ALIVE_TIMEOUT.search(value)
            head.keep_alive_timeout = float(found[1]) if found else None
        elif field == _TRANSFER_ENCODING:
            transfer_encoding.append(value)
        elif field == _VIA:
            head.via = head.via + b", " + value if head.via else value
    if connection:
        dropped = nominated(connection)
        if dropped:
            head.lines = head.lines_without(dropped)
        head.reusable = not has_option(connection, b"close")
    if version == "1.0":
        # Keep-alive in 1.0 was never standardised (RFC 9112 C.2.2).
        head.reusable = False
    _frame(head, method, version, transfer_encoding)
    return head


def _frame(head: ResponseHead, method: str, version: str, transfer_encoding: list[bytes]) -> None:
    """Settle how long the body is (RFC 9112 6.3, in its order)."""
    if transfer_encoding and (
        len(transfer_encoding) > 1
        or transfer_encoding[0].lower() != b"chunked"
        or version == "1.0"
        or head.content_length != -1
    ):
        raise BadResponse("transfer-encoding")
    if method == "HEAD" or head.status == _NOT_MODIFIED:
        head.has_body = False
        head.length = 0
    elif head.status == _NO_CONTENT:
        head.has_body = False
        head.length = 0
        head.content_length = -1
    elif transfer_encoding:
        head.length = CHUNKED
    elif head.content_length != -1:
        head.length = head.content_length
    if head.status == _RESET_CONTENT and head.has_body:
        # RFC 9110 15.3.6: no content. What comes all the same is read and dropped.
        head.has_body = False
        head.content_length = 0
    if head.length == UNTIL_CLOSE:
        head.reusable = False
