"""The messages between a supervisor and a worker, and the channel that carries them (IPC).

Messages are pickled: both ends are the same installation, and no one else has their sockets.
"""

import asyncio
import pickle
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from proxy.observe.metrics.snapshot import ProcessSnapshot
from proxy.policy.settings import Settings

# To a worker.

SNAPSHOT = "snapshot"
"""Asks for a snapshot of the process; the answer is also the worker's heartbeat."""
RELOAD = "reload"
"""Asks to serve with other settings from now on, or to say why not."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Serve with these settings. The first message: a file may have changed since it was read."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class Ask:
    """Run an operation, and answer under the same number."""

    number: int
    operation: str
    """One of the admin operations that workers run, or ``SNAPSHOT``, or ``RELOAD``."""
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Drain:
    """End gracefully: no more connections come, let every request end, then end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End at once."""


# To the supervisor.


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker can take up connections."""

    snapshot: ProcessSnapshot


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker cannot serve, and ends."""

    reason: str


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """The answer to the message with that number."""

    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No answer to the message with that number: the store is silent, or the operation failed."""

    number: int
    store_is_silent: bool


@dataclass(frozen=True, slots=True)
class Last:
    """All requests have ended, and so will the worker."""

    snapshot: ProcessSnapshot


Message = Begin | Ask | Drain | Stop | Ready | Failed | WorkerReply | NoAnswer | Last

_LENGTH = 4


class Channel(asyncio.Protocol):
    """One end of a socket pair. Messages arrive in the order in which they were sent."""

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
        """Send *message*; drop it if the other end is gone."""
        if self._transport is not None and not self._transport.is_closing():
            data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
            self._transport.write(len(data).to_bytes(_LENGTH) + data)

    def close(self) -> None:
        """Send what is buffered, then close."""
        if self._transport is not None:
            self._transport.close()

    async def closed(self, within: float) -> None:
        """Wait until everything is sent and the channel closed, for at most *within* seconds."""
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
            message: Message = pickle.loads(self._buffer[_LENGTH:end])  # noqa: S301 - from ourselves
            del self._buffer[:end]
            self._on_message(message)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self._ended.set()
        self._on_end()
