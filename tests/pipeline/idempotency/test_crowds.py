"""A crowd that wants large results costs its neighbours nothing, whichever store has them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.pipeline.instances import store_of
from tests.support import ProxyProcess, subprocess_proxy
from tests.support.redis_server import redis_server
from tests.support.witness import slowdown

MIB = 1024 * 1024
LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (MIB, bytes(MIB))
SMALL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BREATH = 0.005
"""Seconds between two requests of the neighbour."""


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An upstream: a mebibyte for /large, two bytes for all else."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            writer.write(LARGE if head.startswith(b"POST /large") else SMALL)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


async def _post(port: int, target: str, key: str, caller: str) -> tuple[int, bool]:
    """POST over a connection of its own: the status, and whether it is a replay."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4 * MIB)
    try:
        head = f"POST {target} HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n"
        head += f"Idempotency-Key: {key}\r\nAuthorization: Bearer {caller}\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        fields = answer.lower().split(b"\r\n")
        size = next(int(line[15:]) for line in fields if line.startswith(b"content-length:"))
        await reader.readexactly(size)
        return int(answer[9:12]), b"idempotent-replayed: true" in fields
    finally:
        writer.transport.abort()


class Neighbour:
    """Another caller on another route, with a few connections: one new key after another."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.got: list[int] = []
        self._was_served = asyncio.Event()
        self._numbers = count()
        self._tasks = [asyncio.create_task(self._go_on()) for _ in range(8)]

    async def _go_on(self) -> None:
        for number in self._numbers:
            status, _ = await _post(self._port, "/other", f"other-{number}", "neighbour")
            self.got.append(status)
            if len(self.got) > 16:
                self._was_served.set()
            await asyncio.sleep(BREATH)

    async def assert_unharmed(self) -> None:
        await self._was_served.wait()  # or else nothing was tried: a busy machine takes its time
        assert set(self.got) == {200}, f"{len(self.got)} requests, {set(self.got)}"

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


@asynccontextmanager
async def _visited(store: str) -> AsyncIterator[tuple[ProxyProcess, Neighbour]]:
    """A proxy on *store*, and a neighbour who uses it all the time."""
    upstream = await asyncio.start_server(_serve, "127.0.0.1", 0)
    port = upstream.sockets[0].getsockname()[1]
    # The usual time. Others make each step longer, and have each wait for the next.
    timeout = 0.2 * slowdown() ** 2
    config = (
        f"store: {{url: '{store}', timeout: {timeout * 1000:.0f}ms}}\nupstreams: {{u: http://127.0.0.1:{port}}}\n"
        "defaults: {idempotency: true}\n"
        "routes:\n  - {match: /large, upstream: u}\n  - {match: /other, upstream: u}\n"
    )
    try:
        async with subprocess_proxy(config) as proxy:
            neighbour = Neighbour(proxy.port)
            try:
                yield proxy, neighbour
                assert (await store_of(proxy))["state"] == "up"
                assert "is down" not in proxy.errors
                await neighbour.assert_unharmed()
            finally:
                await neighbour.stop()
    finally:
        upstream.close()


@asynccontextmanager
async def _redis(_: Path) -> AsyncIterator[str]:
    async with redis_server() as server:
        yield f"redis://127.0.0.1:{server.port}"


@asynccontextmanager
async def _sqlite(folder: Path) -> AsyncIterator[str]:
    yield f"sqlite:{folder / 'keys.db'}"


Opened = Callable[[Path], AbstractAsyncContextManager[str]]
"""A store, by what a file says of it."""


async def _crowd(proxy: ProxyProcess, keys: Sequence[str]) -> list[tuple[int, bool]]:
    return list(await asyncio.gather(*(_post(proxy.port, "/large", key, "x") for key in keys)))


@pytest.mark.parametrize(
    ("store", "crowd", "rounds"),
    [pytest.param(_redis, 100, 3, id="redis"), pytest.param(_sqlite, 300, 1, id="sqlite")],
)
async def test_duplicates_of_a_large_result(
    store: Opened, crowd: int, rounds: int, tmp_path: Path
) -> None:
    async with store(tmp_path) as url, _visited(url) as (proxy, _):
        assert await _crowd(proxy, ["one"]) == [(200, False)]
        for _ in range(rounds):
            assert await _crowd(proxy, ["one"] * crowd) == [(200, True)] * crowd


@pytest.mark.parametrize("store", [_redis, _sqlite], ids=["redis", "sqlite"])
async def test_large_results_that_are_kept_at_the_same_time(store: Opened, tmp_path: Path) -> None:
    keys = [f"key-{number}" for number in range(200)]
    async with store(tmp_path) as url, _visited(url) as (proxy, _):
        assert await _crowd(proxy, keys) == [(200, False)] * len(keys)
        again = await _crowd(proxy, keys[:20])
        assert again == [(200, True)] * len(again), "they were kept"
