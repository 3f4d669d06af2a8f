"""File descriptor passing: connections go from the supervisor that accepts to a worker.

Each goes as two bytes, the number of its address, with the socket attached (SCM_RIGHTS).
The worker reports a ``+`` for each that it takes up, before it reads anything from it, and a
``-`` for each that has ended. So the supervisor knows how busy each worker is; and a connection
that a worker had not taken up when it died is untouched, and another worker can have it.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count

MOST_WAITING = 32
"""Connections that a worker may leave waiting before other workers get theirs. A worker that hangs
delays so many clients and no more: the back-pressure of the acceptor."""

_BATCH = 64
"""Connections taken up in one turn of the loop, so that requests are served in between."""
_TRY_AGAIN = 0.1
"""Seconds after which a send is tried again that the system did not take."""
_TAKEN, _ENDED = b"+", b"-"
_MANY = 4096
_NUMBER = 2
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

_send_order = count(1)

AcceptedConnection = tuple[socket.socket, int]
"""A connection's socket, and the number of the address that it came in by."""


class FdSender:
    """The supervisor's side: passes connections on, and keeps each until it is taken up."""

    def __init__(self, sock: socket.socket, on_capacity: Callable[[], None]) -> None:
        """*on_room* is called when more connections can be passed on than before."""
        sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
        self._sock = sock
        self._on_capacity = on_capacity
        self._waiting: deque[AcceptedConnection] = deque()
        self._serving = 0
        self._is_full = self._is_finished = False
        self.last_sent = 0
        """The position of this worker's last connection among those of all workers."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._on_reports)

    @property
    def load(self) -> int:
        """Connections that the worker serves, or is about to."""
        return len(self._waiting) + self._serving

    @property
    def has_capacity(self) -> bool:
        """Whether the worker takes one more connection."""
        return len(self._waiting) < MOST_WAITING and not self._is_full

    def send(self, accepted: AcceptedConnection) -> bool:
        """Pass a connection on; False if that cannot be done now."""
        connection, which = accepted
        try:
            socket.send_fds(self._sock, [which.to_bytes(_NUMBER)], [connection.fileno()])
        except OSError:  # full, or the worker has just died, which the channel notices
            self._is_full = True
            if not self._waiting:  # so that no report will come that makes capacity free
                self._loop.call_later(_TRY_AGAIN, self._try_again)
            return False
        self._waiting.append(accepted)
        self.last_sent = next(_send_order)
        return True

    def finish(self) -> None:
        """Send no more; the worker sees the end once it has taken up the last connection."""
        self._is_full = self._is_finished = True
        with suppress(OSError):  # the worker is gone already
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> list[AcceptedConnection]:
        """Close after the worker's end; return the connections that it had not taken up."""
        self._loop.remove_reader(self._sock)
        with suppress(OSError):  # there are no more reports
            while reports := self._sock.recv(_MANY):
                self._count(reports)
        self._sock.close()
        left = list(self._waiting)
        self._waiting.clear()
        return left

    def _try_again(self) -> None:
        if self._sock.fileno() >= 0 and not self._is_finished:
            self._is_full = False
            self._on_capacity()

    def _on_reports(self) -> None:
        try:
            reports = self._sock.recv(_MANY)
        except BlockingIOError:
            return
        except OSError:
            reports = b""
        if not reports:
            self._loop.remove_reader(self._sock)
            return
        had_capacity = self.has_capacity
        self._count(reports)
        self._is_full = self._is_finished
        if not had_capacity and self.has_capacity:
            self._on_capacity()

    def _count(self, reports: bytes) -> None:
        taken = reports.count(_TAKEN)
        for _ in range(taken):
            connection, _which = self._waiting.popleft()
            connection.close()
        self._serving += taken - reports.count(_ENDED)


class FdReceiver:
    """The worker's side: takes connections up, and reports each that begins or ends."""

    def __init__(self, sock: socket.socket, take_up: Callable[[socket.socket, int], None]) -> None:
        sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
        self._sock = sock
        self._take_up = take_up
        self._unreported = b""
        self._loop = asyncio.get_running_loop()

    def open(self) -> None:
        """Take up connections from now on."""
        self._loop.add_reader(self._sock, self._receive)

    def connection_ended(self) -> None:
        """Report that a connection has ended."""
        self._report(_ENDED)

    def finish(self) -> None:
        """Take up the connections that have arrived; no more follow."""
        self._loop.remove_reader(self._sock)
        while self._receive():
            pass

    def close(self) -> None:
        """Close the socket; nothing is reported any more."""
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()

    def _receive(self) -> bool:
        """Take up connections that have arrived; False if there were none."""
        arrived: list[tuple[int, list[int]]] = []
        while len(arrived) < _BATCH:
            try:
                data, fds, _, _ = socket.recv_fds(self._sock, _NUMBER, 1, _CLOSE_ON_EXEC)
            except OSError:  # none, or the supervisor is gone, which the channel notices
                break
            if not data:
                self._loop.remove_reader(self._sock)
                break
            arrived.append((int.from_bytes(data), fds))
        self._report(_TAKEN * len(arrived))
        for which, fds in arrived:
            if fds:
                self._take_up(socket.socket(fileno=fds[0]), which)
            else:  # there was no descriptor left to receive it with
                self.connection_ended()
        return bool(arrived)

    def _report(self, reports: bytes) -> None:
        self._unreported += reports
        if self._sock.fileno() < 0:
            return
        try:
            sent = self._sock.send(self._unreported)
        except BlockingIOError:
            sent = 0
        except OSError:  # the supervisor is gone
            sent = len(self._unreported)
        self._unreported = self._unreported[sent:]
        if self._unreported:
            self._loop.add_writer(self._sock, self._report_rest)

    def _report_rest(self) -> None:
        self._loop.remove_writer(self._sock)
        self._report(b"")
