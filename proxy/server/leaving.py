"""Notices that a client has left while nothing is read from it.

Reading pauses when a client has sent more than is wanted just now, and with it the
news of its end. While a request waits between two attempts somebody should look.
"""

import socket
from asyncio import AbstractEventLoop, BaseTransport, TimerHandle, Transport
from collections.abc import Callable

LOOK_EVERY = 0.03
"""Seconds: a wait ends within 50 ms of its client's leaving."""

_ESTABLISHED = 1
"""As Linux numbers the states of a connection in TCP_INFO."""
_TCP_INFO = getattr(socket, "TCP_INFO", None)


class Leaving:
    """Aborts a connection whose other end is gone."""

    __slots__ = ("_loop", "_timer", "_transport")

    def __init__(self, loop: AbstractEventLoop, transport: Callable[[], Transport | None]) -> None:
        self._loop = loop
        self._transport = transport
        self._timer: TimerHandle = loop.call_later(LOOK_EVERY, self._look)

    def stop(self) -> None:
        """Somebody else will notice from now on."""
        self._timer.cancel()

    def _look(self) -> None:
        transport = self._transport()
        if transport is None:
            return
        if not transport.is_reading() and _has_left(transport):
            transport.abort()
        else:
            self._timer = self._loop.call_later(LOOK_EVERY, self._look)


def _has_left(transport: BaseTransport) -> bool:
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family == socket.AF_UNIX or _TCP_INFO is None:
        return False
    # Anything else means that it has sent its FIN, or a reset.
    state: int = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0]
    return state != _ESTABLISHED
