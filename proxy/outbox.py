"""Small writes of one turn of the loop, sent together at its end.

A write wakes its reader, and to wake a process that sleeps on another processor
costs more than all our work on a header. Written in the middle of a turn, each
answer wakes its peer anew; written together, most peers are awake already.
Measured at 64 connections: 57 instead of 65 µs of CPU for a small GET. One
caller alone notices nothing: its turn ends at once.
"""

import asyncio

SMALL = 16 * 1024
"""Up to here joining two buffers is cheaper than handing over both."""


class Outbox:
    """Collects writes that are complete messages, on connections that stay open.

    They go out before any task runs that the present turn wakes: whoever puts
    first and wakes its task afterwards may write to the connection, or close it,
    as if the message had gone out at once. But bytes may still come in before.
    """

    __slots__ = ("_loop", "_too_late", "_waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.WriteTransport, bytes] = {}
        self._too_late: set[asyncio.WriteTransport] = set()
        """Those that began to close before their message went out, until they are lost."""

    def put(self, transport: asyncio.WriteTransport, data: bytes) -> None:
        """Write *data* when the present turn ends."""
        waiting = self._waiting
        if not waiting:
            self._loop.call_soon(self._send)
        elif transport in waiting:
            data = waiting[transport] + data
        waiting[transport] = data

    def take_back(self, transport: asyncio.WriteTransport) -> bool:
        """Give up what waits for *transport*; False if that has gone out already.

        To be called for every transport that is lost, at the latest.
        """
        if transport in self._too_late:
            self._too_late.remove(transport)
            return True
        return self._waiting.pop(transport, None) is not None

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for transport, data in waiting.items():
            if transport.is_closing():
                # Its owner hears of the end only now, and will ask whether this went out.
                self._too_late.add(transport)
            else:
                transport.write(data)
