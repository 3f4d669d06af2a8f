"""What a supervisor and a worker say to each other, over a pair of sockets."""

import asyncio
import pickle
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from proxy.observe.metrics.process_snapshot import ProcessSnapshot
from proxy.policy.settings import Settings

# To a worker.


@dataclass(frozen=True, slots=True)
class Begin:
    """Serve. The first message: settled, not read from a file that may have changed."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class Reload:
    """Serve with these from now on, or say why not."""

    number: int
    settings: Settings


@dataclass(frozen=True, slots=True)
class Ask:
    """Do or tell something, and answer under the same number."""

    number: int
    what: str
    """The name of an operation."""
    arguments: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Drain:
    """No more connections come: let every request end, then end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End at once."""


# To the supervisor.


@dataclass(frozen=True, slots=True)
class Ready:
    """Connections can be taken up."""

    reading: ProcessSnapshot


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot serve, and ends."""

    why: str


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """To the question with that number."""

    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The store did not tell, or the worker does not know how to."""

    number: int
    store_is_silent: bool


@dataclass(frozen=True, slots=True)
class Last:
    """All requests have ended, and so does the worker."""

    reading: ProcessSnapshot


Message = Begin | Reload | Ask | Drain | Stop | Ready | Failed | WorkerReply | NoAnswer | Last

_LENGTH = 4


class Channel(asyncio.Protocol):
    """One end. Messages arrive in the order in which they were sent."""

    def __init__(self, on_message: Callable[[Message], None], on_end: Callable[[], None]) -> None:
        """*on_end* is called once, when the other end is gone, for whatever reason."""
        self._on_message = on_message
        self._on_end = on_end
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._ended = asyncio.Event()

    async def open(self, sock: socket.socket) -> None:
        """Begin to send and to receive on *sock*, which belongs to the channel from now on."""
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: self, sock)

    def send(self, message: Message) -> None:
        """Send it, or nothing if nobody is there any more."""
        if self._transport is not None and not self._transport.is_closing():
            data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
            self._transport.write(len(data).to_bytes(_LENGTH) + data)

    def close(self) -> None:
        """Send what is waiting, and end."""
        if self._transport is not None:
            self._transport.close()

    async def closed(self, within: float) -> None:
        """Wait until all that was sent is on its way, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._ended.wait()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._buffer[:_LENGTH])
            if len(self._buffer) < end:
                return
            message: Message = pickle.loads(self._buffer[_LENGTH:end])  # noqa: S301 - see above
            del self._buffer[:end]
            self._on_message(message)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self._ended.set()
        self._on_end()
