"""What one client may ask for: beyond it an early answer, and nothing is executed."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.support import (
    ScriptedUpstream,
    WireEnded,
    eventually,
    one_route,
    request,
    running,
)
from tests.support.records import last_logged
from tests.support.witness import soon

SMALL_BODIES = "max_body: 1KiB"
SMALL_HEADS = "limits: {header_bytes: 4KiB}"


async def test_a_declared_body_over_the_limit_is_413_before_it_is_sent() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, SMALL_BODIES)) as proxy,
        proxy.client() as client,
    ):
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4294967296\r\n\r\n")
        response = await client.response("POST")
        assert (response.status, response.reason_word) == (413, "body_too_large")
        assert response.get("Connection") == "close"
        record = await last_logged(proxy)
        assert record["attempts"] == []
        assert upstream.connections == []


async def test_with_expect_a_body_over_the_limit_is_never_asked_for() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, SMALL_BODIES)) as proxy,
        proxy.client() as client,
    ):
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\nExpect: 100-continue\r\n\r\n"
        await client.send(head)
        response = await client.response("POST")
        assert (response.status, response.interim) == (413, [])
        assert upstream.connections == []


async def test_a_body_of_exactly_the_limit_is_fine() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, SMALL_BODIES)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.request("POST", "/", body=bytes(1024))).status == 200
        chunks = b"400\r\n" + bytes(1024) + b"\r\n0\r\n\r\n"
        head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        await client.send(head + chunks)
        assert (await client.response("POST")).status == 200
        assert [len(r.body) for r in upstream.requests] == [1024, 1024]


@pytest.mark.parametrize("manner", ["in one piece", "piece by piece"])
async def test_a_chunked_body_over_the_limit_is_413_and_never_complete(manner: str) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, SMALL_BODIES)) as proxy,
        proxy.client() as client,
    ):
        head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = b"200\r\n" + bytes(512) + b"\r\n"
        if manner == "in one piece":
            await client.send(head + chunk * 3 + b"0\r\n\r\n")
        else:
            await client.send(head)
            for _ in range(3):
                await client.send(chunk)
                await asyncio.sleep(0.005)
            await client.send(b"0\r\n\r\n")
        response = await client.response("POST")
        assert (response.status, response.reason_word) == (413, "body_too_large")
        await last_logged(proxy)
        # The upstream may have seen the beginning, but no request that it could execute.
        assert not any(r.complete for r in upstream.requests)
        await eventually(lambda: proxy.open_upstream_connections == proxy.idle_upstream_connections)


async def test_a_long_target_is_414() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, top=SMALL_HEADS)) as p:
        response = await p.get("/" + "a" * 5000)
        assert (response.status, response.reason_word) == (414, "target_too_long")
        await last_logged(p)
        assert upstream.connections == []


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(["X: " + "a" * 5000], id="one large field"),
        pytest.param([f"X-{n}: {'a' * 100}" for n in range(60)], id="many small fields"),
        pytest.param([f"X-{n}: a" for n in range(300)], id="too many fields"),
    ],
)
async def test_a_large_head_is_431(fields: list[str]) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, top=SMALL_HEADS)) as p:
        response = await p.get("/", *fields)
        assert (response.status, response.reason_word) == (431, "headers_too_large")
        await last_logged(p)
        assert upstream.connections == []


async def test_a_head_without_end_is_431_before_the_header_timeout() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, top=SMALL_HEADS)) as p:
        async with p.client() as client:
            await client.send(b"GET / HTTP/1.1\r\n")
            for n in range(100):
                await client.send(b"X-%d: %b\r\n" % (n, b"a" * 50))
                await asyncio.sleep(0)
            assert (await client.response()).status == 431
        assert upstream.connections == []


async def test_one_connection_too_many_is_503_and_the_others_are_served() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top="limits: {connections: 3}")) as proxy,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(3)]
        for client in clients:
            assert (await client.get()).status == 200
        async with proxy.client() as surplus:
            response = await surplus.response()
            assert (response.status, response.reason_word) == (503, "overload")
            assert response.get("Retry-After") == "1"
            await surplus.ended()
        for client in clients:
            assert (await client.get()).status == 200
        # The limit does not apply to the admin listener.
        assert (await proxy.admin("GET", "/healthz")).status == 200
        await clients[0].wire.close_and_wait()
        await eventually(lambda: proxy.client_connections == 2)
        assert (await proxy.get()).status == 200


async def test_a_flood_beyond_the_limit_leaves_nothing_behind() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top="limits: {connections: 5}")) as proxy,
    ):

        async def visit() -> int:
            try:
                async with proxy.client() as client:
                    await client.send(request("GET", "/"))
                    return (await client.response()).status
            except WireEnded:
                return 0  # refused while it was still talking

        statuses = await asyncio.gather(*(visit() for _ in range(100)))
        assert set(statuses) <= {0, 200, 503}
        assert 200 in statuses
        await eventually(lambda: proxy.client_connections == 0)


async def test_an_overload_ends_by_itself_however_often_the_refused_try_again() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top="limits: {connections: 2}")) as proxy,
        AsyncExitStack() as never_closing,
    ):

        async def try_until_served() -> None:
            while True:
                client = await never_closing.enter_async_context(proxy.client())
                if (await client.get()).status == 200:
                    await client.wire.close_and_wait()
                    return
                await asyncio.sleep(0.01)

        async with proxy.client() as one, proxy.client() as other:
            assert [(await c.get()).status for c in (one, other)] == [200, 200]
            refused = [asyncio.create_task(try_until_served()) for _ in range(5)]
            await eventually(lambda: len(proxy.log) >= 20)
            assert not any(task.done() for task in refused)
        await soon(asyncio.gather(*refused), 2)
