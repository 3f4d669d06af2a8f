"""``concurrency``: a slot is taken from the sending to the last byte, however that comes."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.server.test_streaming import SWITCHING, WEBSOCKET
from tests.support import (
    Behaviour,
    RawClient,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_hang,
    eventually,
    hang,
    ok,
    one_route,
    request,
    reset,
    response,
    running,
    virtual_time,
)
from tests.support.leftovers import nothing_left
from tests.support.throttles import ManualAnswers, at_once, decisions, in_queue, throttle

pytestmark = virtual_time


ONE = "throttle: {concurrency: 1}"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf"


async def follows(proxy: RunningProxy, upstream: ScriptedUpstream) -> "asyncio.Task[None]":
    """Another request, which waits in the queue behind the one under way."""

    async def follow() -> None:
        assert (await proxy.get("/next")).status == 200

    task = asyncio.create_task(follow())
    await in_queue(proxy, 1)
    assert [seen.target for seen in upstream.requests] == ["/first"]
    return task


async def test_no_more_are_under_way_than_there_are_slots() -> None:
    under_way = most = 0

    async def count(visit: Visit) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.003)
        under_way -= 1
        await visit.send(ok())

    async with (
        ScriptedUpstream(count) as upstream,
        running(one_route(upstream, "throttle: {concurrency: 4}")) as proxy,
    ):
        assert {got.status for got in await at_once(proxy, 60)} == {200}
        assert most == 4
        assert len(upstream.requests) == 60
        decided = await decisions(proxy)
        assert decided["passed"] >= 4
        assert decided["delayed"] == 60 - decided["passed"]
        await nothing_left(proxy)


async def test_a_place_is_taken_until_the_last_byte_of_the_body() -> None:
    go_on = asyncio.Event()

    async def in_halves(visit: Visit) -> None:
        await visit.send(HALF)
        await go_on.wait()
        await visit.send(b"half")

    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, ONE)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(in_halves)
        await client.send(request("GET", "/first"))
        await client.wire.read_until(b"half")
        following = await follows(proxy, upstream)
        assert throttle(proxy)["under_way"] == 1
        go_on.set()
        assert await client.wire.read_exactly(4) == b"half"
        await following
        await nothing_left(proxy)


async def test_a_client_that_reads_slowly_keeps_its_place() -> None:
    body = bytes(20_000_000)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, ONE)) as proxy,
        proxy.client(receive_buffer=4096) as client,
    ):
        upstream.script(answer(ok(body)))
        client.wire.stall()
        await client.send(request("GET", "/first"))
        await upstream.seen()
        following = await follows(proxy, upstream)
        client.wire.go_on()
        assert len((await client.response()).body) == len(body)
        await following


Ending = Callable[[ScriptedUpstream, RawClient], Awaitable[None]]


async def client_leaves(_: ScriptedUpstream, client: RawClient) -> None:
    client.wire.reset()


async def upstream_resets(upstream: ScriptedUpstream, _: RawClient) -> None:
    upstream.connections[0].wire.reset()


async def deadline_comes(_: ScriptedUpstream, client: RawClient) -> None:
    assert (await client.response()).status == 504


@pytest.mark.parametrize(
    ("behave", "end"),
    [
        pytest.param(hang, client_leaves, id="the client leaves before the response"),
        pytest.param(answer_and_hang(HALF), client_leaves, id="the client leaves inside the body"),
        pytest.param(hang, upstream_resets, id="the upstream resets before its response"),
        pytest.param(answer_and_hang(HALF), upstream_resets, id="the upstream resets inside it"),
        pytest.param(hang, deadline_comes, id="the time is up"),
    ],
)
async def test_a_place_is_free_however_its_call_ends(behave: Behaviour, end: Ending) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"{ONE}\ntimeout: 300ms")) as proxy,
        proxy.client() as client,
    ):
        upstream.script(behave)
        await client.send(request("GET", "/first", "Holdfast-Timeout: 150ms"))
        await upstream.seen()
        following = await follows(proxy, upstream)
        await end(upstream, client)
        await following
        await nothing_left(proxy)


async def test_a_tunnel_keeps_its_place_until_it_ends() -> None:
    async def tunnel(visit: Visit) -> None:
        await visit.send(SWITCHING)
        await visit.until_the_peer_leaves()

    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, ONE)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(tunnel)
        assert (await client.get("/first", *WEBSOCKET)).status == 101
        following = await follows(proxy, upstream)
        await client.send(b"\x81\x85\x00\x00\x00\x00hello")
        client.wire.close()
        await following
        await nothing_left(proxy)


async def test_a_tunnel_takes_a_permit_too() -> None:
    route = "throttle: {rate: 1/h, max_wait: 0s}"
    async with (
        ScriptedUpstream(answer(SWITCHING)) as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get("/first", *WEBSOCKET)).status == 101
        refused = await proxy.get("/second", *WEBSOCKET)
        assert (refused.status, refused.reason_word) == (429, "throttled")
        assert len(upstream.requests) == 1


async def test_no_place_is_taken_between_two_attempts() -> None:
    route = f"{ONE}\nretry: {{backoff: {{strategy: constant, base: 20s, jitter: none}}}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"{route}\ntimeout: 60s")) as proxy,
        proxy.client() as waiting,
    ):
        upstream.script(answer(response(503)))
        await waiting.send(request("GET", "/first"))
        await eventually(lambda: proxy.waiting_requests == 1)
        assert throttle(proxy)["under_way"] == 0
        assert (await proxy.get("/next")).status == 200
        assert await decisions(proxy) == {"passed": 2}


async def test_no_place_is_left_taken_by_failures() -> None:
    async with (
        ScriptedUpstream(reset) as upstream,
        running(one_route(upstream, "throttle: {concurrency: 2}\nretry: 2")) as proxy,
    ):
        assert {got.status for got in await at_once(proxy, 20)} == {502}
        await nothing_left(proxy)
        upstream.usual = answer(ok())
        assert {got.status for got in await at_once(proxy, 20)} == {200}


async def test_leaving_in_the_very_moment_of_ones_turn_loses_no_place() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, ONE)) as proxy:
        for _ in range(20):
            manual = upstream.usual = ManualAnswers()
            first = asyncio.create_task(proxy.get("/first"))
            await eventually(lambda: throttle(proxy)["under_way"] == 1)
            async with proxy.client() as leaving:
                await leaving.send(request("GET", "/leaving"))
                await in_queue(proxy, 1)
                manual.let_through(2)
                leaving.wire.reset()
                assert (await first).body == b"/first"
            await nothing_left(proxy)
        # Whatever the race came to each time, the one slot is still there.
        manual.let_through()
        assert (await proxy.get("/after")).status == 200
