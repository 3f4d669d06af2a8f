"""The way through a route's throttle and an upstream's: all of it, or nothing is kept."""

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.exchange import Exchange
from proxy.core.ports import Refused
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import ResponseHead
from proxy.net.write_coalescer import WriteCoalescer
from proxy.pipeline.retry_waits import RetryWaits
from proxy.pipeline.throttle.async_limiter import AsyncLimiter
from proxy.pipeline.throttle.chain import ChainPermit, ThrottleChain
from proxy.pipeline.throttle.throttle import Throttle
from proxy.policy.attempt import Attempt
from proxy.policy.failure_answers import DRAINING
from proxy.policy.settings import (
    BreakerSettings,
    CallerSource,
    Origin,
    Rate,
    ThrottleKey,
    ThrottleSettings,
    UpstreamSettings,
)
from proxy.policy.throttle.limiter import NEVER, Limiter, Limiters, LocalConcurrencyLimiter
from proxy.upstream.breakers import Breakers
from proxy.upstream.upstream import Upstream
from tests.pipeline.throttle.waiters import Decisions, begun, cancelled, gather, timers, visitor
from tests.policy.throttle.remote_limiter import RemoteLimiter
from tests.policy.throttle.textbook import textbook_limiters
from tests.support import both_loops, eventually, virtual_time
from tests.support.clock import FakeClock

pytestmark = virtual_time


ACCOUNT = ThrottleKey(CallerSource.HEADER, "account")
SETTINGS = UpstreamSettings("upstream", (Origin("http", "127.0.0.1", 9),))

FREE = ThrottleSettings()
QUICK = ThrottleSettings((Rate(100, 1.0),), burst=1)
"""One each 10 ms."""
HOURLY = ThrottleSettings((Rate(1, 3600.0),), max_wait=None)
ONE_SLOT = ThrottleSettings(concurrency=1)
IMPATIENT = ThrottleSettings((Rate(1, 3600.0),), max_wait=0.0)


class Stage:
    """A route's throttle and an upstream's, and the chain of both."""

    def __init__(
        self,
        route: ThrottleSettings,
        upstream: ThrottleSettings | None = None,
        breaker: BreakerSettings | None = None,
        permits: Limiter | None = None,
    ) -> None:
        """*permits* is the limiter of both throttles, unless each has its own."""
        self.clock = FakeClock()
        self.retry_waits = RetryWaits()
        self.decisions = Decisions()
        labels = [("route", route)] if upstream is None else [("route", route), ("up", upstream)]
        self.throttles = [
            Throttle(
                (scope, "a"),
                settings,
                lambda _, settings, __: (
                    textbook_limiters(settings, self.clock.monotonic())
                    if permits is None
                    else Limiters(permits, LocalConcurrencyLimiter)
                ),
                self.decisions,
                self.clock,
            )
            for scope, settings in labels
        ]
        breakers = None if breaker is None else Breakers("up", breaker)
        self.upstream = Upstream(SETTINGS, None, self.clock, WriteCoalescer(), breakers)
        self.throttle_chain = ThrottleChain(
            self.throttles,
            self.upstream,
            self.retry_waits,
            self.clock,
            keyed=any(settings.key for _, settings in labels),
        )

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    @property
    def limiters(self) -> list[AsyncLimiter]:
        return [throttle.common for throttle in self.throttles]

    @property
    def under_way(self) -> list[int]:
        return [throttle.state(self.now).under_way for throttle in self.throttles]

    @property
    def waiting(self) -> list[int]:
        return [throttle.state(self.now).waiting for throttle in self.throttles]

    def try_acquire(self, exchange: Exchange | None = None) -> ChainPermit:
        """Get a permit at once, for a request that is sent."""
        permit = self.throttle_chain.try_acquire(exchange or visitor())
        assert permit is not None
        return permit

    async def acquire(
        self, exchange: Exchange | None = None, within: float = math.inf, *, retry: bool = False
    ) -> "asyncio.Task[ChainPermit]":
        """Start a request that waits for its permit."""
        made = exchange or visitor()
        return await begun(self.throttle_chain.acquire(made, self.now + within, is_retry=retry))

    def assert_clean(self) -> None:
        """No request waits, has a reserved permit or a slot, and no timer runs."""
        for limiter in self.limiters:
            assert repr(limiter.queue) == "<bucket, 0 waiting, 0 reserved>"
            assert limiter.queue.under_way == 0
        assert len(self.retry_waits) == 0
        assert timers() == 0


