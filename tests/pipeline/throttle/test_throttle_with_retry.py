"""Every attempt takes its permit, and what a throttle refuses is never tried again."""

import pytest

from tests.support import (
    Metrics,
    RunningProxy,
    ScriptedUpstream,
    answer,
    eventually,
    hang,
    one_route,
    request,
    response,
    running,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.leftovers import nothing_left
from tests.support.ports import refusing_port
from tests.support.proxies import LogRecord
from tests.support.records import last_logged, outcomes
from tests.support.throttles import (
    ManualAnswers,
    decisions,
    in_queue,
    join_queue,
    statuses,
    throttle,
)

pytestmark = virtual_time


UNAVAILABLE = answer(response(503, b"not now"))
FULL_BUDGET = 10.2
"""What a budget of the usual size allows after one request."""


def retry(base: str = "1ms", more: str = "") -> str:
    return f"retry: {{backoff: {{strategy: constant, base: {base}, jitter: none}}, {more}}}"


def burst(count: int, more: str = "max_wait: 0s") -> str:
    return f"throttle: {{rate: 1/h, burst: {count}, {more}}}"


def reasons(record: LogRecord) -> list[str]:
    return [attempt["why"] for attempt in record["attempts"]]


def judged(metrics: Metrics, why: str) -> float:
    return metrics.total("holdfast_retry_verdicts_total", route="all", reason=why)


async def budget_left(proxy: RunningProxy) -> float:
    return (await proxy.metrics()).total("holdfast_retry_budget_remaining")


async def test_every_attempt_takes_a_permit() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"{burst(5)}\n{retry()}")) as proxy,
    ):
        upstream.script(UNAVAILABLE, UNAVAILABLE)
        assert (await proxy.get()).get("Holdfast-Attempts") == "3"
        assert await statuses(proxy, 3) == [200, 200, 429]
        assert len(upstream.requests) == 5
        assert await decisions(proxy) == {"passed": 5, "refused": 1}


async def test_both_throttles_are_passed_by_every_attempt() -> None:
    async with (
        ScriptedUpstream(UNAVAILABLE) as upstream,
        running(one_route(upstream, f"{burst(9)}\n{retry()}", options=burst(9))) as proxy,
    ):
        assert (await proxy.get()).status == 503
        assert await decisions(proxy) == {"passed": 3}
        assert await decisions(proxy, "upstream", "scripted") == {"passed": 3}


# A no before the response in hand is given up.


@pytest.mark.parametrize("scope", ["route", "upstream"])
async def test_without_a_permit_for_another_attempt_the_response_in_hand_is_relayed(
    scope: str,
) -> None:
    route, options = (burst(2), "") if scope == "route" else ("", burst(2))
    async with (
        ScriptedUpstream(UNAVAILABLE) as upstream,
        running(one_route(upstream, f"{route}\n{retry()}", options=options)) as proxy,
    ):
        got = await proxy.get()
        assert (got.status, got.body) == (503, b"not now")
        assert got.get("Holdfast-Attempts") == "2"
        assert got.get("Proxy-Status") is None
        assert len(upstream.requests) == 2
        record = await last_logged(proxy)
        assert reasons(record) == ["retried", "throttled"]
        assert "refusal" not in record
        metrics = await proxy.metrics()
        assert (judged(metrics, "retried"), judged(metrics, "throttled")) == (1, 1)
        # Only the retry that was made is charged, and nobody was refused.
        assert await budget_left(proxy) == pytest.approx(FULL_BUDGET - 1)
        name = "all" if scope == "route" else "scripted"
        assert await decisions(proxy, scope, name) == {"passed": 2}


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        pytest.param("throttle: {rate: 2/m, burst: 1, max_wait: 20s}", [], id="beyond max_wait"),
        pytest.param(
            "throttle: {rate: 1/s, burst: 1}\ntimeout: 500ms", [], id="beyond the timeout"
        ),
        pytest.param(
            "throttle: {rate: 1/s, burst: 1, max_wait: none}",
            ["Holdfast-Timeout: 500ms"],
            id="beyond the client's own timeout",
        ),
    ],
)
async def test_nor_is_it_given_up_for_a_turn_that_comes_too_late(
    route: str, fields: list[str]
) -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream(UNAVAILABLE) as upstream,
        running(one_route(upstream, f"{route}\n{retry()}"), clock=clock) as proxy,
    ):
        clock.stop()  # at once: no time passes
        assert (await proxy.get("/", *fields)).body == b"not now"
        assert reasons(await last_logged(proxy)) == ["throttled"]
        assert await budget_left(proxy) == pytest.approx(FULL_BUDGET)


