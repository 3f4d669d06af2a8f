"""When deliveries are sent, and what becomes of them: in virtual time, over the real file."""

import asyncio
from collections import Counter
from email.utils import formatdate
from itertools import pairwise

import pytest

from tests.support import (
    REFUSES_503,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    hang,
    now,
    ok,
    one_route,
    reset,
    response,
    running,
    virtual_time,
    wall,
)
from tests.support.dead_letters import listed
from tests.support.delivery_admin import delivery_of, delivery_page
from tests.support.depth import DEEP
from tests.support.handed_off import ASYNC, HONOURED, KEY, ended, hand_off, send, state_of

pytestmark = [virtual_time, pytest.mark.usefixtures("files_at_once")]

ROUTE = "dead_letter: true\nhand_off: "
NO_JITTER = "retry: {backoff: {jitter: none}}"
WAITING = 10_000 if DEEP else 1000


async def wait_until(state: str, proxy: RunningProxy, name: str, within: float) -> None:
    over = now() + within
    while (found := await state_of(proxy, name))["state"] != state:
        assert now() < over, found
        await asyncio.sleep(within / 100)


async def test_the_schedule_of_one_that_always_fails() -> None:
    times: list[float] = []

    async def fail(visit: Visit) -> None:
        await visit.read_body()
        times.append(now())
        await visit.send(response(500))

    route = f"{ROUTE}{{attempts: 6, {NO_JITTER}}}"
    async with (
        ScriptedUpstream(usual=fail) as upstream,
        running(one_route(upstream, route, options=HONOURED)) as proxy,
    ):
        name = await hand_off(proxy)
        found = await ended(proxy, name, within=3000)
        assert (found["state"], found["why"], found["attempts"]) == (
            "failed",
            "attempts_exhausted",
            6,
        )
        waits = [b - a for a, b in pairwise(times)]
        assert waits == pytest.approx([2, 6, 18, 54, 162], abs=0.1)
        (letter,) = await listed(proxy)
        assert (letter["may_have_run"], letter["error"]) == (True, "500")


async def test_one_body_that_fails_holds_nobody_up() -> None:
    async def judge(visit: Visit) -> None:
        body = await visit.read_body()
        await visit.send(response(500) if body == b"poison" else ok())

    route = f"{ROUTE}{{attempts: 4, concurrency: 2}}"
    async with (
        ScriptedUpstream(usual=judge) as upstream,
        running(one_route(upstream, route, options=HONOURED)) as proxy,
    ):
        bad = await hand_off(proxy, body=b"poison")
        good = [await hand_off(proxy, body=b"%d" % n) for n in range(50)]
        began = now()
        for name in good:
            assert (await ended(proxy, name))["state"] == "delivered"
        assert now() - began < 2
        assert (await ended(proxy, bad, within=300))["why"] == "attempts_exhausted"
        assert Counter(one.body for one in upstream.requests)[b"poison"] == 4


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        pytest.param(("Retry-After: 20",), 20, id="seconds"),
        pytest.param((f"Retry-After: {30 * 3600}",), 24 * 3600, id="30 hours are cut to 24"),
        pytest.param(("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 40"), 40, id="a reset"),
        pytest.param("date", 50, id="a date"),
    ],
)
async def test_a_429_is_waited_for_and_uses_no_attempt(
    fields: tuple[str, ...] | str, waits: float
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"{ROUTE}{{attempts: 2, {NO_JITTER}}}")) as proxy,
    ):
        if isinstance(fields, str):
            fields = (f"Retry-After: {formatdate(wall() + 50, usegmt=True)}",)
        upstream.script(*(answer(response(429, b"", *fields)) for _ in range(1)))
        began = now()
        name = await hand_off(proxy)
        await wait_until("retrying", proxy, name, 1)
        assert (await state_of(proxy, name))["attempts"] == 0
        found = await ended(proxy, name, within=waits * 1.2 + 100)
        assert (found["state"], found["attempts"]) == ("delivered", 1)
        assert waits - 1 <= now() - began <= waits * 1.2 + 60


