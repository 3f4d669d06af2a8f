"""From the head of an upstream's response to what the client may get.

httptools has refused what is malformed in itself; what it lets through and a
client could read differently is refused here, as a response that breaks HTTP.
Bodies that must not be there (HEAD, 204, 304, 205) are settled here too, once.

This runs for every response. One regular expression cuts out the few fields that
mean something to us, and all between them goes on as it came: with five fields that
takes half the time of a loop over them, with twenty a third.
"""

import re
from typing import NamedTuple

from proxy.http.fields import HOP_BY_HOP, has_option, nominated
from proxy.http.framing import CHUNKED, LONGEST, UNTIL_CLOSE
from proxy.http.hop import Hop
from proxy.http.status_lines import USUAL, status_line


class KeptResponse(NamedTuple):
    """What an upstream answered."""

    status: int
    head: bytes
    """The status line and the end-to-end fields, without a length, as lines of HTTP."""
    body: bytes | memoryview
    """Where it was unpacked, a view of the packed bytes: large ones are not copied for each."""


MOST_FIELDS = 1000
_ROOM_FOR_MOST_FIELDS = MOST_FIELDS * len("a:\r\n")
_NEVER = b"\r"
"""What no head begins with."""

# What a field means to us.
(
    _DROP,
    _CONNECTION,
    _CONTENT_LENGTH,
    _TRANSFER_ENCODING,
    _KEEP_ALIVE,
    _VIA,
) = range(6)

_FIELDS: dict[bytes, int] = {
    **dict.fromkeys(HOP_BY_HOP, _DROP),
    b"connection": _CONNECTION,
    b"content-length": _CONTENT_LENGTH,
    b"transfer-encoding": _TRANSFER_ENCODING,
    b"keep-alive": _KEEP_ALIVE,
    b"via": _VIA,
    # The request's own id goes back; an echo of it would stand there twice.
    b"x-request-id": _DROP,
    # How many attempts there were is for us to say.
    b"holdfast-attempts": _DROP,
    # And so is what became of the request.
    b"holdfast-dead-letter": _DROP,
}

_NAMES = b"|".join(re.escape(name) for name in sorted(_FIELDS))
_BEGINNINGS = bytes({letter for name in _FIELDS for letter in (name[0], name.upper()[0])})
_cut_out = re.compile(
    rb"\r\n(?=[%b])(%b):[ \t]*([^\r]*)" % (_BEGINNINGS, _NAMES), re.IGNORECASE
).split
"""What is left before, between and behind our fields, and in between their names and values.

The look-ahead is there for speed: most fields are told from ours by one letter."""

_tells_date = re.compile(rb"\r\ndate:", re.IGNORECASE).search
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
        "reusable",
        "status",
        "text",
        "via",
    )

    def __init__(self, status: int, text: bytes) -> None:
        self.status = status
        self.text = text
        """The status line and the end-to-end fields, as lines of HTTP; no length and no Via."""
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

    def fields(self) -> list[bytes]:
        """The end-to-end fields, a line each."""
        return self.text.split(b"\r\n")[1:]

    def add(self, field: bytes) -> None:
        """One more field."""
        self.text += b"\r\n" + field

    def via_line(self, hop: Hop) -> bytes:
        """Our Via, after those of the hops behind us."""
        if not self.via:
            return hop.via
        return b"Via: %b, 1.1 %b" % (b", ".join(self.via), hop.name)


def read_response_head(method: str, status: int, head: bytes) -> ResponseHead:  # noqa: C901, PLR0912 - one flat pass is the point; see the module's text
    """Sort the fields of *head*, the response up to its empty line, to a request by *method*.

    The parser has checked the grammar. Raises :class:`BadResponse`.
    """
    if len(head) > _ROOM_FOR_MOST_FIELDS and head.count(b"\r\n") > MOST_FIELDS:
        raise BadResponse("fields without end")
    parts = _cut_out(head)
    text = b"".join(parts[::3])
    is_1_1 = True
    if not head.startswith(USUAL.get(status, _NEVER)):
        first = head.partition(b"\r\n")[0]
        is_1_1 = _is_version_1_1(first)
        text = status_line(status, first[13:]) + text[len(first) :]
    result = ResponseHead(status, text)
    result.has_date = _tells_date(text) is not None
    connection: list[bytes] = []
    transfer_encoding: list[bytes] = []
    for at in range(1, len(parts), 3):
        field, value = _FIELDS[parts[at].lower()], parts[at + 1]
        if field == _CONTENT_LENGTH:
            if not value.isdigit():
                value = value.strip(b" \t")
            # The parser refuses these as well; a length is worth a second look.
            if result.content_length != -1 or not value.isdigit():
                raise BadResponse("content-length")
            result.content_length = int(value)
            if result.content_length > LONGEST:
                raise BadResponse("content-length")
        elif field == _CONNECTION:
            if value != b"keep-alive":  # which says nothing
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
    if transfer_encoding:
        if transfer_encoding != [b"chunked"] or not is_1_1 or result.content_length != -1:
            raise BadResponse("transfer-encoding")
        result.length = CHUNKED
    elif result.content_length >= 0:
        result.length = result.content_length
    if status in _SPECIAL or method == "HEAD":
        _take_body_away(result, method)
    # Keep-alive in 1.0 was never standardised (RFC 9112 C.2.2).
    if result.length == UNTIL_CLOSE or not is_1_1:
        result.reusable = False
    return result


def kept_head(response: KeptResponse) -> ResponseHead:
    """The head of a response that was kept, for a duplicate of its request."""
    status = response.status
    head = ResponseHead(status, response.head)
    head.add(b"Idempotent-Replayed: true")
    head.has_date = True  # the time of the first: it tells how old the result is
    head.has_body = status not in _SPECIAL
    if head.has_body or status == _RESET_CONTENT:
        head.content_length = len(response.body)
    return head


def _apply_connection(head: ResponseHead, connection: list[bytes]) -> None:
    dropped = nominated(connection)
    if dropped:
        first, *fields = head.text.split(b"\r\n")
        fields = [line for line in fields if line.partition(b":")[0].lower() not in dropped]
        head.text = b"\r\n".join((first, *fields))
    head.reusable = not has_option(connection, b"close")


def _is_version_1_1(first_line: bytes) -> bool:
    version = first_line[:8]
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadResponse("version")
    return version == b"HTTP/1.1"


_SPECIAL = frozenset({_NO_CONTENT, _RESET_CONTENT, _NOT_MODIFIED})


def _take_body_away(head: ResponseHead, method: str) -> None:
    """What these promise in their fields, they do not bring (RFC 9112 6.3).

    Some upstreams bring it all the same, and later than the head. By then the connection could
    carry another client's request, and the body would be its response. So whoever announces a
    body that must not come has spoken its last on this connection. A HEAD that is answered
    properly announces one as well and cannot be told from the others: it costs a connection,
    unless its response has Content-Length: 0.
    """
    head.has_body = False
    # 204 and 304 say by their status alone that nothing follows.
    has_no_length = head.length == UNTIL_CLOSE and head.status in (_NO_CONTENT, _NOT_MODIFIED)
    if head.length != 0 and not has_no_length:
        head.reusable = False
    if head.status == _RESET_CONTENT and method != "HEAD":
        # RFC 9110 15.3.6: no content. What comes all the same is not waited for: the
        # client has its answer, and would find its next request stuck behind the rest.
        head.content_length = 0
    head.length = 0
    if head.status == _NO_CONTENT:
        head.content_length = -1
