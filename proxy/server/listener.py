"""Addresses to accept clients on: start, hand connections to the server, drain, stop."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

from proxy.core.clock import Clock
from proxy.net.acceptor import AcceptLoop
from proxy.net.listen_socket import address_of, bind, explained, remove_stale_socket
from proxy.net.tls import server_context
from proxy.net.write_coalescer import WriteCoalescer
from proxy.policy.settings import Listen, ListenTls
from proxy.server.connection import UNREAD_GRACE, ClientConnection
from proxy.server.exchange import ClientExchange
from proxy.server.proxy_server import ProxyServer
from proxy.server.router import Router
from proxy.server.serve import serve

BACKLOG = 1024

TakeUp = Callable[[socket.socket, int], Coroutine[object, object, None]]


class TlsAcceptor(AcceptLoop):
    """Accepts TLS connections one by one, so that each is counted before its handshake.

    The event loop's own servers tell of a connection when its handshake is over. Connections that
    never get there would not be counted at all, and take up a descriptor each.
    """

    def __init__(self, sockets: Sequence[socket.socket], which: int, take_up: TakeUp) -> None:
        """Listen on *sockets*, all of the address number *which*; *take_up* gets connections."""
        super().__init__()
        self.sockets = tuple(sockets)
        self._take_up = take_up
        self._tasks: set[asyncio.Task[None]] = set()
        """Handshakes under way."""
        for sock in self.sockets:
            sock.listen(BACKLOG)
        self.open([(sock, which) for sock in self.sockets])

    def accepted(self, connection: socket.socket, which: int) -> None:
        """Begin the handshake on *connection*."""
        connection.setblocking(False)  # noqa: FBT003 - the socket module's signature
        task = self._loop.create_task(self._take_up(connection, which))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Close the listening sockets. Handshakes under way go on."""
        super().close()
        for sock in self.sockets:
            sock.close()

    async def stop(self) -> None:
        """Cancel the handshakes that are still under way."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class Listener:
    """The sockets on which :class:`ProxyServer` accepts.

    A worker's listener has none: its connections are accepted by the supervisor, and come by
    :meth:`take_up`.
    """

    def __init__(
        self, addresses: Sequence[Listen], router: Router, clock: Clock, coalescer: WriteCoalescer
    ) -> None:
        self.server = ProxyServer(
            router,
            clock,
            coalescer,
            connect=ClientConnection,
            serve=serve,
            request_factory=ClientExchange,
        )
        self._addresses = tuple(addresses)
        self._contexts: dict[ListenTls, ssl.SSLContext] = {}
        self._sockets: list[asyncio.AbstractServer | TlsAcceptor] = []
        self._acceptors: list[TlsAcceptor] = []
        self._files: list[Path] = []
        """The unix sockets among them, which have to be removed at the end."""

    async def start(self) -> None:
        """Listen on every address, or on none: raises OSError (CannotListen)."""
        try:
            for address in self._addresses:
                self._sockets.append(await self._listen(address))
        except BaseException:
            await self.stop_accepting()
            raise

    async def _listen(self, address: Listen) -> "asyncio.AbstractServer | TlsAcceptor":
        loop = asyncio.get_running_loop()
        if address.tls is not None:
            return await self._listen_for_tls(address)
        with explained(address):
            if address.path:
                remove_stale_socket(address.path)
                server = await loop.create_unix_server(self.server, address.path, backlog=BACKLOG)
                self._files.append(Path(address.path))
                return server
            return await loop.create_server(
                self.server, address.host or None, address.port, backlog=BACKLOG
            )

    async def _listen_for_tls(self, address: Listen) -> TlsAcceptor:
        self._tls_parameters(address)  # unreadable certificates: known before a client connects
        sockets = await bind(address)
        if address.path:
            self._files.append(Path(address.path))
        acceptor = TlsAcceptor(sockets, self._addresses.index(address), self.take_up)
        self._acceptors.append(acceptor)
        return acceptor

    def _tls_parameters(
        self, address: Listen
    ) -> tuple[ssl.SSLContext | None, float | None, float | None]:
        """Return the TLS context, and the seconds that handshake and shutdown may take."""
        if address.tls is None:
            return None, None, None
        handshake = self.server.router.settings.limits.header_timeout
        # A client that only keeps the connection for later never confirms that it ended.
        return self._context(address.tls), handshake, UNREAD_GRACE

    def read_certificates(self) -> None:
        """Make ready to take up connections that another process accepts. Raises OSError."""
        for address in self._addresses:
            self._tls_parameters(address)

    async def take_up(self, sock: socket.socket, which: int) -> None:
        """Serve a connection that was accepted on the address number *which*."""
        server = self.server
        context, handshake, shutdown = self._tls_parameters(self._addresses[which])
        loop = asyncio.get_running_loop()
        if context is not None:
            if not server.may_handshake:
                sock.close()
                server.on_closed()
                return
            server.handshakes += 1
        try:
            await loop.connect_accepted_socket(
                self.server,
                sock,
                ssl=context,
                ssl_handshake_timeout=handshake,
                ssl_shutdown_timeout=shutdown,
            )
        except OSError:  # the client left, or TLS could not be agreed upon
            server.on_closed()
        finally:
            if context is not None:
                server.handshakes -= 1

    def _context(self, tls: ListenTls) -> ssl.SSLContext:
        if tls not in self._contexts:
            self._contexts[tls] = server_context(tls)
        return self._contexts[tls]

    def read_certificates_again(self) -> None:
        """Use for new handshakes what the files have now; if one cannot be read, use none."""
        for tls in self._contexts:
            server_context(tls)
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

    async def drain(self, grace: float) -> None:
        """Stop accepting and shut down gracefully: give requests *grace* seconds."""
        await self.stop_accepting()
        await self.server.drain(grace)
        for acceptor in self._acceptors:
            await acceptor.stop()
