"""From the head of an upstream's response to what the client may get.

httptools has refused what is malformed in itself; what it lets through and a
client could read differently is refused here, as a response that breaks HTTP.
Bodies that must not be there (HEAD, 204, 304, 205) are settled here too, once.

The loop runs for every response, hence its plainness: one dictionary look-up
per field decides, and a line that means nothing to us goes on as it came.
"""

import re

from proxy.policy.fields import HOP_BY_HOP, OUR_VIA, PSEUDONYM, has_option, nominated
from proxy.policy.framing import CHUNKED, UNTIL_CLOSE
from proxy.policy.results import KeptResponse
from proxy.policy.status_lines import USUAL, status_line

MOST_FIELDS = 1000

# What a field means to us. Plain numbers: this is looked up for every field of
# every response.
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
    # How many attempts there were is for us to say.
    b"holdfast-attempts": _DROP,
    # And so is what became of the request.
    b"holdfast-dead-letter": _DROP,
}

_keep_alive_timeout = re.compile(rb"(?:^|[,;\s])timeout\s*=\s*(\d{1,6})", re.IGNORECASE).search
_NO_CONTENT = 204
_RESET_CONTENT = 205
_NOT_MODIFIED = 304


class BadResponse(Exception):
    """The upstream's response breaks HTTP; the argument says how."""


class ResponseHead:
    """The head of an upstream's final response, ready to be relayed."""

    __slots__ = (
        "content_length",
        "has_body",
        "has_date",
        "keep_alive_timeout",
        "length",
        "lines",
        "reusable",
        "status",
        "via",
    )

    def __init__(self, status: int, first_line: bytes) -> None:
        self.status = status
        self.lines = [first_line]
        """The status line and the end-to-end fields; no length and no Via."""
        self.content_length = -1
        """As announced; -1 if it was not. HEAD and 304 pass it on without a body."""
        self.length = UNTIL_CLOSE
        """Bytes of body that will come, or CHUNKED, or UNTIL_CLOSE."""
        self.has_body = True
        """Whether the client gets a body at all."""
        self.via: list[bytes] = []
        self.has_date = False
        self.reusable = True
        """Whether the connection may carry another request afterwards."""
        self.keep_alive_timeout: float | None = None
        """Seconds after which the upstream itself closes an idle connection."""

    def via_line(self) -> bytes:
        """Our Via, after those of the hops behind us."""
        if not self.via:
            return OUR_VIA
        return b"Via: %b, 1.1 %b" % (b", ".join(self.via), PSEUDONYM.encode())


def read_response_head(method: str, status: int, head: bytes) -> ResponseHead:  # noqa: C901, PLR0912 - one flat pass is the point; see the module's text
    """Sort the fields of *head*, the response up to its empty line, to a request by *method*.

    The parser has checked the grammar. Raises :class:`BadResponse`.
    """
    lines = head.split(b"\r\n")
    if len(lines) > MOST_FIELDS:
        raise BadResponse("fields without end")
    first = lines.pop(0)
    is_1_1 = True
    if first not in USUAL:
        is_1_1 = _is_version_1_1(first)
        first = status_line(status, first[13:])
    result = ResponseHead(status, first)
    keep = result.lines.append
    connection: list[bytes] = []
    transfer_encoding: list[bytes] = []
    for line in lines:
        name, _, value = line.partition(b":")
        field = _FIELDS.get(name.lower())
        if field is None:
            keep(line)
        elif field == _DATE:
            result.has_date = True
            keep(line)
        elif field == _CONTENT_LENGTH:
            value = value.strip(b" \t")
            # The parser refuses these as well; a length is worth a second look.
            if result.content_length != -1 or not value.isdigit():
                raise BadResponse("content-length")
            result.content_length = int(value)
        elif field == _CONNECTION:
            if value != b" keep-alive":  # which says nothing
                connection.append(value)
        elif field == _KEEP_ALIVE:
            found = _keep_alive_timeout(value)
            result.keep_alive_timeout = float(found[1]) if found else None
        elif field == _TRANSFER_ENCODING:
            transfer_encoding.append(value.strip(b" \t").lower())
        elif field == _VIA:
            result.via.append(value.strip(b" \t"))
    if connection:
        _apply_connection(result, connection)
    if not is_1_1:
        # Keep-alive in 1.0 was never standardised (RFC 9112 C.2.2).
        result.reusable = False
    if transfer_encoding:
        if transfer_encoding != [b"chunked"] or not is_1_1 or result.content_length != -1:
            raise BadResponse("transfer-encoding")
        result.length = CHUNKED
    elif result.content_length >= 0:
        result.length = result.content_length
    if status in _SPECIAL or method == "HEAD":
        _take_body_away(result, method)
    if result.length == UNTIL_CLOSE:
        result.reusable = False
    return result


def kept_head(response: KeptResponse) -> ResponseHead:
    """The head of a response that was kept, for a duplicate of its request."""
    status = response.status
    head = ResponseHead(status, b"")
    head.lines = [*response.head.split(b"\r\n"), b"Idempotent-Replayed: true"]
    head.has_date = True  # the time of the first: it tells how old the result is
    head.has_body = status not in _SPECIAL
    if head.has_body or status == _RESET_CONTENT:
        head.content_length = len(response.body)
    return head


def _apply_connection(head: ResponseHead, connection: list[bytes]) -> None:
    dropped = nominated(connection)
    if dropped:
        first, *fields = head.lines
        fields = [line for line in fields if line.partition(b":")[0].lower() not in dropped]
        head.lines = [first, *fields]
    head.reusable = not has_option(connection, b"close")


def _is_version_1_1(first_line: bytes) -> bool:
    version = first_line[:8]
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadResponse("version")
    return version == b"HTTP/1.1"


_SPECIAL = frozenset({_NO_CONTENT, _RESET_CONTENT, _NOT_MODIFIED})


def _take_body_away(head: ResponseHead, method: str) -> None:
    """What these promise in their fields, they do not bring (RFC 9112 6.3)."""
    head.has_body = False
    if head.status == _RESET_CONTENT and method != "HEAD":
        # RFC 9110 15.3.6: no content. What comes all the same is not waited for: the
        # client has its answer, and would find its next request stuck behind the rest.
        head.content_length = 0
        if head.length != 0:
            head.reusable = False
    head.length = 0
    if head.status == _NO_CONTENT:
        head.content_length = -1
