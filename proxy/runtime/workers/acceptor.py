"""Accepts connections in the supervisor and assigns each to a worker: load balancing."""

import socket
from collections import deque
from collections.abc import Callable, Iterable

from proxy.net.acceptor import AcceptLoop
from proxy.runtime.workers.fd_passing import AcceptedConnection, FdSender


class ConnectionAcceptor(AcceptLoop):
    """Accepts while a worker has capacity; other connections wait in the system's backlog."""

    def __init__(self, choose: Callable[[], FdSender | None]) -> None:
        """*choose* returns the worker that is next, or None if all have enough to do."""
        super().__init__()
        self._choose = choose
        self._unassigned: deque[AcceptedConnection] = deque()
        """Connections that a worker had not taken up when it died, or that none could take."""

    def has_capacity(self) -> bool:
        """Whether a worker takes one more connection."""
        return self._choose() is not None

    def accepted(self, connection: socket.socket, which: int) -> None:
        """Assign *connection* to a worker; keep it, and accept no more, if none can take it."""
        if not self._assign((connection, which)):
            self._unassigned.append((connection, which))
            self.suspend()

    def close(self) -> None:
        """Accept no more. Connections that no worker took up are closed."""
        super().close()
        self._close_unassigned()

    def _close_unassigned(self) -> None:
        while self._unassigned:
            self._unassigned.popleft()[0].close()

    def reassign(self, connections: Iterable[AcceptedConnection]) -> None:
        """Assign *connections*, which a worker left behind, to other workers."""
        self._unassigned.extend(connections)
        if self.is_open:
            self.resume()
        else:
            self._close_unassigned()

    def resume(self) -> None:
        """Assign what waits, and accept again if nothing is left: a worker may have capacity."""
        while self._unassigned:
            if not self._assign(self._unassigned[0]):
                return
            self._unassigned.popleft()
        super().resume()

    def _assign(self, connection: AcceptedConnection) -> bool:
        # A worker whose channel turns out to be full has no capacity, and is not chosen again.
        while (worker := self._choose()) is not None:
            if worker.send(connection):
                return True
        return False
