"""The way of a connection from the process that accepted it to the one that serves it.

Each goes as two bytes, the number of its address, with the socket attached (SCM_RIGHTS).
Back comes a ``+`` for each that is taken up, before anything is read from it, and a ``-``
for each that has ended. So the supervisor knows how busy each worker is; and what a worker
had not taken up when it died is untouched, and another one can have it.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count

MOST_WAITING = 32
"""Connections that a worker may leave waiting before others get theirs. One that hangs holds up
so many clients and no more."""

_BATCH = 64
"""Connections taken up in one turn of the loop, so that requests are served in between."""
_TRY_AGAIN = 0.1
"""Seconds after which a door is tried again that the system does not let anything through."""
_TAKEN, _LEFT = b"+", b"-"
_MANY = 4096
_NUMBER = 2
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

_dealt = count(1)

Dealt = tuple[socket.socket, int]
"""A connection, and the number of the address that it came in by."""


class FdSender:
    """The supervisor's side: hands connections over, and keeps them until they are taken up."""

    def __init__(self, sock: socket.socket, on_room: Callable[[], None]) -> None:
        """*on_room* is called when more can be handed over than before."""
        sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
        self._sock = sock
        self._on_room = on_room
        self._waiting: deque[Dealt] = deque()
        self._serving = 0
        self._is_full = self._is_finished = False
        self.last_given = 0
        """Of all connections that were dealt to anybody, which was its last."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._hear)

    @property
    def load(self) -> int:
        """Connections that the worker has, or is about to have."""
        return len(self._waiting) + self._serving

    @property
    def has_room(self) -> bool:
        """Whether it takes one more."""
        return len(self._waiting) < MOST_WAITING and not self._is_full

    def give(self, dealt: Dealt) -> bool:
        """Hand a connection over; False if that cannot be done now."""
        connection, which = dealt
        try:
            socket.send_fds(self._sock, [which.to_bytes(_NUMBER)], [connection.fileno()])
        except OSError:  # full, or the worker has just died, which its channel tells
            self._is_full = True
            if not self._waiting:  # so that no sign will come which says that it takes more
                self._loop.call_later(_TRY_AGAIN, self._try_again)
            return False
        self._waiting.append(dealt)
        self.last_given = next(_dealt)
        return True

    def finish(self) -> None:
        """No more come: the worker sees the end once it has taken up the last."""
        self._is_full = self._is_finished = True
        with suppress(OSError):  # it is gone already
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> list[Dealt]:
        """The worker has ended: what it had not taken up."""
        self._loop.remove_reader(self._sock)
        with suppress(OSError):  # there is no more to hear
            while signs := self._sock.recv(_MANY):
                self._note(signs)
        self._sock.close()
        left = list(self._waiting)
        self._waiting.clear()
        return left

    def _try_again(self) -> None:
        if self._sock.fileno() >= 0 and not self._is_finished:
            self._is_full = False
            self._on_room()

    def _hear(self) -> None:
        try:
            signs = self._sock.recv(_MANY)
        except BlockingIOError:
            return
        except OSError:
            signs = b""
        if not signs:
            self._loop.remove_reader(self._sock)
            return
        had_room = self.has_room
        self._note(signs)
        self._is_full = self._is_finished
        if not had_room and self.has_room:
            self._on_room()

    def _note(self, signs: bytes) -> None:
        taken = signs.count(_TAKEN)
        for _ in range(taken):
            connection, _which = self._waiting.popleft()
            connection.close()
        self._serving += taken - signs.count(_LEFT)


class FdReceiver:
    """The worker's side."""

    def __init__(self, sock: socket.socket, take_up: Callable[[socket.socket, int], None]) -> None:
        sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
        self._sock = sock
        self._take_up = take_up
        self._unsent = b""
        self._loop = asyncio.get_running_loop()

    def open(self) -> None:
        """Take connections up from now on."""
        self._loop.add_reader(self._sock, self._receive)

    def left(self) -> None:
        """One has ended."""
        self._tell(_LEFT)

    def finish(self) -> None:
        """Take up what is there; nothing follows."""
        self._loop.remove_reader(self._sock)
        while self._receive():
            pass

    def close(self) -> None:
        """Tell nothing any more."""
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()

    def _receive(self) -> bool:
        """Take some up; False if there were none."""
        arrived: list[tuple[int, list[int]]] = []
        while len(arrived) < _BATCH:
            try:
                data, fds, _, _ = socket.recv_fds(self._sock, _NUMBER, 1, _CLOSE_ON_EXEC)
            except OSError:  # none, or the supervisor is gone, which its channel tells
                break
            if not data:
                self._loop.remove_reader(self._sock)
                break
            arrived.append((int.from_bytes(data), fds))
        self._tell(_TAKEN * len(arrived))
        for which, fds in arrived:
            if fds:
                self._take_up(socket.socket(fileno=fds[0]), which)
            else:  # there was no descriptor left to receive it with
                self.left()
        return bool(arrived)

    def _tell(self, signs: bytes) -> None:
        self._unsent += signs
        if self._sock.fileno() < 0:
            return
        try:
            sent = self._sock.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:  # nobody listens any more
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._loop.add_writer(self._sock, self._tell_rest)

    def _tell_rest(self) -> None:
        self._loop.remove_writer(self._sock)
        self._tell(b"")
