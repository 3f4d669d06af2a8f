"""Clients that send or read as if they had all day: bounded in time and memory."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    ok,
    one_route,
    request,
    running,
)
from tests.support.records import outcomes, told

QUICK_HEADS = "limits: {header_timeout: 150ms}"
LARGE = 32 * 1024 * 1024


async def test_half_sent_heads_are_408_and_hold_up_nobody() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=QUICK_HEADS)) as proxy,
        AsyncExitStack() as stack,
    ):
        slow = [await stack.enter_async_context(proxy.client()) for _ in range(100)]
        began = time.monotonic()
        for client in slow:
            await client.send(b"GET /slow HTTP/1.1\r\nHost: a\r\nX-Wait")
        slowest = 0.0
        while time.monotonic() - began < 0.1:
            asked = time.monotonic()
            assert (await proxy.get("/quick")).status == 200
            slowest = max(slowest, time.monotonic() - asked)
        assert slowest < 1
        for client in slow:
            response = await client.response()
            assert (response.status, response.reason_word) == (408, "slow_client")
            assert response.get("Connection") == "close"
            await client.ended()
            await client.wire.close_and_wait()
        assert time.monotonic() - began < 3
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
        began = time.monotonic()
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
        while not client.wire.unread:
            assert time.monotonic() - began < 1
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
        began = time.monotonic()
        await client.ended()
        assert 0.05 < time.monotonic() - began < 1


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
        began = time.monotonic()
        await client.send(head)
        response = await client.response("POST")
        assert 0.07 <= time.monotonic() - began < 1
        assert (response.status, response.reason_word) == (408, "slow_client")
        record = await told(proxy)
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
        deadline = time.monotonic() + 3
        while proxy.client_connections and time.monotonic() < deadline:
            most = max(most, buffered_for_clients(proxy))
            await asyncio.sleep(0.005)
        assert proxy.client_connections == 0
        # Of 256 MiB that the upstream would like to send.
        assert most < 8 * 1024 * 1024
        log = await proxy.logged(8)
        assert {tuple(outcomes(record)) for record in log} == {("truncated",)}
        assert upstream.open_connections == []


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
