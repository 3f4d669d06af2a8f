"""Connections in memory: what :class:`~proxy.core.virtual_time.VirtualLoop` has instead of sockets.

Two transports make a connection. They behave as asyncio's over TCP do, as far as a protocol can
tell: bytes and FIN arrive in a later turn of the loop and in order, a window bounds what is under
way, a reader that stops stops its writer (back-pressure), a close flushes and an abort does not,
and what is written to an end that has closed comes back as a reset.
"""

import asyncio
import socket
import struct
from asyncio.transports import _FlowControlMixin
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, cast

Address = tuple[str, int]
ProtocolFactory = Callable[[], asyncio.BaseProtocol]

WINDOW = 256 * 1024
"""Bytes that may be under way or unread in one direction, before the sender's buffer fills."""
_MOST_AT_ONCE = 64 * 1024
"""Bytes that are delivered in one turn of the loop, as from one read of a socket."""
NO_LINGER = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which a close is a reset."""


class _Signal(Enum):
    """What can arrive besides bytes."""

    FIN = "fin"
    RST = "rst"


class MemorySocket:
    """What a protocol may ask of, and set on, the socket of a connection in memory."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, sockname: Address, peername: Address | None = None) -> None:
        self._sockname = sockname
        self._peername = peername
        self.resets_on_close = False
        """Whether SO_LINGER is on with no time: a close discards all and sends a reset."""

    def fileno(self) -> int:
        """Return -1: there is no descriptor."""
        return -1

    def getsockname(self) -> Address:
        """Return the address of this end."""
        return self._sockname

    def getpeername(self) -> Address:
        """Return the address of the other end; OSError for a listening socket."""
        if self._peername is None:
            raise OSError("not connected")
        return self._peername

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Obey SO_LINGER without time. Other options change nothing of what a peer sees."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
            self.resets_on_close = value == NO_LINGER


class MemoryServer:
    """A listening address; ``loop.create_server`` makes it."""

    def __init__(
        self,
        protocol_factory: ProtocolFactory,
        addresses: list[Address],
        on_closed: Callable[[], None],
    ) -> None:
        self.protocol_factory = protocol_factory
        self._on_closed = on_closed
        self.sockets = tuple(map(MemorySocket, addresses))
        """A socket for each address; none once it is closed."""

    def close(self) -> None:
        """Refuse connections from now on; those that are open stay."""
        if self.sockets:
            self.sockets = ()
            self._on_closed()

    async def wait_closed(self) -> None:
        """Return at once: nothing of a listening address outlives its close."""


