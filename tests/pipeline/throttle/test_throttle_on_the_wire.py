"""Which limits are asked before an attempt, in which order, and what is given back.

With a rate of one an hour and a burst of N, exactly N requests reach the upstream during
a test: each that was spent for nothing is missed at the end.
"""

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support import (
    Certificates,
    RunningProxy,
    ScriptedUpstream,
    answer,
    answer_and_close,
    eventually,
    hang,
    hang_up,
    now,
    one_route,
    real_time,
    request,
    response,
    running,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.leftovers import nothing_left
from tests.support.ports import black_hole, refusing_port
from tests.support.relay import relay
from tests.support.throttles import (
    ManualAnswers,
    at_once,
    decisions,
    in_queue,
    most_within,
    statuses,
    throttle,
)
from tests.support.upstream import ok

pytestmark = virtual_time


BREAKER = "breaker: {min_requests: 1, open_for: 30s}"


def burst(count: int, more: str = "max_wait: 0s") -> str:
    """A throttle that lets *count* requests through, and then one each hour."""
    return f"throttle: {{rate: 1/h, burst: {count}, {more}}}"


def two_routes(upstream: ScriptedUpstream, first: str = "", *, options: str = "") -> str:
    """Routes ``first`` and ``other`` to the same upstream."""
    return (
        f"upstreams: {{scripted: {{urls: [{upstream.url}], {options}}}}}\n"
        "routes:\n"
        f"  - {{name: first, match: /first/**, upstream: scripted, {first}}}\n"
        "  - {name: other, match: /**, upstream: scripted}\n"
    )


async def assert_left(proxy: RunningProxy, count: int, target: str = "/") -> None:
    """Exactly *count* more requests are let through."""
    assert await statuses(proxy, count + 1, target) == [200] * count + [429]


# Rate and burst.


async def test_so_many_come_through_together_and_no_more() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, burst(5))) as proxy:
        got = [response.status for response in await at_once(proxy, 20)]
        assert sorted(got) == [200] * 5 + [429] * 15
        assert len(upstream.requests) == 5
        assert await decisions(proxy) == {"passed": 5, "refused": 15}
        await nothing_left(proxy)


async def test_who_comes_too_early_waits_for_its_turn_and_the_records_tell() -> None:
    route = "throttle: {rate: 10/s, burst: 1}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        assert [got.status for got in await at_once(proxy, 4)] == [200] * 4
        times = [seen.at for seen in upstream.requests]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        # One interval each; how late the loop is shortens the gap to the next.
        assert times[-1] - times[0] >= 0.29
        assert max(gaps) < 1
        assert await decisions(proxy) == {"passed": 1, "delayed": 3}
        queued = sorted(
            record["attempts"][0].get("queue_ms", 0) for record in await proxy.logged(4)
        )
        assert queued[0] == 0
        for turn, milliseconds in enumerate(queued[1:], 1):
            assert 100 * turn - 30 < milliseconds < 100 * turn + 1000
        metrics = await proxy.metrics()
        labels = {"scope": "route", "name": "all"}
        assert metrics.total("holdfast_throttle_wait_seconds_count", **labels) == 3
        waited = metrics.total("holdfast_throttle_wait_seconds_sum", **labels)
        assert waited == pytest.approx(sum(queued) / 1000, abs=0.01)
        assert metrics.total("holdfast_throttle_queue_length", **labels) == 0


# The breaker is asked first.


async def test_an_open_breaker_refuses_before_a_permit_is_taken() -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, burst(3), options=BREAKER), clock=clock) as proxy,
    ):
        upstream.script(answer(response(500)))
        assert await statuses(proxy, 6) == [500] + [503] * 5
        clock.advance(31)
        await assert_left(proxy, 2)
        assert len(upstream.requests) == 3
        assert await decisions(proxy) == {"passed": 3, "refused": 1}


async def test_a_breaker_that_opens_meanwhile_refuses_who_waits_in_queue() -> None:
    route = "throttle: {rate: 1/h, burst: 3, concurrency: 1, max_wait: 1s}"
    clock = FakeClock()
    manual = ManualAnswers(response(500))
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, options=BREAKER), clock=clock) as proxy,
    ):
        upstream.script(manual)
        first = asyncio.create_task(proxy.get())
        await upstream.seen()
        second = asyncio.create_task(proxy.get())
        await in_queue(proxy, 1)
        manual.let_through()
        assert (await first).status == 500
        refused = await second
        assert (refused.status, refused.reason_word) == (503, "breaker_open")
        await nothing_left(proxy)
        clock.advance(31)
        await assert_left(proxy, 2)
        assert len(upstream.requests) == 3


