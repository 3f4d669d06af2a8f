"""What an upstream says about coming back, and what the proxy then does on the wire.

Never earlier than told, whatever the form; never asleep past the deadline: what cannot
be waited for goes to the client at once, as the upstream wrote it. How each form is
read is the business of ``tests/policy/retry/test_hints.py``.
"""

import math
from email.utils import formatdate

import pytest

from tests.support import (
    ScriptedUpstream,
    Visit,
    answer,
    now,
    ok,
    one_route,
    response,
    running,
    virtual_time,
    wall,
)
from tests.support.clock import FakeClock
from tests.support.records import last_logged

pytestmark = virtual_time

OWN_WAIT = 0.02
RETRY = "retry: {attempts: 2, backoff: {strategy: constant, base: 20ms, jitter: none}}"
HOUR = 3600.0


def date(seconds: float) -> str:
    return formatdate(seconds, usegmt=True)


async def wait_between_attempts(*fields: str) -> tuple[float, str]:
    """Seconds between two attempts after a 503 with *fields*, and where they came from."""
    clock = FakeClock()
    clock.chance = 0.0  # nothing on top that could hide an early return
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, RETRY), clock=clock) as proxy,
    ):
        upstream.script(answer(response(503, b"later", *fields)))
        assert (await proxy.get()).status == 200
        first, second = upstream.requests
        record = await last_logged(proxy)
        assert [attempt["why"] for attempt in record["attempts"]] == ["retried", "recovered"]
        source: str = record["attempts"][1]["wait_for"]
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_retry_wait_seconds_count", source=source) == 1
        return second.at - first.at, source


@pytest.mark.parametrize(
    ("fields", "told_to_wait"),
    [
        pytest.param(["Retry-After: 0.05"], 0.05, id="decimals"),
        pytest.param(["Retry-After:  \t0.05  "], 0.05, id="blanks around it"),
        pytest.param(["Retry-After: 0.03", "Retry-After: 0.08"], 0.08, id="the longer of two"),
        pytest.param(["Retry-After: 0.08", "Retry-After: soon"], 0.08, id="the readable one"),
        pytest.param(["retry-after-ms: 60"], 0.06, id="milliseconds"),
        pytest.param(["retry-after-ms: 60", "Retry-After: 3"], 0.06, id="milliseconds go first"),
        pytest.param(["X-RateLimit-Reset-After: 0.06"], 0.06, id="a reset, nothing left"),
    ],
)
async def test_nobody_comes_back_earlier_than_told(fields: list[str], told_to_wait: float) -> None:
    waited, source = await wait_between_attempts(*fields)
    assert source == "hint"
    assert told_to_wait <= waited < told_to_wait + 1


async def test_nor_before_the_date_that_was_named() -> None:
    clock = FakeClock()
    dates: list[float] = []

    async def a_tenth_of_a_second_before_the_date(visit: Visit) -> None:
        clock.set_wall_wrong_by(0.9 - wall() % 1)
        dates.append(math.ceil(clock.wall()))
        await answer(response(503, b"", f"Retry-After: {date(dates[0])}"))(visit)

    async def see_the_time(visit: Visit) -> None:
        dates.append(clock.wall())
        await answer(ok())(visit)

    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, RETRY), clock=clock) as proxy,
    ):
        upstream.script(a_tenth_of_a_second_before_the_date, see_the_time)
        assert (await proxy.get()).status == 200
        told_to_come, came = dates
        assert told_to_come <= came < told_to_come + 1


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(["Retry-After: 0"], id="no time at all"),
        pytest.param([f"Retry-After: {date(1e9)}"], id="a date that is past"),
        pytest.param(["Retry-After: -5"], id="a negative number"),
        pytest.param(["Retry-After: soon"], id="a word"),
        pytest.param(["Retry-After: Wed, 99 Foo 2026 00:00:00 GMT"], id="no date of any calendar"),
        pytest.param(["Retry-After:"], id="nothing"),
        pytest.param(["Retry-After: 1e3"], id="a number in a form that nobody allows"),
        pytest.param(
            ["X-RateLimit-Reset: 30", "X-RateLimit-Remaining: 7"], id="a quota not used up"
        ),
    ],
)
async def test_what_says_nothing_leaves_our_own_wait(fields: list[str]) -> None:
    waited, source = await wait_between_attempts(*fields)
    assert source == "backoff"
    assert OWN_WAIT <= waited < OWN_WAIT + 1


async def test_a_clock_that_is_ahead_does_not_make_us_wait_for_hours() -> None:
    theirs = date(wall() + HOUR)
    waited, source = await wait_between_attempts(f"Date: {theirs}", f"Retry-After: {theirs}")
    assert source == "backoff"
    assert waited < 1


# What cannot be waited for.