def of(account: str) -> Exchange:
    return visitor((b"Account", account.encode()))


async def refusal_of(task: "asyncio.Task[Any]") -> Refusal:
    with pytest.raises(Refused) as refused:
        await gather(task)
    return refused.value.refusal


@pytest.fixture(autouse=True)
async def _nothing_left() -> AsyncIterator[None]:
    yield
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


# Passing.


async def test_who_passes_at_once_has_a_place_everywhere_until_it_is_over() -> None:
    stage = Stage(ONE_SLOT, ONE_SLOT)
    permit = stage.try_acquire()
    assert stage.under_way == [1, 1]
    assert permit.queued == 0
    assert stage.throttle_chain.try_acquire(visitor()) is None
    permit.close()
    assert stage.decisions.told == ["passed", "passed"]
    stage.assert_clean()


async def test_who_cannot_pass_the_second_gate_has_not_passed_the_first() -> None:
    stage = Stage(HOURLY, ONE_SLOT)
    queue = stage.limiters[1].queue
    taken = queue.take(stage.now)
    assert taken is not None
    assert stage.throttle_chain.try_acquire(visitor()) is None
    assert stage.under_way == [0, 1]
    taken.close()
    assert stage.throttle_chain.try_acquire(visitor()) is not None, "the only permit for an hour"


@both_loops
async def test_they_pass_both_gates_in_order_and_each_takes_its_time() -> None:
    stage = Stage(QUICK, QUICK)
    stage.try_acquire().close()
    order: list[int] = []

    async def visit(number: int) -> None:
        permit = await stage.throttle_chain.acquire(visitor(), math.inf, is_retry=False)
        order.append(number)
        assert permit.queued > 0
        permit.close()

    began = stage.now
    await gather(*(visit(number) for number in range(8)))
    assert order == list(range(8))
    assert stage.now - began >= 0.0699
    stage.assert_clean()


async def test_a_line_is_passed_without_waiting_if_it_is_empty_by_then() -> None:
    stage = Stage(FREE, FREE)
    [permit] = await gather(await stage.acquire())
    assert permit.queued == 0
    assert stage.decisions.told == ["passed", "passed"]
    permit.close()
    stage.assert_clean()


# Not passing.


@pytest.mark.parametrize(
    ("route", "upstream"),
    [
        pytest.param(IMPATIENT, None, id="the only one"),
        pytest.param(IMPATIENT, QUICK, id="the route's"),
        pytest.param(QUICK, IMPATIENT, id="the upstream's"),
        pytest.param(ONE_SLOT, IMPATIENT, id="the upstream's, with a place at the route's"),
    ],
)
async def test_who_is_refused_gives_everything_back(
    route: ThrottleSettings, upstream: ThrottleSettings | None
) -> None:
    stage = Stage(route, upstream)
    stage.try_acquire().close()
    refusal = await refusal_of(await stage.acquire())
    assert (refusal.reason, refusal.cause) == (RefusalReason.THROTTLED, "max_wait")
    assert refusal.retry_after == 3600
    assert refusal.quotas
    assert stage.decisions.told[-1] == "refused"
    stage.assert_clean()


@both_loops
async def test_who_is_refused_at_the_second_gate_lets_the_next_pass_the_first() -> None:
    stage = Stage(ONE_SLOT, IMPATIENT)
    holder = stage.try_acquire()
    first, second = await stage.acquire(), await stage.acquire()
    assert stage.waiting == [2, 0]
    holder.close()
    for task in (first, second):
        assert (await refusal_of(task)).cause == "max_wait"
    stage.assert_clean()


@pytest.mark.parametrize("waiting", [[1, 0], [0, 1]], ids=["the route's", "the upstream's"])
async def test_a_deadline_that_comes_before_its_turn(waiting: list[int]) -> None:
    patient = replace(HOURLY, max_wait=None)
    stage = Stage(*((patient, FREE) if waiting[0] else (FREE, patient)))
    stage.try_acquire().close()
    assert (await refusal_of(await stage.acquire(within=10.0))).cause == "deadline"
    stage.assert_clean()


@both_loops
@pytest.mark.parametrize("waiting", [[1, 0], [0, 1]], ids=["the route's", "the upstream's"])
async def test_a_client_that_leaves_in_queue_leaves_nothing(waiting: list[int]) -> None:
    stage = Stage(*((HOURLY, ONE_SLOT) if waiting[0] else (ONE_SLOT, HOURLY)))
    stage.try_acquire().close()
    task = await stage.acquire()
    assert stage.waiting == waiting
    await cancelled(task)
    stage.assert_clean()


