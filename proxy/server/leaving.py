"""Notices that clients have left while nothing is read from them.

Reading pauses when a client has sent more than is wanted just now, and with it the
news of its end. While a request waits, for its turn or between two attempts, somebody
should look. One timer looks after all of them: thousands may wait in line.
"""

import asyncio
import socket
from typing import Protocol

LOOK_EVERY = 0.03
"""Seconds: a wait ends within 50 ms of its client's leaving."""

_ESTABLISHED = 1
"""As Linux numbers the states of a connection in TCP_INFO."""
_TCP_INFO = getattr(socket, "TCP_INFO", None)


class Client(Protocol):
    """A client's connection."""

    transport: asyncio.Transport | None


class Lookout:
    """Aborts the connections of waiting clients whose other end is gone."""

    __slots__ = ("_loop", "_timer", "_waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: set[Client] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, client: Client) -> None:
        """From now on, until :meth:`forget`."""
        self._waiting.add(client)
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_EVERY, self._look)

    def forget(self, client: Client) -> None:
        """It waits no longer."""
        self._waiting.discard(client)
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_EVERY, self._look)
        for client in tuple(self._waiting):
            transport = client.transport
            if transport is not None and not transport.is_reading() and _has_left(transport):
                transport.abort()


def _has_left(transport: asyncio.Transport) -> bool:
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family == socket.AF_UNIX or _TCP_INFO is None:
        return False
    # Anything else means that it has sent its FIN, or a reset.
    state: int = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0]
    return state != _ESTABLISHED
