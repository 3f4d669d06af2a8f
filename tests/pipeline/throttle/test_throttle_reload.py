"""A reload: what stays the same keeps its state, what changes holds for those in the queue too."""

import asyncio

import pytest

from tests.support import (
    Response,
    RunningProxy,
    ScriptedUpstream,
    one_route,
    request,
    running,
    virtual_time,
)
from tests.support.leftovers import nothing_left
from tests.support.throttles import (
    ManualAnswers,
    at_once,
    decisions,
    in_queue,
    join_queue,
    statuses,
    throttle,
)

pytestmark = virtual_time


PATIENT = "max_wait: none}\ntimeout: none"


async def reload(proxy: RunningProxy, before: str, after: str) -> Response:
    """Put *after* in place of *before* in the file, and have it read again."""
    text = proxy.config.read_text()
    assert before in text
    proxy.config.write_text(text.replace(before, after))
    return await proxy.admin("POST", "/-/reload")


@pytest.mark.parametrize("limit", ["rate: 1/h, burst: 3", "rate: 3/h, algorithm: window"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("timeout: 20s", "timeout: 20s", id="nothing changed"),
        pytest.param("timeout: 20s", "timeout: 21s", id="another key of the route changed"),
        pytest.param("keepalive: 20s", "keepalive: 21s", id="the upstream got new connections"),
        pytest.param("max_queue: 5", "max_queue: 6", id="the line changed, not the limit"),
    ],
)
@pytest.mark.parametrize("scope", ["route", "upstream"])
async def test_a_limit_that_stays_the_same_keeps_what_was_used(
    limit: str, before: str, after: str, scope: str
) -> None:
    throttled = f"throttle: {{{limit}, max_wait: 0s, max_queue: 5}}"
    route, options = "timeout: 20s", "keepalive: 20s"
    config = (
        (f"{route}\n{throttled}", options)
        if scope == "route"
        else (route, f"{options}\n{throttled}")
    )
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, config[0], options=config[1])) as proxy,
    ):
        assert await statuses(proxy, 2) == [200, 200]
        assert (await reload(proxy, before, after)).status == 200
        assert await statuses(proxy, 2) == [200, 429]
        name = "all" if scope == "route" else "scripted"
        assert await decisions(proxy, scope, name) == {"passed": 3, "refused": 1}


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        pytest.param("burst: 3", "burst: 2", 0, id="less"),
        pytest.param("burst: 3", "burst: 4", 2, id="more, but what was sent was sent"),
        pytest.param("rate: 1/h", "rate: 2/h", 1, id="a rate of the same period"),
    ],
)
async def test_a_changed_limit_does_not_fill_the_bucket_again(
    before: str, after: str, left: int
) -> None:
    route = "throttle: {rate: 1/h, burst: 3, max_wait: 0s}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        assert await statuses(proxy, 2) == [200, 200]
        assert (await reload(proxy, before, after)).status == 200
        assert await statuses(proxy, left + 1) == [200] * left + [429]


CHANGES: list[tuple[str, str, str, str]] = [
    ("a higher rate", f"throttle: {{rate: 1/h, {PATIENT}", "rate: 1/h", "rate: 200/s"),
    (
        "none at all",
        f"throttle: {{rate: 1/h, {PATIENT}",
        "throttle: {rate: 1/h, max_wait: none}",
        "",
    ),
    ("switched off", f"throttle: {{rate: 1/h, {PATIENT}", "{rate: 1/h, max_wait: none}", "false"),
    ("only pauses", f"throttle: {{rate: 1/h, {PATIENT}", "{rate: 1/h, max_wait: none}", "true"),
    (
        "one of two rates",
        f"throttle: {{rate: [100/s, 1/h], {PATIENT}",
        "rate: [100/s, 1/h]",
        "rate: 100/s",
    ),
    (
        "a shorter window",
        f"throttle: {{rate: 1/h, algorithm: window, {PATIENT}",
        "rate: 1/h",
        "rate: 1/10ms",
    ),
    (
        "no key any more",
        f"throttle: {{rate: 1/h, key: client_ip, {PATIENT}",
        "rate: 1/h, key: client_ip",
        "rate: 200/s",
    ),
]