@both_loops
async def test_a_client_that_leaves_in_the_very_turn_in_which_it_passes() -> None:
    stage = Stage(FREE, ONE_SLOT)
    holder = stage.try_acquire()
    task = await stage.acquire()
    holder.close()
    assert stage.under_way == [1, 1]
    await cancelled(task)
    stage.assert_clean()


async def test_a_breaker_that_opened_meanwhile_refuses_and_nothing_is_spent() -> None:
    breaker = BreakerSettings(min_requests=1)
    stage = Stage(ThrottleSettings((Rate(1, 0.05),)), ONE_SLOT, breaker=breaker)
    pool = await eventually(lambda: stage.upstream.endpoints.pick(stage.now, ()), what="an address")
    holder = stage.try_acquire()
    task = await stage.acquire()
    assert pool is not None
    report = stage.upstream.endpoints.admit(pool, stage.now)
    assert report is not None
    report.answered(500)
    holder.close()
    assert (await refusal_of(task)).reason is RefusalReason.BREAKER_OPEN
    stage.assert_clean()
    assert stage.limiters[0].queue.rates.wait(stage.now, 1) == 0


# The queue of one caller does not delay the others.


async def test_who_waits_in_its_own_line_does_not_keep_others_from_passing_the_first() -> None:
    own = replace(HOURLY, key=ACCOUNT)
    stage = Stage(ThrottleSettings((Rate(1000, 1.0),), burst=1), own)
    stage.try_acquire(of("greedy")).close()
    waiting = [await stage.acquire(of("greedy")) for _ in range(3)]
    await eventually(lambda: stage.waiting == [0, 3])
    [other] = await gather(await stage.acquire(of("modest")))
    other.close()
    for task in waiting:
        await cancelled(task)
    assert stage.waiting == [0, 0]
    assert stage.under_way == [0, 0]
    for throttle in stage.throttles:
        throttle.close()


async def test_a_gate_that_was_dropped_meanwhile_is_replaced() -> None:
    """Else there would be two buckets for one caller."""
    stage = Stage(ONE_SLOT, replace(QUICK, key=ACCOUNT, max_keys=1))
    route, keyed = stage.throttles
    taken = route.common.queue.take(stage.now)
    assert taken is not None
    task = await stage.acquire(of("a"))
    assert keyed.limiter_for(of("b")) is not keyed.common, "a is not missed"
    taken.close()
    route.common.serve_queue()
    [permit] = await gather(task)
    assert keyed.limiter_for(of("a")).queue.under_way == 1
    permit.close()
    keyed.close()


# Between the permit and the send.


@both_loops
async def test_what_is_not_sent_is_left_to_others_after_a_while() -> None:
    stage = Stage(HOURLY, ONE_SLOT)
    slow = stage.try_acquire()
    slow.reserve()
    stage.limiters[1].change(replace(ONE_SLOT, concurrency=2), stage.now)
    began = stage.now
    task = await stage.acquire()
    assert stage.waiting == [1, 0]
    [quick] = await gather(task)
    assert 0.09 <= stage.now - began < 2
    assert stage.under_way == [2, 2], "it kept its slots"
    late = await begun(slow.use(math.inf))
    assert stage.waiting == [1, 0], "the permit is gone"
    stage.limiters[0].change(FREE, stage.now)
    await gather(late)
    slow.close()
    quick.close()
    stage.assert_clean()


async def test_what_is_used_in_time_is_spent() -> None:
    stage = Stage(HOURLY, HOURLY)
    permit = stage.try_acquire()
    permit.reserve()
    permit.reserve()  # means nothing
    assert stage.throttle_chain.try_acquire(visitor()) is None
    await permit.use(math.inf)
    assert timers() == 0
    permit.close()
    assert stage.throttle_chain.try_acquire(visitor()) is None, "it is spent"
    stage.assert_clean()


async def test_what_was_held_and_not_used_is_there_for_others() -> None:
    stage = Stage(HOURLY, HOURLY)
    permit = stage.try_acquire()
    permit.reserve()
    permit.close()
    stage.assert_clean()
    stage.try_acquire().close()


