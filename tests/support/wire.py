"""One end of a raw connection: what came, how it ended, and ways to be rude."""

import asyncio
import socket
import struct
from collections.abc import Callable
from enum import StrEnum
from typing import cast
from weakref import WeakSet

from tests.support.waiting import PATIENCE

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_wires: "WeakSet[Wire]" = WeakSet()


class End(StrEnum):
    """How the peer ended a connection."""

    CLOSED = "closed"  # FIN
    RESET = "reset"  # RST


class WireEnded(Exception):
    """The peer ended the connection before what was waited for had come."""

    def __init__(self, how: End, partial: bytes) -> None:
        super().__init__(f"{how} after {partial[-200:]!r}")
        self.how = how
        self.partial = partial


class Wire(asyncio.Protocol):
    """A socket without manners of its own.

    Unlike asyncio's streams it keeps what came before a reset, stays open for
    writing after the peer's FIN, and stops reading only when told to.
    """

    def __init__(self) -> None:
        _wires.add(self)
        self.unread = bytearray()
        self.received = 0
        """Bytes that ever came."""
        self.end: End | None = None
        """How the peer ended it; None while it has not."""
        self._transport: asyncio.Transport | None = None
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()
        self.patience = PATIENCE
        """Seconds without a byte after which whoever reads has waited in vain."""
        self.connected = asyncio.Event()
        """Set once it can be used, after a TLS handshake if there is one."""

    def __repr__(self) -> str:
        return f"<wire {self.end or 'open'}, {len(self.unread)} bytes unread>"

    # Reading.

    async def read(self, size: int = 65536) -> bytes:
        """What is there, or the next that comes; nothing at the end."""
        await self._wait(lambda: bool(self.unread) or self.end is not None, self.patience)
        return self._take(min(size, len(self.unread)))

    async def read_exactly(self, size: int) -> bytes:
        """That many bytes; :class:`WireEnded` if the peer ends before."""
        await self._wait(lambda: len(self.unread) >= size or self.end is not None, self.patience)
        if len(self.unread) < size:
            raise self._ended()
        return self._take(size)

    async def read_until(self, marker: bytes) -> bytes:
        """Everything up to *marker* and the marker; :class:`WireEnded` as above."""
        await self._wait(lambda: marker in self.unread or self.end is not None, self.patience)
        if marker not in self.unread:
            raise self._ended()
        return self._take(self.unread.index(marker) + len(marker))

    async def something(self) -> None:
        """Wait, for ever if need be, until there is something to read or it has ended."""
        await self._wait(lambda: bool(self.unread) or self.end is not None, within=None)

    async def ended(self, within: float = PATIENCE) -> End:
        """How the peer ended it, once it has."""
        await self._wait(lambda: self.end is not None, within, whatever_comes=True)
        assert self.end is not None
        return self.end

    async def _wait(
        self,
        reached: Callable[[], bool],
        within: float | None,
        *,
        whatever_comes: bool = False,
    ) -> None:
        """Wait for that; in vain if nothing comes for so long, or nothing else *whatever_comes*."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within) as patience:
                while not reached():
                    self._changed.clear()
                    await self._changed.wait()
                    if within is not None and not whatever_comes:
                        patience.reschedule(loop.time() + within)
        except TimeoutError:
            if reached():
                return  # it came while nothing ran here: after a standstill timers are served first
            raise AssertionError(
                f"waited {within} s in vain on {self!r}: {self.unread!r}"
            ) from None

    def _take(self, size: int) -> bytes:
        data = bytes(self.unread[:size])
        del self.unread[:size]
        return data

    def _ended(self) -> WireEnded:
        assert self.end is not None
        return WireEnded(self.end, self._take(len(self.unread)))

    # Writing.

    @property
    def is_open(self) -> bool:
        """Whether one can still write to it."""
        return self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send; a connection that is gone takes it in silence, as a kernel does."""
        if self.is_open:
            self.transport.write(data)

    async def drain(self) -> None:
        """Wait until the peer has taken nearly all of it, or is gone."""
        await self._writable.wait()

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "not connected"
        return self._transport

    # Manners, good and bad.

    def stall(self) -> None:
        """Read no more: the peer's bytes pile up."""
        self.transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        self.transport.resume_reading()

    def half_close(self) -> None:
        """Send FIN and go on reading."""
        if self.is_open:
            self.transport.write_eof()

    def reset(self) -> None:
        """Send RST."""
        if self.is_open:
            sock = cast("socket.socket", self.transport.get_extra_info("socket"))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.transport.abort()

    def close(self) -> None:
        """Close both ways, once what was written has gone out."""
        if self._transport is not None:
            self._transport.close()

    async def close_and_wait(self) -> None:
        """Close; afterwards the socket is gone. Unsent bytes are given up."""
        if self._transport is not None:
            self._transport.abort()
            await self._gone.wait()

    # From the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.connected.set()

    def data_received(self, data: bytes) -> None:
        self.unread += data
        self.received += len(data)
        self._changed.set()

    def eof_received(self) -> bool:
        self._note_end(End.CLOSED)
        # TLS has no half-closed state.
        transport = self._transport  # gone already, if asyncio's TLS tells of both at once
        return transport is not None and transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        self._note_end(End.CLOSED if exc is None else End.RESET)
        self._transport = None
        self._writable.set()
        self._gone.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _note_end(self, how: End) -> None:
        if self.end is None:
            self.end = how
        self._changed.set()


def own_descriptors() -> set[int]:
    """Descriptors of all wires that are open: the test's own, not the proxy's."""
    transports = [wire.transport for wire in _wires if wire.is_open]
    sockets = [transport.get_extra_info("socket") for transport in transports]
    # One that is closing may have lost its socket already.
    return {sock.fileno() for sock in sockets if sock is not None}
