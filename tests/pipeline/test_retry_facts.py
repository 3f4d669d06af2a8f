"""A retry is decided from facts: gathered first, charged last, and no stage is called back."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import pytest

from tests.support import ScriptedUpstream, answer, one_route, response, running
from tests.support.records import last_logged

PACKAGES = f"{Path(__file__).parent.parent.parent}/proxy/"
BUDGET = "budget: {min_per_second: 1, ratio: 0}"
ONE_FAILURE_OPENS = "breaker: {min_requests: 1, open_for: 1m}"


# What is charged.


@pytest.mark.parametrize(
    ("status", "route", "options", "reason"),
    [
        (500, "retry: true", "", "not_retryable_status"),
        (503, "retry: {attempts: 1}", "", "attempts_exhausted"),
        (503, "retry: {backoff: {base: 10s, jitter: none}}\ntimeout: 2s", "", "deadline"),
        (503, "retry: true", ONE_FAILURE_OPENS, "breaker_open"),
        (503, "retry: true\nthrottle: {rate: 1/h, burst: 1, max_wait: 1s}", "", "throttled"),
    ],
)
async def test_nothing_is_charged_for_a_retry_that_anything_else_forbids(
    status: int, route: str, options: str, reason: str
) -> None:
    async with (
        ScriptedUpstream(answer(response(status))) as upstream,
        running(one_route(upstream, route, options=f"{BUDGET}\n{options}")) as proxy,
    ):
        assert (await proxy.get()).status == status, "a no relays the response in hand"
        [attempt] = (await last_logged(proxy))["attempts"]
        assert attempt["why"] == reason
        if "attempts: 1" not in route:
            assert (await proxy.metrics()).total("holdfast_retry_budget_remaining") == 10


async def test_an_empty_budget_relays_the_response_in_hand() -> None:
    route, options = "retry: {backoff: {base: 1ms}}", "budget: {min_per_second: 0, ratio: 0}"
    async with (
        ScriptedUpstream(answer(response(503))) as upstream,
        running(one_route(upstream, route, options=options)) as proxy,
    ):
        assert (await proxy.get()).status == 503
        [attempt] = (await last_logged(proxy))["attempts"]
        assert attempt["why"] == "budget"


@pytest.mark.parametrize(("open_for", "sent"), [("10ms", 2), ("1m", 1)])
async def test_the_breaker_is_asked_about_the_time_after_the_wait(open_for: str, sent: int) -> None:
    route = "retry: {attempts: 2, backoff: {strategy: constant, base: 50ms, jitter: none}}"
    breaker = f"breaker: {{min_requests: 1, open_for: {open_for}}}"
    async with (
        ScriptedUpstream(answer(response(503))) as upstream,
        running(one_route(upstream, route, options=breaker)) as proxy,
    ):
        assert (await proxy.get()).status == 503
        assert len(upstream.requests) == sent


# Who calls whom.


def package_of(code: CodeType) -> str:
    """The package of ours that *code* is in; empty elsewhere."""
    path = code.co_filename
    return path.removeprefix(PACKAGES).partition("/")[0] if path.startswith(PACKAGES) else ""


@contextmanager
def calls_back() -> Iterator[list[str]]:
    """Collect the calls back: from one package into another that is already on the stack below.

    The stack has the functions of ours alone, with the coroutines that await one another. A call
    from ``upstream`` into ``pipeline`` counts if ``pipeline`` has called ``upstream``: a reader of
    ``pipeline`` cannot follow what happens without going there and coming back.
    """
    found: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        called = package_of(frame.f_code)
        if event != "call" or not called:
            return
        below = []
        caller = frame.f_back
        while caller is not None:
            below.append(caller.f_code)
            caller = caller.f_back
        ours = [code for code in below if package_of(code)]
        if not ours or package_of(ours[0]) == called:
            return
        if called in map(package_of, ours[1:]):
            found.append(f"{frame.f_code.co_qualname}, by {ours[0].co_qualname}")

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    ("is_warm", "most"),
    [pytest.param(True, 6, id="reused connection"), pytest.param(False, 7, id="new connection")],
)
async def test_calls_back_in_a_retried_get(*, is_warm: bool, most: int) -> None:
    """A GET that is retried once calls back at most 6 times, with all that may forbid a retry.

    When verdicts were reached by asking through callbacks there were 13. Left are the ends of both
    attempts' permits, the question to the breakers from within the response, and the beginning and
    end of the wait. Over a new connection there were 16: the permit is set aside and used again.
    """
    route = "retry: {attempts: 2, backoff: {base: 1ms}}\nthrottle: 1000000/s"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, options=f"breaker: true\n{BUDGET}")) as proxy,
    ):
        if is_warm:
            assert (await proxy.get()).status == 200
        upstream.script(answer(response(503)))
        with calls_back() as found:
            assert (await proxy.get()).status == 200
            await proxy.logged()
    assert len(upstream.requests) == 2 + is_warm
    assert len(found) <= most, found
