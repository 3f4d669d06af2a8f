"""Addresses to accept on: start, drain, stop."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from aiohttp.web import Server
from aiohttp.web_protocol import RequestHandler

from proxy.core.clock import Clock
from proxy.net.listen_socket import address_of, bind, remove_stale_socket
from proxy.net.write_coalescer import WriteCoalescer
from proxy.policy.settings import Listen, ListenTls
from proxy.server.acceptor import Acceptor
from proxy.server.aiohttp_adapter.same_task import same_task
from proxy.server.body.replay_memory import FairMemory
from proxy.server.connection import UNREAD_GRACE, ClientConnection
from proxy.server.disconnect_watch import DisconnectWatch
from proxy.server.exchange import ClientExchange
from proxy.server.router import Router
from proxy.server.serve import serve

BACKLOG = 1024
_TO_BE_TOLD = 8
"""TLS handshakes beyond the limit at a time: they end with a 503 instead of without a word."""
CUT_TIME = 0.05
"""Seconds that requests have to end once the drain's time is up."""


class ProxyServer(Server):
    """Makes our connections instead of aiohttp's, and counts them."""

    def __init__(self, router: Router, clock: Clock, coalescer: WriteCoalescer) -> None:
        super().__init__(serve, request_factory=ClientExchange, handler_cancellation=True)  # type: ignore[arg-type]  # slimmer than aiohttp's request, on purpose
        self.router = router
        """Replaced by a reload; requests under way keep what they began with."""
        self.clock = clock
        self.coalescer = coalescer
        self.same_task = same_task(self._loop)
        self.replay_memory = FairMemory()
        """For bodies that may be needed again."""
        self.waiting_bytes = FairMemory()
        """For requests that are still coming (``waiting_bytes.py``)."""
        self.disconnect_watch = DisconnectWatch()
        self.is_draining = False
        self.on_left: Callable[[], object] = _nobody_asks
        """Called when a connection has ended, for whoever deals them out."""
        self.handshakes = 0
        """TLS connections that are not open yet, but hold a descriptor."""
        self._open: set[ClientConnection] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def __call__(self) -> RequestHandler:
        # aiohttp's own would drop every setting in silence on any TypeError.
        return ClientConnection(self, self._loop)

    @property
    def is_full(self) -> bool:
        """Whether more connections are open than the limits allow."""
        return len(self._open) > self.router.settings.limits.connections

    @property
    def may_shake_hands(self) -> bool:
        """Whether there is room for one more TLS connection whose handshake is to come.

        Beyond the limit some are let in all the same, so that they can be told why not.
        """
        taken = len(self._open) + self.handshakes
        return taken < self.router.settings.limits.connections or self.handshakes < _TO_BE_TOLD

    @property
    def open_connections(self) -> int:
        """How many clients are connected."""
        return len(self._open)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open.add(cast("ClientConnection", handler))
        self._empty.clear()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._open.discard(cast("ClientConnection", handler))
        if not self._open:
            self._empty.set()
        self.on_left()

    def leave_out(self, connection: ClientConnection) -> None:
        """Do not count *connection*: it is being refused."""
        self._open.discard(connection)

    async def drain(self, patience: float) -> None:
        """Let every request end; after *patience* seconds, end them."""
        self.is_draining = True
        for connection in tuple(self._open):
            if connection.is_idle:
                connection.close_idle()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
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


def _nobody_asks() -> None:
    pass


