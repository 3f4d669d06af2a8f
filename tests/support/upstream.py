"""An upstream that does as the test says: "expect this, answer that"."""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from tests.support.messages import NotCanonical, Request, read_body, read_request_head
from tests.support.ports import held_port
from tests.support.virtual import in_virtual_time
from tests.support.waiting import eventually
from tests.support.wire import Wire, WireEnded

_BACKLOG = 1024
"""A crowd may come at once, and whom the system turns away comes back a second later."""


class Visit:
    """One request, and the connection to answer it on."""

    def __init__(self, request: Request, wire: Wire, number: int) -> None:
        self.request = request
        self.wire = wire
        self.number = number
        """Which of the upstream's requests it is, counted from 1."""

    async def read_body(self) -> bytes:
        """Read the request's body; what came of it is in ``request`` too."""
        if not self.request.complete:
            await read_body(self.wire, self.request)
        return self.request.body

    async def send(self, *pieces: bytes) -> None:
        """Send *pieces*, each on its own: the peer reads one before the next goes out."""
        for index, piece in enumerate(pieces):
            if index:
                await asyncio.sleep(0.002)
            self.wire.write(piece)
            await self.wire.drain()

    async def until_the_peer_leaves(self) -> None:
        """Do nothing, for as long as the proxy keeps the connection."""
        while await self.wire.read():
            pass


Behaviour = Callable[[Visit], Awaitable[None]]
"""What to do about a request whose head has been read. May leave the connection
open (another request may follow on it) or end it."""

Greeting = Callable[[Wire], Awaitable[None]]
"""What to do with a new connection before any request is read from it."""


class Connection:
    """One connection that the proxy made."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.wire = Wire()
        self.requests: list[Request] = []

    def __repr__(self) -> str:
        return f"<upstream's connection {self.number}, {len(self.requests)} requests, {self.wire}>"


class ScriptedUpstream:
    """Listens on 127.0.0.1, records everything, answers as scripted.

    Requests take the scripted behaviours in turn; beyond them there is ``usual``.
    Leaving it fails the test if anything that came was not canonical HTTP/1.1.
    """

    def __init__(
        self,
        usual: Behaviour | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        receive_buffer: int | None = None,
        port: int = 0,
    ) -> None:
        """On a free port unless one is named; *receive_buffer* (bytes) makes a stalled reader
        felt soon.
        """
        self.usual: Behaviour = usual or answer(ok())
        self.requests: list[Request] = []
        """Every request whose head was complete, in the order of arrival."""
        self.connections: list[Connection] = []
        self.violations: list[str] = []
        self.port = port
        self._held: socket.socket | None = None
        self._script: deque[Behaviour] = deque()
        self._greetings: deque[Greeting] = deque()
        self._tls = tls
        self._receive_buffer = receive_buffer
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}"

    def script(self, *behaviours: Behaviour) -> None:
        """The next requests are treated so, one each."""
        self._script.extend(behaviours)

    def has_played(self, behaviour: Behaviour) -> bool:
        """Whether a scripted *behaviour* was begun; if not, it is taken out of the script."""
        if behaviour not in self._script:
            return True
        self._script.remove(behaviour)
        return False

    def greet(self, *greetings: Greeting) -> None:
        """The next connections are treated so before anything is read from them."""
        self._greetings.extend(greetings)

    @property
    def received(self) -> int:
        """Bytes that ever came, on all connections."""
        return sum(connection.wire.received for connection in self.connections)

    @property
    def open_connections(self) -> list[Connection]:
        """Those that neither side has ended."""
        return [c for c in self.connections if c.wire.is_open and c.wire.end is None]

    async def seen(self, count: int = 1) -> Request:
        """The latest request, once there are *count* of them with complete bodies."""
        await eventually(
            lambda: sum(request.complete for request in self.requests) >= count,
            what=f"request number {count} at the upstream",
        )
        return self.requests[-1]

    async def __aenter__(self) -> Self:
        if in_virtual_time():
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._accept, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]
            return self
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        if not self.port:
            self._held = held_port()  # after a stop nobody else shall listen there
            self.port = self._held.getsockname()[1]
        sock.bind(("127.0.0.1", self.port))
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accept, sock=sock, ssl=self._tls, backlog=_BACKLOG
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.stop()
        if self._held is not None:
            self._held.close()
        if error is None:
            assert self.violations == []

    async def stop(self) -> None:
        """Listen no more and end every connection: the upstream is down."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for connection in self.connections:
            await connection.wire.close_and_wait()

    def _accept(self) -> Wire:
        connection = Connection(len(self.connections) + 1)
        self.connections.append(connection)
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return connection.wire

    async def _serve(self, connection: Connection) -> None:
        wire = connection.wire
        await wire.connected.wait()
        try:
            if self._greetings:
                await self._greetings.popleft()(wire)
            while wire.is_open:
                await self._one_request(connection)
        except WireEnded as ended:
            if ended.partial:
                self.violations.append(f"part of a head: {ended.partial!r}")
        except NotCanonical as violation:
            self.violations.append(str(violation))
        finally:
            wire.close()

    async def _one_request(self, connection: Connection) -> None:
        wire = connection.wire
        await wire.something()
        request = await read_request_head(wire)
        request.connection = connection.number
        request.complete = request.framing == "none"
        self.requests.append(request)
        connection.requests.append(request)
        behaviour = self._script.popleft() if self._script else self.usual
        visit = Visit(request, wire, len(self.requests))
        await behaviour(visit)
        if wire.is_open and wire.end is None and not request.complete:
            raise NotCanonical("the next request would begin inside this one's body")