@both_loops
@pytest.mark.parametrize("limiter", [0, 1], ids=["the route's", "the upstream's"])
async def test_a_pause_that_begins_before_it_is_sent_is_waited_for(limiter: int) -> None:
    stage = Stage(QUICK, QUICK)
    permit = stage.try_acquire()
    permit.reserve()
    began = stage.now
    stage.limiters[limiter].pause(began, 0.15)
    await gather(await begun(permit.use(math.inf)))
    assert stage.now - began >= 0.15
    permit.close()
    stage.assert_clean()


@both_loops
async def test_who_comes_back_is_first() -> None:
    stage = Stage(QUICK, QUICK)
    slow = stage.try_acquire()
    slow.reserve()
    stage.limiters[0].pause(stage.now, 0.15)
    other = await stage.acquire()
    back = await begun(slow.use(math.inf))
    order: list[str] = []
    other.add_done_callback(lambda _: order.append("other"))
    back.add_done_callback(lambda _: order.append("slow"))
    await gather(back, other)
    assert order == ["slow", "other"]
    slow.close()
    other.result().close()
    stage.assert_clean()


@both_loops
async def test_two_who_hold_what_the_other_needs_do_not_wait_for_ever() -> None:
    stage = Stage(QUICK, QUICK)
    slow = stage.try_acquire()
    slow.reserve()
    stage.limiters[1].pause(stage.now, 0.15)
    other = await stage.acquire()
    await gather(await begun(slow.use(math.inf)), other)
    slow.close()
    other.result().close()
    stage.assert_clean()


async def test_while_it_waits_for_one_permit_it_does_not_keep_the_other_for_long() -> None:
    stage = Stage(HOURLY, replace(QUICK, max_wait=None))
    permit = stage.try_acquire()
    permit.reserve()
    stage.limiters[1].pause(stage.now, 50.0)
    late = await begun(permit.use(math.inf))
    assert repr(stage.limiters[0].queue) == "<bucket, 0 waiting, 1 reserved>"
    await eventually(lambda: "0 reserved" in repr(stage.limiters[0].queue), within=2.0)
    assert not late.done()
    await cancelled(late)
    permit.close()
    for limiter in stage.limiters:
        assert repr(limiter.queue) == "<bucket, 0 waiting, 0 reserved>"
    assert stage.under_way == [0, 0]
    assert timers() == 0


async def test_a_pause_that_is_too_long_refuses_it() -> None:
    stage = Stage(QUICK, QUICK)
    permit = stage.try_acquire()
    permit.reserve()
    stage.limiters[1].pause(stage.now, 30.0)
    with pytest.raises(Refused) as refused:
        await permit.use(math.inf)
    assert refused.value.refusal.cause == "paused"
    assert refused.value.refusal.retry_after == 30
    permit.close()
    stage.assert_clean()


async def test_a_store_that_gives_nothing_any_more_is_why_though_there_is_a_pause_as_well() -> None:
    far = RemoteLimiter()
    stage = Stage(QUICK, permits=far)
    far.answer(1, next_at=None)
    permit = stage.try_acquire()
    permit.reserve()
    stage.limiters[0].pause(stage.now, 30.0)
    far.answer(0, next_at=NEVER)
    with pytest.raises(Refused) as refused:
        await permit.use(math.inf)
    assert refused.value.refusal.reason is RefusalReason.STORE
    permit.close()
    stage.assert_clean()


@both_loops
@pytest.mark.parametrize("granted", [False, True], ids=["in the queue", "in the very turn"])
async def test_who_is_cancelled_while_it_comes_back_leaves_nothing(*, granted: bool) -> None:
    stage = Stage(HOURLY, HOURLY)
    permit = stage.try_acquire()
    permit.reserve()
    [quick] = await gather(await stage.acquire())
    quick.close()
    late = await begun(permit.use(math.inf))
    assert stage.waiting == [1, 0]
    if granted:
        stage.limiters[0].change(FREE, stage.now)
    await cancelled(late)
    permit.close()
    stage.assert_clean()


# The end of everything.


@both_loops
async def test_a_drain_ends_the_waits_of_retries_only() -> None:
    stage = Stage(FREE, ONE_SLOT)
    holder = stage.try_acquire()
    first, retry = await stage.acquire(), await stage.acquire(retry=True)
    assert len(stage.retry_waits) == 1
    stage.retry_waits.end()
    assert await refusal_of(retry) is DRAINING
    assert len(stage.retry_waits) == 0
    assert stage.waiting == [0, 1]
    assert await refusal_of(await stage.acquire(retry=True)) is DRAINING
    holder.close()
    [permit] = await gather(first)
    permit.close()
    stage.assert_clean()


