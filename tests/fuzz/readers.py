"""How others read the same bytes: h11, and two builds of llhttp (httptools', aiohttp's).

Ours towards clients is aiohttp's, towards upstreams httptools'; so each is held against the
other one, and both against h11, which is of another family.
"""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any, cast

import h11
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpResponseParser
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

Fields = list[tuple[str, str]]


@dataclass(slots=True)
class Read:
    """A message as somebody reads it."""

    method: str = ""
    target: str = ""
    status: int = 0
    fields: Fields = field(default_factory=list)
    """In their order, names in lower case, trailers left out."""
    body: bytes = b""
    complete: bool = False
    clean: bool = False
    """Whether it ended exactly where the stream does, and another message may follow."""


def _fields(pairs: Any) -> Fields:  # noqa: ANN401 - each library has its own type for them
    return [
        (name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t"))
        for name, value in pairs
    ]


# Requests.


_two_blanks = re.compile(rb"\A([!#$%&'*+.^_`|~0-9A-Za-z-]+)  +")


def requests_by_h11(data: bytes) -> list[Read]:
    """The requests in *data*, up to the first that h11 refuses."""
    found: list[Read] = []
    while True:
        # RFC 9112 2.2: empty lines before a request are ignored. h11 refuses them; llhttp, on our
        # side too, takes any number of CR and LF for them, in which nothing can be hidden.
        data = data.lstrip(b"\r\n")
        # llhttp takes two blanks for one behind a method. We refuse that where a connection
        # begins; later it is not known where a line does, and both read the same request.
        data = _two_blanks.sub(rb"\1 ", data)
        connection = h11.Connection(h11.SERVER)
        try:
            connection.receive_data(data)
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Request):
                    target = event.target.decode("latin-1")
                    found.append(Read(event.method.decode(), target, fields=_fields(event.headers)))
                elif isinstance(event, h11.Data):
                    found[-1].body += event.data
                else:
                    return found
        except h11.ProtocolError:
            return found
        found[-1].complete = True
        if connection.their_state is h11.MUST_CLOSE:
            return found
        data, _ = connection.trailing_data


class _Requests:
    """What httptools tells of."""

    def __init__(self) -> None:
        self.found: list[Read] = []
        self.parser = HttpRequestParser(self)
        self._next = Read()

    def on_message_begin(self) -> None:
        self._next = Read()

    def on_url(self, url: bytes) -> None:
        self._next.target += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._next.method:  # else it is a trailer
            self._next.fields += _fields([(name, value)])

    def on_headers_complete(self) -> None:
        self._next.method = self.parser.get_method().decode("latin-1")
        self.found.append(self._next)

    def on_body(self, body: bytes) -> None:
        self._next.body += body

    def on_message_complete(self) -> None:
        self._next.complete = True


def requests_by_llhttp(data: bytes) -> list[Read]:
    """The requests in *data*, up to the first that httptools refuses."""
    found: list[Read] = []
    while data:
        reading = _Requests()
        rest = b""
        try:
            reading.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]  # which we do not do: it goes on as before
        except HttpParserError:
            pass
        found += reading.found
        data = rest
    return found


# Responses.


def response_by_h11(method: str, data: bytes, *, closed: bool) -> Read:
    """The final response to *method* in *data*."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "a.example")]))
    connection.send(h11.EndOfMessage())
    found = Read(method)
    try:
        connection.receive_data(data)
        if closed:
            connection.receive_data(b"")
        while not found.complete:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                found.status = event.status_code
                found.fields = _fields(event.headers)
            elif isinstance(event, h11.Data):
                found.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                found.complete = True
            elif not isinstance(event, h11.InformationalResponse):
                break
    except h11.ProtocolError:
        return found
    is_over = connection.their_state is h11.DONE and not connection.trailing_data[0]
    found.clean = found.complete and is_over
    return found


def response_by_llhttp(
    method: str, data: bytes, *, closed: bool, loop: asyncio.AbstractEventLoop
) -> Read:
    """The final response to *method* in *data*, by aiohttp's parser for its own client."""
    messages, rest = _messages(_response_parser(method, loop), [data], closed=closed)
    if rest is None:
        # It forgets what it had found in a piece that it refuses: byte by byte, then.
        pieces = [data[at : at + 1] for at in range(len(data))]
        messages, rest = _messages(_response_parser(method, loop), pieces, closed=closed)
    found = Read(method)
    final = [message for message in messages if message[0].code >= 200 or message[0].code == 101]
    if not final:
        return found
    head, payload = final[0]
    found.status = head.code
    found.fields = _fields(head.raw_headers)
    chunks = cast("list[bytes]", list(getattr(payload, "_buffer", ())))
    found.body = b"".join(chunks)
    found.complete = payload.is_eof() and payload.exception() is None
    # Of a HEAD without a length it says that only the end of the connection ends it.
    may_go_on = method == "HEAD" or not head.should_close
    is_over = rest == b"" and len(final) == 1 and may_go_on
    found.clean = found.complete and is_over
    return found


def _response_parser(method: str, loop: asyncio.AbstractEventLoop) -> HttpResponseParser:
    return HttpResponseParser(
        BaseProtocol(loop),
        loop,
        2**16,
        max_line_size=2**16,
        max_field_size=2**16,
        read_until_eof=True,
        response_with_body=method != "HEAD",
        auto_decompress=False,
    )


def _messages(
    parser: HttpResponseParser, pieces: list[bytes], *, closed: bool
) -> tuple[list[Any], bytes | None]:
    """What it finds, and what it leaves; None if it refuses something."""
    found: list[Any] = []
    rest = b""
    try:
        for piece in pieces:
            messages, _, rest = parser.feed_data(piece)
            found += messages
        if closed:
            parser.feed_eof()
    except HttpProcessingError:
        return found, None
    return found, rest
