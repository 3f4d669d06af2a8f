"""Accepting connections, and dealing each to a worker."""

import asyncio
import errno
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from proxy.runtime.workers.fd_passing import AcceptedConnection, FdSender

_BATCH = 64
"""Connections accepted in one turn of the loop."""
_SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SHORTAGE = 1.0
"""Seconds to wait when the system has no descriptor or no memory for one more."""

_log = logging.getLogger("holdfast")


class ConnectionAcceptor:
    """Accepts while there is a worker to take it; the rest waits in the system's own line."""

    def __init__(self, choose: Callable[[], FdSender | None]) -> None:
        """*choose* names the worker that is next, or nobody if all have enough to do."""
        self._choose = choose
        self._sockets: Sequence[tuple[socket.socket, int]] = ()
        self._undealt: deque[AcceptedConnection] = deque()
        """Those that a worker had not taken up when it died."""
        self._is_open = False
        self.is_accepting = False
        """Whether the listeners are looked at; not while nobody could take a connection."""
        self._shortage: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def open(self, sockets: Sequence[tuple[socket.socket, int]]) -> None:
        """Accept on these, each with the number of its address, from now on."""
        self._sockets = tuple(sockets)
        self._is_open = True
        self.go_on()

    def close(self) -> None:
        """Accept no more. What nobody took up is closed."""
        self._is_open = False
        self._hold_on()
        if self._shortage is not None:
            self._shortage.cancel()
        self._turn_away()

    def _turn_away(self) -> None:
        while self._undealt:
            self._undealt.popleft()[0].close()

    def deal_again(self, dealt: Iterable[AcceptedConnection]) -> None:
        """These were not taken up."""
        self._undealt.extend(dealt)
        if self._is_open:
            self.go_on()
        else:
            self._turn_away()

    def go_on(self) -> None:
        """There may be a worker with room again."""
        while self._undealt:
            if not self._deal(self._undealt[0]):
                return
            self._undealt.popleft()
        if self._is_open and not self.is_accepting and self._shortage is None:
            self.is_accepting = True
            for sock, which in self._sockets:
                self._loop.add_reader(sock, self._accept, sock, which)

    def _hold_on(self) -> None:
        if self.is_accepting:
            self.is_accepting = False
            for sock, _ in self._sockets:
                self._loop.remove_reader(sock)

    def _accept(self, sock: socket.socket, which: int) -> None:
        for _ in range(_BATCH):
            if not self.is_accepting:
                return
            # Asked for first: whom nobody can take is better off in the system's line.
            if self._choose() is None:
                self._hold_on()
                return
            try:
                connection, _peer = sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _SHORT_OF:
                    continue  # accept(2): this client has left already, the next may be there
                _log.warning("no connection can be accepted for %g s: %s", _SHORTAGE, error)
                self._hold_on()
                self._shortage = self._loop.call_later(_SHORTAGE, self._shortage_is_over)
                return
            if not self._deal((connection, which)):
                self._undealt.append((connection, which))
                self._hold_on()

    def _shortage_is_over(self) -> None:
        self._shortage = None
        self.go_on()

    def _deal(self, dealt: AcceptedConnection) -> bool:
        # One whose channel turns out to be full has no room, and is not chosen again.
        while (fd_sender := self._choose()) is not None:
            if fd_sender.send(dealt):
                return True
        return False