# Ready-made messages.


def response(status: int, body: bytes = b"", *fields: str) -> bytes:
    """A response with a Content-Length; *fields* as ``Name: value``."""
    lines = "".join(f"{line}\r\n" for line in (*fields, f"Content-Length: {len(body)}"))
    return f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode("latin-1") + body


def ok(body: bytes = b"ok", *fields: str) -> bytes:
    """A 200 with a Content-Length."""
    return response(200, body, *fields)


def chunked(*chunks: bytes, last: bool = True) -> bytes:
    """A 200 whose body comes in *chunks*; without *last* its end is missing."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    end = b"0\r\n\r\n" if last else b""
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + end


# Ready-made behaviours.


def answer(*pieces: bytes) -> Behaviour:
    """Read the whole request, send *pieces*, keep the connection."""

    async def behave(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(*pieces)

    return behave


def answer_and_close(*pieces: bytes) -> Behaviour:
    """As :func:`answer`, then FIN."""

    async def behave(visit: Visit) -> None:
        await answer(*pieces)(visit)
        visit.wire.close()

    return behave


def answer_and_reset(*pieces: bytes) -> Behaviour:
    """As :func:`answer`, then RST once the proxy had the time to read them."""

    async def behave(visit: Visit) -> None:
        await answer(*pieces)(visit)
        if pieces:
            await asyncio.sleep(0.01)
        visit.wire.reset()

    return behave


def answer_and_hang(*pieces: bytes) -> Behaviour:
    """As :func:`answer`, then nothing more for as long as the proxy waits."""

    async def behave(visit: Visit) -> None:
        await answer(*pieces)(visit)
        await visit.until_the_peer_leaves()

    return behave


def answer_early(*pieces: bytes) -> Behaviour:
    """Answer before the body was read, and never read it."""

    async def behave(visit: Visit) -> None:
        await visit.send(*pieces)
        await visit.until_the_peer_leaves()

    return behave


async def hang(visit: Visit) -> None:
    """Read everything, answer nothing."""
    await answer_and_hang()(visit)


async def hang_up(visit: Visit) -> None:
    """Read the request, then FIN without a word."""
    await answer_and_close()(visit)


async def reset(visit: Visit) -> None:
    """Read the request, then RST without a word."""
    await answer_and_reset()(visit)


async def stall(visit: Visit) -> None:
    """Read the head and not one byte more, for as long as the proxy waits."""
    visit.wire.stall()
    await asyncio.Event().wait()


async def reset_at_once(wire: Wire) -> None:
    """A greeting: RST before anything was read."""
    wire.reset()


async def close_at_once(wire: Wire) -> None:
    """A greeting: FIN before anything was read."""
    wire.close()
