"""The accept loop: batches, suspension, and a rest when descriptors run out."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from proxy.net.acceptor import AcceptLoop
from tests.support import both_loops, eventually


class RecordingLoop(AcceptLoop):
    """Keeps what it accepted, up to its capacity."""

    def __init__(self) -> None:
        super().__init__()
        self.capacity = 1000
        self.connections: list[tuple[socket.socket, int]] = []

    def has_capacity(self) -> bool:
        return len(self.connections) < self.capacity

    def accepted(self, connection: socket.socket, which: int) -> None:
        self.connections.append((connection, which))


class Scene:
    """Listening sockets, an accept loop that is not open yet, and clients."""

    def __init__(self, stack: ExitStack, listeners: int) -> None:
        self._stack = stack
        self.listening = []
        for _ in range(listeners):
            sock = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=256))
            sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
            self.listening.append(sock)
        self.loop = RecordingLoop()

    def open(self) -> None:
        self.loop.open([(sock, 10 + number) for number, sock in enumerate(self.listening)])

    def connect(self, count: int = 1, listener: int = 0) -> list[socket.socket]:
        address = self.listening[listener].getsockname()
        return [self._stack.enter_context(socket.create_connection(address)) for _ in range(count)]

    @property
    def count(self) -> int:
        return len(self.loop.connections)

    def close(self) -> None:
        self.loop.close()
        for connection, _ in self.loop.connections:
            connection.close()


@contextmanager
def scene(listeners: int = 1) -> Iterator[Scene]:
    with ExitStack() as stack:
        made = Scene(stack, listeners)
        try:
            yield made
        finally:
            made.close()


@both_loops
async def test_every_connection_comes_with_the_number_of_its_address() -> None:
    with scene(listeners=2) as made:
        made.open()
        made.connect(2, listener=1)
        await eventually(lambda: made.count == 2)
        made.connect(1, listener=0)
        await eventually(lambda: made.count == 3)
        assert [which for _, which in made.loop.connections] == [11, 11, 10]


@both_loops
async def test_more_than_one_batch_is_accepted() -> None:
    with scene() as made:
        made.connect(100)
        made.open()
        await eventually(lambda: made.count == 100)


@both_loops
async def test_connections_beyond_the_capacity_stay_in_the_backlog_until_it_resumes() -> None:
    with scene() as made:
        made.loop.capacity = 3
        made.connect(5)
        made.open()
        await eventually(lambda: made.count == 3 and not made.loop.is_accepting)
        made.loop.capacity = 5
        made.loop.resume()
        await eventually(lambda: made.count == 5)


@both_loops
async def test_a_closed_loop_accepts_nothing_and_leaves_the_sockets_open() -> None:
    with scene() as made:
        made.open()
        made.loop.close()
        made.loop.resume()
        assert not made.loop.is_accepting
        assert made.listening[0].fileno() >= 0


@both_loops
async def test_without_descriptors_it_backs_off_and_resumes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with scene() as made:
        clients = made.connect(3)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(client.fileno() for client in clients)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        try:
            made.open()
            await eventually(lambda: "no connection can be accepted for 1 s" in caplog.text)
            assert not made.loop.is_accepting
            made.loop.resume()
            assert not made.loop.is_accepting, "not before the second is over"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await eventually(lambda: made.count == 3)
