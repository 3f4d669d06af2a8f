"""The line: first come, first served, and who leaves delays nobody."""

import asyncio
import signal
from contextlib import AsyncExitStack

import pytest

from tests.support import (
    RawClient,
    RunningProxy,
    ScriptedUpstream,
    both_loops,
    hang,
    now,
    one_route,
    real_time,
    request,
    response,
    running,
    subprocess_proxy,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.leftovers import leftovers, nothing_left
from tests.support.records import outcomes
from tests.support.throttles import (
    ManualAnswers,
    at_once,
    decisions,
    in_queue,
    join_queue,
    throttle,
)

pytestmark = virtual_time


CROWD = 500
CLOSED = "throttle: {rate: 1/h, burst: 1, max_wait: none}\ntimeout: none"
"""After one call nothing moves until the limit is changed."""


async def open_to(proxy: RunningProxy, rate: str) -> None:
    """Another limit for those in the queue: one that lets them go."""
    proxy.config.write_text(proxy.config.read_text().replace("rate: 1/h", f"rate: {rate}"))
    assert (await proxy.admin("POST", "/-/reload")).status == 200


async def a_crowd(
    stack: AsyncExitStack, proxy: RunningProxy, count: int, *, before: int = 0
) -> list[RawClient]:
    """So many clients, in the queue one behind the other; their paths are their numbers."""
    crowd = []
    for number in range(before, before + count):
        client = await stack.enter_async_context(proxy.client())
        await client.send(request("GET", f"/{number}"))
        await in_queue(proxy, number + 1)
        crowd.append(client)
    return crowd


async def test_five_hundred_are_served_in_the_order_of_their_coming_though_a_hundred_leave() -> (
    None
):
    # What goes over one connection is read in the order in which it was sent. Of several that are
    # ready together, the upstream may read any first.
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, CLOSED, options="max_connections: 1")) as proxy,
        AsyncExitStack() as stack,
    ):
        assert (await proxy.get("/first")).status == 200
        crowd = await a_crowd(stack, proxy, CROWD)
        leaving = set(range(100, 300, 2))
        for number in leaving:
            crowd[number].wire.reset()
        await in_queue(proxy, CROWD - len(leaving))
        assert len(upstream.requests) == 1
        await open_to(proxy, "500/s")
        staying = [number for number in range(CROWD) if number not in leaving]
        for number in staying:
            assert (await crowd[number].response()).status == 200
        assert [seen.target for seen in upstream.requests[1:]] == [f"/{n}" for n in staying]
        assert len(upstream.connections) == 1
        await nothing_left(proxy)
        metrics = await proxy.metrics()
        gone = metrics.total("holdfast_client_disconnects_total", route="all", phase="queue")
        assert gone == len(leaving)
        assert metrics.total("holdfast_client_disconnects_total") == len(leaving)
        assert metrics.total("holdfast_requests_total", code="499") == len(leaving)
        assert await decisions(proxy) == {"passed": 1, "delayed": len(staying)}


async def test_who_leaves_delays_nobody() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, CLOSED)) as proxy,
        AsyncExitStack() as stack,
    ):
        await proxy.get()
        crowd = await a_crowd(stack, proxy, 210)
        for client in crowd[:200]:
            client.wire.reset()
        await in_queue(proxy, 10)
        began = now()
        await open_to(proxy, "50/s")
        for client in crowd[200:]:
            assert (await client.response()).status == 200
        # With the slots of those who left it would have taken four seconds.
        assert now() - began < 2
        assert len(upstream.requests) == 11


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_one_that_leaves_is_never_sent(how: str) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, CLOSED)) as proxy:
        await proxy.get("/first")
        async with proxy.client() as leaving, proxy.client() as staying:
            await join_queue(proxy, leaving, request("GET", "/leaving"))
            await join_queue(proxy, staying, request("GET", "/staying"))
            getattr(leaving.wire, how)()
            await in_queue(proxy, 1)
            await open_to(proxy, "10/s")
            assert (await staying.response()).status == 200
        assert [seen.target for seen in upstream.requests] == ["/first", "/staying"]
        [record] = [r for r in await proxy.logged(3) if r["path"] == "/leaving"]
        assert (record["code"], record["attempts"]) == (499, [])
        await nothing_left(proxy)


@both_loops
async def test_one_that_leaves_with_more_in_its_pipeline_is_noticed_too() -> None:
    """Nothing is read from it any more, so nothing tells of its end either: somebody looks."""
    route = "throttle: {concurrency: 1}"
    async with ScriptedUpstream(hang) as upstream, running(one_route(upstream, route)) as proxy:
        async with proxy.client() as first, proxy.client() as leaving:
            await first.send(request("GET", "/first"))
            await upstream.seen()
            await join_queue(proxy, leaving, request("GET", "/leaving") * 2000)
            leaving.wire.close()
            await in_queue(proxy, 0)
        assert len(upstream.requests) == 1


async def test_slots_in_queue_are_limited() -> None:
    manual = ManualAnswers()
    route = "throttle: {concurrency: 1, max_queue: 3}"
    async with (
        ScriptedUpstream(manual) as upstream,
        running(one_route(upstream, route)) as proxy,
        AsyncExitStack() as stack,
    ):
        first = await stack.enter_async_context(proxy.client())
        await first.send(request("GET", "/first"))
        await upstream.seen()
        crowd = await a_crowd(stack, proxy, 3)
        refused = await proxy.get()
        assert (refused.status, refused.problem["cause"]) == (429, "queue_full")
        crowd[1].wire.reset()
        await in_queue(proxy, 2)
        crowd += await a_crowd(stack, proxy, 1, before=2)  # the place that was given up
        manual.let_through(9)
        for client in (first, crowd[0], crowd[2], crowd[3]):
            assert (await client.response()).status == 200