async def test_a_drain_ends_the_wait_of_a_retry_that_has_its_connection() -> None:
    stage = Stage(QUICK, QUICK)
    retry = visitor()
    retry.attempts = [Attempt(number, "", stage.now) for number in (1, 2)]
    permit = stage.try_acquire(retry)
    permit.reserve()
    stage.limiters[1].pause(stage.now, 0.5)
    sending = await begun(permit.use(math.inf))
    stage.retry_waits.end()
    assert await refusal_of(sending) is DRAINING
    permit.close()
    stage.assert_clean()


async def test_a_retry_that_passed_is_not_watched_any_more() -> None:
    stage = Stage(FREE, FREE)
    [permit] = await gather(await stage.acquire(retry=True))
    assert len(stage.retry_waits) == 0
    stage.retry_waits.end()
    permit.close()
    stage.assert_clean()


# Later attempts.


async def test_whether_another_attempt_would_be_let_in() -> None:
    stage = Stage(QUICK, replace(IMPATIENT, rates=(Rate(1, 10.0),)))
    stage.try_acquire().close()
    now = stage.now
    admits = stage.throttle_chain.would_admit
    assert not admits(visitor(), now, 9.0, 60.0)
    assert admits(visitor(), now, 10.1, 60.0)
    assert not admits(visitor(), now, 10.1, 10.1), "no time would be left for it"


# Pauses.


def head(status: int, *lines: bytes) -> ResponseHead:
    made = ResponseHead(status, b"HTTP/1.1 %d" % status)
    made.text = b"\r\n".join((made.text, *lines))
    return made


PLEASE_WAIT = b"Retry-After: 7"


@pytest.mark.parametrize(
    ("route", "upstream", "closed"),
    [
        pytest.param(FREE, FREE, [1, 1], id="nobody's own"),
        pytest.param(FREE, replace(FREE, key=ACCOUNT), [0, 1], id="a caller's at the upstream"),
        pytest.param(replace(FREE, key=ACCOUNT), FREE, [1, 0], id="a caller's at the route"),
        pytest.param(
            replace(FREE, key=ACCOUNT), replace(FREE, key=ACCOUNT), [1, 1], id="both a caller's"
        ),
    ],
)
async def test_a_pause_closes_what_is_the_callers_own(
    route: ThrottleSettings, upstream: ThrottleSettings, closed: list[int]
) -> None:
    stage = Stage(route, upstream)
    permit = stage.try_acquire(of("a"))
    assert not permit.judge(Attempt(1, "a", 0.0), head(429, PLEASE_WAIT))
    states = [throttle.state(stage.now) for throttle in stage.throttles]
    assert [state.paused for state in states] == closed
    assert all(6 < state.paused_for <= 7 for state in states if state.paused)
    permit.close()
    others = stage.throttle_chain.try_acquire(of("b"))
    assert (others is None) == (route.key is None and upstream.key is None)
    for throttle in stage.throttles:
        throttle.close()


async def test_a_throttle_that_has_no_key_any_more_is_everybodys() -> None:
    stage = Stage(replace(FREE, key=ACCOUNT), FREE)
    stage.throttles[0].change(FREE)
    permit = stage.try_acquire(of("a"))
    permit.judge(Attempt(1, "a", 0.0), head(429, PLEASE_WAIT))
    assert [throttle.state(stage.now).paused for throttle in stage.throttles] == [1, 1]
    permit.close()


@pytest.mark.parametrize(
    ("response", "pauses"),
    [
        pytest.param(head(429, PLEASE_WAIT), True, id="refused, with a hint"),
        pytest.param(head(429), False, id="without one"),
        pytest.param(head(503, PLEASE_WAIT), False, id="a failure"),
        pytest.param(head(404, PLEASE_WAIT), False, id="an answer"),
    ],
)
async def test_what_is_a_request_to_wait(response: ResponseHead, *, pauses: bool) -> None:
    stage = Stage(FREE)
    permit = stage.try_acquire()
    seen: list[ResponseHead] = []

    def judge(_: Attempt, head: ResponseHead) -> bool:
        seen.append(head)
        return True

    permit.next_judge = judge
    assert permit.judge(Attempt(1, "a", 0.0), response)
    assert seen == [response]
    assert bool(stage.throttles[0].state(stage.now).paused) is pauses
    permit.close()
