"""Accepts TLS connections one by one, so that each is counted before its handshake.

The event loop's own servers tell of a connection when its handshake is over. Those that never
get there would be counted by nobody, and hold a descriptor each.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence

_BATCH = 64
"""Connections accepted in one turn of the loop."""
_SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SHORTAGE = 1.0
"""Seconds to wait when the system has no descriptor or no memory for one more."""

_log = logging.getLogger("holdfast")

TakeUp = Callable[[socket.socket], Coroutine[object, object, None]]


class Acceptor:
    """Accepts on some listening sockets, and hands each connection to *take_up*."""

    def __init__(self, sockets: Sequence[socket.socket], take_up: TakeUp, backlog: int) -> None:
        self.sockets = tuple(sockets)
        self._take_up = take_up
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        """Handshakes under way."""
        self._shortage: asyncio.TimerHandle | None = None
        for sock in self.sockets:
            sock.listen(backlog)
        self._begin()

    def close(self) -> None:
        """Accept no more. Handshakes under way go on."""
        self._pause()
        if self._shortage is not None:
            self._shortage.cancel()
        for sock in self.sockets:
            sock.close()

    async def stop(self) -> None:
        """End the handshakes that are still under way."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self) -> None:
        self._shortage = None
        for sock in self.sockets:
            self._loop.add_reader(sock, self._accept, sock)

    def _pause(self) -> None:
        for sock in self.sockets:
            self._loop.remove_reader(sock)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_BATCH):
            try:
                sock, _peer = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _SHORT_OF:
                    continue  # accept(2): this client has left already, the next may be there
                _log.warning("no connection can be accepted for %g s: %s", _SHORTAGE, error)
                self._pause()
                self._shortage = self._loop.call_later(_SHORTAGE, self._begin)
                return
            sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
            task = self._loop.create_task(self._take_up(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
