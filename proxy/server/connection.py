"""A client's connection: aiohttp's protocol with our deadlines and bounds.

aiohttp parses, queues pipelined requests and runs the handler. Overridden here
is only what it leaves open: a deadline for heads, a bound on unread answers,
our own words for errors, and knowing at any moment which request is served.
``start()``, where the hard part is, stays aiohttp's.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from aiohttp.abc import AbstractStreamWriter
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web import StreamResponse
from aiohttp.web_protocol import ERROR, RequestHandler
from aiohttp.web_request import BaseRequest

from proxy.core.clock import Clock
from proxy.core.ids import new_request_id
from proxy.http.forwarded import NO_FORWARDED_FIELDS, identity_lines, is_trusted
from proxy.http.refusal import Refusal, RefusalReason
from proxy.net.unacked import unacked_bytes
from proxy.policy.fair_share import network_of
from proxy.server.aiohttp_adapter.parse_errors import LARGE_HEAD as TOO_LARGE_HEAD, refusal_for
from proxy.server.aiohttp_adapter.responses import CLOSE, AlreadyWritten, LingeringClose
from proxy.server.aiohttp_adapter.trailers import (
    END,
    ends_with_trailer,
    is_first_field,
    worth_keeping,
)
from proxy.server.body.memory_budget import COPIES, LARGE_HEAD, MOST, NO_MEMORY
from proxy.server.exchange import ClientExchange
from proxy.server.serve import serve

if TYPE_CHECKING:
    from proxy.server.listener import ProxyServer
    from proxy.server.router import Router

MOST_FIELDS = 256
READ_BUFFER = 16 * 1024
"""Bytes of a request body to hold before the client is told to wait (twice that)."""
LINGERING = 2.0
"""Seconds for which the rest of an unwanted body is read, so that the answer arrives."""
LARGEST_READ = 256 * 1024
"""Most bytes that the event loop hands over at once."""
OVERLOAD_LINGERING = 0.2
"""The same for connections beyond the limit, of which there may be any number."""
MOST_RECEIVED = 1024 * 1024
"""Most bytes remembered of what stands behind a chunked request."""
UNREAD_GRACE = 5.0
"""Seconds that a closing connection has to take what was written to it."""

_SLOW_HEAD = Refusal(
    RefusalReason.SLOW_CLIENT, "The request's head did not come in time.", close=True
)
_BAD_LINE = Refusal(RefusalReason.BAD_REQUEST, "The request line is malformed.", close=True)
_BEHIND_TRAILERS = Refusal(
    RefusalReason.BAD_REQUEST, "Send nothing behind a chunked request with trailers.", close=True
)
_OVERLOAD = Refusal(RefusalReason.OVERLOAD, "Too many connections are open.", close=True)

_Handler = Callable[[BaseRequest], Awaitable[StreamResponse]]

_parse = RequestHandler.data_received  # a call of super() takes longer than that of a function
_is_request_line = re.compile(rb"[^ \r\n]+ [^ \r\n]+ HTTP/\d\.\d\r").fullmatch


class ClientConnection(RequestHandler):
    """One connection of one client."""

    __slots__ = (
        "_abort_timer",
        "_behind_chunks",
        "_caught_up",
        "_counted",
        "_fed",
        "_first_line",
        "_head_bytes",
        "_head_timer",
        "_identity",
        "_is_deaf",
        "_last_body",
        "_miscounted",
        "_received",
        "caller",
        "clock",
        "exchange",
        "is_cut",
        "largest_head",
        "loop",
        "peer_address",
        "scheme",
        "server",
    )

    def __init__(self, server: "ProxyServer", loop: asyncio.AbstractEventLoop) -> None:
        limits = server.router.settings.limits
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.keepalive,
            access_log=None,  # type: ignore[arg-type]  # aiohttp's way to say "none"
            # Two limits that differ, so that 414 can be told from 431.
            max_line_size=limits.header_bytes,
            max_field_size=limits.header_bytes + 1,
            max_headers=MOST_FIELDS,
            lingering_time=LINGERING,
            read_bufsize=READ_BUFFER,
            auto_decompress=False,
        )
        self.server = server
        self.loop = loop
        self.clock: Clock = server.clock
        self.exchange: ClientExchange | None = None
        """The request being served."""
        self.is_cut = False
        """Whether the drain has run out of time for it."""
        self.peer_address = ""
        self.caller = ""
        """Whose share of a common room its requests take, unless it speaks for others."""
        self.scheme = "http"
        self._identity: tuple[Router | None, bytes, bytes] = (None, b"", b"")
        self.largest_head = 0
        """No head that waits to be served has more bytes than this."""
        self._last_body: StreamReader = EMPTY_PAYLOAD
        """The body of the request before, which may outlast its answer."""
        self._miscounted: StreamReader | None = None
        """The body of a request that the parser still counts, though it was served."""
        self._is_deaf = False
        """Whether all that still comes is thrown away."""
        self._first_line: bytes | None = b""
        """The connection's first line so far; None once it is over."""
        self._behind_chunks = False
        """Whether the next request's first field may be the last request's trailer."""
        self._received: bytes | None = None
        """What came from the end of a chunked body on, while it may tell trailers from fields."""
        self._head_bytes = 0
        """Bytes of a head that is not complete, as far as they came while nothing was served."""
        self._counted = 0
        """Bytes of a large head that count against the memory for all."""
        self._fed = 0
        """Bytes that the parser got since the last head; the next one has no more of them."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self._caught_up: asyncio.Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request is here."""
        return (
            self.exchange is None
            and not self._messages
            and not self._head_bytes
            and self._last_body.is_eof()
        )

    # The connection's own life.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._loop = self.server.same_task  # only now: start() itself has a task
        peer = transport.get_extra_info("peername")
        self.peer_address = str(peer[0]) if isinstance(peer, tuple) else ""
        self.caller = network_of(self.peer_address)
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        if self.server.is_draining:
            # Its TLS handshake outlasted the listener: idle, it would hold up the drain.
            self.close_idle()
        elif self.server.is_full:
            # Not counted: those who are refused must not keep others out.
            self.server.leave_out(self)
            self._reject(_OVERLOAD, linger=OVERLOAD_LINGERING)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_head_timer()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        if self._counted:
            self._uncount()
        if self._caught_up is not None and not self._caught_up.done():
            self._caught_up.set_result(None)
        if self.exchange is not None:
            self.exchange.lose_client(exc or ConnectionResetError("Connection lost"))
        super().connection_lost(exc)

    def force_close(self) -> None:
        """Close now; what was written still goes out, but not for ever."""
        self.bound_flush()
        super().force_close()

    def close_idle(self) -> None:
        """Close a connection on which nothing is going on."""
        transport = self.transport
        has_all = not unacked_bytes(transport)
        self.force_close()
        if self.scheme == "https" and transport is not None and has_all:
            transport.abort()  # it owes us nothing, not even a word that it heard of the end

    def bound_flush(self) -> None:
        """About to close: a client that does not take its last bytes is not waited for long."""
        transport = self.transport
        if (
            transport is not None
            and self._abort_timer is None
            and transport.get_write_buffer_size()
        ):
            self._abort_timer = self.loop.call_later(UNREAD_GRACE, transport.abort)

    def cut(self) -> None:
        """End whatever is going on (the drain's time is up)."""
        self.is_cut = True
        if self.exchange is not None:
            self.exchange.cancel()
        else:
            self.force_close()

    async def linger(self) -> None:
        """Close, but let the client read its answer first.

        Unread bytes of its would reset the connection and with it our answer.
        """
        if self._say_goodbye():
            await asyncio.sleep(LINGERING)
        self.force_close()

    def _say_goodbye(self) -> bool:
        """Take in nothing more and send FIN; False where one cannot go without the other."""
        self._is_deaf = True
        self.close()
        transport = self.transport
        if transport is None or transport.is_closing():
            return False
        # Told to wait with its body, a client would not get to reading our answer.
        transport.resume_reading()
        if not transport.can_write_eof():
            return False
        try:
            transport.write_eof()
        except OSError:  # reset by the client, and we have not heard of it yet
            return False
        return True

    # Bytes coming in.

    def data_received(self, data: bytes) -> None:
        """More of the present request, or of the head of the next."""
        if self._is_deaf:
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
            and not self._may_be_request(self._first_line + data)
        ):
            self._reject(_BAD_LINE)
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
            if self._head_timer is not None:
                self._stop_head_timer()
        elif waiting:
            self._await_rest_of_head(data)
        elif not in_body and fed > self.server.router.settings.limits.header_bytes + LARGEST_READ:
            self._stop_taking_in()
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

    # Trailers, which the parser would take for fields of the next request
    # (server/aiohttp_adapter/trailers.py).

    def _remember(self, data: bytes) -> None:
        """Keep what came behind a chunked request, for as long as it may tell trailers apart."""
        if self._payload_parser is not None:
            self._received = None  # a tunnel: no request will follow
            return
        received = data if self._received is None else self._received + data
        bodies = self._from_chunked_on()
        if not bodies and (not self._holds_unparsed or self._is_within_body(received)):
            self._received = None
        elif len(received) > MOST_RECEIVED:
            self.close()  # the present answer is the last
        elif len(bodies) == 1 and not bodies[0].is_eof() and not self._holds_unparsed:
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
    def _holds_unparsed(self) -> bool:
        """Whether the parser may have been given bytes that it has not read yet."""
        return self._reading_paused or self._buffer_paused or self._upgraded

    def _is_within_body(self, received: bytes) -> bool:
        """Whether *received*, and what the parser may still hold, ends within the last body."""
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
            and not self._holds_unparsed
            and self._received is not None
            and self._received.endswith(END)
        )

    def _settle_trailers(self, exchange: ClientExchange) -> None:
        """Let a chunked request that has trailers be the last of its connection.

        As long as nothing came behind it, that is seen from its last line.
        """
        if exchange.message.chunked and self._is_behind_last(exchange.payload):
            if ends_with_trailer(self._received or b""):
                exchange.keep_alive = False
            self._received = None

    def _has_own_fields(self, exchange: ClientExchange) -> bool:
        """Whether a request behind a chunked one has its own fields alone."""
        self._behind_chunks = False
        received, fields = self._received or b"", exchange.message.raw_headers
        if not self._holds_unparsed and not self._from_chunked_on():
            self._received = None
        return not fields or is_first_field(*fields[0], received)

    def _may_be_request(self, start: bytes) -> bool:
        """Whether a connection begins like HTTP: one line, single spaces (RFC 9112 3).

        The parser takes two spaces, and an HTTP/0.9 line would keep it waiting in
        silence. Only here is it known where a line begins: later the parser may
        hold the start of the next head, and does not tell.
        """
        self._first_line = start.lstrip(b"\r\n")
        line, newline, _ = self._first_line.partition(b"\n")
        if not newline:
            return b"  " not in line
        self._first_line = None
        return _is_request_line(line) is not None

    def has_broken_body(self, exchange: ClientExchange) -> bool:
        """Whether the parser went on to something else before the body's end.

        It only does that when the body is malformed, and does not tell the
        body's reader.
        """
        return bool(self._messages) and not exchange.payload.is_eof()

    def _await_rest_of_head(self, data: bytes) -> None:
        if not self._head_bytes and not data.strip(b"\r\n"):
            return  # only empty lines (RFC 9112 2.2): no request has begun
        self._head_bytes += len(data)
        limits = self.server.router.settings.limits
        if self._head_bytes > limits.header_bytes:
            self._reject(TOO_LARGE_HEAD)
        elif self._head_bytes > LARGE_HEAD and not self.count_head(self._head_bytes):
            self._reject(NO_MEMORY, linger=OVERLOAD_LINGERING)
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(limits.header_timeout, self._head_is_late)

    def count_head(self, size: int) -> bool:
        """Count a large head of *size* bytes, or the part that is here; False: no room for it."""
        more = size * COPIES - self._counted
        if more > 0:
            room = self.server.waiting_bytes
            if not room.take(self.caller, more, MOST) and not room.make_room(
                self.caller, more, MOST
            ):
                return False
            if not self._counted:
                room.register(self.caller, self.step_aside)
            self._counted += more
        return True

    def step_aside(self, *, if_slow: bool) -> bool:
        """Make room for another caller's request; False unless the head is still to be completed.

        Or *if_slow* is asked for: a head has a time of its own, and no rate that it must keep to.
        """
        if if_slow or self._head_timer is None:
            return False
        self._uncount()
        self._reject(NO_MEMORY, linger=OVERLOAD_LINGERING)
        return True

    def _uncount(self) -> None:
        room = self.server.waiting_bytes
        room.unregister(self.caller, self.step_aside)
        room.give_back(self.caller, self._counted)
        self._counted = 0

    def _stop_taking_in(self) -> None:
        """Far more than a head came behind the present request: its answer is the last."""
        if self.exchange is None or not self.exchange.message.upgrade:
            self.close()

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.exchange is None and not self._messages:
            self._reject(_SLOW_HEAD)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's signature
        """Read on: aiohttp says so after every body, whether it had stopped or not.

        Each time it would feed its parser nothing and resume the transport.
        """
        if self._reading_paused:
            super().resume_reading(resume_parser)

    # Bytes going out.

    def pause_writing(self) -> None:
        """The client reads slower than we write: hold back whoever produces."""
        super().pause_writing()
        if self.exchange is not None and self.exchange.stream is not None:
            self.exchange.stream.pause_reading()

    def resume_writing(self) -> None:
        """It has caught up."""
        super().resume_writing()
        if self._caught_up is not None and not self._caught_up.done():
            self._caught_up.set_result(None)
        if self.exchange is not None and self.exchange.stream is not None:
            self.exchange.stream.resume_reading()

    async def caught_up(self) -> None:
        """Wait until the client has read the answers to its earlier requests.

        A client that pipelines without reading would fill our memory.
        """
        transport = self.transport
        if transport is None:
            return
        patience = self.server.router.settings.limits.keepalive
        give_up = self.loop.call_later(patience, transport.abort)
        try:
            await self.until_read()
        finally:
            give_up.cancel()

    async def until_read(self) -> None:
        """Wait until nearly all that was written is read, however long that takes."""
        if self.transport is None:
            return
        self._caught_up = self.loop.create_future()
        try:
            await self._caught_up
        finally:
            self._caught_up = None

    # Answers to what never became a request.

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,  # noqa: ARG002 - aiohttp's signature
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's signature
    ) -> AlreadyWritten:
        """The parser gave up (aiohttp's hook): answer in our own words, and close."""
        exchange = cast("ClientExchange", request)
        if exchange.code:
            return CLOSE  # an answer is on its way already
        self._answer(exchange, refusal_for(exc, self.max_line_size))
        return LingeringClose(self)

    def _handle_request(
        self, request: BaseRequest, start_time: float | None, request_handler: _Handler
    ) -> Coroutine[Any, Any, tuple[StreamResponse, bool]]:
        """Begin to serve a request (aiohttp's hook).

        The parent's would put two coroutines around ours, for errors that ours does not
        raise and for responses that it has written itself.
        """
        if request_handler is not self._request_handler:
            return super()._handle_request(request, start_time, request_handler)  # an error
        exchange: ClientExchange = request  # type: ignore[assignment]  # cast() is a call
        if self._received is not None:
            if self._behind_chunks and not self._has_own_fields(exchange):
                return self._refuse(exchange, _BEHIND_TRAILERS)
            self._settle_trailers(exchange)
        return serve(exchange)

    async def _refuse(
        self, exchange: ClientExchange, refusal: Refusal
    ) -> tuple[StreamResponse, bool]:
        """Answer a request that must not be served, and close."""
        self._answer(exchange, refusal)
        ending = LingeringClose(self)
        return await self.finish_response(cast("BaseRequest", exchange), ending, None)

    def _reject(self, refusal: Refusal, linger: float = LINGERING) -> None:
        """Answer bytes that will never be a request, and close."""
        self._stop_head_timer()
        writer = cast("AbstractStreamWriter", _Uncounted())
        task = cast("asyncio.Task[None]", None)
        self._answer(ClientExchange(ERROR, EMPTY_PAYLOAD, self, writer, task), refusal)
        if self._say_goodbye():
            self.loop.call_later(linger, self.force_close)
        else:
            self.force_close()

    def _answer(self, exchange: ClientExchange, refusal: Refusal) -> None:
        exchange.name(new_request_id())
        exchange.route.recorder.started()
        exchange.answer(refusal)
        exchange.finish()

    # Requests on it.

    def end(self, exchange: ClientExchange) -> None:
        """The last byte of *exchange*'s response was written, or it was given up."""
        self.exchange = None
        self._last_body = exchange.payload
        self._head_bytes = 0
        if self._received is not None and exchange.message.chunked:
            self._behind_chunks = True
        if self._counted:
            self._uncount()
        # An answer from within its own task may still wait for the end of the turn, and the next
        # request may be served before that: nothing may overtake it.
        transport, coalescer = self.transport, self.server.coalescer
        if transport is not None and transport in coalescer.waiting:
            coalescer.flush(transport)
        if exchange.came_in_parts:
            self._miscounted = exchange.payload
        if self._miscounted is not None and not self._messages and not self._upgraded:
            self._count_again(self._miscounted)

    def _count_again(self, body: StreamReader) -> None:
        """Tell the parser of a request that it still counts, and let it go on.

        aiohttp uncounts a request when its turn comes, and counts it when its body is complete:
        in vain, if that is later. With one too many the parser stops before the last of those
        that wait in line, and nobody would wake it.
        """
        if body.is_eof() and self._parser is not None:
            self._miscounted = None
            self._parser.message_consumed()
            self.data_received(b"")

    def identity_lines(self, exchange: ClientExchange) -> bytes:
        """The lines that tell the upstream who asked: made once per connection and host."""
        head, router = exchange.head, exchange.router
        if head.forwarded_fields is NO_FORWARDED_FIELDS and not head.trusted_only:
            known_site, known_host, lines = self._identity
            if known_site is router and known_host == head.host:
                return lines
            lines = identity_lines(self.peer_address, self.scheme, head.host)
            self._identity = (router, head.host, lines)
            return lines
        settings = router.settings
        trusted = is_trusted(
            self.peer_address, settings.trusted_proxies, trust_unix=settings.trust_unix
        )
        lines = identity_lines(
            self.peer_address, self.scheme, head.host, head.forwarded_fields, trusted=trusted
        )
        return b"\r\n".join((lines, *head.trusted_only)) if trusted else lines


class _Uncounted:
    """Stands in for aiohttp's writer where no request of aiohttp's is at hand."""

    __slots__ = ("output_size",)

    def __init__(self) -> None:
        self.output_size = 0
