"""Clients that wait in the queue: they cost nothing meanwhile, and are missed when they leave."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

from tests.support import (
    RawClient,
    ScriptedUpstream,
    both_loops,
    eventually,
    hang,
    one_route,
    request,
    running,
)
from tests.support.witness import Stopwatch

CROWD = 300
# More than is read of a body that nobody wants yet.
UPLOAD = request("POST", "/", "Content-Length: 10000000") + bytes(300_000)
ROUTE = "buffer: 1KiB\ntimeout: none\nthrottle: {concurrency: 1, max_wait: none}"


async def used_in(seconds: float) -> float:
    """Seconds of CPU that this process takes in as many."""
    before = time.process_time()
    await asyncio.sleep(seconds)
    return time.process_time() - before


async def test_a_crowd_with_bodies_waits_for_nothing_and_leaves_at_once() -> None:
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, ROUTE)) as proxy,
        AsyncExitStack() as stack,
    ):
        first = await stack.enter_async_context(proxy.client())
        await first.send(request("GET", "/"))
        await upstream.seen()
        crowd = [await stack.enter_async_context(proxy.client()) for _ in range(CROWD)]
        for client in crowd:
            client.wire.write(UPLOAD)
        await eventually(lambda: proxy.client_connections == CROWD + 1)
        assert min([await used_in(0.3) for _ in range(6)]) < 0.006
        for number, client in enumerate(crowd[:5]):
            watch = Stopwatch()
            client.wire.reset()
            await eventually(lambda: proxy.client_connections == CROWD - number)  # noqa: B023 - awaited
            assert watch.seconds < 0.5
        for client in crowd[5:]:
            client.wire.reset()
        await eventually(lambda: proxy.client_connections == 1)


@both_loops
async def test_one_who_waits_on_a_unix_socket_is_missed_too(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.sock"
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, ROUTE, top=f"listen: unix:{path}")) as proxy,
        RawClient(path=str(path)) as first,
    ):
        await first.send(request("GET", "/"))
        await upstream.seen()
        async with RawClient(path=str(path)) as second:
            second.wire.write(UPLOAD)
            await eventually(lambda: proxy.client_connections == 2)
            await asyncio.sleep(0.1)
        await eventually(lambda: proxy.client_connections == 1)


async def test_a_descriptor_that_is_used_again_is_looked_after_again() -> None:
    """Those who leave and come again get the numbers of those who left."""
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, ROUTE)) as proxy,
        proxy.client() as first,
    ):
        await first.send(request("GET", "/"))
        await upstream.seen()
        for _ in range(20):
            async with proxy.client() as client:
                client.wire.write(UPLOAD)
                await eventually(lambda: proxy.client_connections == 2)
                await asyncio.sleep(0.01)
            await eventually(lambda: proxy.client_connections == 1)
