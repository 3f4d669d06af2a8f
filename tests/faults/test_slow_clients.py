"""Clients that send or read as if they had all day: bounded in time and memory."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    chunked,
    eventually,
    now,
    ok,
    one_route,
    real_time,
    request,
    running,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.records import last_logged, outcomes

pytestmark = virtual_time


SWITCHING = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
QUICK_HEADS = "limits: {header_timeout: 150ms}"
LARGE = 32 * 1024 * 1024


async def test_half_sent_heads_are_408_and_hold_up_nobody() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=QUICK_HEADS)) as proxy,
        AsyncExitStack() as stack,
    ):
        slow = [await stack.enter_async_context(proxy.client()) for _ in range(100)]
        began = now()
        for client in slow:
            await client.send(b"GET /slow HTTP/1.1\r\nHost: a\r\nX-Wait")
        slowest = 0.0
        while now() - began < 0.1:
            asked = now()
            assert (await proxy.get("/quick")).status == 200
            slowest = max(slowest, now() - asked)
            await asyncio.sleep(0.001)
        assert slowest < 1
        for client in slow:
            response = await client.response()
            assert (response.status, response.reason_word) == (408, "slow_client")
            assert response.get("Connection") == "close"
            await client.ended()
            await client.wire.close_and_wait()
        assert now() - began < 3
        await eventually(lambda: proxy.client_connections == 0)
        assert {r.target for r in upstream.requests} == {"/quick"}
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_requests_total", route="_unmatched", code="408") == 100


async def test_a_head_that_comes_byte_by_byte_is_408_however_busy_it_looks() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=QUICK_HEADS)) as proxy,
        proxy.client() as client,
    ):
        began = now()
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
        while not client.wire.unread:
            assert now() - began < 1
            await client.send(b"a")
            await asyncio.sleep(0.01)
        assert (await client.response()).status == 408
        assert upstream.requests == []


async def test_a_connection_without_a_request_is_not_a_slow_head() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top="limits: {header_timeout: 50ms}")) as proxy,
        proxy.client() as client,
    ):
        await asyncio.sleep(0.1)
        assert (await client.get()).status == 200
        await asyncio.sleep(0.1)
        assert (await client.get()).status == 200


async def test_the_second_head_on_a_connection_has_its_own_deadline() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top="limits: {header_timeout: 80ms}")) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).status == 200
        await client.send(b"GET / HT")
        assert (await client.response()).status == 408


async def test_an_idle_connection_is_closed_after_keepalive() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top="limits: {keepalive: 100ms}")) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).status == 200
        began = now()
        await client.ended()
        assert 0.05 < now() - began < 1


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", id="counted"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            id="chunked",
        ),
    ],
)
async def test_an_upload_that_falls_silent_is_408(head: bytes) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idle_timeout: 80ms")) as proxy,
        proxy.client() as client,
    ):
        began = now()
        await client.send(head)
        response = await client.response("POST")
        assert 0.07 <= now() - began < 1
        assert (response.status, response.reason_word) == (408, "slow_client")
        record = await last_logged(proxy)
        assert outcomes(record) == ["cancelled"]
        assert not upstream.requests[0].complete
        await eventually(lambda: proxy.open_upstream_connections == 0)


async def test_an_upload_that_keeps_moving_may_take_longer_than_idle_timeout() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idle_timeout: 100ms")) as proxy,
        proxy.client() as client,
    ):
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.02)
            await client.send(b"a")
        assert (await client.response("POST")).status == 200
        assert upstream.requests[0].body == b"a" * 10


def buffered_for_clients(proxy: RunningProxy) -> int:
    """Bytes that wait in the proxy for clients to read them."""
    return sum(
        connection.transport.get_write_buffer_size()
        for connection in proxy.app._listener.server.connections
        if connection.transport is not None
    )


@pytest.mark.alone
@real_time  # of sockets, with the buffers of a kernel
async def test_a_slow_reader_costs_little_memory_and_is_cut_at_idle_timeout() -> None:
    async def pour(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE)
        for _ in range(LARGE // 65536):
            await visit.send(bytes(65536))

    async with (
        ScriptedUpstream(pour) as upstream,
        running(one_route(upstream, "idle_timeout: 300ms")) as proxy,
        AsyncExitStack() as stack,
    ):
        slow = [
            await stack.enter_async_context(proxy.client(receive_buffer=4096)) for _ in range(8)
        ]
        for client in slow:
            await client.send(request("GET", "/"))
            client.wire.stall()
        most = 0
        deadline = now() + 3
        while proxy.client_connections and now() < deadline:
            most = max(most, buffered_for_clients(proxy))
            await asyncio.sleep(0.005)
        assert proxy.client_connections == 0
        # Of 256 MiB that the upstream would like to send.
        assert most < 8 * 1024 * 1024
        log = await proxy.logged(8)
        assert {tuple(outcomes(record)) for record in log} == {("truncated",)}
        assert upstream.open_connections == []


@pytest.mark.alone
@real_time  # of sockets, with the buffers of a kernel
async def test_a_reader_that_takes_its_time_but_reads_gets_everything() -> None:
    size = 2 * 1024 * 1024
    async with (
        ScriptedUpstream(answer(ok(bytes(size)))) as upstream,
        running(one_route(upstream, "idle_timeout: 200ms")) as proxy,
        proxy.client(receive_buffer=65536) as client,
    ):
        await client.send(request("GET", "/"))
        for _ in range(12):
            client.wire.stall()
            await asyncio.sleep(0.05)
            client.wire.go_on()
            await asyncio.sleep(0.005)
        response = await client.response()
        assert (len(response.body), response.complete) == (size, True)


@pytest.mark.alone
@real_time  # of sockets, with the buffers of a kernel
async def test_pipelining_without_reading_is_held_back() -> None:
    body = bytes(256 * 1024)
    async with (
        ScriptedUpstream(answer(ok(body))) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client(receive_buffer=4096) as client,
    ):
        client.wire.stall()
        for _ in range(10):
            client.wire.write(request("GET", "/") * 100)
            await asyncio.sleep(0.01)
        served = 0
        while served != len(upstream.requests):
            served = len(upstream.requests)
            await asyncio.sleep(0.1)
        # What the kernel takes off us, and one answer more.
        assert served < 60
        assert buffered_for_clients(proxy) < 4 * len(body)
        client.wire.go_on()
        for _ in range(served + 5):
            assert (await client.response()).complete


@pytest.mark.alone
@real_time  # of sockets, with the buffers of a kernel
async def test_a_pipelining_client_that_pauses_before_it_reads_loses_none_of_its_answers() -> None:
    count = 64
    clock = FakeClock()
    async with (
        # Small enough to be read at once: the next request waits, not the rest of an answer.
        ScriptedUpstream(answer(ok(bytes(65536)))) as upstream,
        running(one_route(upstream, "timeout: 10s"), clock=clock) as proxy,
        proxy.client(receive_buffer=4096) as client,
    ):
        client.wire.stall()
        client.wire.write(request("POST", "/", body=b"x") * count)
        served = -1
        while served != len(upstream.requests):
            served = len(upstream.requests)
            await asyncio.sleep(0.1)
        assert 0 < served < count
        clock.advance(60)  # the time is the client's own, not that of its requests
        client.wire.go_on()
        for _ in range(count):
            response = await client.response()
            assert (response.status, response.complete) == (200, True)
        assert outcomes(await last_logged(proxy, count)) == ["2xx"]
        addresses: dict[str, list[dict[str, object]]] = proxy.status()["addresses"]  # type: ignore[assignment]  # JSON
        assert [address["failing"] for address in addresses["scripted"]] == [False]


async def test_a_client_that_does_not_read_its_last_answer_is_cut() -> None:
    """All at once: the time that they have is the longest in the suite."""
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top="limits: {keepalive: 100ms}")) as proxy,
        AsyncExitStack() as stack,
    ):

        async def pour_until_stuck(visit: Visit, *, in_chunks: bool) -> None:
            before = buffered_for_clients(proxy)
            piece = bytes(32 * 1024)
            while buffered_for_clients(proxy) <= before:
                await visit.send(b"8000\r\n" + piece + b"\r\n" if in_chunks else piece)
                await asyncio.sleep(0.002)

        async def answer_all(visit: Visit) -> None:
            await visit.send(chunked(b"x", last=False))
            await pour_until_stuck(visit, in_chunks=True)
            await visit.send(b"0\r\n\r\n")

        async def tunnel(visit: Visit) -> None:
            await visit.send(SWITCHING)
            await pour_until_stuck(visit, in_chunks=False)
            visit.wire.close()

        rows = [
            (request("GET", "/keep-alive"), answer_all),
            (request("GET", "/close", "Connection: close"), answer_all),
            (b"GET /http-1.0 HTTP/1.0\r\nHost: a\r\n\r\n", answer_all),
            (request("GET", "/tunnel", "Connection: Upgrade", "Upgrade: websocket"), tunnel),
        ]
        began = now()
        for lines, (raw, behaviour) in enumerate(rows, 1):
            upstream.script(behaviour)
            client = await stack.enter_async_context(proxy.client(receive_buffer=4096))
            client.wire.stall()
            await client.send(raw)
            await proxy.logged(lines)
        assert [record["code"] for record in proxy.log] == [200, 200, 200, 101]
        assert proxy.client_connections == len(rows), "each still has time to read"
        await eventually(lambda: proxy.client_connections == 0, within=7)
        assert now() - began > 4
