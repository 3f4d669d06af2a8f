"""A client's connection: deadlines, bounds and accounting on top of aiohttp's protocol.

Parsing, pipelining and the hooks of aiohttp are in ``aiohttp_adapter/protocol.py``. Added here are
the deadline for heads, the bound on responses that the client does not read, the memory that large
heads take, refusals of what never became a request, and the ways in which a connection ends.
"""

import asyncio

from proxy.core.client_identity import ClientIdentity
from proxy.http.refusal import Refusal, RefusalReason
from proxy.net.unacked import unacked_bytes
from proxy.server.aiohttp_adapter.first_bytes import refusal_of
from proxy.server.aiohttp_adapter.parse_errors import HEAD_TOO_LARGE
from proxy.server.aiohttp_adapter.protocol import AiohttpConnection
from proxy.server.aiohttp_adapter.request import ServedRequest
from proxy.server.body.memory_budget import COPIES, LARGE_HEAD, MEMORY_LIMIT, NO_MEMORY
from proxy.server.proxy_server import ProxyServer

LINGERING = 2.0
"""Seconds for which the rest of an unwanted body is read, so that the response arrives."""
OVERLOAD_LINGERING = 0.2
"""Seconds of lingering for connections beyond the limit, of which there may be any number."""
UNREAD_GRACE = 5.0
"""Seconds that the client of a closing connection has to take what was written to it."""

_SLOW_HEAD = Refusal(
    RefusalReason.SLOW_CLIENT, "The request's head did not arrive in time.", close=True
)
_NOBODY = ClientIdentity("", "http")
_OVERLOAD = Refusal(RefusalReason.OVERLOAD, "Too many connections are open.", close=True)