async def assert_handed_over_at_once(
    route: str, why: str, *upstream_fields: str, status: int = 429, asked: tuple[str, ...] = ()
) -> None:
    """The response to the first attempt reaches the client as it is, and without a wait."""
    elapsed = []
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        upstream.usual = answer(response(status, b"not now", *upstream_fields))
        for _ in range(3):
            began = now()
            got = await client.get("/", *asked)
            elapsed.append(now() - began)
            assert (got.status, got.body) == (status, b"not now")
            passed_on = [f"{name}: {value}" for name, value in got.headers]
            assert passed_on[: len(upstream_fields)] == list(upstream_fields)
            assert got.get("Holdfast-Attempts") is None
        record = await last_logged(proxy, 3)
        assert [attempt["why"] for attempt in record["attempts"]] == [why]
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_retry_verdicts_total", reason=why) == 3
        assert metrics.total("holdfast_retry_wait_seconds_count") == 0
        assert len(upstream.requests) == 3
    # The best of three, because this machine may have other things to do.
    assert min(elapsed) < 0.1


@pytest.mark.parametrize(
    ("route", "status", "fields", "asked"),
    [
        pytest.param("timeout: 2s\nretry: true", 429, ["Retry-After: 30"], [], id="the hint"),
        pytest.param(
            "timeout: 2s\nretry: {backoff: {base: 5s, jitter: none}}",
            503,
            [],
            [],
            id="our own wait",
        ),
        pytest.param(
            "retry: true",
            429,
            ["Retry-After: 3"],
            ["Holdfast-Timeout: 2s"],
            id="the hint, in the time that the client grants",
        ),
        pytest.param(
            "retry: {backoff: {base: 5s, jitter: none}}",
            503,
            [],
            ["Holdfast-Timeout: 1500ms"],
            id="our own wait, in the time that the client grants",
        ),
    ],
)
async def test_nobody_sleeps_past_the_deadline(
    route: str, status: int, fields: list[str], asked: list[str]
) -> None:
    await assert_handed_over_at_once(route, "deadline", *fields, status=status, asked=tuple(asked))


async def test_after_429_without_a_hint_the_wait_is_a_second_at_least() -> None:
    route = "timeout: 900ms\nretry: {backoff: {base: 1ms, jitter: none}}"
    await assert_handed_over_at_once(route, "deadline")


@pytest.mark.parametrize(
    "hint",
    [
        pytest.param("Retry-After: 61", id="more than a minute"),
        pytest.param("Retry-After: 9999999999", id="three hundred years"),
        pytest.param(f"Retry-After: {'9' * 400}", id="more than a float can hold"),
        pytest.param("Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", id="the end of time"),
        pytest.param("retry-after-ms: 60001", id="a millisecond too long"),
    ],
)
async def test_a_hint_beyond_the_longest_is_not_cut_short_but_handed_over(hint: str) -> None:
    await assert_handed_over_at_once("timeout: none\nretry: true", "hint_too_long", hint)


async def test_decimals_are_not_cut_off_either() -> None:
    route = "retry: {retry_after: {max: 1s}}"
    await assert_handed_over_at_once(route, "hint_too_long", "Retry-After: 1.5")


async def test_a_clock_that_is_behind_does_not_bring_us_back_too_early() -> None:
    then = wall() - HOUR
    route = "retry: {retry_after: {max: 500ms}}"
    hint = f"Retry-After: {date(then + 1)}"
    await assert_handed_over_at_once(route, "hint_too_long", f"Date: {date(then)}", hint)


async def test_a_route_that_does_not_listen_waits_as_it_likes() -> None:
    route = "retry: {retry_after: false, backoff: {base: 1ms}}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        upstream.script(answer(response(503, b"", "Retry-After: 3600")))
        assert (await proxy.get()).status == 200
        record = await last_logged(proxy)
        assert record["attempts"][1]["wait_for"] == "backoff"


# Yes and no.


@pytest.mark.parametrize("name", ["X-Should-Retry", "Stripe-Should-Retry"])
async def test_the_server_may_say_no(name: str) -> None:
    await assert_handed_over_at_once("retry: true", "server_said_no", f"{name}: false", status=503)


@pytest.mark.parametrize(
    ("method", "attempts", "why"),
    [
        pytest.param("GET", 2, "recovered", id="to a request that may be repeated"),
        pytest.param("POST", 1, "not_repeatable", id="but not to one that may have run"),
    ],
)
@pytest.mark.parametrize("status", [409, 500, 599])
async def test_the_server_may_say_yes(status: int, method: str, attempts: int, why: str) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, RETRY)) as proxy:
        upstream.script(answer(response(status, b"", "X-Should-Retry: true")))
        async with proxy.client() as client:
            await client.request(method, "/")
        record = await last_logged(proxy)
        assert len(upstream.requests) == len(record["attempts"]) == attempts
        assert record["attempts"][-1]["why"] == why


@pytest.mark.parametrize(
    ("fields", "attempts", "why"),
    [
        pytest.param(["Retry-After: 0.01"], 2, "recovered", id="with a hint it is a limit"),
        pytest.param([], 1, "success", id="without one it is an answer"),
    ],
)
async def test_403_is_repeated_only_with_a_hint(fields: list[str], attempts: int, why: str) -> None:
    route = "retry: {on: [default, 403+hint], backoff: {base: 1ms}}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        upstream.script(answer(response(403, b"", *fields)))
        assert (await proxy.get()).status == (200 if attempts > 1 else 403)
        record = await last_logged(proxy)
        assert len(upstream.requests) == len(record["attempts"]) == attempts
        assert record["attempts"][-1]["why"] == why