class Listener:
    """The sockets on which :class:`ProxyServer` accepts.

    Or none: a worker gets its connections from somebody else who accepts them.
    """

    def __init__(
        self, addresses: Sequence[Listen], router: Router, clock: Clock, coalescer: WriteCoalescer
    ) -> None:
        self.server = ProxyServer(router, clock, coalescer)
        self._addresses = tuple(addresses)
        self._contexts: dict[ListenTls, ssl.SSLContext] = {}
        self._sockets: list[asyncio.AbstractServer | Acceptor] = []
        self._acceptors: list[Acceptor] = []
        self._files: list[Path] = []
        """The unix sockets among them: nobody else removes these."""

    async def start(self) -> None:
        """Listen on every address, or on none: raises OSError."""
        try:
            for address in self._addresses:
                self._sockets.append(await self._listen(address))
        except BaseException:
            await self.stop_accepting()
            raise

    async def _listen(self, address: Listen) -> "asyncio.AbstractServer | Acceptor":
        loop = asyncio.get_running_loop()
        if address.tls is not None:
            return await self._listen_for_tls(address)
        if address.path:
            remove_stale_socket(address.path)
            server = await loop.create_unix_server(self.server, address.path, backlog=BACKLOG)
            self._files.append(Path(address.path))
            return server
        return await loop.create_server(
            self.server, address.host or None, address.port, backlog=BACKLOG
        )

    async def _listen_for_tls(self, address: Listen) -> Acceptor:
        self._terms(address)  # certificates that cannot be read: before anybody may connect
        sockets = await bind(address)
        if address.path:
            self._files.append(Path(address.path))
        which = self._addresses.index(address)
        acceptor = Acceptor(sockets, lambda sock: self.take_up(sock, which), BACKLOG)
        self._acceptors.append(acceptor)
        return acceptor

    def _terms(self, address: Listen) -> tuple[ssl.SSLContext | None, float | None, float | None]:
        """Of TLS: its context, and the seconds that its beginning and its end may take."""
        if address.tls is None:
            return None, None, None
        handshake = self.server.router.settings.limits.header_timeout
        # A client that only keeps the connection for later never confirms that it ended.
        return self._context(address.tls), handshake, UNREAD_GRACE

    def read_certificates(self) -> None:
        """Be ready to take connections up that others accept. Raises OSError."""
        for address in self._addresses:
            self._terms(address)

    async def take_up(self, sock: socket.socket, which: int) -> None:
        """Serve a connection that somebody accepted on the address number *which*."""
        server = self.server
        context, handshake, goodbye = self._terms(self._addresses[which])
        loop = asyncio.get_running_loop()
        if context is not None:
            if not server.may_shake_hands:
                sock.close()
                server.on_left()
                return
            server.handshakes += 1
        try:
            await loop.connect_accepted_socket(
                self.server,
                sock,
                ssl=context,
                ssl_handshake_timeout=handshake,
                ssl_shutdown_timeout=goodbye,
            )
        except OSError:  # it left, or TLS could not be agreed upon
            server.on_left()
        finally:
            if context is not None:
                server.handshakes -= 1

    def _context(self, tls: ListenTls) -> ssl.SSLContext:
        if tls not in self._contexts:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.set_alpn_protocols(["http/1.1"])
            context.load_cert_chain(tls.cert, tls.key)
            self._contexts[tls] = context
        return self._contexts[tls]

    def read_certificates_again(self) -> None:
        """New handshakes use what the files hold now. If one cannot be read, none is used."""
        for tls in self._contexts:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(tls.cert, tls.key)
        for tls, context in self._contexts.items():
            context.load_cert_chain(tls.cert, tls.key)

    @property
    def bound(self) -> list[str]:
        """The addresses in use, with the ports that the system chose."""
        names = []
        for server in self._sockets:
            for sock in server.sockets:  # type: ignore[union-attr]  # asyncio's and uvloop's have it
                name = sock.getsockname()
                names.append(address_of(name))
        return names

    async def stop_accepting(self) -> None:
        """Close the listening sockets; open connections stay."""
        for server in self._sockets:
            server.close()
        self._sockets.clear()
        while self._files:
            self._files.pop().unlink(missing_ok=True)

    async def drain(self, patience: float) -> None:
        """Stop accepting and let every request end."""
        await self.stop_accepting()
        await self.server.drain(patience)
        for acceptor in self._acceptors:
            await acceptor.stop()
