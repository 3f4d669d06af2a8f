"""Clients that hand requests off, and the upstream that counts what is delivered."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_ACCEPTED = 202


@dataclass(slots=True)
class CountingUpstream:
    """Answers 200 to all, and knows by id when each request came."""

    arrived: dict[str, list[float]] = field(default_factory=dict)
    last: float = 0.0
    _server: asyncio.Server | None = None
    _open: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    async def start(self, port: int) -> None:
        """Listen on *port*."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, backlog=1024)

    async def stop(self) -> None:
        """Be away: connections are refused."""
        if self._server is not None:
            self._server.close()
            for writer in self._open.values():
                writer.transport.abort()
            if self._open:
                await asyncio.wait(self._open)
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        self._open[task] = writer
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(_length(head))
                name = _field(head, b"x-bench-id")
                if name:
                    self.last = time.perf_counter()
                    self.arrived.setdefault(name, []).append(self.last)
                writer.write(_OK)
        del self._open[task]
        writer.close()

    async def has(self, count: int, within: float) -> bool:
        """Wait until *count* different ids have come; False: not within so many seconds."""
        give_up = time.perf_counter() + within
        while len(self.arrived) < count:
            if time.perf_counter() > give_up:
                return False
            await asyncio.sleep(0.01)
        return True


def _field(head: bytes, name: bytes) -> str:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip().decode()
    return ""


def _length(head: bytes) -> int:
    return int(_field(head, b"content-length") or 0)


@dataclass(slots=True)
class Accepted:
    """What clients saw."""

    ids: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    """Seconds from the request to its 202."""
    at: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def p50(self) -> float:
        return sorted(self.waits)[len(self.waits) // 2]


async def hand_off(
    port: int, names: list[str], connections: int, size: int, pause: float = 0.0
) -> Accepted:
    """Send a request for each of *names*, over so many *connections*; all must get 202."""
    seen, left = Accepted(), iter(names)
    begun = time.perf_counter()
    await asyncio.gather(*(_client(port, left, size, pause, seen) for _ in range(connections)))
    seen.seconds = time.perf_counter() - begun
    return seen


async def _client(port: int, names: Iterator[str], size: int, pause: float, seen: Accepted) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b"x" * size
    for name in names:
        begun = time.perf_counter()
        writer.write(
            b"POST /orders HTTP/1.1\r\nHost: bench\r\nPrefer: respond-async\r\n"
            b"X-Bench-Id: %b\r\nContent-Length: %d\r\n\r\n%b" % (name.encode(), size, body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(_length(head))
        if int(head.split(b" ", 2)[1]) != _ACCEPTED:
            raise ValueError(head.decode("latin-1"))
        now = time.perf_counter()
        seen.ids.append(name)
        seen.at[name] = now
        seen.waits.append(now - begun)
        if pause:
            await asyncio.sleep(pause)
    writer.close()


async def get(port: int, path: str, count: int) -> None:
    """Send so many live GETs over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(_length(head))
    writer.close()
