"""An upstream that says "not now" to one caller is left alone by all, for as long as it said.

Afterwards they come one by one, at the rate, and not all at once. With ``HOLDFAST_FUZZ=deep`` it
says so for longer.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.support import (
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    now,
    ok,
    one_route,
    request,
    response,
    running,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.depth import DEEP
from tests.support.leftovers import nothing_left
from tests.support.records import outcomes
from tests.support.throttles import (
    ManualAnswers,
    decisions,
    in_queue,
    join_queue,
    most_within,
    statuses,
    throttle,
)

pytestmark = virtual_time


HINT = 2.0 if DEEP else 0.4
"""Seconds."""
NOT_NOW = response(429, b"not now", "Retry-After: 2" if DEEP else "Retry-After-Ms: 400")
NOT_NOW_FOR_LONG = response(429, b"not now", "Retry-After: 30")


class Moody:
    """An upstream's behaviour: to one request it says "not now", all others are served."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.said: float | None = None
        """When."""

    async def __call__(self, visit: Visit) -> None:
        await asyncio.sleep(0.002)
        if visit.number == self._at:
            self.said = now()
            await visit.send(NOT_NOW)
        else:
            await visit.send(ok())


async def run_fifty_callers(proxy: RunningProxy, seconds: float) -> float:
    """Fifty in a closed loop, for so long; returns when one of them heard of the 429."""
    heard: list[float] = []

    async def call() -> None:
        async with proxy.client() as client:
            while now() < end:
                got = await client.get()
                if got.status == 429:
                    heard.append(now())

    end = now() + seconds
    await asyncio.gather(*(call() for _ in range(50)))
    [moment] = heard
    return moment


@pytest.mark.parametrize(
    ("limit", "every"),
    [
        pytest.param("rate: 100/s, burst: 50", 0.01, id="with a rate: at the rate"),
        pytest.param("rate: 20/200ms, algorithm: window", 0.01, id="with a window: spread over it"),
    ],
)
async def test_one_429_to_fifty_callers_keeps_all_of_them_away(limit: str, every: float) -> None:
    moody = Moody(at=20)
    route = f"throttle: {{{limit}, max_wait: none}}"
    async with ScriptedUpstream(moody) as upstream, running(one_route(upstream, route)) as proxy:
        heard = await run_fifty_callers(proxy, HINT + 0.5)
        assert moody.said is not None
        opens = moody.said + HINT
        times = [seen.at for seen in upstream.requests]
        # What was on the wire when it was heard may still be read; nothing after that.
        assert [moment for moment in times if heard + 0.05 < moment < opens] == []
        assert len([moment for moment in times if heard < moment < opens]) <= 5
        later = [moment for moment in times if moment >= opens]
        assert len(later) >= 20
        # All fifty were waiting for this moment. A loop that is late by a while sends together
        # what fell due meanwhile: room for a tenth of a second, and less than a window's twenty.
        assert most_within(later, 0.05) <= 1 + (0.05 + 0.1) / every
        await nothing_left(proxy)


ONE_BY_ONE = "max_connections: 1"
"""What goes over one connection is read in the order in which it was sent. Of several that are
ready together, the upstream may read any first."""


async def test_without_any_rate_those_who_waited_are_spread_over_a_second() -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "throttle: true", options=ONE_BY_ONE), clock=clock) as proxy,
        AsyncExitStack() as stack,
    ):
        upstream.script(answer(response(429, b"", "Retry-After-Ms: 300")))
        clock.stop()  # the pause does not end before all are in the queue
        assert (await proxy.get("/first")).status == 429
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(20)]
        for number, client in enumerate(clients):
            await join_queue(proxy, client, request("GET", f"/{number}"))
        assert throttle(proxy)["waiting"] == 20
        began = now()
        clock.go_on()
        for client in clients:
            assert (await client.response()).status == 200
        served = upstream.requests[1:]
        assert [seen.target for seen in served] == [f"/{n}" for n in range(20)]
        assert len(upstream.connections) == 1
        times = [seen.at - began for seen in served]
        assert times[0] >= 0.299
        assert times[-1] >= 0.299 + 0.9
        # Without it all twenty would come together; a loop that is late may send a few together.
        assert most_within(times, 0.2) <= 0.2 * 20 + 1 + 6
        # That was for those who waited. Now there is no limit any more.
        assert await statuses(proxy, 20) == [200] * 20
        assert await decisions(proxy) == {"passed": 21, "delayed": 20}
        assert not any("queue_ms" in r["attempts"][0] for r in (await proxy.logged(41))[21:])


