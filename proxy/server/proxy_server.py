"""What all client connections of a process share: routes, memory, counts, the graceful drain."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, cast

from aiohttp.web_protocol import RequestHandler

from proxy.core.clock import Clock
from proxy.net.write_coalescer import WriteCoalescer
from proxy.server.aiohttp_adapter.server import AiohttpServer
from proxy.server.body.replay_memory import FairMemory
from proxy.server.disconnect_watch import DisconnectWatch
from proxy.server.router import Router

_REFUSED_HANDSHAKES = 8
"""TLS handshakes beyond the limit at a time: they end with a 503 instead of without a word."""
CUT_TIME = 0.05
"""Seconds that requests have to end once the drain's time is up."""


class OpenConnection(Protocol):
    """A client's connection, as the server counts and drains it (port)."""

    transport: asyncio.Transport | None

    @property
    def is_idle(self) -> bool:
        """Whether no part of a request is here."""

    def close_idle(self) -> None:
        """Close the connection, on which nothing is going on."""

    def cut(self) -> None:
        """End the request that is being served, and the connection."""


class ProxyServer(AiohttpServer):
    """Makes our connections instead of aiohttp's, counts them and drains them."""

    router: Router
    """Replaced by a reload; requests under way keep the one that they began with."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        coalescer: WriteCoalescer,
        *,
        connect: Callable[["ProxyServer"], RequestHandler],
        serve: Callable[..., Any],
        request_factory: Callable[..., Any],
    ) -> None:
        """*connect* makes a connection, *request_factory* the requests on it, *serve* serves."""
        super().__init__(serve, request_factory)
        self.router = router
        self.clock = clock
        self.coalescer = coalescer
        self._connect = connect
        self.replay_memory = FairMemory()
        """Memory for bodies that may be sent again."""
        self.incoming_memory = FairMemory()
        """Memory for requests that are still coming (``body/memory_budget.py``)."""
        self.disconnect_watch = DisconnectWatch()
        self.is_draining = False
        self.on_closed: Callable[[], object] = _ignore
        """Called when a connection has ended, for a supervisor that assigns them to workers."""
        self.handshakes = 0
        """TLS connections that are not open yet, but take up a descriptor."""
        self._open: set[OpenConnection] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def new_connection(self) -> RequestHandler:
        """Make the protocol of a connection that was just accepted."""
        return self._connect(self)

    @property
    def is_full(self) -> bool:
        """Whether more connections are open than the limits allow."""
        return len(self._open) > self.router.settings.limits.connections

    @property
    def may_handshake(self) -> bool:
        """Whether one more TLS connection may begin its handshake.

        Beyond the limit a few are let in all the same, so that they can be answered 503.
        """
        taken = len(self._open) + self.handshakes
        limit = self.router.settings.limits.connections
        return taken < limit or self.handshakes < _REFUSED_HANDSHAKES

    @property
    def open_connections(self) -> int:
        """How many clients are connected."""
        return len(self._open)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open.add(cast("OpenConnection", handler))
        self._empty.clear()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._open.discard(cast("OpenConnection", handler))
        if not self._open:
            self._empty.set()
        self.on_closed()

    def uncount(self, connection: OpenConnection) -> None:
        """Count *connection* no longer: it is being refused."""
        self._open.discard(connection)

    async def drain(self, grace: float) -> None:
        """Shut down gracefully: let every request end; after *grace* seconds, end them."""
        self.is_draining = True
        for connection in tuple(self._open):
            if connection.is_idle:
                connection.close_idle()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._empty.wait()
        for connection in tuple(self._open):
            connection.cut()
        with suppress(TimeoutError):
            async with asyncio.timeout(CUT_TIME):
                await self._empty.wait()
        for connection in tuple(self._open):
            if connection.transport is not None:
                connection.transport.abort()
        await self.shutdown(CUT_TIME)
        self.disconnect_watch.close()


def _ignore() -> None:
    pass