async def test_a_full_line_is_no_place_for_another_attempt() -> None:
    route = f"throttle: {{rate: 4/s, burst: 1, max_queue: 1}}\n{retry()}"
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route), clock=clock) as proxy,
        proxy.client() as failing,
        proxy.client() as waiting,
    ):
        manual = ManualAnswers(response(503, b"not now"))
        upstream.script(manual)
        clock.stop()  # the line does not move meanwhile
        await failing.send(request("GET", "/failing"))
        await upstream.seen()
        await join_queue(proxy, waiting)
        manual.let_through()
        assert (await failing.response()).body == b"not now"
        clock.go_on()
        assert (await waiting.response()).status == 200
        whys = {record["path"]: reasons(record) for record in await proxy.logged(2)}
        assert whys == {"/failing": ["throttled"], "/waiting": ["success"]}


async def test_the_wait_before_the_attempt_counts_as_time_for_a_permit_to_come() -> None:
    route = f"throttle: {{rate: 5/s, burst: 1, max_wait: 0s}}\n{retry('250ms')}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        upstream.script(UNAVAILABLE)
        assert (await proxy.get()).status == 200
        assert reasons(await last_logged(proxy)) == ["retried", "recovered"]
        assert await decisions(proxy) == {"passed": 2}


async def test_a_retry_that_follows_at_once_needs_no_patience_where_there_is_a_permit() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"{burst(2)}\n{retry()}")) as proxy,
    ):
        upstream.script(answer(response(503, b"", "Retry-After: 0")))
        assert (await proxy.get()).status == 200
        assert reasons(await last_logged(proxy)) == ["retried", "recovered"]


async def test_a_failure_without_a_response_is_told_as_what_it_is() -> None:
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, f"{burst(1)}\n{retry(more='attempt_timeout: 50ms')}")) as proxy,
    ):
        got = await proxy.get()
        assert (got.status, got.reason_word) == (504, "timeout")
        assert reasons(await last_logged(proxy)) == ["throttled"]
        assert len(upstream.requests) == 1


# A refusal once it was given up.


async def test_a_refusal_after_the_wait_answers_for_itself() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"{burst(2)}\n{retry('600ms')}")) as proxy,
        proxy.client() as retried,
    ):
        upstream.script(UNAVAILABLE)
        await retried.send(request("GET", "/retried"))
        await eventually(lambda: proxy.waiting_requests == 1)
        assert (await proxy.get("/other")).status == 200  # takes the permit that was there
        got = await retried.response()
        assert (got.status, got.reason_word) == (429, "throttled")
        assert got.problem["cause"] == "max_wait"
        assert got.problem["attempts"] == 1
        assert int(got.get("Retry-After") or 0) > 3500
        assert len(upstream.requests) == 2
        record = await last_logged(proxy, 2)
        assert (record["path"], record["refusal"]) == ("/retried", "throttled")
        assert (outcomes(record), reasons(record)) == (["5xx"], ["throttled"])
        # It never began, so it is not charged.
        assert await budget_left(proxy) == pytest.approx(FULL_BUDGET + 0.2)
        assert await decisions(proxy) == {"passed": 2, "refused": 1}
        await nothing_left(proxy)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_refusal_is_never_retried(method: str) -> None:
    route = f"{burst(1)}\n{retry(more='on: [default, 429], unsafe: always')}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).status == 200
        refused = await client.request(method, "/", body=b"x" if method == "POST" else None)
        assert (refused.status, refused.reason_word) == (429, "throttled")
        assert "attempts" not in refused.problem
        record = await last_logged(proxy, 2)
        assert record["attempts"] == []
        assert await decisions(proxy) == {"passed": 1, "refused": 1}
        assert judged(await proxy.metrics(), "throttled") == 1
        assert await budget_left(proxy) == pytest.approx(FULL_BUDGET)
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "fallback", ["{status: 200, body: instead}", "{status: 200, body: instead, on: [429, 5xx]}"]
)
async def test_a_refusal_is_no_failure_that_a_fallback_stands_in_for(fallback: str) -> None:
    route = f"{burst(1)}\nfallback: {fallback}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        assert await statuses(proxy, 2) == [200, 429]