async def test_those_who_waited_for_the_end_are_served_in_their_order() -> None:
    route = "throttle: {rate: 200/s}"
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, options=ONE_BY_ONE), clock=clock) as proxy,
        AsyncExitStack() as stack,
    ):
        upstream.script(answer(response(429, b"", "Retry-After-Ms: 200")))
        clock.stop()  # the pause does not end before all are in the queue
        await proxy.get("/first")
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(30)]
        for number, client in enumerate(clients):
            await join_queue(proxy, client, request("GET", f"/{number}"))
        clock.go_on()
        for client in clients:
            assert (await client.response()).status == 200
        assert [seen.target for seen in upstream.requests[1:]] == [f"/{n}" for n in range(30)]
        assert len(upstream.connections) == 1


# What closes a bucket, and for how long.


@asynccontextmanager
async def told_to_wait(
    given: bytes, throttled: str = "throttle: {max_wait: 0s}", *, options: str = ""
) -> AsyncIterator[tuple[RunningProxy, ScriptedUpstream, FakeClock]]:
    """The upstream has *given* this to the first request; a clock to wait for the end with."""
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, throttled, options=options), clock=clock) as proxy,
    ):
        upstream.script(answer(given))
        await proxy.get("/first")
        yield proxy, upstream, clock


@pytest.mark.parametrize(
    ("status", "field", "options", "seconds"),
    [
        pytest.param(429, "Retry-After: 30", "", 30, id="429 with Retry-After"),
        pytest.param(429, "Retry-After-Ms: 2500", "", 3, id="429 with retry-after-ms"),
        pytest.param(429, 'RateLimit: "a";r=0;t=7', "", 7, id="429 with RateLimit"),
        pytest.param(429, "X-RateLimit-Reset: 12", "", 12, id="429 with a reset of the old kind"),
        pytest.param(425, "Retry-After: 5", "", 5, id="425 is a refusal too"),
        pytest.param(503, "Retry-After: 30", "refused: [503]", 30, id="503 where it is one"),
        pytest.param(529, "Retry-After: 30", "refused: [529]", 30, id="529 where it is one"),
        pytest.param(429, "Retry-After: 90", "", 60, id="never for longer than pause.max"),
    ],
)
async def test_a_refusal_with_a_hint_closes_the_bucket(
    status: int, field: str, options: str, seconds: int
) -> None:
    async with told_to_wait(response(status, b"", field), options=options) as (
        proxy,
        upstream,
        clock,
    ):
        refused = await proxy.get()
        assert (refused.status, refused.problem["cause"]) == (429, "paused")
        assert refused.get("Retry-After") == str(seconds)
        clock.advance(seconds - 1)
        assert (await proxy.get()).status == 429
        clock.advance(1)
        assert (await proxy.get()).status == 200
        assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    ("status", "fields", "options", "pause"),
    [
        pytest.param(429, [], "", "", id="429 without a hint"),
        pytest.param(429, ["Retry-After: soon"], "", "", id="429 with a hint that is none"),
        pytest.param(429, ["Retry-After: 0"], "", "", id="429 that may be repeated at once"),
        pytest.param(503, ["Retry-After: 30"], "", "", id="503 may have done the work"),
        pytest.param(429, ["Retry-After: 30"], "refused: [503]", "", id="429 where it is none"),
        pytest.param(200, ["Retry-After: 30"], "", "", id="a success"),
        pytest.param(429, ["Retry-After: 30"], "", "pause: false,", id="pause is off"),
    ],
)
async def test_anything_else_does_not(
    status: int, fields: list[str], options: str, pause: str
) -> None:
    throttled = f"throttle: {{{pause} rate: 1/h, burst: 3, max_wait: 0s}}"
    given = response(status, b"", *fields)
    async with told_to_wait(given, throttled, options=options) as (proxy, upstream, _):
        assert await statuses(proxy, 3) == [200, 200, 429]
        assert throttle(proxy)["paused"] == 0
        assert len(upstream.requests) == 3