@pytest.mark.parametrize(
    ("route", "before", "after"), [pytest.param(*row[1:], id=row[0]) for row in CHANGES]
)
async def test_those_in_queue_go_by_the_new_limit(route: str, before: str, after: str) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        await proxy.get("/first")
        waiting = asyncio.create_task(at_once(proxy, 5))
        await in_queue(proxy, 5)
        assert len(upstream.requests) == 1
        assert (await reload(proxy, before, after)).status == 200
        assert {got.status for got in await asyncio.wait_for(waiting, 3)} == {200}
        await nothing_left(proxy)


async def test_more_slots_are_taken_at_once_and_fewer_when_they_are_free() -> None:
    manual = ManualAnswers()
    route = "throttle: {concurrency: 1}"
    async with (
        ScriptedUpstream(manual) as upstream,
        running(one_route(upstream, route)) as proxy,
    ):
        callers = [asyncio.create_task(proxy.get(f"/{n}")) for n in range(4)]
        await in_queue(proxy, 3)
        assert (await reload(proxy, "concurrency: 1", "concurrency: 3")).status == 200
        await in_queue(proxy, 1)
        await upstream.seen(3)
        assert (await reload(proxy, "concurrency: 3", "concurrency: 2")).status == 200
        manual.let_through()
        await asyncio.wait(callers, return_when=asyncio.FIRST_COMPLETED)
        # Two are under way, as many as may be: the fourth still waits.
        assert throttle(proxy)["waiting"] == 1
        assert throttle(proxy)["under_way"] == 2
        manual.let_through(3)
        assert {(await caller).status for caller in callers} == {200}
        await nothing_left(proxy)


async def test_a_limit_that_is_new_holds_from_now_on() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, "retry: 1")) as proxy:
        assert await statuses(proxy, 5) == [200] * 5
        added = "throttle: {rate: 1/h, burst: 2, max_wait: 0s}"
        assert (await reload(proxy, "retry: 1", added)).status == 200
        assert await statuses(proxy, 3) == [200, 200, 429]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("rate: 1/h", "rate: fast", id="a rate that is none"),
        pytest.param("max_queue: 9", "max_queue: [", id="no YAML"),
    ],
)
async def test_a_bad_file_changes_nothing(before: str, after: str) -> None:
    route = "throttle: {rate: 1/h, burst: 2, max_queue: 9, max_wait: none}\ntimeout: none"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as waiting,
    ):
        assert await statuses(proxy, 2) == [200, 200]
        await join_queue(proxy, waiting)
        good = proxy.config.read_text()
        assert (await reload(proxy, before, after)).status >= 400
        assert throttle(proxy)["waiting"] == 1
        assert waiting.is_silent
        proxy.config.write_text(good.replace("rate: 1/h", "rate: 100/s"))
        assert (await proxy.admin("POST", "/-/reload")).status == 200
        assert (await waiting.response()).status == 200
        proxy.complaints.clear()  # of the bad file


async def test_a_call_that_outlives_its_throttle_gives_its_place_back() -> None:
    manual = ManualAnswers()
    route = "throttle: {concurrency: 1}"
    async with (
        ScriptedUpstream(manual) as upstream,
        running(one_route(upstream, route)) as proxy,
    ):
        first = asyncio.create_task(proxy.get())
        await upstream.seen()
        assert (await reload(proxy, route, "")).status == 200
        second = asyncio.create_task(proxy.get())
        await upstream.seen(2)
        manual.let_through(2)
        assert {(await caller).status for caller in (first, second)} == {200}
        await nothing_left(proxy)


async def test_what_waits_in_queue_for_its_route_goes_on_though_the_route_is_gone() -> None:
    route = "throttle: {rate: 10/s, burst: 1}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as waiting,
    ):
        await proxy.get()
        await waiting.send(request("GET", "/waiting"))
        await in_queue(proxy, 1)
        assert (await reload(proxy, "name: all", "name: other")).status == 200
        assert (await waiting.response()).status == 200
        assert upstream.requests[1].at - upstream.requests[0].at >= 0.09
