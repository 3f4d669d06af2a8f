"""Many clients, or one that asks for much and takes nothing: each costs little."""

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest

from tests.bounds.weighing import MIB, light_upstream, peak_of, report, resident
from tests.support import (
    End,
    ProxyProcess,
    ScriptedUpstream,
    answer,
    eventually,
    ok,
    one_route,
    request,
    subprocess_proxy,
)

MOST_WITH_10_000 = 300 * MIB
GET = request("GET", "/")


@contextmanager
def _many_descriptors() -> Iterator[int]:
    """As many as this process may have at most, for itself and for whom it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _get(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, GET)
    assert (await loop.sock_recv(sock, 65536)).startswith(b"HTTP/1.1 200 ")


async def _connect_and_get(proxy: ProxyProcess, opened: list[socket.socket], count: int) -> None:
    """Open *count* connections, with one answered request on each."""
    for _ in range(count):
        sock = socket.socket()
        opened.append(sock)
        sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", proxy.port))
        await _get(sock)


@pytest.mark.parametrize("most", [5000, pytest.param(10_000, marks=pytest.mark.deep)])
@pytest.mark.timeout(60)
async def test_thousands_of_idle_connections(most: int) -> None:
    opened: list[socket.socket] = []
    try:
        with _many_descriptors() as descriptors:
            count = min(most, descriptors - 1000)
            assert count >= 5000, "this machine allows too few descriptors to tell"
            async with light_upstream() as url, subprocess_proxy(one_route(url)) as proxy:
                await asyncio.gather(
                    *(_connect_and_get(proxy, opened, count // 50) for _ in range(50))
                )
                weight = resident(proxy)
                report(f"{count} idle connections", weight)
                assert (await proxy.get("/one-more")).body == b"ok"
                # The first and the last of them are still served.
                await _get(opened[0])
                await _get(opened[-1])
                assert weight < MOST_WITH_10_000 * count / 10_000
    finally:
        for sock in opened:
            sock.close()


@pytest.mark.timeout(60)
async def test_clients_that_do_not_read_a_large_answer() -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream)) as proxy,
        AsyncExitStack() as clients,
    ):
        await proxy.get("/to-warm-up")
        upstream.usual = answer(ok(bytes(20_000_000)))
        async with peak_of(proxy) as peak:
            for _ in range(8):
                client = await clients.enter_async_context(proxy.client(receive_buffer=4096))
                client.wire.stall()
                await client.send(GET)
            # Whatever would pile up has had the time to do so.
            await asyncio.sleep(1.0)
            upstream.usual = answer(ok(b"meanwhile"))
            assert (await proxy.get()).body == b"meanwhile"
        report("eight clients that do not read, above idle", peak.look())
        assert peak.look() < 16 * MIB


@pytest.mark.timeout(60)
async def test_two_hundred_clients_with_half_a_head() -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream, top="limits: {header_timeout: 1s}")) as proxy,
        AsyncExitStack() as clients,
    ):
        await proxy.get("/to-warm-up")
        half = GET[:-2] + b"X-Long: " + b"v" * 8000
        async with peak_of(proxy) as peak:
            slow = [await clients.enter_async_context(proxy.client()) for _ in range(200)]
            for client in slow:
                await client.send(half)
            assert (await proxy.get("/meanwhile")).status == 200
            for client in slow:
                assert (await client.response()).status == 408
                assert await client.ended() is End.CLOSED
        report("200 clients with half a head, above idle", peak.look())
        assert peak.look() < 16 * MIB
        assert len(upstream.requests) == 2


@pytest.mark.timeout(60)
async def test_a_client_that_pipelines_and_does_not_read() -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream)) as proxy,
        proxy.client(receive_buffer=4096) as client,
    ):
        await proxy.get("/to-warm-up")
        upstream.usual = answer(ok(bytes(10_000)))
        async with peak_of(proxy) as peak:
            client.wire.stall()
            client.wire.write(GET * 100_000)
            asked = 0

            def has_stopped() -> bool:
                nonlocal asked
                before, asked = asked, len(upstream.requests)
                return asked > 1 and asked == before

            await eventually(has_stopped)
            await asyncio.sleep(0.5)
        # Beyond what the kernel's buffers hold nobody is asked in advance.
        assert len(upstream.requests) * 10_000 < 16 * MIB
        report("a client that pipelines and does not read, above idle", peak.look())
        assert peak.look() < 8 * MIB
        assert (await proxy.get("/others")).status == 200