async def test_the_longest_pause_can_be_set() -> None:
    throttled = "throttle: {pause: {max: 10s}, max_wait: 0s}"
    async with told_to_wait(NOT_NOW_FOR_LONG, throttled) as (proxy, _, clock):
        assert (await proxy.get()).get("Retry-After") == "10"
        clock.advance(10)
        assert (await proxy.get()).status == 200


async def test_a_longer_hint_makes_it_longer_and_a_shorter_one_does_not_make_it_shorter() -> None:
    clock = FakeClock()
    opened = {f"/{hint}": asyncio.Event() for hint in (20, 5, 40)}

    async def hint(visit: Visit) -> None:
        target = visit.request.target
        await opened[target].wait()
        await visit.send(response(429, b"", f"Retry-After: {target[1:]}"))

    async with (
        ScriptedUpstream(hint) as upstream,
        running(one_route(upstream, "throttle: {max_wait: 0s}"), clock=clock) as proxy,
    ):
        calls = {target: asyncio.create_task(proxy.get(target)) for target in opened}
        await upstream.seen(3)
        lengths = []
        for target, call in calls.items():
            opened[target].set()
            assert (await call).status == 429
            lengths.append((await proxy.get()).get("Retry-After"))
        assert lengths == ["20", "20", "40"]


async def test_status_and_metric_show_it() -> None:
    async with told_to_wait(NOT_NOW_FOR_LONG) as (proxy, _, clock):
        told = throttle(proxy)
        assert told["paused"] == 1
        assert 29 < told["paused_for_seconds"] <= 30
        gauge = "holdfast_throttle_paused"
        labels = {"scope": "route", "name": "all"}
        assert (await proxy.metrics()).total(gauge, **labels) == 1
        clock.advance(30)
        assert throttle(proxy)["paused"] == 0
        assert throttle(proxy)["paused_for_seconds"] == 0
        assert (await proxy.metrics()).total(gauge, **labels) == 0


async def test_a_reload_does_not_end_it() -> None:
    async with told_to_wait(NOT_NOW_FOR_LONG, "throttle: {rate: 9/s, max_wait: 0s}") as (proxy, *_):
        for rate in ("9/s", "99/s"):
            proxy.config.write_text(proxy.config.read_text().replace("9/s", rate))
            assert (await proxy.admin("POST", "/-/reload")).status == 200
            refused = await proxy.get()
            assert (refused.status, refused.problem["cause"]) == (429, "paused")


# Whose bucket.


async def test_a_caller_s_own_limit_is_none_of_the_others_business() -> None:
    keyed = "throttle: {key: 'header:X-Tenant', max_wait: 0s}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, keyed, options="throttle: {max_wait: 0s}")) as proxy,
    ):
        upstream.script(answer(NOT_NOW_FOR_LONG))
        got = [
            (await proxy.get("/", *fields)).status
            for fields in (["X-Tenant: a"], ["X-Tenant: a"], ["X-Tenant: b"], [])
        ]
        assert got == [429, 429, 200, 200]
        assert len(upstream.requests) == 3
        assert throttle(proxy)["paused"] == 1
        assert throttle(proxy, "upstream", "scripted")["paused"] == 0