@pytest.mark.parametrize(
    ("status", "state", "why"),
    [
        (401, "failed", "not_retryable_status"),
        (403, "failed", "not_retryable_status"),
        (404, "failed", "not_retryable_status"),
        (410, "failed", "not_retryable_status"),
        (302, "failed", "redirect"),
        (307, "failed", "redirect"),
        (303, "delivered", None),
        (204, "delivered", None),
    ],
)
async def test_answers_that_end_it_at_once(status: int, state: str, why: str | None) -> None:
    location = "Location: http://127.0.0.1:1/elsewhere"
    async with (
        ScriptedUpstream(usual=answer(response(status, b"", location))) as upstream,
        running(one_route(upstream, f"{ROUTE}true", options=HONOURED)) as proxy,
    ):
        name = await hand_off(proxy)
        found = await ended(proxy, name)
        assert (found["state"], found.get("why"), len(upstream.requests)) == (state, why, 1)
        assert found["response"] == {"status": status}
        await asyncio.sleep(100)
        assert len(upstream.requests) == 1, "nobody follows it, nobody tries again"
        if status == 302:
            assert found["may_have_run"] == "maybe", "a form is answered so when it was done"


@pytest.mark.parametrize("why", ["throttled", "upstream_down"])
async def test_what_is_too_old_fails_whatever_it_waits_for(why: str) -> None:
    throttle = "throttle: {rate: 1/h, burst: 1, max_wait: 1s}\n" if why == "throttled" else ""
    async with ScriptedUpstream() as upstream:
        url = upstream.url if why == "throttled" else "http://127.0.0.1:9"
        route = f"idempotency: {{required: true}}\n{throttle}{ROUTE}{{give_up_after: 10m}}"
        async with running(one_route(url, route)) as proxy:
            if why == "throttled":
                assert (await send(proxy, "Idempotency-Key: first")).status == 200
            name = await hand_off(proxy, KEY)
            await asyncio.sleep(100)
            assert (await state_of(proxy, name)).get("deferred") == why
            found = await ended(proxy, name, within=700)
            assert (found["state"], found["why"]) == ("failed", "gave_up")
            assert (found["may_have_run"], found["attempts"]) == ("no", 0)
            again = await send(proxy, ASYNC, KEY)
            assert again.status == 202
            assert again.get("Holdfast-Delivery") != name, "its key was freed"


async def test_an_outage_of_30_minutes_with_thousands_waiting() -> None:
    """Canaries alone are sent meanwhile, no attempt is used, and no limit is exceeded after."""
    is_down = True
    concurrency, rate = 8, 100
    tries: list[float] = []

    async def serve(visit: Visit) -> None:
        await visit.read_body()
        tries.append(now())
        if is_down:
            await reset(visit)
        else:
            await visit.send(ok())

    route = (
        f"throttle: {{rate: {rate}/s, max_wait: 30s}}\n{ROUTE}{{concurrency: {concurrency}, "
        "attempts: 3, give_up_after: 2d}"
    )
    async with (
        ScriptedUpstream(usual=serve) as upstream,
        running(one_route(upstream, route, options=HONOURED)) as proxy,
    ):
        names = []
        async with proxy.client() as client:
            for _ in range(WAITING):
                given = await client.request("POST", "/orders", ASYNC, body=b"x")
                assert given.status == 202
                names.append(given.get("Holdfast-Delivery"))
        await asyncio.sleep(1800)
        canaries = 1 + 2 + 4 + 8  # at most: the wait doubles from 1 s to 5 min
        assert len(tries) <= canaries + 5 + concurrency, len(tries)
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_delivery_line", upstream="scripted") == 2
        shown = await delivery_page(proxy, "order=oldest&limit=100")
        assert max(one["attempts"] for one in shown) == 0, "an outage uses up no attempt"
        before, is_down = len(tries), False
        began = now()
        while (await proxy.metrics()).total("holdfast_deliveries", state="delivered") < WAITING:
            await asyncio.sleep(10)
            assert now() - began < 1000
        assert len(tries) - before == WAITING
        after = tries[before:]
        for n in range(len(after) - 2 * rate):
            assert after[n + 2 * rate] - after[n] >= 1 - 0.001, "never over the throttle"
        counted = await proxy.metrics()
        assert counted.total("holdfast_deliveries_ended_total", result="delivered") == WAITING


