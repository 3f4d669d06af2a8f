"""What a request asks of the connection that it came by, and of the server behind that (ports).

Implemented by ``connection.py`` and ``proxy_server.py``, on top of aiohttp. Used by the exchange,
its body and its response, by admission and by ``serve``: these know no other member of either.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from aiohttp.web import StreamResponse

from proxy.core.client_identity import ClientIdentity
from proxy.core.clock import Clock
from proxy.net.write_coalescer import WriteCoalescer
from proxy.server.aiohttp_adapter.request import ServedRequest
from proxy.server.body.replay_memory import FairMemory
from proxy.server.disconnect_watch import DisconnectWatch
from proxy.server.router import Router


class SharedServer(Protocol):
    """What all connections of a process share."""

    router: Router
    """The routes that new requests go by."""
    clock: Clock
    loop: asyncio.AbstractEventLoop
    coalescer: WriteCoalescer
    disconnect_watch: DisconnectWatch
    replay_memory: FairMemory
    """Memory for bodies that may be sent again."""
    incoming_memory: FairMemory
    """Memory for requests that are still coming."""
    is_draining: bool
    """Whether the process is shutting down: no request follows on any connection."""


class ExchangeConnection(Protocol):
    """A client's connection, as an exchange sees it, its body and its response."""

    identity: ClientIdentity
    """Who the client is."""
    transport: asyncio.Transport | None
    """Takes the bytes of responses; None once the connection is closed."""
    writing_paused: bool
    """Whether the client has yet to read what was written: back-pressure."""
    is_cut: bool
    """Whether the drain has run out of time for the connection."""

    @property
    def server(self) -> SharedServer:
        """The server that the connection belongs to."""

    async def until_read(self) -> None:
        """Wait until nearly all that was written is read, however long that takes."""

    def open_tunnel(self, forward: Callable[[bytes], None]) -> None:
        """Give *forward* all bytes that still come: the connection has switched protocols."""

    def force_close(self) -> None:
        """Close now; what was written still goes out, within a bounded time."""


class ServedConnection(ExchangeConnection, Protocol):
    """A client's connection while it serves a request, from admission to the next request."""

    exchange: ServedRequest | None
    """The request being served."""
    largest_head: int
    """No head that waits to be served has more bytes than this."""
    has_upgraded: bool
    """Whether the parser stopped at a request that asks for another protocol."""

    def reserve_head_memory(self, size: int) -> bool:
        """Reserve memory for a large head of *size* bytes; return False if none is left."""

    def has_broken_body(self, exchange: ServedRequest) -> bool:
        """Whether the parser went on to something else before the end of *exchange*'s body."""

    async def caught_up(self) -> None:
        """Wait until the client has read the responses to its earlier requests."""

    def end(self, exchange: ServedRequest) -> None:
        """End *exchange*: the last byte of its response was written, or it was given up."""

    async def after_response(
        self, exchange: ServedRequest, *, goes_on: bool
    ) -> tuple[StreamResponse, bool]:
        """Let aiohttp serve the next request if the connection *goes_on*, or close it."""