async def test_an_upstream_s_pause_is_for_every_route_that_leads_to_it() -> None:
    async with ScriptedUpstream() as upstream, ScriptedUpstream() as elsewhere:
        config = (
            f"upstreams:\n  paused: {{urls: [{upstream.url}], throttle: {{max_wait: 0s}}}}\n"
            f"  open: {{urls: [{elsewhere.url}], throttle: {{max_wait: 0s}}}}\n"
            "routes:\n  - {name: a, match: /a, upstream: paused}\n"
            "  - {name: b, match: /b, upstream: paused}\n  - {match: /c, upstream: open}\n"
        )
        async with running(config) as proxy:
            upstream.script(answer(NOT_NOW_FOR_LONG))
            got = [(await proxy.get(path)).status for path in ("/a", "/a", "/b", "/c")]
            assert got == [429, 429, 429, 200]
            assert (len(upstream.requests), len(elsewhere.requests)) == (1, 1)


# Those in the queue when it begins, and those on their way.


def assert_paused(got: Response, retry_after: str) -> None:
    assert (got.status, got.problem["cause"]) == (429, "paused")
    assert got.get("Retry-After") == retry_after


async def test_who_cannot_wait_for_its_end_is_told_at_once() -> None:
    manual = ManualAnswers(NOT_NOW_FOR_LONG)
    route = "throttle: {concurrency: 1, max_wait: 40s}\ntimeout: 60s"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as first,
        proxy.client() as hurried,
        proxy.client() as patient,
    ):
        upstream.script(manual)
        await first.send(request("GET", "/first"))
        await upstream.seen()
        await join_queue(proxy, hurried, request("GET", "/hurried", "Holdfast-Timeout: 20s"))
        await join_queue(proxy, patient, request("GET", "/patient"))
        manual.let_through()
        assert (await first.response()).body == b"not now"
        # The patient one goes first, and the next half a second later.
        assert_paused(await hurried.response(), "31")
        await in_queue(proxy, 1)
        assert patient.is_silent
        # Nor do those get in the queue who come now and cannot wait.
        assert_paused(await proxy.get("/", "Holdfast-Timeout: 20s"), "31")
        assert len(upstream.requests) == 1


async def test_who_waits_for_a_connection_meanwhile_is_not_sent_either() -> None:
    manual = ManualAnswers(NOT_NOW)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "throttle: 100/s", options="max_connections: 1")) as proxy,
        proxy.client() as first,
        proxy.client() as second,
    ):
        upstream.script(manual)
        await first.send(request("GET", "/first"))
        await upstream.seen()
        await second.send(request("GET", "/second"))
        await eventually(lambda: throttle(proxy)["under_way"] == 2)
        told = now()
        manual.let_through()
        assert (await first.response()).status == 429
        assert (await second.response()).status == 200
        assert upstream.requests[1].at - told == pytest.approx(HINT)
        await nothing_left(proxy)


async def test_a_client_that_leaves_during_a_pause_is_never_sent() -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "throttle: true"), clock=clock) as proxy,
        proxy.client() as staying,
    ):
        upstream.script(answer(response(429, b"", "Retry-After-Ms: 150")))
        clock.stop()  # the pause does not end before one has left
        await proxy.get("/first")
        async with proxy.client() as leaving:
            await join_queue(proxy, leaving, request("GET", "/leaving"))
            await join_queue(proxy, staying, request("GET", "/staying"))
        await in_queue(proxy, 1)
        clock.go_on()
        assert (await staying.response()).status == 200
        assert [seen.target for seen in upstream.requests] == ["/first", "/staying"]
        await nothing_left(proxy)


async def test_who_is_retried_comes_back_when_the_pause_is_over() -> None:
    route = "throttle: {max_wait: 0s}\nretry: {backoff: {base: 1ms}}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        upstream.script(answer(response(429, b"", "Retry-After-Ms: 100")))
        got = await proxy.get()
        assert (got.status, got.get("Holdfast-Attempts")) == (200, "2")
        first, second = upstream.requests
        assert second.at - first.at >= 0.1
        [record] = await proxy.logged()
        assert outcomes(record) == ["4xx", "2xx"]
        assert [attempt["why"] for attempt in record["attempts"]] == ["retried", "recovered"]
        assert record["attempts"][1]["wait_for"] == "hint"
