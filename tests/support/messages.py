"""HTTP/1.1 as strictly as it can be read: the judge of what the proxy writes.

It shares no code with the proxy and knows no leniency. One spelling of each
message is accepted, the canonical one; everything else raises
:class:`NotCanonical`. So whatever two recipients could read in two ways fails
the test in which it occurs.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.virtual import now
from tests.support.wire import Wire, WireEnded

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_request_line = re.compile(rf"({_TOKEN}) ([\x21-\x7e\x80-\xff]+) HTTP/1\.1").fullmatch
_status_line = re.compile(r"HTTP/1\.1 ([1-9][0-9]{2}) ([\x20-\x7e\t\x80-\xff]*)").fullmatch
_VALUE = r"((?:[\x21-\x7e\x80-\xff](?:[\x20-\x7e\t\x80-\xff]*[\x21-\x7e\x80-\xff])?)?)"
_canonical_field = re.compile(rf"({_TOKEN}): {_VALUE}").fullmatch
# Blanks around a response's value may stay as the upstream wrote them: nobody takes
# them for a part of it (RFC 9112 5).
_response_field = re.compile(rf"({_TOKEN}):[ \t]*{_VALUE}[ \t]*").fullmatch
_length = re.compile(r"0|[1-9][0-9]{0,17}").fullmatch
_chunk_size = re.compile(rb"(0|[1-9a-f][0-9a-f]{0,15})\r\n", re.IGNORECASE).fullmatch

_ONCE_AT_MOST = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "date",
        "host",
        "transfer-encoding",
        "upgrade",
        "x-request-id",
    }
)
_NO_BODY = frozenset({204, 304})

Framing = Literal["none", "length", "chunked", "close"]


class NotCanonical(AssertionError):
    """A message that somebody could read differently."""


@dataclass(slots=True)
class Message:
    """What requests and responses have in common."""

    raw_head: bytes
    """Start line and fields with the empty line, as they came."""
    headers: list[tuple[str, str]]
    framing: Framing = "none"
    body: bytes = b""
    complete: bool = False
    """Whether the body came to its proper end."""

    def get(self, name: str) -> str | None:
        """The value of a field that is there once at most."""
        values = self.all(name)
        assert len(values) < 2, f"{name} is there {len(values)} times"
        return values[0] if values else None

    def all(self, name: str) -> list[str]:
        """The values of a field in their order."""
        return [value for field_name, value in self.headers if field_name.lower() == name.lower()]

    @property
    def names(self) -> set[str]:
        """Names of all fields, in lower case."""
        return {name.lower() for name, _ in self.headers}


@dataclass(slots=True)
class Request(Message):
    """A request as an upstream saw it."""

    method: str = ""
    target: str = ""
    connection: int = 0
    """Which of the upstream's connections it came on, counted from 1."""
    at: float = field(default_factory=now)
    """When its head was complete."""


@dataclass(slots=True)
class Response(Message):
    """A response as a client saw it."""

    status: int = 0
    reason: str = ""
    interim: list[int] = field(default_factory=list)
    """Statuses of the 1xx responses before it."""

    @property
    def problem(self) -> dict[str, Any]:
        """The body of an answer that the proxy made itself; checks that it is one."""
        assert self.get("Content-Type") == "application/problem+json", self.raw_head
        assert self.get("Cache-Control") == "no-store"
        assert (self.get("Proxy-Status") or "").startswith("holdfast; error=")
        found: dict[str, Any] = json.loads(self.body)
        assert found["status"] == self.status
        assert found["type"].startswith("urn:holdfast:problem:")
        assert found["title"]
        assert found["detail"]
        return found

    @property
    def reason_word(self) -> str:
        """The reason of an answer that the proxy made itself: ``no_route`` and its kin."""
        kind: str = self.problem["type"]
        return kind.removeprefix("urn:holdfast:problem:")


async def read_request_head(wire: Wire) -> Request:
    """The head of the next request."""
    raw, start, headers = await _read_head(wire, _canonical_field)
    match = _request_line(start)
    if match is None:
        raise NotCanonical(f"request line {start!r}")
    request = Request(raw, headers, method=match[1], target=match[2])
    if len(request.all("Host")) != 1:
        raise NotCanonical(f"Host in {raw!r}")
    request.framing = _framing(request) or "none"
    return request


async def read_response(wire: Wire, method: str) -> Response:
    """The next final response; a body that breaks off leaves it incomplete."""
    response = await read_response_head(wire)
    interim = []
    while response.status < 200 and response.status != 101:
        interim.append(response.status)
        response = await read_response_head(wire)
    response.interim = interim
    if method == "HEAD" or response.status in _NO_BODY or response.status == 101:
        response.framing = "none"
        response.complete = True
        if (
            response.status in (101, 204)
            and {"content-length", "transfer-encoding"} & response.names
        ):
            raise NotCanonical(f"a length where none may be: {response.raw_head!r}")
        return response
    response.framing = _framing(response) or "close"
    await read_body(wire, response)
    return response


async def read_response_head(wire: Wire) -> Response:
    """The head of the next response, interim or final."""
    raw, start, headers = await _read_head(wire, _response_field)
    match = _status_line(start)
    if match is None:
        raise NotCanonical(f"status line {start!r}")
    return Response(raw, headers, status=int(match[1]), reason=match[2])


async def read_body(wire: Wire, message: Message) -> None:
    """Read the body that the head of *message* announced."""
    try:
        if message.framing == "length":
            message.body = await wire.read_exactly(int(message.get("Content-Length") or 0))
        elif message.framing == "chunked":
            while data := await _read_chunk(wire):
                message.body += data
        elif message.framing == "close":
            while data := await wire.read():
                message.body += data
            if wire.end != "closed":
                return
    except WireEnded as ended:
        message.body += ended.partial
        return
    message.complete = True


async def _read_head(
    wire: Wire, read_field: Callable[[str], re.Match[str] | None]
) -> tuple[bytes, str, list[tuple[str, str]]]:
    raw = await wire.read_until(b"\r\n\r\n")
    start, *lines = raw[:-4].decode("latin-1").split("\r\n")
    headers = []
    for line in lines:
        match = read_field(line)
        if match is None:
            raise NotCanonical(f"field {line!r}")
        headers.append((match[1], match[2]))
    names = [name.lower() for name, _ in headers]
    for name in _ONCE_AT_MOST:
        if names.count(name) > 1:
            raise NotCanonical(f"{name} is there {names.count(name)} times")
    return raw, start, headers


def _framing(message: Message) -> Framing | None:
    length, coding = message.get("Content-Length"), message.get("Transfer-Encoding")
    if length is not None and coding is not None:
        raise NotCanonical(f"two lengths: {message.raw_head!r}")
    if length is not None and _length(length) is None:
        raise NotCanonical(f"Content-Length {length!r}")
    if coding is not None and coding != "chunked":
        raise NotCanonical(f"Transfer-Encoding {coding!r}")
    if length is not None:
        return "length"
    return "chunked" if coding is not None else None


async def _read_chunk(wire: Wire) -> bytes:
    """The next chunk; nothing for the last. No extensions, no trailers."""
    line = await wire.read_until(b"\n")
    match = _chunk_size(line)
    if match is None:
        raise NotCanonical(f"chunk size {line!r}")
    size = int(match[1], 16)
    data = await wire.read_exactly(size)
    end = await wire.read_exactly(2)
    if end != b"\r\n":
        raise NotCanonical(f"{end!r} behind a chunk")
    return data