class ClientConnection(AiohttpConnection):
    """One connection of one client."""

    __slots__ = (
        "_abort_timer",
        "_head_bytes",
        "_head_memory",
        "identity",
        "is_cut",
    )

    server: ProxyServer

    def __init__(self, server: ProxyServer) -> None:
        limits = server.router.settings.limits
        super().__init__(
            server,
            header_bytes=limits.header_bytes,
            keepalive=limits.keepalive,
            lingering=LINGERING,
        )
        self.identity = _NOBODY
        """Who the client is, once the connection is open."""
        self.is_cut = False
        """Whether the drain has run out of time for the connection."""
        self._head_bytes = 0
        """Bytes of an incomplete head, as far as they came while nothing was served."""
        self._head_memory = 0
        """Bytes of a large head that count against the memory for all."""
        self._abort_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no part of a request is here."""
        return (
            self.exchange is None
            and not self.queued_messages
            and not self._head_bytes
            and self._last_body.is_eof()
        )

    # How a connection begins, and how it ends.

    def on_connected(self, transport: asyncio.Transport) -> None:
        """Note who the client is; close during the drain, and refuse beyond the limit."""
        peer = transport.get_extra_info("peername")
        is_tls = transport.get_extra_info("sslcontext") is not None
        self.identity = ClientIdentity(
            str(peer[0]) if isinstance(peer, tuple) else "", "https" if is_tls else "http"
        )
        if self.server.is_draining:
            # Its TLS handshake outlasted the listener: idle, it would delay the drain.
            self.close_idle()
        elif self.server.is_full:
            # Not counted: connections that are refused must not keep others out.
            self.server.uncount(self)
            self._reject(_OVERLOAD, linger=OVERLOAD_LINGERING)

    def on_lost(self, exc: BaseException | None) -> None:
        """Stop all timers and give back the memory of a head: the connection is closed."""
        del exc
        self.stop_head_timer()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        if self._head_memory:
            self._release_head_memory()

    def close_idle(self) -> None:
        """Close a connection on which nothing is going on."""
        transport = self.transport
        has_all = not unacked_bytes(transport)
        self.force_close()
        if self.identity.scheme == "https" and transport is not None and has_all:
            transport.abort()  # the client owes nothing, not even a TLS close_notify in return

    def bound_flush(self) -> None:
        """Limit the time that the client has to take its last bytes: the connection closes."""
        transport = self.transport
        if (
            transport is not None
            and self._abort_timer is None
            and transport.get_write_buffer_size()
        ):
            self._abort_timer = self.loop.call_later(UNREAD_GRACE, transport.abort)

    def cut(self) -> None:
        """End the request that is being served, and the connection (the drain's time is up)."""
        self.is_cut = True
        if self.exchange is not None:
            self.exchange.cancel()
        else:
            self.force_close()

    async def linger(self) -> None:
        """Close, but let the client read its response first.

        Bytes of the client that are left unread would reset the connection, and the response
        would be lost with it.
        """
        if self._half_close():
            await asyncio.sleep(LINGERING)
        self.force_close()

    def _half_close(self) -> bool:
        """Ignore all input and send FIN; return False where FIN cannot be sent by itself."""
        self._ignores_input = True
        self.close()
        transport = self.transport
        if transport is None or transport.is_closing():
            return False
        # A client that still has to send its body would not get to reading the response.
        transport.resume_reading()
        if not transport.can_write_eof():
            return False
        try:
            transport.write_eof()
        except OSError:  # reset by the client, which the event loop has not told yet
            return False
        return True

    # Heads: their deadline, their size, their memory.

    def on_bad_first_line(self, start: bytes) -> None:
        """Refuse a connection that does not begin like HTTP/1: *start* is what came."""
        self._reject(refusal_of(start))

    def on_partial_head(self, data: bytes) -> None:
        """Apply the limits to a head of which *data* came and which is not complete yet."""
        if not self._head_bytes and not data.strip(b"\r\n"):
            return  # only empty lines (RFC 9112 2.2): no request has begun
        self._head_bytes += len(data)
        limits = self.server.router.settings.limits
        if self._head_bytes > limits.header_bytes:
            self._reject(HEAD_TOO_LARGE)
        elif self._head_bytes > LARGE_HEAD and not self.reserve_head_memory(self._head_bytes):
            self._reject(NO_MEMORY, linger=OVERLOAD_LINGERING)
        elif self.head_timer is None:
            self.head_timer = self.loop.call_later(limits.header_timeout, self._head_is_late)

    def _head_is_late(self) -> None:
        self.head_timer = None
        if self.exchange is None and not self.queued_messages:
            self._reject(_SLOW_HEAD)

    def reserve_head_memory(self, size: int) -> bool:
        """Reserve memory for a large head of *size* bytes so far; return False if none is left."""
        more = size * COPIES - self._head_memory
        if more > 0:
            memory, caller = self.server.incoming_memory, self.identity.caller
            if not memory.take(caller, more, MEMORY_LIMIT) and not memory.reclaim(
                caller, more, MEMORY_LIMIT
            ):
                return False
            if not self._head_memory:
                memory.register(caller, self.yield_head_memory)
            self._head_memory += more
        return True

    def yield_head_memory(self, *, if_slow: bool) -> bool:
        """Refuse the head for the sake of another caller's request; False unless it is incomplete.

        With *if_slow* also False: a head has a deadline, and no rate that it must keep to.
        """
        if if_slow or self.head_timer is None:
            return False
        self._release_head_memory()
        self._reject(NO_MEMORY, linger=OVERLOAD_LINGERING)
        return True

    def _release_head_memory(self) -> None:
        memory = self.server.incoming_memory
        memory.unregister(self.identity.caller, self.yield_head_memory)
        memory.give_back(self.identity.caller, self._head_memory)
        self._head_memory = 0

    def on_too_much_ahead(self) -> None:
        """Make the present response the last: far more than a head came behind its request."""
        if self.exchange is None or not self.exchange.message.upgrade:
            self.close()

    def _reject(self, refusal: Refusal, linger: float = LINGERING) -> None:
        """Answer bytes that will never be a request, and close."""
        self.stop_head_timer()
        self.unparsed_request().refuse(refusal)
        if self._half_close():
            self.loop.call_later(linger, self.force_close)
        else:
            self.force_close()

    # Responses.

    async def caught_up(self) -> None:
        """Wait until the client has read the responses to its earlier requests.

        A client that pipelines without reading would fill the proxy's memory.
        """
        transport = self.transport
        if transport is None:
            return
        timeout = self.server.router.settings.limits.keepalive
        give_up = self.loop.call_later(timeout, transport.abort)
        try:
            await self.until_read()
        finally:
            give_up.cancel()

    def end(self, exchange: ServedRequest) -> None:
        """End *exchange*: the last byte of its response was written, or it was given up."""
        self.exchange = None
        self._last_body = exchange.payload
        self._head_bytes = 0
        if self._received is not None and exchange.message.chunked:
            self._behind_chunks = True
        if self._head_memory:
            self._release_head_memory()
        # A response from within its own task may still wait for the end of the iteration, and the
        # next request may be served before that: nothing may overtake it.
        transport, coalescer = self.transport, self.server.coalescer
        if transport is not None and transport in coalescer.waiting:
            coalescer.flush(transport)
        if exchange.came_in_parts:
            self._miscounted = exchange.payload
        if self._miscounted is not None and not self.queued_messages and not self.has_upgraded:
            self._count_again(self._miscounted)
