"""Write batching: small writes of one turn of the event loop, coalesced and sent at its end.

A write wakes its reader, and to wake a process that sleeps on another processor
costs more than all the proxy's work on a head. Written in the middle of a turn, each
answer wakes its peer anew; written together, most peers are awake already.
Measured at 64 connections: 57 instead of 65 µs of CPU for a small GET. A single
client notices nothing: its turn of the loop ends at once.
"""

import asyncio
from collections.abc import Callable

SMALL = 16 * 1024
"""Up to here joining two buffers is cheaper than handing over both."""


_OnUnsent = Callable[[], None] | None


class WriteCoalescer:
    """Collects writes that are complete messages, on connections that stay open.

    The writes go out before any task runs that the present turn wakes: a caller that first
    puts a message and then wakes a task may let that task write to the connection, or
    close it, as if the message had gone out at once. But bytes may still come in before.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.waiting: dict[asyncio.WriteTransport, tuple[bytes, _OnUnsent]] = {}
        """By transport, the bytes that go out at the end of the present turn of the loop."""

    def put(
        self, transport: asyncio.WriteTransport, data: bytes, on_unsent: _OnUnsent = None
    ) -> None:
        """Write *data* when the present turn of the loop ends.

        If the transport begins to close before that, *on_unsent* is called instead.
        """
        waiting = self.waiting
        if not waiting:
            self._loop.call_soon(self._send)
        elif transport in waiting:
            data = waiting[transport][0] + data
        waiting[transport] = (data, on_unsent)

    def take_back(self, transport: asyncio.WriteTransport) -> bool:
        """Discard what was put for *transport*; return False if it has gone out already."""
        return self.waiting.pop(transport, None) is not None

    def flush(self, transport: asyncio.WriteTransport) -> None:
        """Write at once what was put for *transport*."""
        _write({transport: self.waiting.pop(transport)})

    def _send(self) -> None:
        waiting, self.waiting = self.waiting, {}
        _write(waiting)


def _write(waiting: dict[asyncio.WriteTransport, tuple[bytes, _OnUnsent]]) -> None:
    for transport, (data, on_unsent) in waiting.items():
        if not transport.is_closing():
            transport.write(data)
        elif on_unsent is not None:
            on_unsent()
