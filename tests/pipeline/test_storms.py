"""Retry storms: when everything fails at once, retries stay few, and apart from each other."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count

import pytest

from proxy.policy.retry.backoff import backoff_delay
from proxy.policy.settings import Backoff, JitterStrategy
from tests.support import (
    RawClient,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    ok,
    one_route,
    request,
    response,
    running,
)
from tests.support.clock import FakeClock

CALLERS = 1_000
UNAVAILABLE = response(503, b"not now")
BIN = 0.05
"""Seconds."""
MOST_OF_A_BIN = 0.15
QUICK = "retry: {backoff: {base: 1ms, max: 1ms}}"
VERDICTS = "holdfast_retry_verdicts_total"


async def budget_left(proxy: RunningProxy) -> float:
    return (await proxy.metrics()).total("holdfast_retry_budget_remaining", upstream="scripted")


@asynccontextmanager
async def crowd(proxy: RunningProxy) -> AsyncIterator[list[RawClient]]:
    """A thousand callers, each with a connection."""
    async with AsyncExitStack() as stack:
        # Each one after the other: it is their calls that come at once.
        callers = [await stack.enter_async_context(proxy.client()) for _ in range(CALLERS)]
        for caller in callers:
            caller.wire.patience *= 6  # a thousand before it, on a machine that may be busy
        yield callers


class FailingTogether:
    """Answers 503 to everybody in the same moment, when the last of them has called."""

    def __init__(self, within: float = 0.0) -> None:
        """The moment lasts *within* seconds."""
        self._within = within
        self.calls: Counter[str] = Counter()
        """By target: one for each caller and round."""
        self._everybody = asyncio.Event()

    def next_round(self) -> None:
        self.calls.clear()
        self._everybody.clear()

    async def __call__(self, visit: Visit) -> None:
        target = visit.request.target
        self.calls[target] += 1
        if self.calls[target] == 1:
            if len(self.calls) == CALLERS:
                self._everybody.set()
            place = len(self.calls) / CALLERS
            await self._everybody.wait()
            await asyncio.sleep(place * self._within)
        await visit.send(UNAVAILABLE)


# Few: the budget.


async def test_a_thousand_callers_at_once_make_a_fifth_more_calls() -> None:
    clock, failing = FakeClock(), FailingTogether()
    rounds, calls = 3, 0
    began = clock.monotonic()
    async with (
        ScriptedUpstream(failing) as upstream,
        running(one_route(upstream, QUICK), clock=clock) as proxy,
        crowd(proxy) as callers,
    ):
        for number in range(rounds):
            assert await budget_left(proxy) == 10
            await asyncio.gather(
                *(caller.get(f"/{number}/{i}") for i, caller in enumerate(callers))
            )
            # All had been counted when the first was judged, so this is exact.
            assert failing.calls.total() == CALLERS + CALLERS * 0.2 + 10
            calls += failing.calls.total()
            failing.next_round()
            assert await budget_left(proxy) < 1
            clock.advance(11)
        metrics = await proxy.metrics()
        assert metrics.total(VERDICTS, reason="retried") == calls - rounds * CALLERS
        assert metrics.total(VERDICTS, reason="budget") == rounds * CALLERS
    took = clock.monotonic() - began
    assert calls <= 1.2 * rounds * CALLERS + 1.0 * took


async def test_callers_that_come_back_at_once_make_no_more() -> None:
    """A closed loop: who fails calls again, and a retry is one more call for the same."""
    each = 3
    async with (
        ScriptedUpstream(answer(UNAVAILABLE)) as upstream,
        running(one_route(upstream, QUICK)) as proxy,
        crowd(proxy) as callers,
    ):
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def call(caller: RawClient) -> None:
            for _ in range(each):
                assert (await caller.get()).status == 503

        await asyncio.gather(*map(call, callers))
        firsts = each * CALLERS
        retries = len(upstream.requests) - firsts
        took = loop.time() - began
        assert 0.15 * firsts < retries <= 0.2 * firsts + 1.0 * (10 + took)


@pytest.mark.parametrize(
    "budget",
    [
        pytest.param("{}", id="usual budget"),
        pytest.param("{ratio: 0, min_per_second: 0.1}", id="one in ten seconds"),
    ],
)
async def test_a_lone_caller_at_one_request_a_minute_may_retry(budget: str) -> None:
    clock, numbers = FakeClock(), count(1)

    async def fail_first(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(UNAVAILABLE if next(numbers) % 2 else ok())

    async with (
        ScriptedUpstream(fail_first) as upstream,
        running(one_route(upstream, QUICK, options=f"budget: {budget}"), clock=clock) as proxy,
    ):
        for _ in range(30):
            seen = await proxy.get()
            assert (seen.status, seen.get("Holdfast-Attempts")) == (200, "2")
            clock.advance(60)


async def test_retries_that_are_called_off_are_given_back() -> None:
    async with (
        ScriptedUpstream(answer(response(503, b"", "Retry-After: 20"))) as upstream,
        running(one_route(upstream, QUICK, options="budget: {ratio: 0}")) as proxy,
        AsyncExitStack() as stack,
    ):
        waiting = [await stack.enter_async_context(proxy.client()) for _ in range(10)]
        for caller in waiting:
            await caller.send(request("GET", "/"))
        await eventually(lambda: len(proxy.app._retry_waits) == 10)
        assert await budget_left(proxy) == 0
        assert (await proxy.get()).get("Retry-After") == "20"  # no retry is left for it
        (record,) = await proxy.logged()
        assert [attempt["why"] for attempt in record["attempts"]] == ["budget"]
        for left, caller in enumerate(waiting, start=1):
            await caller.wire.close_and_wait()
            await proxy.logged(1 + left)
            assert await budget_left(proxy) == left
        upstream.script(answer(UNAVAILABLE))
        upstream.usual = answer(ok())
        seen = await proxy.get()
        assert (seen.status, seen.get("Holdfast-Attempts")) == (200, "2")
        assert await budget_left(proxy) == 9


# Apart: jitter.


def fullest_bin(moments: list[float]) -> float:
    """The largest share of *moments* within any 50 ms."""
    moments = sorted(moments)
    first = most = 0
    for last, moment in enumerate(moments):
        while moments[first] <= moment - BIN:
            first += 1
        most = max(most, last - first + 1)
    return most / len(moments)


async def test_the_retries_of_a_thousand_callers_are_spread() -> None:
    route = "retry: {attempts: 2, backoff: {base: 1s}}"
    # A connection for each: to close and make them all takes longer than the retries.
    options = "budget: false\nidle_connections: 1024"
    async with (
        # Within one bin, but not in one turn of the loop: that would hold up the first retries
        # until the last answer is read, and measure how long the test's own loop takes.
        ScriptedUpstream(FailingTogether(within=BIN)) as upstream,
        running(one_route(upstream, route, options=options)) as proxy,
        crowd(proxy) as callers,
    ):
        await asyncio.gather(*(caller.get(f"/{i}") for i, caller in enumerate(callers)))
        assert len(upstream.requests) == 2 * CALLERS
        # As decided: when they arrive is as much a matter of how busy the machine is.
        log = await proxy.logged(CALLERS)
        waits = [record["attempts"][1]["wait_ms"] / 1000 for record in log]
        assert fullest_bin(waits) <= MOST_OF_A_BIN


@pytest.mark.parametrize(
    ("backoff", "retry"),
    [
        pytest.param(Backoff(base=1.0), 1, id="full jitter, first retry"),
        pytest.param(Backoff(base=1.0), 4, id="full jitter, fourth retry"),
        pytest.param(Backoff(base=1.0, jitter=JitterStrategy.EQUAL), 1, id="equal jitter"),
        pytest.param(
            Backoff(base=1.0, jitter=JitterStrategy.DECORRELATED), 1, id="decorrelated jitter"
        ),
        pytest.param(Backoff(base=1.0, jitter=0.2), 1, id="a fifth more or less"),
        pytest.param(Backoff(base=1.0, max=2.0), 5000, id="at the cap"),
    ],
)
def test_waits_drawn_evenly_are_spread(backoff: Backoff, retry: int) -> None:
    waits = [backoff_delay(backoff, retry, 0.0, (roll + 0.5) / CALLERS) for roll in range(CALLERS)]
    assert fullest_bin(waits) <= MOST_OF_A_BIN


def test_a_bin_is_found_wherever_it_begins() -> None:
    assert fullest_bin([0.0, 0.049, 0.051, 0.2]) == 0.5
    assert fullest_bin([1.0] * 8) == 1.0