async def test_a_wait_that_nobody_could_foresee_ends_when_max_wait_is_over() -> None:
    route = "throttle: {concurrency: 1, max_wait: 100ms}"
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as first,
    ):
        await first.send(request("GET", "/first"))
        await upstream.seen()
        began = now()
        refused = await proxy.get()
        assert 0.1 <= now() - began < 2
        assert (refused.status, refused.problem["cause"]) == (429, "max_wait")
        assert len(upstream.requests) == 1
        assert throttle(proxy)["waiting"] == 0


async def test_such_a_wait_ends_with_the_time_of_its_request_too() -> None:
    route = "throttle: {concurrency: 1, max_wait: none}"
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as first,
    ):
        await first.send(request("GET", "/first"))
        await upstream.seen()
        began = now()
        refused = await proxy.get("/", "Holdfast-Timeout: 100ms")
        assert 0.08 <= now() - began < 2
        assert (refused.status, refused.problem["cause"]) == (429, "deadline")
        assert len(upstream.requests) == 1


async def test_who_would_wait_for_too_long_is_told_so_at_once() -> None:
    route = "throttle: {rate: 2/s, burst: 1, max_wait: 700ms}"
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route), clock=clock) as proxy,
        proxy.client() as second,
    ):
        clock.stop()  # at once: no time passes
        await proxy.get("/first")
        await join_queue(proxy, second, request("GET", "/second"))
        refused = await proxy.get("/third")  # a second would pass until its turn
        assert (refused.status, refused.problem["cause"]) == (429, "max_wait")
        assert second.is_silent
        clock.go_on()
        assert (await second.response()).status == 200
        assert [seen.target for seen in upstream.requests] == ["/first", "/second"]


async def test_nobody_overtakes_those_in_queue() -> None:
    """Nor who comes when there is a permit again, before those in the queue have heard of it."""
    clock = FakeClock()
    route = "throttle: {rate: 1/m, max_wait: none}\ntimeout: none"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route), clock=clock) as proxy,
        proxy.client() as waiting,
        proxy.client() as late,
    ):
        await proxy.get("/first")
        await join_queue(proxy, waiting, request("GET", "/waiting"))
        clock.advance(61)
        await late.send(request("GET", "/late"))
        assert (await waiting.response()).status == 200
        await in_queue(proxy, 1)
        assert [seen.target for seen in upstream.requests] == ["/first", "/waiting"]


# While draining.


async def test_a_drain_lets_first_attempts_in_queue_go_on_and_sends_retries_away() -> None:
    manual, failure = ManualAnswers(), ManualAnswers(response(503))
    retry = "retry: {attempts: 2, backoff: {strategy: constant, base: 1ms, jitter: none}}"
    route = f"throttle: {{concurrency: 1}}\n{retry}"
    async with (
        ScriptedUpstream(manual) as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as failing,
        proxy.client() as second,
        proxy.client() as third,
    ):
        upstream.script(failure)
        await failing.send(request("GET", "/failing"))
        await upstream.seen()
        await join_queue(proxy, second, request("GET", "/second"))
        await join_queue(proxy, third, request("GET", "/third"))
        failure.let_through()
        # Now the second is under way, and the third and a retry are in line.
        await upstream.seen(2)
        await in_queue(proxy, 2)
        draining = asyncio.create_task(proxy.app.drain())
        sent_away = await failing.response()
        assert (sent_away.status, sent_away.reason_word) == (503, "draining")
        assert sent_away.problem["attempts"] == 1
        manual.let_through(2)
        assert (await second.response()).body == b"/second"
        assert (await third.response()).body == b"/third"
        await draining
        assert [seen.target for seen in upstream.requests] == ["/failing", "/second", "/third"]
        whys = {r["path"]: [a["why"] for a in r["attempts"]] for r in await proxy.logged(3)}
        assert whys == {"/failing": ["shutdown"], "/second": ["success"], "/third": ["success"]}
        assert not leftovers(proxy)


@real_time  # a process of its own
async def test_a_process_that_is_told_to_end_serves_those_in_queue_first() -> None:
    route = "throttle: {rate: 5/s, burst: 1}"
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream, route)) as proxy,
    ):
        waiting = asyncio.create_task(at_once(proxy, 8))
        await upstream.seen(1)

        async def queued() -> float:
            return (await proxy.metrics()).total("holdfast_throttle_queue_length")

        while await queued() < 5:  # noqa: ASYNC110 - the metric is all there is to see
            await asyncio.sleep(0.005)
        proxy.signal(signal.SIGTERM)
        assert {got.status for got in await waiting} == {200}
        assert await proxy.exit_status() == 0
        assert len(upstream.requests) == 8


async def test_what_a_stop_cuts_off_in_queue_is_never_sent() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, CLOSED, top="drain_timeout: 100ms")) as proxy,
        proxy.client() as waiting,
    ):
        await proxy.get()
        await join_queue(proxy, waiting)
        await proxy.app.drain()
        assert await waiting.ended()
        assert len(upstream.requests) == 1
        assert not leftovers(proxy)


async def test_the_log_tells_how_long_one_waits_in_queue() -> None:
    route = "throttle: {rate: 10/s, burst: 1}"
    notable = "access_log: notable"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, top=notable)) as proxy,
    ):
        await at_once(proxy, 2)
        # The one that passed at once is not worth a line.
        [record] = await proxy.logged()
        assert outcomes(record) == ["2xx"]
        assert record["attempts"][0]["queue_ms"] > 50
        assert record["duration_ms"] >= record["attempts"][0]["queue_ms"]
        assert record["attempts"][0]["start_ms"] >= record["attempts"][0]["queue_ms"] - 0.01