async def test_a_fallback_that_may_not_be_called_is_not_called() -> None:
    async with ScriptedUpstream(UNAVAILABLE) as upstream, ScriptedUpstream() as other:
        config = (
            f"upstreams:\n  scripted: {upstream.url}\n"
            f"  other: {{urls: [{other.url}], {burst(1)}}}\n"
            "routes:\n"
            "  - {name: all, match: /**, upstream: scripted, fallback: {upstream: other}}\n"
        )
        async with running(config) as proxy:
            assert (await proxy.get()).body == b"ok"
            got = await proxy.get()
            assert (got.status, got.body) == (503, b"not now")
            assert (len(upstream.requests), len(other.requests)) == (2, 1)
            assert await decisions(proxy, "upstream", "other") == {"passed": 1}


# Time.


async def test_the_time_in_queue_is_not_the_attempt_s() -> None:
    route = f"throttle: {{rate: 2/s, burst: 1}}\n{retry(more='attempt_timeout: 200ms')}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        await proxy.get("/first")
        assert (await proxy.get("/second")).status == 200
        record = await last_logged(proxy, 2)
        assert outcomes(record) == ["2xx"]
        assert record["attempts"][0]["queue_ms"] > 200
        assert len(upstream.requests) == 2


async def test_a_retry_waits_in_queue_behind_those_who_came_before() -> None:
    manual, failure = ManualAnswers(), ManualAnswers(response(503, b"not now"))
    route = f"throttle: {{concurrency: 1}}\n{retry()}"
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
        await upstream.seen(2)
        await in_queue(proxy, 2)
        assert throttle(proxy)["under_way"] == 1
        manual.let_through(3)
        for client in (second, third, failing):
            assert (await client.response()).status == 200
        targets = [seen.target for seen in upstream.requests]
        assert targets == ["/failing", "/second", "/third", "/failing"]
        [record] = [r for r in await proxy.logged(3) if r["path"] == "/failing"]
        assert reasons(record) == ["retried", "recovered"]
        assert "queue_ms" not in record["attempts"][0]
        assert record["attempts"][1]["queue_ms"] > 0


async def test_a_client_that_leaves_while_its_retry_is_in_queue_gives_the_budget_back() -> None:
    manual, failure = ManualAnswers(), ManualAnswers(response(503, b"not now"))
    route = f"throttle: {{concurrency: 1}}\n{retry()}"
    async with (
        ScriptedUpstream(manual) as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as second,
    ):
        upstream.script(failure)
        async with proxy.client() as leaving:
            await leaving.send(request("GET", "/leaving"))
            await upstream.seen()
            await join_queue(proxy, second, request("GET", "/second"))
            failure.let_through()
            await upstream.seen(2)
            await in_queue(proxy, 1)
            assert await budget_left(proxy) == pytest.approx(FULL_BUDGET + 0.2 - 1)
        await in_queue(proxy, 0)
        manual.let_through()
        assert (await second.response()).status == 200
        [record] = [r for r in await proxy.logged(2) if r["path"] == "/leaving"]
        assert (record["code"], reasons(record)) == (499, ["client_gone"])
        assert await budget_left(proxy) == pytest.approx(FULL_BUDGET + 0.2)
        disconnected = (await proxy.metrics()).total(
            "holdfast_client_disconnects_total", phase="queue"
        )
        assert disconnected == 1
        assert len(upstream.requests) == 2
        await nothing_left(proxy)


async def test_attempts_that_never_left_take_no_permit() -> None:
    with refusing_port() as port:
        async with ScriptedUpstream() as upstream:
            options = f"balance: first\n{burst(1)}"
            config = one_route(upstream, retry(), options=options)
            config = config.replace(upstream.url, f"http://127.0.0.1:{port}, {upstream.url}")
            async with running(config) as proxy:
                assert (await proxy.get()).status == 200
                assert outcomes(await last_logged(proxy)) == ["connect", "2xx"]
                assert len(upstream.requests) == 1
