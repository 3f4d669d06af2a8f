"""The store is stopped, refuses or hangs: ``on_store_error`` decides, and nobody waits for it."""

import asyncio
import logging
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.pipeline.instances import crowd, everybody_sees_it, instances, sharing, store_of
from tests.pipeline.outages import Outage, in_every_outage, killed, stalled
from tests.pipeline.throttle.timed_sends import read_sends
from tests.stores.running_stores import goes_out_at
from tests.support import (
    Response,
    RunningProxy,
    ScriptedUpstream,
    eventually,
    running,
)
from tests.support.leftovers import nothing_left
from tests.support.redis_server import redis_server, store_line
from tests.support.throttles import decisions, most_within, statuses
from tests.support.witness import Stopwatch

MODES = ("local", "open", "closed")
SOON = 1.0 + 0.5
"""Seconds within which nobody waits for a store that does not answer."""
HASTY = "timeout: 1s"
OPERATIONS = "holdfast_store_operation_duration_seconds_count"
ERRORS = "holdfast_store_errors_total"


def one_route_per_mode(upstream: ScriptedUpstream, port: int, limit: str) -> str:
    """Routes called like the modes, and one without a throttle."""
    routes = "".join(
        f"  - {{name: {mode}, match: /{mode}, upstream: scripted,"
        f" throttle: {{{limit}, on_store_error: {mode}}}}}\n"
        for mode in MODES
    )
    return (
        f"{store_line(port, HASTY)}\n"
        f"upstreams: {{scripted: {{urls: [{upstream.url}]}}}}\n"
        f"routes:\n{routes}  - {{name: plain, match: /plain, upstream: scripted}}\n"
    )


async def timed(proxy: RunningProxy, target: str) -> tuple[Response, float]:
    watch = Stopwatch()
    return await proxy.get(target), watch.seconds


