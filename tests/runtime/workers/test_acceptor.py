"""From the listener to a worker: in turn, within bounds, and to another if it dies."""

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from proxy.runtime.workers.acceptor import ConnectionAcceptor
from proxy.runtime.workers.fd_passing import MOST_WAITING, AcceptedConnection, FdReceiver, FdSender
from tests.support import eventually


class Stage:
    """A listener, and workers that take up the sockets they are sent when the test says so."""

    def __init__(self, stack: ExitStack, workers: int) -> None:
        self._stack = stack
        self.listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=256))
        self.listening.setblocking(False)  # noqa: FBT003 - the socket module's signature
        self.acceptor = ConnectionAcceptor(self._choose)
        self.senders: list[FdSender] = []
        self.receivers: list[FdReceiver] = []
        self.taken: list[list[socket.socket]] = []
        for _ in range(workers):
            ours, theirs = socket.socketpair()
            taken: list[socket.socket] = []
            self.senders.append(FdSender(ours, self.acceptor.resume))
            self.receivers.append(FdReceiver(theirs, partial(self._take_up, taken)))
            self.taken.append(taken)

    @staticmethod
    def _take_up(taken: list[socket.socket], sock: socket.socket, _: int) -> None:
        taken.append(sock)

    def _choose(self) -> FdSender | None:
        able = [sender for sender in self.senders if sender.has_capacity]
        return min(able, key=lambda sender: (sender.load, sender.last_sent), default=None)

    def connect(self, count: int = 1) -> list[socket.socket]:
        """Clients that are connected, or wait to be."""
        return [
            self._stack.enter_context(socket.create_connection(self.listening.getsockname()))
            for _ in range(count)
        ]

    def open(self) -> None:
        self.acceptor.open([(self.listening, 7)])

    @property
    def loads(self) -> list[int]:
        return [sender.load for sender in self.senders]

    def kill(self, worker: int) -> list[AcceptedConnection]:
        """What a worker leaves that ends with all it has; its end of the socket pair closes."""
        sender = self.senders.pop(worker)
        self.receivers.pop(worker).close()
        return sender.close()

    def close(self) -> None:
        self.acceptor.close()
        while self.senders:
            for connection, _ in self.kill(0):
                connection.close()
        for sock in (sock for taken in self.taken for sock in taken):
            sock.close()


@contextmanager
def stage(workers: int) -> Iterator[Stage]:
    with ExitStack() as stack:
        set_up = Stage(stack, workers)
        try:
            yield set_up
        finally:
            set_up.close()


async def test_each_worker_gets_its_turn_and_the_idle_one_what_comes_next() -> None:
    with stage(3) as scene:
        scene.open()
        scene.connect(6)
        await eventually(lambda: scene.loads == [2, 2, 2])
        for receiver in scene.receivers:
            receiver.open()
        await eventually(lambda: [len(taken) for taken in scene.taken] == [2, 2, 2])
        scene.receivers[1].connection_ended()
        scene.receivers[1].connection_ended()
        await eventually(lambda: scene.loads == [2, 0, 2])
        scene.connect(2)
        await eventually(lambda: scene.loads == [2, 2, 2])


async def test_what_arrives_is_the_client_s_own_connection() -> None:
    with stage(1) as scene:
        scene.open()
        scene.receivers[0].open()
        (client,) = scene.connect()
        await eventually(lambda: scene.taken[0])
        (served,) = scene.taken[0]
        assert served.getpeername() == client.getsockname()
        client.sendall(b"hello")
        assert await asyncio.get_running_loop().sock_recv(served, 5) == b"hello"


async def test_whom_nobody_can_take_waits_in_the_system_s_line() -> None:
    with stage(2) as scene:
        scene.open()
        scene.connect(2 * MOST_WAITING + 20)
        await eventually(lambda: scene.loads == [MOST_WAITING] * 2)
        await eventually(lambda: not scene.acceptor.is_accepting)
        scene.receivers[0].open()
        await eventually(lambda: len(scene.taken[0]) == MOST_WAITING + 20)
        assert scene.loads == [MOST_WAITING + 20, MOST_WAITING]


async def test_what_a_dead_worker_had_not_taken_up_goes_to_another() -> None:
    with stage(2) as scene:
        scene.open()
        scene.connect(8)
        await eventually(lambda: scene.loads == [4, 4])
        survivors = scene.taken[1]
        left = scene.kill(0)
        assert [which for _, which in left] == [7] * 4
        scene.acceptor.reassign(left)
        scene.receivers[0].open()
        await eventually(lambda: len(survivors) == 8)


async def test_what_it_had_taken_up_dies_with_it() -> None:
    with stage(2) as scene:
        scene.open()
        scene.connect(8)
        await eventually(lambda: scene.loads == [4, 4])
        scene.receivers[0].open()
        await eventually(lambda: len(scene.taken[0]) == 4)
        assert scene.kill(0) == []


async def test_the_last_connections_are_taken_up_before_the_end() -> None:
    with stage(1) as scene:
        scene.open()
        scene.connect(5)
        await eventually(lambda: scene.loads == [5])
        scene.acceptor.close()
        scene.senders[0].finish()
        scene.receivers[0].finish()
        assert len(scene.taken[0]) == 5


async def test_a_shortage_of_descriptors_passes(caplog: pytest.LogCaptureFixture) -> None:
    with stage(1) as scene:
        scene.receivers[0].open()
        clients = scene.connect(3)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(client.fileno() for client in clients)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        try:
            scene.open()
            await eventually(lambda: "no connection can be accepted for 1 s" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await eventually(lambda: len(scene.taken[0]) == 3)
