"""What a proxy weighs, what it spends, and peers that cost little themselves."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from tests.support import ProxyProcess

MIB = 1024 * 1024

_log = logging.getLogger("bounds")


def report(what: str, size: int) -> None:
    """A figure for those who ask (``pytest --log-cli-level=INFO``)."""
    _log.info("%s: %.1f MiB", what, size / MIB)


def resident(proxy: ProxyProcess) -> int:
    """Bytes of memory that its process holds at this moment."""
    status = Path(f"/proc/{proxy.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def cpu_seconds(proxy: ProxyProcess) -> float:
    """What it has spent so far, to the nanosecond."""
    spent, _, _ = Path(f"/proc/{proxy.process.pid}/schedstat").read_text().split()
    return int(spent) / 1e9


class Peak:
    """The most that a process held while this was watching."""

    def __init__(self, proxy: ProxyProcess) -> None:
        self._proxy = proxy
        self.before = resident(proxy)
        self._most = self.before

    def look(self) -> int:
        """Bytes above the start, at most, until now."""
        self._most = max(self._most, resident(self._proxy))
        return self._most - self.before

    async def watch(self) -> None:
        """Look every few milliseconds, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(0.005)


@asynccontextmanager
async def peak_of(proxy: ProxyProcess) -> AsyncIterator[Peak]:
    """Watch *proxy* meanwhile. It has served before, so what it needs once is there."""
    peak = Peak(proxy)
    watching = asyncio.create_task(peak.watch())
    try:
        yield peak
    finally:
        watching.cancel()
    peak.look()


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class _Answering(asyncio.Protocol):
    """Answers every GET with the same bytes, and looks at nothing else."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER * data.count(b"\r\n\r\n"))


@asynccontextmanager
async def light_upstream() -> AsyncIterator[str]:
    """The URL of an upstream that costs next to nothing."""
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        server.close()


class _Asking(asyncio.Protocol):
    """Sends the same GET again and again, the next when the last was answered."""

    def __init__(self, request: bytes, times: int) -> None:
        self._request = request
        self._left = times
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        assert data.startswith(b"HTTP/1.1 200 ")
        assert data.endswith(b"\r\n\r\nok")
        self._left -= 1
        if self._left:
            self._transport.write(self._request)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._left:
            self.done.set_exception(AssertionError(f"cut with {self._left} requests left"))
        else:
            self.done.set_result(None)


async def load(proxy: ProxyProcess, requests: int, *, target: str = "/", clients: int = 16) -> None:
    """So many requests by a few clients, each as fast as it is answered."""
    loop = asyncio.get_running_loop()
    data = f"GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n".encode()
    asking = [
        (
            await loop.create_connection(
                lambda: _Asking(data, requests // clients), "127.0.0.1", proxy.port
            )
        )[1]
        for _ in range(clients)
    ]
    await asyncio.gather(*(each.done for each in asking))
