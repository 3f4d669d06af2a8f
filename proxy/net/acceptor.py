"""The accept loop of a listener: batches, and a rest when the system runs out of descriptors.

A proxy that serves alone accepts its TLS connections with it, so that each is counted before its
handshake; a supervisor accepts with it what its workers serve.
"""

import asyncio
import errno
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence

_BATCH = 64
"""Connections accepted in one iteration of the event loop, so that others are served in between."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_BACK_OFF = 1.0
"""Seconds to wait when the system has no descriptor or no memory for one more connection."""

_log = logging.getLogger("holdfast")


class AcceptLoop(ABC):
    """Accepts on listening sockets and hands each connection to :meth:`accepted`."""

    def __init__(self) -> None:
        self._listening: Sequence[tuple[socket.socket, int]] = ()
        self.is_open = False
        """Whether connections are wanted: from :meth:`open` to :meth:`close`."""
        self.is_accepting = False
        """Whether the event loop watches the sockets: not while suspended or backing off."""
        self._back_off: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @abstractmethod
    def accepted(self, connection: socket.socket, which: int) -> None:
        """Take over *connection*, which came in by the address number *which*."""

    def has_capacity(self) -> bool:
        """Whether one more connection can be taken; if not, it stays in the system's backlog."""
        return True

    def open(self, sockets: Sequence[tuple[socket.socket, int]]) -> None:
        """Accept on *sockets*, each given with the number of its address, from now on."""
        self._listening = tuple(sockets)
        self.is_open = True
        self.resume()

    def close(self) -> None:
        """Accept no more. The sockets stay open: they belong to the caller."""
        self.is_open = False
        self.suspend()
        if self._back_off is not None:
            self._back_off.cancel()

    def resume(self) -> None:
        """Watch the sockets again, unless the loop is closed or backs off."""
        if self.is_open and not self.is_accepting and self._back_off is None:
            self.is_accepting = True
            for sock, which in self._listening:
                self._loop.add_reader(sock, self._accept, sock, which)

    def suspend(self) -> None:
        """Leave new connections in the system's backlog until :meth:`resume`."""
        if self.is_accepting:
            self.is_accepting = False
            for sock, _ in self._listening:
                self._loop.remove_reader(sock)

    def _accept(self, sock: socket.socket, which: int) -> None:
        for _ in range(_BATCH):
            if not self.is_accepting:
                return
            # Asked before accepting: a connection that cannot be taken is better off in the
            # system's backlog, from which another process may get it.
            if not self.has_capacity():
                self.suspend()
                return
            try:
                connection, _peer = sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    continue  # accept(2): this client has left already, the next may be there
                _log.warning("no connection can be accepted for %g s: %s", _BACK_OFF, error)
                self.suspend()
                self._back_off = self._loop.call_later(_BACK_OFF, self._end_back_off)
                return
            self.accepted(connection, which)

    def _end_back_off(self) -> None:
        self._back_off = None
        self.resume()