def seen(upstream: ScriptedUpstream) -> Counter[str]:
    return Counter(request.target for request in upstream.requests)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log has about the store."""
    return [r.getMessage() for r in caplog.records if "the store at" in r.getMessage()]


@in_every_outage
@pytest.mark.parametrize("limit", ["rate: 500/s, burst: 50", "concurrency: 50"])
async def test_each_mode_does_what_it_says_and_the_store_is_used_again_after_it(
    outage: Outage, limit: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        running(one_route_per_mode(upstream, server.port, limit)) as proxy,
    ):
        for mode in (*MODES, "plain"):
            assert await statuses(proxy, 2, f"/{mode}") == [200, 200]
        async with outage(server):
            # The first ones find out, unless they were lent a permit before.
            for _, took in await asyncio.gather(*(timed(proxy, f"/{mode}") for mode in MODES)):
                assert took < SOON
            await everybody_sees_it([proxy], "down")
            asked = (await proxy.metrics()).total(OPERATIONS)
            closed = seen(upstream)["/closed"]
            watch = Stopwatch()
            for mode in ("local", "open", "plain"):
                assert await statuses(proxy, 20, f"/{mode}") == [200] * 20
            assert await statuses(proxy, 20, "/closed") == [503] * 20
            assert watch.seconds < 2, "each waited for the store"
            refused = await proxy.get("/closed")
            assert (refused.reason_word, refused.get("Retry-After")) == ("store", "1")
            assert seen(upstream)["/closed"] == closed
            metrics = await proxy.metrics()
            assert metrics.total(OPERATIONS) == asked
            assert metrics.total(ERRORS) > 0
            assert (await decisions(proxy, "route", "closed"))["refused"] >= 21
        await everybody_sees_it([proxy], "up")
        for mode in (*MODES, "plain"):
            assert await statuses(proxy, 3, f"/{mode}") == [200] * 3
        assert (await proxy.metrics()).total(OPERATIONS) > asked
        await nothing_left(proxy)
    down, up = said(caplog)
    assert down.startswith(f"the store at 127.0.0.1:{server.port} is down (")
    assert up == f"the store at 127.0.0.1:{server.port} is back: limits are shared again"


async def test_who_needs_no_store_does_not_wait_until_it_is_known_to_be_down() -> None:
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        running(one_route_per_mode(upstream, server.port, "rate: 500/s")) as proxy,
    ):
        async with stalled(server):
            asking = asyncio.create_task(proxy.get("/closed"))
            await eventually(lambda: proxy.client_connections == 1)
            assert (await proxy.get("/plain")).status == 200
            assert not asking.done()
            assert (await asking).reason_word == "store"
        assert seen(upstream) == {"/plain": 1}


async def test_a_deadline_that_is_shorter_ends_the_wait_for_the_store() -> None:
    route = "timeout: 50ms\nthrottle: {rate: 500/s}"
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        running(sharing(upstream, server.port, route, store=HASTY)) as proxy,
        stalled(server),
    ):
        refused, took = await timed(proxy, "/")
        assert took < SOON
        assert refused.status in {429, 504}
        assert upstream.requests == []
        await nothing_left(proxy)


async def test_a_client_that_leaves_while_the_store_is_asked_leaves_nothing_behind() -> None:
    route = "throttle: {rate: 500/s, concurrency: 5}"
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        running(sharing(upstream, server.port, route)) as proxy,
    ):
        async with stalled(server):
            asking = asyncio.create_task(proxy.get())
            await eventually(lambda: proxy.client_connections == 1)
            asking.cancel()
            await asyncio.wait([asking])
            await nothing_left(proxy, clients=0)
        assert upstream.requests == []
        assert (await proxy.get()).status == 200


async def test_it_starts_without_a_store_and_uses_it_when_it_appears(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with redis_server() as server, ScriptedUpstream() as upstream, killed(server):
        watch = Stopwatch()
        async with running(sharing(upstream, server.port, "throttle: 500/s", store=HASTY)) as proxy:
            assert watch.seconds < 1
            assert (await proxy.admin("GET", "/readyz")).status == 200
            assert (await store_of(proxy))["state"] == "down"
            assert await statuses(proxy, 5) == [200] * 5
            await server.start()
            await everybody_sees_it([proxy], "up")
            assert await statuses(proxy, 5) == [200] * 5
            async with server.client() as client:
                assert await client.exists("holdfast:route:all")
        await server.stop()
    assert len(said(caplog)) == 1


@pytest.mark.parametrize("state", ["up", "down", "hangs"])
async def test_a_proxy_ends_in_time_however_its_store_does(state: str) -> None:
    route = "throttle: {rate: 500/s, concurrency: 9}"
    async with redis_server() as server, ScriptedUpstream() as upstream:
        # It fails by itself if a task, a timer's callback or a connection is left.
        async with running(sharing(upstream, server.port, route, store=HASTY)) as proxy:
            assert await statuses(proxy, 5) == [200] * 5
            if state == "down":
                await server.stop()
            if state == "hangs":
                server.stall()
            watch = Stopwatch()
        assert watch.seconds < 1.5
        if state == "up":
            async with server.client() as client:
                assert await client.zcard("holdfast:instances") == 0
                fields = await client.hkeys("holdfast:route:all")
                assert [name for name in fields if str(name).startswith("at:")] == []


# Who slept was not the store, but us.


async def test_an_instance_that_was_suspended_uses_nothing_that_has_lapsed(tmp_path: Path) -> None:
    """Its permits lapse after 50 ms, its slots after 3 s: meanwhile others have them."""
    sends = tmp_path / "sends"
    rate, burst, slots = 200, 20, 8
    limit = f"throttle: {{rate: {rate}/s, burst: {burst}, concurrency: {slots}, max_wait: none}}"
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        instances(sharing(upstream, server.port, limit), 2, sends) as proxies,
    ):
        async with crowd(proxies, 16) as callers:
            await asyncio.sleep(0.5)
            proxies[0].signal(signal.SIGSTOP)
            stopped, pids = time.monotonic(), (proxies[1].process.pid, server.pid)
            # The other one has all of the limit; on a busy machine permits lapse before their use.
            await goes_out_at(0.9 * rate, 2.0, lambda: len(upstream.requests), *pids)
            await asyncio.sleep(stopped + 3.5 - time.monotonic())
            proxies[0].signal(signal.SIGCONT)
            await asyncio.sleep(0.8)
            assert (await store_of(proxies[0]))["state"] == "up"
        assert (callers.statuses, callers.lost) == ({200}, 0)
        # By the moments that the proxies counted: what came while the upstream or a proxy did not
        # get to run seems to have come later.
        counted = [send.counted for send in read_sends(sends)]
        assert len(counted) == len(upstream.requests)
        assert most_within(counted, 1.0) <= (rate + burst) * 1.02