# The route's limiter, then the upstream's.


async def test_what_the_upstream_s_throttle_refuses_costs_the_route_nothing() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, burst(3), options=burst(1))) as proxy,
    ):
        assert await statuses(proxy, 6) == [200] + [429] * 5
        assert await decisions(proxy, "upstream", "scripted") == {"passed": 1, "refused": 5}
        assert (await decisions(proxy)).get("refused") is None
        proxy.config.write_text(proxy.config.read_text().replace(burst(1), ""))
        assert (await proxy.admin("POST", "/-/reload")).status == 200
        await assert_left(proxy, 2)


async def test_what_the_route_s_throttle_refuses_costs_the_upstream_nothing() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(two_routes(upstream, burst(1), options=burst(3))) as proxy,
    ):
        assert await statuses(proxy, 6, "/first") == [200] + [429] * 5
        await assert_left(proxy, 2, "/other")


async def test_the_answer_is_that_of_the_limit_which_refused() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(
            one_route(
                upstream, burst(9), options="throttle: {rate: 1/m, margin: 500ms, max_wait: 0s}"
            )
        ) as proxy,
    ):
        await proxy.get()
        refused = await proxy.get()
        assert (refused.status, refused.get("Retry-After")) == (429, "61")
        assert refused.get("RateLimit-Policy") == '"1-per-60s";q=1;w=60'


async def test_two_routes_share_what_their_upstream_allows() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(two_routes(upstream, options=burst(5))) as proxy,
    ):
        assert await statuses(proxy, 2, "/first") == [200] * 2
        await assert_left(proxy, 3, "/other")
        await assert_left(proxy, 0, "/first")
        assert len(upstream.requests) == 5


# What is not sent costs nothing.


async def test_a_connection_that_was_refused_costs_nothing() -> None:
    with refusing_port() as port:
        config = one_route(f"http://127.0.0.1:{port}", burst(2), options=burst(2))
        async with running(config) as proxy:
            assert await statuses(proxy, 5) == [502] * 5
            await nothing_left(proxy)
            upstream = await _in_place_of(port, proxy)
            try:
                await assert_left(proxy, 2)
            finally:
                await upstream.stop()


async def _in_place_of(port: int, proxy: RunningProxy) -> ScriptedUpstream:
    """An upstream of its own, to which the proxy is led by a reload."""
    upstream = await ScriptedUpstream().__aenter__()
    text = proxy.config.read_text().replace(f"127.0.0.1:{port}", f"127.0.0.1:{upstream.port}")
    proxy.config.write_text(text)
    assert (await proxy.admin("POST", "/-/reload")).status == 200
    return upstream


async def test_no_free_connection_costs_nothing() -> None:
    manual = ManualAnswers()
    options = "max_connections: 1\nconnect_timeout: 20ms"
    async with (
        ScriptedUpstream(manual) as upstream,
        running(one_route(upstream, burst(2), options=options)) as proxy,
    ):
        first = asyncio.create_task(proxy.get())
        await upstream.seen()
        busy = await proxy.get()
        assert (busy.status, busy.reason_word) == (503, "busy")
        manual.let_through(9)
        assert (await first).status == 200
        await assert_left(proxy, 1)
        assert len(upstream.requests) == 2


async def test_a_client_that_leaves_in_queue_for_the_upstream_costs_the_route_nothing() -> None:
    manual = ManualAnswers()
    async with (
        ScriptedUpstream(manual) as upstream,
        running(one_route(upstream, burst(2), options="throttle: {concurrency: 1}")) as proxy,
    ):
        first = asyncio.create_task(proxy.get())
        await upstream.seen()
        async with proxy.client() as leaving:
            await leaving.send(request("GET", "/leaving"))
            await in_queue(proxy, 1, "upstream", "scripted")
            assert throttle(proxy)["under_way"] == 2
        await in_queue(proxy, 0, "upstream", "scripted")
        manual.let_through(9)
        assert (await first).status == 200
        await assert_left(proxy, 1)
        await nothing_left(proxy)