class MemoryTransport(_FlowControlMixin):
    """One end of a connection; :func:`connect` makes both."""

    _peer: "MemoryTransport"
    # Of the base class, which compares the write buffer with its limits.
    _maybe_pause_protocol: Callable[[], None]
    _maybe_resume_protocol: Callable[[], None]

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        sock: MemorySocket,
        latency: float,
    ) -> None:
        super().__init__(
            {"socket": sock, "sockname": sock.getsockname(), "peername": sock.getpeername()},
            loop,
        )
        self._loop = loop
        self.set_protocol(protocol)
        self._sock = sock
        self._latency = latency
        self._is_connected = False
        """Whether the protocol knows the transport, and may be given what arrives."""
        self._outgoing = bytearray()
        """The write buffer: what the window does not admit yet."""
        self._arriving: deque[tuple[float, bytes | _Signal]] = deque()
        """What is under way to this end or unread there, each with the time of its arrival."""
        self._unread = 0
        """Bytes of ``_arriving``: the part of the window that is taken."""
        self._delivery: asyncio.Handle | None = None
        self._reading_paused = False
        self._has_eof = False
        """Whether the peer's FIN was delivered."""
        self._eof_written = False
        self._eof_sent = False
        self._closing = False
        self._is_lost = False
        """Whether the call of ``connection_lost`` is due, or was made."""
        self._is_gone = False
        """Whether this end is closed: what arrives is answered with a reset."""

    def __repr__(self) -> str:
        state = "closed" if self._is_gone else "closing" if self._closing else "open"
        own, other = (":".join(map(str, self.get_extra_info(end))) for end in _ENDS)
        return f"<memory transport {own} to {other}, {state}>"

    # The protocol's view.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give *protocol* what arrives from now on."""
        if isinstance(protocol, asyncio.BufferedProtocol):
            raise NotImplementedError("a connection in memory serves no BufferedProtocol")
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._closing and not self._reading_paused

    def pause_reading(self) -> None:
        """Leave in the window what arrives."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Read again, first what is in the window."""
        self._reading_paused = False
        self._schedule_delivery()

    def get_write_buffer_size(self) -> int:
        return len(self._outgoing)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send *data*, as far as the window admits it, and buffer the rest."""
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_lost:
            return
        self._outgoing += data
        self._send()
        self._maybe_pause_protocol()

    def writelines(self, list_of_data: Any) -> None:  # noqa: ANN401 - the base's: buffers of any kind
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Send FIN behind what was written, and go on reading."""
        if not self._closing and not self._eof_written:
            self._eof_written = True
            self._send()

    def close(self) -> None:
        """Read no more, send what was written, then close."""
        if not self._closing:
            self._closing = True
            self._send()

    def abort(self) -> None:
        """Close at once; what is in the write buffer is given up."""
        self._lose(None)

    # Sending.

    def _send(self) -> None:
        """Send what the window admits; at the end of the buffer FIN, if it is due, or close."""
        peer = self._peer
        if self._outgoing and peer._is_gone:  # noqa: SLF001 - the other end, of the same class
            self._outgoing.clear()
            self._loop.call_later(2 * self._latency, self._be_reset)
        if self._outgoing:
            free = WINDOW - peer._unread  # noqa: SLF001 - the other end, of the same class
            if free > 0:
                data = bytes(self._outgoing[:free])
                del self._outgoing[:free]
                peer._unread += len(data)  # noqa: SLF001 - the other end, of the same class
                peer._arrive(data)  # noqa: SLF001 - the other end, of the same class
        if not self._outgoing:
            if self._eof_written:
                self._send_eof()
            if self._closing:
                self._lose(None)

    def _send_eof(self) -> None:
        if not self._eof_sent:
            self._eof_sent = True
            self._peer._arrive(_Signal.FIN)  # noqa: SLF001 - the other end, of the same class

    def _notify_peer(self) -> None:
        """Let the peer see in a while that this end has read, or closed."""
        _call_at(self._loop, self._loop.time() + self._latency, self._peer._window_changed)  # noqa: SLF001 - the other end, of the same class

    def _window_changed(self) -> None:
        """Send more, or notice that the peer has closed."""
        if self._is_lost:
            return
        self._send()
        self._maybe_resume_protocol()

    def _be_reset(self) -> None:
        """Take the reset with which a closed end answers: behind what is read before it."""
        if self._may_deliver():
            self._arriving.append((self._loop.time(), _Signal.RST))
            self._schedule_delivery()
        else:
            self._lose(ConnectionResetError("Connection reset by peer"))

    # Receiving.

    def start(self) -> None:
        """Introduce the transport to its protocol, and begin to read."""
        self._protocol.connection_made(self)
        self._is_connected = True
        self._schedule_delivery()

    def _arrive(self, what: bytes | _Signal) -> None:
        """Take up what the peer sends now, to be delivered when it is here."""
        if not self._is_gone:
            self._arriving.append((self._loop.time() + self._latency, what))
            self._schedule_delivery()

    def _schedule_delivery(self) -> None:
        if self._delivery is None and self._arriving and self._may_deliver():
            # In a later turn even if it is here already: the protocol may just be calling.
            self._delivery = _call_at(self._loop, self._arriving[0][0], self._deliver)

    def _may_deliver(self) -> bool:
        return self._is_connected and not (self._reading_paused or self._closing or self._has_eof)

    def _deliver(self) -> None:
        """Give the protocol the bytes that are here, or else the end that follows them."""
        self._delivery = None
        if not self._may_deliver():
            return
        data = self._take_bytes()
        try:
            if data:
                self._unread -= len(data)
                self._notify_peer()
                self._protocol.data_received(data)
            else:
                self._deliver_signal()
        except Exception as error:  # noqa: BLE001 - as asyncio's transports do
            self._loop.call_exception_handler(
                {
                    "message": "Fatal error: a protocol failed.",
                    "exception": error,
                    "transport": self,
                    "protocol": self._protocol,
                }
            )
            self._lose(error)
        self._schedule_delivery()

    def _take_bytes(self) -> bytes:
        """Take the bytes that are here, up to the next signal, but not too many at once."""
        now, pieces, left = self._loop.time(), [], _MOST_AT_ONCE
        while left and self._arriving and self._arriving[0][0] <= now:
            due, what = self._arriving[0]
            if isinstance(what, _Signal):
                break
            pieces.append(what[:left])
            if len(what) > left:
                self._arriving[0] = (due, what[left:])
            else:
                self._arriving.popleft()
            left -= len(pieces[-1])
        return b"".join(pieces)

    def _deliver_signal(self) -> None:
        _, signal = self._arriving.popleft()
        if signal is _Signal.RST:
            self._lose(ConnectionResetError("Connection reset by peer"))
            return
        self._has_eof = True
        if not self._protocol.eof_received():
            self.close()

    # The end.

    def _lose(self, error: Exception | None) -> None:
        """Close without sending anything more; the protocol hears of it in a later turn."""
        if self._is_lost:
            return
        self._is_lost = self._closing = True
        self._outgoing.clear()
        self._loop.call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        try:
            if self._is_connected:
                self._protocol.connection_lost(error)
        finally:
            self._is_gone = True
            # What the peer sent and this end never read: TCP answers that with a reset.
            unread = self._unread > 0
            self._arriving.clear()
            self._unread = 0
            if self._sock.resets_on_close or unread:
                self._peer._arrive(_Signal.RST)  # noqa: SLF001 - the other end, of the same class
            else:
                self._send_eof()
            self._notify_peer()


_ENDS = ("sockname", "peername")


def _call_at(
    loop: asyncio.AbstractEventLoop, when: float, callback: Callable[[], None]
) -> asyncio.Handle:
    """Call *callback* at *when*, and in a later turn of the loop."""
    return loop.call_at(when, callback) if when > loop.time() else loop.call_soon(callback)


def connect(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.BaseProtocol,
    server: MemoryServer,
    ends: tuple[Address, Address],
    latency: float,
) -> MemoryTransport:
    """Connect *protocol* to *server*; *ends* are the addresses of the client and of the server.

    *latency* is the seconds that bytes take in either direction.
    """
    own, other = ends
    accepted = server.protocol_factory()
    near = MemoryTransport(loop, protocol, MemorySocket(own, other), latency)
    far = MemoryTransport(loop, accepted, MemorySocket(other, own), latency)
    near._peer, far._peer = far, near  # noqa: SLF001 - each end knows the other
    loop.call_soon(far.start)
    near.start()
    return near
