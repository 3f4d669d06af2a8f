"""A connection as aiohttp serves it: every method of its ``RequestHandler`` that is overridden.

Overridden is only what aiohttp leaves open: where heads and bodies begin and end in the bytes that
come in, trailers, our own texts for errors, and the request that is being served. ``start()``,
where the hard part is, stays aiohttp's. Deadlines, bounds and accounting are added by the subclass
(``server/connection.py``) in the methods whose names begin with ``on_``.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sized
from typing import Any, cast

from aiohttp.abc import AbstractStreamWriter
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web import StreamResponse
from aiohttp.web_protocol import ERROR, RequestHandler
from aiohttp.web_request import BaseRequest

from proxy.http.refusal import Refusal, RefusalReason
from proxy.server.aiohttp_adapter.first_bytes import is_tls_hello
from proxy.server.aiohttp_adapter.parse_errors import refusal_for
from proxy.server.aiohttp_adapter.request import ServedRequest
from proxy.server.aiohttp_adapter.responses import CLOSE, KEEP_ALIVE, AlreadyWritten, LingeringClose
from proxy.server.aiohttp_adapter.server import LARGEST_READ, AiohttpServer
from proxy.server.aiohttp_adapter.trailers import (
    END,
    ends_with_trailer,
    is_first_field,
    worth_keeping,
)
from proxy.server.aiohttp_adapter.tunnel import Tunnel

MOST_FIELDS = 256
READ_BUFFER = 16 * 1024
"""Bytes of a request body to buffer before the client is told to wait (twice that)."""
MOST_RECEIVED = 1024 * 1024
"""Most bytes remembered of what stands behind a chunked request."""

_BEHIND_TRAILERS = Refusal(
    RefusalReason.BAD_REQUEST,
    "Do not pipeline requests behind a chunked one with trailers.",
    close=True,
)

_Handler = Callable[[BaseRequest], Awaitable[StreamResponse]]

_parse = RequestHandler.data_received  # a call of super() takes longer than that of a function
# PRI begins an HTTP/2 preface (RFC 9113 3.4), and no request.
_is_request_line = re.compile(rb"(?!PRI )[^ \r\n]+ [^ \r\n]+ HTTP/\d\.\d\r").fullmatch


class AiohttpConnection(RequestHandler):
    """One connection of one client: the half that faces aiohttp."""

    __slots__ = (
        "_behind_chunks",
        "_caught_up",
        "_fed",
        "_first_line",
        "_ignores_input",
        "_last_body",
        "_miscounted",
        "_received",
        "exchange",
        "head_timer",
        "largest_head",
        "loop",
        "server",
    )

    # The slots of aiohttp under names of our own: unlike a property, reading one is no call.
    queued_messages: Sized = RequestHandler._messages  # type: ignore[misc]  # noqa: SLF001 - on purpose
    """Requests that wait to be served: each a parsed message and its body."""
    has_upgraded: bool = RequestHandler._upgraded  # type: ignore[misc]  # noqa: SLF001 - as above
    """Whether the parser stopped at a request that asks for another protocol."""
    writing_paused: bool = RequestHandler._paused  # type: ignore[misc]  # noqa: SLF001 - as above
    """Whether the client has yet to read what was written (aiohttp: a property, the same)."""

    def __init__(
        self, server: AiohttpServer, *, header_bytes: int, keepalive: float, lingering: float
    ) -> None:
        super().__init__(
            server,
            loop=server.loop,
            keepalive_timeout=keepalive,
            access_log=None,  # type: ignore[arg-type]  # aiohttp's way to say "none"
            # Two limits that differ, so that 414 can be told from 431.
            max_line_size=header_bytes,
            max_field_size=header_bytes + 1,
            max_headers=MOST_FIELDS,
            lingering_time=lingering,
            read_bufsize=READ_BUFFER,
            auto_decompress=False,
        )
        self.server = server
        self.loop = server.loop
        self.exchange: ServedRequest | None = None
        """The request being served."""
        self.largest_head = 0
        """No head that waits to be served has more bytes than this."""
        self.head_timer: asyncio.TimerHandle | None = None
        """Runs while a head is incomplete and no request is being served."""
        self._last_body: StreamReader = EMPTY_PAYLOAD
        """The body of the request before, which may outlast its response."""
        self._miscounted: StreamReader | None = None
        """The body of a request that the parser still counts, though it was served."""
        self._ignores_input = False
        """Whether all that still comes is thrown away."""
        self._first_line: bytes | None = b""
        """The connection's first line so far; None once it is complete."""
        self._behind_chunks = False
        """Whether the next request's first field may be the last request's trailer."""
        self._received: bytes | None = None
        """What came from the end of a chunked body on, while it may tell trailers from fields."""
        self._fed = 0
        """Bytes that the parser got since the last head; the next head has no more of them."""
        self._caught_up: asyncio.Future[None] | None = None

    # What the subclass adds.

    def on_connected(self, transport: asyncio.Transport) -> None:
        """Look at a connection that has just been opened; it is counted already."""

    def on_lost(self, exc: BaseException | None) -> None:
        """Stop all timers and give back what is reserved: the connection is closed."""

    def on_partial_head(self, data: bytes) -> None:
        """Bound a head of which *data* came and which is not complete yet."""

    def on_bad_first_line(self, start: bytes) -> None:
        """Refuse a connection that does not begin like HTTP/1: *start* is what came."""

    def on_too_much_ahead(self) -> None:
        """Stop reading far more than a head behind the request that is being served."""

    def bound_flush(self) -> None:
        """Limit the time that the client has to take what was written to it."""

    async def linger(self) -> None:
        """Close, but let the client read its response first."""

    # The life of the connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._loop = self.server.same_task  # only now: start() itself has a task
        self.on_connected(cast("asyncio.Transport", transport))

    def connection_lost(self, exc: BaseException | None) -> None:
        self.on_lost(exc)
        if self._caught_up is not None and not self._caught_up.done():
            self._caught_up.set_result(None)
        if self.exchange is not None:
            self.exchange.lose_client(exc or ConnectionResetError("Connection lost"))
        super().connection_lost(exc)

    def force_close(self) -> None:
        """Close now; what was written still goes out, within a bounded time."""
        self.bound_flush()
        super().force_close()

    def stop_head_timer(self) -> None:
        """Cancel the deadline of an incomplete head: it is complete, or refused."""
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    # Bytes coming in.

    def data_received(self, data: bytes) -> None:
        """Parse more of the present request, or of the head of the next."""
        if self._ignores_input:
            return
        messages, exchange = self._messages, self.exchange
        known = len(messages)
        if known:
            body = messages[-1][1]
        else:
            body = self._last_body if exchange is None else exchange.payload
        in_body = not body.is_eof()
        waiting = exchange is None and not known and not in_body
        if (
            waiting
            and self._first_line is not None
            and not self._may_be_request(start := self._first_line + data)
        ):
            self.on_bad_first_line(start)
            return
        size = len(data)
        fed = self._fed = size if in_body else self._fed + size
        _parse(self, data)
        came = len(messages) - known
        is_chunked = False
        if came:
            # Each of their heads is in what was fed since the head before.
            self.largest_head = fed if waiting else max(self.largest_head, fed)
            self._fed = size
            self._first_line = None
            message, body = messages[-1]
            is_chunked = body is not EMPTY_PAYLOAD and message.chunked  # type: ignore[union-attr]  # an error has no body
            if self.head_timer is not None:
                self.stop_head_timer()
        elif waiting:
            self.on_partial_head(data)
        elif not in_body and fed > self.server.router.most_ahead:
            self.on_too_much_ahead()
        if (
            is_chunked
            or came > 1
            or self._received is not None
            or self._reading_paused
            or self._buffer_paused
            or self._upgraded
        ):
            self._remember(data)
        if exchange is not None and self.has_broken_body(exchange):
            exchange.break_body()

    def _may_be_request(self, start: bytes) -> bool:
        """Whether a connection begins like HTTP: one line, single spaces (RFC 9112 3).

        The parser takes two spaces, and an HTTP/0.9 line would keep it waiting without a word.
        Only here is it known where a line begins: later the parser may have the start of
        the next head, and does not tell.
        """
        self._first_line = start.lstrip(b"\r\n")
        line, newline, _ = self._first_line.partition(b"\n")
        if not newline:
            return b"  " not in line and not is_tls_hello(line)
        self._first_line = None
        return _is_request_line(line) is not None

    def has_broken_body(self, exchange: ServedRequest) -> bool:
        """Whether the parser went on to something else before the end of *exchange*'s body.

        The parser only does that when the body is malformed, and does not tell the
        body's reader.
        """
        return bool(self._messages) and not exchange.payload.is_eof()

    # Trailers, which the parser would take for fields of the next request (trailers.py).

    def _remember(self, data: bytes) -> None:
        """Keep what came behind a chunked request, for as long as it may tell trailers apart."""
        if self._payload_parser is not None:
            self._received = None  # a tunnel: no request will follow
            return
        received = data if self._received is None else self._received + data
        bodies = self._from_chunked_on()
        if not bodies and (not self._has_unparsed or self._is_within_body(received)):
            self._received = None
        elif len(received) > MOST_RECEIVED:
            self.close()  # the present response is the last
        elif len(bodies) == 1 and not bodies[0].is_eof() and not self._has_unparsed:
            self._received = worth_keeping(received)
        else:
            self._received = received
        if self.exchange is not None:
            self._settle_trailers(self.exchange)
        elif self._behind_chunks and self._is_behind_last(self._last_body):
            self._behind_chunks = False
            if ends_with_trailer(self._received or b""):
                self.close()
            self._received = None

    def _from_chunked_on(self) -> list[StreamReader]:
        """The body of the first chunked request that may have trailers, and all behind it."""
        bodies = [self._last_body] if self._behind_chunks else []
        exchange = self.exchange
        if exchange is not None and (bodies or exchange.message.chunked):
            bodies.append(exchange.payload)
        for message, body in self._messages:
            if bodies or (body is not EMPTY_PAYLOAD and message.chunked):  # type: ignore[union-attr]  # an error has no body
                bodies.append(body)
        return bodies

    @property
    def _has_unparsed(self) -> bool:
        """Whether the parser may have been given bytes that it has not read yet."""
        return self._reading_paused or self._buffer_paused or self._upgraded

    def _is_within_body(self, received: bytes) -> bool:
        """Whether *received*, and what the parser may still have, ends within the last body."""
        if self._messages:
            message, body = self._messages[-1]
        elif self.exchange is not None:
            message, body = self.exchange.message, self.exchange.payload
        else:
            return False
        if body is EMPTY_PAYLOAD or body.is_eof():
            return False
        left = int(message.headers.get("Content-Length", "0"))  # type: ignore[union-attr]  # an error has no body
        left -= body.total_bytes
        return left >= len(received) + LARGEST_READ

    def _is_behind_last(self, body: StreamReader) -> bool:
        """Whether *body*, the last that came, is complete and nothing came behind it."""
        return (
            body.is_eof()
            and not self._messages
            and not self._has_unparsed
            and self._received is not None
            and self._received.endswith(END)
        )

    def _settle_trailers(self, exchange: ServedRequest) -> None:
        """Let a chunked request that has trailers be the last of its connection.

        As long as nothing came behind it, that is seen from its last line.
        """
        if exchange.message.chunked and self._is_behind_last(exchange.payload):
            if ends_with_trailer(self._received or b""):
                exchange.keep_alive = False
            self._received = None

    def _has_own_fields(self, exchange: ServedRequest) -> bool:
        """Whether a request behind a chunked one has its own fields alone."""
        self._behind_chunks = False
        received, fields = self._received or b"", exchange.message.raw_headers
        if not self._has_unparsed and not self._from_chunked_on():
            self._received = None
        return not fields or is_first_field(*fields[0], received)

    # Flow control in both directions: back-pressure.

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's signature
        """Read on: aiohttp says so after every body, whether it had stopped or not.

        Each time aiohttp would feed its parser nothing and resume the transport.
        """
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def pause_writing(self) -> None:
        """Stop reading from the upstream: the client reads slower than we write."""
        super().pause_writing()
        if self.exchange is not None and self.exchange.stream is not None:
            self.exchange.stream.pause_reading()

    def resume_writing(self) -> None:
        """Read from the upstream again: the client has caught up."""
        super().resume_writing()
        if self._caught_up is not None and not self._caught_up.done():
            self._caught_up.set_result(None)
        if self.exchange is not None and self.exchange.stream is not None:
            self.exchange.stream.resume_reading()

    async def until_read(self) -> None:
        """Wait until nearly all that was written is read, however long that takes."""
        if self.transport is None:
            return
        self._caught_up = self.loop.create_future()
        try:
            await self._caught_up
        finally:
            self._caught_up = None

    # Requests.

    def _handle_request(
        self, request: BaseRequest, start_time: float | None, request_handler: _Handler
    ) -> Coroutine[Any, Any, tuple[StreamResponse, bool]]:
        """Begin to serve a request (aiohttp's hook).

        The parent's method would put two coroutines around our handler, for errors that it does
        not raise and for responses that it has written itself.
        """
        if request_handler is not self._request_handler:
            return super()._handle_request(request, start_time, request_handler)  # an error
        exchange: ServedRequest = request  # type: ignore[assignment]  # cast() is a call
        if self._received is not None:
            if self._behind_chunks and not self._has_own_fields(exchange):
                return self._refuse(exchange, _BEHIND_TRAILERS)
            self._settle_trailers(exchange)
        return request_handler(request)  # type: ignore[return-value]  # serve() returns more

    def open_tunnel(self, forward: Callable[[bytes], None]) -> None:
        """Give *forward* all bytes that still come: the connection has switched protocols."""
        self.set_parser(Tunnel(forward))  # type: ignore[arg-type]  # all that aiohttp calls

    async def after_response(
        self, exchange: ServedRequest, *, goes_on: bool
    ) -> tuple[StreamResponse, bool]:
        """Let aiohttp serve the next request if the connection *goes_on*, or close it."""
        ending: AlreadyWritten = KEEP_ALIVE
        if not goes_on and exchange.payload.is_eof():
            self.bound_flush()
            ending = CLOSE
        elif not goes_on:
            ending = LingeringClose(self.linger)
        return await self.finish_response(cast("BaseRequest", exchange), ending, None)

    async def _refuse(
        self, exchange: ServedRequest, refusal: Refusal
    ) -> tuple[StreamResponse, bool]:
        """Answer a request that must not be served, and close."""
        exchange.refuse(refusal)
        ending = LingeringClose(self.linger)
        return await self.finish_response(cast("BaseRequest", exchange), ending, None)

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,  # noqa: ARG002 - aiohttp's signature
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's signature
    ) -> AlreadyWritten:
        """Answer in our own words, and close: the parser gave up (aiohttp's hook)."""
        exchange = cast("ServedRequest", request)
        if exchange.code:
            return CLOSE  # a response is on its way already
        exchange.refuse(refusal_for(exc, self.max_line_size))
        return LingeringClose(self.linger)

    def unparsed_request(self) -> ServedRequest:
        """Make a request that stands for bytes of which none was parsed."""
        writer = cast("AbstractStreamWriter", _Uncounted())
        task = cast("asyncio.Task[None]", None)
        made = self.server.request_factory(ERROR, EMPTY_PAYLOAD, self, writer, task)
        return cast("ServedRequest", made)

    def _count_again(self, body: StreamReader) -> None:
        """Tell the parser of a request that it still counts, and let it go on.

        aiohttp uncounts a request when it begins to serve it, and counts it when its body is
        complete: in vain, if that is later. With one too many the parser stops before the last
        of those that are queued, and nothing would wake it.
        """
        if body.is_eof() and self._parser is not None:
            self._miscounted = None
            self._parser.message_consumed()
            self.data_received(b"")


class _Uncounted:
    """Stands in for aiohttp's writer where no request of aiohttp's is at hand."""

    __slots__ = ("output_size",)

    def __init__(self) -> None:
        self.output_size = 0