async def test_what_fails_alone_while_live_calls_succeed_is_its_own_failure() -> None:
    async def judge(visit: Visit) -> None:
        body = await visit.read_body()
        await visit.send(response(503) if body == b"poison" else ok())

    async with (
        ScriptedUpstream(usual=judge) as upstream,
        running(one_route(upstream, f"{ROUTE}{{attempts: 5}}", options=HONOURED)) as proxy,
    ):
        name = await hand_off(proxy, body=b"poison")
        for _ in range(400):
            await asyncio.sleep(1)
            assert (await send(proxy, method="PUT")).status == 200
        found = await state_of(proxy, name)
        assert (found["state"], found["why"]) == ("failed", "attempts_exhausted")


async def test_attempts_that_an_outage_used_are_given_back() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(503))) as upstream,
        running(one_route(upstream, f"{ROUTE}{{attempts: 2}}", options=HONOURED)) as proxy,
    ):
        names = [await hand_off(proxy) for _ in range(8)]
        await asyncio.sleep(600)
        for name in names:
            found = await state_of(proxy, name)
            assert (found["state"], found["attempts"]) == ("retrying", 0), found
        upstream.usual = answer(ok())
        for name in names:
            assert (await ended(proxy, name, within=4000))["state"] == "delivered"


async def test_a_live_success_opens_the_line() -> None:
    async with (
        ScriptedUpstream(usual=reset) as upstream,
        running(one_route(upstream, f"{ROUTE}true", options=HONOURED)) as proxy,
    ):
        names = [await hand_off(proxy) for _ in range(8)]
        await asyncio.sleep(1000)
        upstream.usual = answer(ok())
        began = now()
        assert (await send(proxy)).status == 200
        for name in names:
            assert (await ended(proxy, name, within=30))["state"] == "delivered"
        assert now() - began < 30, "nobody waits for the next canary"


async def test_live_requests_come_first_and_one_permit_in_ten_is_a_deliverys() -> None:
    route = f"throttle: {{rate: 10/s, burst: 1, max_wait: 20s}}\n{ROUTE}true"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        stop = now() + 20

        async def caller() -> None:
            while now() < stop:
                assert (await send(proxy, method="PUT")).status == 200

        callers = [asyncio.ensure_future(caller()) for _ in range(20)]
        await asyncio.sleep(1)
        names = [await hand_off(proxy) for _ in range(40)]
        await asyncio.gather(*callers)
        sent = Counter(one.method for one in upstream.requests)
        share = sent["POST"] / sum(sent.values())
        assert 0.05 <= share <= 0.15, sent
        for name in names:
            assert (await ended(proxy, name, within=60))["state"] == "delivered"


async def test_no_more_are_under_way_than_the_route_allows() -> None:
    most = running_now = 0

    async def serve(visit: Visit) -> None:
        nonlocal most, running_now
        await visit.read_body()
        running_now += 1
        most = max(most, running_now)
        await asyncio.sleep(1)
        running_now -= 1
        await visit.send(ok())

    async with (
        ScriptedUpstream(usual=serve) as upstream,
        running(one_route(upstream, f"{ROUTE}{{concurrency: 3}}")) as proxy,
    ):
        names = [await hand_off(proxy) for _ in range(12)]
        for name in names:
            await ended(proxy, name)
        assert most == 3


async def test_a_plain_post_that_may_have_run_is_not_sent_again() -> None:
    async with (
        ScriptedUpstream(usual=hang) as upstream,
        running(one_route(upstream, f"{ROUTE}{{timeout: 5s}}", options=REFUSES_503)) as proxy,
    ):
        name = await hand_off(proxy)
        found = await ended(proxy, name)
        assert (found["state"], found["why"]) == ("failed", "not_repeatable")
        assert found["may_have_run"] == "maybe"
        await asyncio.sleep(10_000)
        assert len(upstream.requests) == 1
        (letter,) = await listed(proxy)
        assert letter["may_have_run"]


async def test_a_retry_by_hand_is_sent_at_once_and_shows_its_runs() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(500))) as upstream,
        running(one_route(upstream, f"{ROUTE}true", options=HONOURED)) as proxy,
    ):
        name = await hand_off(proxy)
        await wait_until("retrying", proxy, name, 1)
        await asyncio.sleep(100)
        upstream.usual = answer(ok())
        async with proxy.client() as client:
            given = await client.request("POST", f"/.holdfast/deliveries/{name}/retry", body=b"")
        assert given.status == 202
        await asyncio.sleep(0.5)
        assert (await state_of(proxy, name))["state"] == "delivered"
        assert len((await delivery_of(proxy, name))["runs"]) >= 3
