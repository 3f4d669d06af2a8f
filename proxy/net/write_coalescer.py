"""Small writes of one turn of the loop, sent together at its end.

A write wakes its reader, and to wake a process that sleeps on another processor
costs more than all our work on a header. Written in the middle of a turn, each
answer wakes its peer anew; written together, most peers are awake already.
Measured at 64 connections: 57 instead of 65 µs of CPU for a small GET. One
caller alone notices nothing: its turn ends at once.
"""

import asyncio
from collections.abc import Callable

SMALL = 16 * 1024
"""Up to here joining two buffers is cheaper than handing over both."""


_Told = Callable[[], None] | None


class WriteCoalescer:
    """Collects writes that are complete messages, on connections that stay open.

    They go out before any task runs that the present turn wakes: whoever puts
    first and wakes its task afterwards may write to the connection, or close it,
    as if the message had gone out at once. But bytes may still come in before.
    """

    __slots__ = ("_loop", "waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.waiting: dict[asyncio.WriteTransport, tuple[bytes, _Told]] = {}
        """What goes out at the end of the present turn."""

    def put(self, transport: asyncio.WriteTransport, data: bytes, unsent: _Told = None) -> None:
        """Write *data* when the present turn ends.

        If the transport begins to close before that, *unsent* is called instead.
        """
        waiting = self.waiting
        if not waiting:
            self._loop.call_soon(self._send)
        elif transport in waiting:
            data = waiting[transport][0] + data
        waiting[transport] = (data, unsent)

    def take_back(self, transport: asyncio.WriteTransport) -> bool:
        """Give up what waits for *transport*; False if that has gone out already."""
        return self.waiting.pop(transport, None) is not None

    def flush(self, transport: asyncio.WriteTransport) -> None:
        """Write what waits for *transport* now."""
        _write({transport: self.waiting.pop(transport)})

    def _send(self) -> None:
        waiting, self.waiting = self.waiting, {}
        _write(waiting)


def _write(waiting: dict[asyncio.WriteTransport, tuple[bytes, _Told]]) -> None:
    for transport, (data, unsent) in waiting.items():
        if not transport.is_closing():
            transport.write(data)
        elif unsent is not None:
            unsent()