async def test_a_client_that_leaves_while_its_connection_is_made_costs_nothing() -> None:
    with black_hole() as port:
        config = one_route(f"http://127.0.0.1:{port}", burst(2))
        async with running(config) as proxy:
            for _ in range(3):
                async with proxy.client() as leaving:
                    await leaving.send(request("GET", "/leaving"))
                    await eventually(lambda: throttle(proxy)["under_way"] == 1)
                await nothing_left(proxy)
            upstream = await _in_place_of(port, proxy)
            try:
                await assert_left(proxy, 2)
            finally:
                await upstream.stop()


async def test_a_connection_that_is_long_in_the_making_keeps_nobody_waiting() -> None:
    with black_hole() as port:
        async with ScriptedUpstream() as upstream:
            hole = f"http://127.0.0.1:{port}"
            options = "connect_timeout: 4s\nthrottle: {rate: 5/s, burst: 1}"
            config = one_route(upstream, options=options)
            config = config.replace(upstream.url, f"{hole}, {upstream.url}")
            async with running(config) as proxy, AsyncExitStack() as stack:
                for _ in range(4):
                    client = await stack.enter_async_context(proxy.client())
                    await client.send(request("GET", "/"))
                # Two of the four; the others hold nothing while they knock in vain.
                await eventually(lambda: len(upstream.requests) == 2, within=2.0)


async def test_a_body_that_is_too_large_costs_nothing() -> None:
    route = f"{burst(2)}\nmax_body: 1KiB"
    chunked = (
        request("POST", "/", "Transfer-Encoding: chunked") + b"800\r\n" + bytes(2048) + b"\r\n"
    )
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        assert await statuses(proxy, 1) == [200]  # there is a connection now
        async with proxy.client() as client:
            await client.send(chunked + b"0\r\n\r\n")
            assert (await client.response("POST")).status == 413
        await nothing_left(proxy)
        await assert_left(proxy, 1)
        assert len(upstream.requests) == 2


async def test_what_was_sent_counts_whatever_became_of_it() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"{burst(5)}\ntimeout: 100ms")) as proxy,
    ):
        upstream.script(answer(response(404)), answer(response(500)), hang, hang_up)
        got = await statuses(proxy, 6)
        assert got == [404, 500, 504, 502, 200, 429]
        assert len(upstream.requests) == 5


async def test_what_took_the_place_of_a_stale_connection_counts_as_well() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, burst(3))) as proxy:
        assert await statuses(proxy, 1) == [200]
        upstream.script(hang_up)  # the connection was reused: another attempt takes its place
        assert await statuses(proxy, 2) == [200, 429]
        assert len(upstream.requests) == 3


async def test_a_stale_connection_for_which_no_permit_is_left_is_told_as_what_it_was() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, burst(2))) as proxy:
        assert await statuses(proxy, 1) == [200]
        upstream.script(hang_up)
        lost = await proxy.get()
        assert (lost.status, lost.reason_word) == (502, "reset")
        assert len(upstream.requests) == 2
        await nothing_left(proxy)


@real_time  # a relay of its own sockets
@pytest.mark.alone
async def test_a_rate_is_used_though_every_call_needs_a_connection_that_takes_its_time(
    tmp_path: Path,
) -> None:
    """Turns come at the rate, and connections are made at the same time."""
    certificates = Certificates(tmp_path)
    rate, calls = 50, 40
    async with (
        ScriptedUpstream(answer_and_close(ok())) as upstream,
        relay(upstream.port, tls=certificates.for_server()) as encrypted,
        relay(encrypted.port, delay=0.03) as distant,
    ):
        config = (
            f"upstreams: {{a: {{urls: ['https://127.0.0.1:{distant.port}'],"
            f" tls: {{ca: {certificates.ca}}}}}}}\n"
            f"routes: [{{match: /**, upstream: a, throttle: {rate}/s}}]\n"
        )
        async with running(config) as proxy:
            began = now()
            got = await asyncio.gather(*(proxy.get() for _ in range(calls)))
            took = now() - began
            assert {response.status for response in got} == {200}
            assert took >= (calls - 1) / rate
            assert took < calls * 0.06, "one connection after the other would have taken longer"
            times = sorted(seen.at for seen in upstream.requests)
            assert most_within(times, 1.0) <= rate
            await nothing_left(proxy)
