"""The head of an upstream's response: its header fields are sorted into what the client may get.

httptools has refused what is malformed in itself; what it lets through and a
client could read differently is refused here, as a response that breaks HTTP.
Whether a body may follow at all (HEAD, 204, 304, 205) is decided here too, once.

This runs for every response. One regular expression cuts out the few fields that
mean something to the proxy, and all between them is relayed as received: with five fields
that takes half the time of a loop over them, with twenty a third.
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from proxy.http.fields import HOP_BY_HOP, has_option, nominated
from proxy.http.framing import CHUNKED, LONGEST, UNTIL_CLOSE
from proxy.http.hop import Hop

STATUS_LINES = {s.value: b"HTTP/1.1 %d %b\r\n" % (s, s.phrase.encode()) for s in HTTPStatus}
"""By status, the line with the standard reason phrase: nearly every response begins with it."""

_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}

# RFC 9112 4: blanks, visible characters and bytes above ASCII.
_is_reason = re.compile(rb"[\t \x21-\x7e\x80-\xff]+").fullmatch


def status_line(status: int, reason: bytes) -> bytes:
    """Write a status line; with the standard reason phrase if *reason* is not a valid one."""
    return b"HTTP/1.1 %d %b" % (status, reason if _is_reason(reason) else _PHRASES.get(status, b""))


class KeptResponse(NamedTuple):
    """An upstream's response that was kept under an idempotency key, to answer duplicates."""

    status: int
    head: bytes
    """The status line and the end-to-end fields, without a length, as lines of HTTP."""
    body: bytes | memoryview
    """A view of the stored bytes where they were unpacked: a large body is not copied for each
    duplicate."""


MOST_FIELDS = 1000
_LEAST_SIZE_OF_MOST_FIELDS = MOST_FIELDS * len("a:\r\n")
_NEVER = b"\r"
"""No head begins with this."""

# What a field means to the proxy.
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
    # The proxy adds the request's id itself; an upstream's echo of it would be a second one.
    b"x-request-id": _DROP,
    # Only this proxy says how many attempts it made,
    b"holdfast-attempts": _DROP,
    # and whether the request became a dead letter.
    b"holdfast-dead-letter": _DROP,
}

_NAMES = b"|".join(re.escape(name) for name in sorted(_FIELDS))
_BEGINNINGS = bytes({letter for name in _FIELDS for letter in (name[0], name.upper()[0])})
_cut_out = re.compile(
    rb"\r\n(?=[%b])(%b):[ \t]*([^\r]*)" % (_BEGINNINGS, _NAMES), re.IGNORECASE
).split
"""Split a head at the fields of ``_FIELDS``; the text between alternates with names and values.

The look-ahead is there for speed: one letter tells most other fields from these."""

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
        """Content-Length as received; -1 without one. HEAD and 304 pass it on without a body."""
        self.length = UNTIL_CLOSE
        """Bytes of body that will come from the upstream, or CHUNKED, or UNTIL_CLOSE."""
        self.has_body = True
        """Whether the client gets a body at all."""
        self.via: list[bytes] = []
        self.has_date = False
        self.reusable = True
        """Whether the upstream connection may carry another request afterwards."""
        self.keep_alive_timeout: float | None = None
        """Seconds after which the upstream itself closes an idle connection."""

    def fields(self) -> list[bytes]:
        """Return the end-to-end fields, a line each."""
        return self.text.split(b"\r\n")[1:]

    def add(self, field: bytes) -> None:
        """Append one field, given as a line."""
        self.text += b"\r\n" + field

    def via_line(self, hop: Hop) -> bytes:
        """Write the Via field of a response that has passed other hops: this one is the last."""
        return b"Via: %b, 1.1 %b" % (b", ".join(self.via), hop.name)


def read_response_head(method: str, status: int, head: bytes) -> ResponseHead:  # noqa: C901, PLR0912 - one flat pass is the point; see the module's text
    """Sort the fields of *head*, the response to a *method* request up to its empty line.

    The parser has checked the grammar. Raises :class:`BadResponse`.
    """
    if len(head) > _LEAST_SIZE_OF_MOST_FIELDS and head.count(b"\r\n") > MOST_FIELDS:
        raise BadResponse("fields without end")
    parts = _cut_out(head)
    text = b"".join(parts[::3])
    is_1_1 = True
    if not head.startswith(STATUS_LINES.get(status, _NEVER)):
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
            # The parser refuses these too; a length is worth a second check.
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
        _forbid_body(result, method)
    # Keep-alive in 1.0 was never standardised (RFC 9112 C.2.2).
    if result.length == UNTIL_CLOSE or not is_1_1:
        result.reusable = False
    return result


def kept_head(response: KeptResponse) -> ResponseHead:
    """Make the head of a kept response, for a duplicate of its request."""
    status = response.status
    head = ResponseHead(status, response.head)
    head.add(b"Idempotent-Replayed: true")
    head.has_date = True  # of the first response: it tells how old the result is
    head.has_body = status not in _SPECIAL
    if head.has_body or status == _RESET_CONTENT:
        head.content_length = len(response.body)
    return head


def own_head(method: str, status: int, fields: Iterable[bytes], length: int) -> ResponseHead:
    """Make the head of a response of the proxy's own to a *method* request, a line per field.

    It goes the way of any response: an idempotency key keeps it, and the route edits it.
    """
    head = ResponseHead(status, b"\r\n".join((status_line(status, b""), *fields)))
    head.content_length = length
    head.has_body = method != "HEAD"
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


def _forbid_body(head: ResponseHead, method: str) -> None:
    """Let no body follow a response that must not have one, whatever its fields say (RFC 9112 6.3).

    Some upstreams send a body all the same, and later than the head. By then the connection could
    carry another client's request, and the body would be taken for its response. So a connection
    on which a forbidden body was announced is not reused. A proper response to HEAD announces one
    as well and cannot be told from the others: it costs a connection, unless it has
    Content-Length: 0.
    """
    head.has_body = False
    # 204 and 304 say by their status alone that no body follows.
    has_no_length = head.length == UNTIL_CLOSE and head.status in (_NO_CONTENT, _NOT_MODIFIED)
    if head.length != 0 and not has_no_length:
        head.reusable = False
    if head.status == _RESET_CONTENT and method != "HEAD":
        # RFC 9110 15.3.6: no content. A body that comes all the same is not waited for: the
        # client has its answer, and its next request would be stuck behind the body.
        head.content_length = 0
    head.length = 0
    if head.status == _NO_CONTENT:
        head.content_length = -1
