"""A limiter: waiters are woken in order, and one that stops waiting leaves nothing behind."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from proxy.core.clock import SystemClock
from proxy.core.exchange import Exchange
from proxy.pipeline.throttle.async_limiter import AsyncLimiter
from proxy.policy.settings import Rate, ThrottleSettings
from proxy.policy.throttle.limiter import (
    Limiter,
    LimiterListener,
    Limiters,
    LocalConcurrencyLimiter,
)
from proxy.policy.throttle.wait_queue import Reservation, ReservationState, ThrottleCause
from tests.pipeline.throttle.waiters import Decisions, begun, cancelled, gather, timers, visitor
from tests.policy.throttle.remote_limiter import RemoteLimiter
from tests.policy.throttle.textbook import textbook_limiters
from tests.support import both_loops, eventually, virtual_time
from tests.support.clock import FakeClock

pytestmark = virtual_time


QUICK = ThrottleSettings((Rate(200, 1.0),), burst=1)
"""One each 5 ms."""
ONE_SLOT = ThrottleSettings(concurrency=1)
SLOW = ThrottleSettings((Rate(1, 3600.0),), max_wait=None)


Decision = tuple[Reservation, float] | ThrottleCause


class Stage:
    """A limiter and what it decided."""

    def __init__(self, settings: ThrottleSettings, rates: Limiter | None = None) -> None:
        self.clock = FakeClock()
        self.decisions = Decisions()
        self._taken: list[Reservation] = []

        def make(settings: ThrottleSettings, _: LimiterListener) -> Limiters:
            if rates is not None:
                return Limiters(rates, LocalConcurrencyLimiter)
            return textbook_limiters(settings, self.clock.monotonic())

        self.limiter = AsyncLimiter(settings, make, self.decisions, self.clock)
        self.queue = self.limiter.queue

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def take(self) -> Reservation:
        """Send a call before the story begins."""
        reservation = self.queue.take(self.now)
        assert reservation is not None
        self._taken.append(reservation)
        return reservation

    def take_and_lose(self) -> Reservation:
        """Send a call before the story begins, for which another needs a permit again."""
        reservation = Reservation.of(self.queue, ReservationState.RELEASED)
        self.queue.under_way += 1
        self.take()
        return reservation

    async def acquire_and_finish(self, exchange: Exchange) -> "float | ThrottleCause":
        """Wait in the queue, send, and be done."""
        decision = await self.limiter.wait_in_queue(exchange, math.inf)
        if isinstance(decision, ThrottleCause):
            return decision
        assert decision[0].commit(self.now)
        self.finish(decision)
        return decision[1]

    def vacate(self) -> None:
        """The call from before the story is over."""
        self._taken.pop().close()
        self.limiter.serve_queue()

    def finish(self, decision: "Decision") -> None:
        """End a call that was admitted."""
        assert not isinstance(decision, ThrottleCause)
        decision[0].close()
        self.limiter.serve_queue()

    async def wait(self, exchange: Exchange | None = None) -> "asyncio.Task[Decision]":
        """Start a request that waits in the queue now."""
        return await begun(self.limiter.wait_in_queue(exchange or visitor(), math.inf))

    def assert_clean(self, *, under_way: int = 0) -> None:
        """No request waits, has a reserved permit or a slot, and no timer runs."""
        assert repr(self.queue) == "<bucket, 0 waiting, 0 reserved>"
        assert self.queue.under_way == under_way
        assert timers() == 0


# Turns.


@both_loops
async def test_they_are_woken_in_the_order_in_which_they_came() -> None:
    stage = Stage(QUICK)
    stage.take()
    stage.vacate()
    woken: list[int] = []

    async def visit(number: int) -> float:
        waited = await stage.acquire_and_finish(visitor())
        assert not isinstance(waited, ThrottleCause)
        woken.append(number)
        return waited

    began = stage.now
    stage.clock.stop()  # all come in one moment
    visits = [await begun(visit(number)) for number in range(20)]
    stage.clock.go_on()
    waits = await gather(*visits)
    assert woken == list(range(20))
    assert waits == sorted(waits)
    assert stage.now - began >= 0.0999, "200 in a second, and one had gone before"
    assert stage.decisions.told == ["delayed"] * 20
    assert stage.decisions.waits == waits
    stage.assert_clean()


@both_loops
async def test_one_timer_is_enough_for_all() -> None:
    stage = Stage(SLOW)
    stage.take()
    stage.vacate()
    waiting = [await stage.wait() for _ in range(100)]
    assert timers() == 1
    stage.limiter.serve_queue()
    stage.limiter.permits_changed()
    stage.limiter.pause(stage.now, 10.0)
    assert timers() == 1
    for task in waiting:
        await cancelled(task)
    stage.assert_clean()


async def test_without_anything_to_come_by_itself_there_is_no_timer() -> None:
    stage = Stage(ThrottleSettings(concurrency=1, max_wait=None))
    stage.take()
    waiting = await stage.wait()
    assert timers() == 0
    stage.vacate()
    stage.finish(await waiting)
    stage.assert_clean()


async def test_the_exchange_knows_that_it_waits() -> None:
    stage = Stage(ONE_SLOT)
    stage.take()
    exchange = visitor()
    waiting = await begun(stage.acquire_and_finish(exchange))
    assert exchange.waiting_for == "queue"
    assert exchange.queue_entry is not None
    stage.vacate()
    await waiting
    assert exchange.waiting_for == ""
    assert exchange.queue_entry is None


async def test_who_has_waited_long_enough_is_told() -> None:
    stage = Stage(ThrottleSettings(concurrency=1, max_wait=0.01))
    stage.take()
    began = stage.now
    assert await gather(stage.acquire_and_finish(visitor())) == [ThrottleCause.MAX_WAIT]
    assert stage.now - began == pytest.approx(0.01)
    assert stage.decisions.told == ["refused"]
    stage.assert_clean(under_way=1)


# Leaving.


@both_loops
async def test_who_is_cancelled_in_queue_leaves_nothing() -> None:
    stage = Stage(ONE_SLOT)
    stage.take()
    exchange = visitor()
    leaving, staying = await stage.wait(exchange), await stage.wait()
    await cancelled(leaving)
    assert exchange.queue_entry is None
    assert stage.queue.waiting == 1
    stage.vacate()
    stage.finish(await staying)
    stage.assert_clean()


@both_loops
async def test_who_is_cancelled_in_the_very_turn_in_which_it_is_let_out_passes_it_on() -> None:
    stage = Stage(ONE_SLOT)
    stage.take()
    leaving, next_one = await stage.wait(), await stage.wait()
    stage.vacate()
    assert stage.queue.under_way == 1
    await cancelled(leaving)
    admitted = await next_one
    assert stage.decisions.told == ["delayed"]
    stage.finish(admitted)
    stage.assert_clean()


@both_loops
async def test_who_is_cancelled_just_before_its_turn_costs_nothing() -> None:
    stage = Stage(ONE_SLOT)
    stage.take()
    leaving, next_one = await stage.wait(), await stage.wait()
    leaving.cancel()
    stage.vacate()  # it has not noticed yet
    admitted = await next_one
    assert leaving.cancelled()
    stage.finish(admitted)
    stage.assert_clean()


@both_loops
@pytest.mark.parametrize("comes_back", [False, True], ids=["a newcomer", "who comes back"])
async def test_whenever_it_is_cancelled_nothing_is_left(*, comes_back: bool) -> None:
    stage = Stage(QUICK)
    loop = asyncio.get_running_loop()
    for microseconds in range(0, 7000, 350):
        await eventually(lambda: stage.queue.rates.wait(stage.now, 1) == 0)
        if comes_back:
            sent = stage.take_and_lose()
            again = stage.limiter.wait_for_permit_again(sent, visitor(), math.inf)
            waiting: asyncio.Task[Any] = await begun(again)
        else:
            stage.take()
            waiting = await begun(stage.limiter.wait_in_queue(visitor(), math.inf))
        loop.call_later(microseconds / 1_000_000, waiting.cancel)
        await asyncio.wait([waiting])
        if comes_back:
            sent.close()
        elif not waiting.cancelled():
            stage.finish(waiting.result())
        stage.vacate()
        await asyncio.sleep(0)
        assert repr(stage.queue) == "<bucket, 0 waiting, 0 reserved>"
        assert stage.queue.under_way == 0
    await eventually(lambda: timers() <= 1, what="no more than the timer of this very wait")


@both_loops
async def test_who_comes_back_and_is_cancelled_in_its_turn_keeps_its_place_only() -> None:
    stage = Stage(SLOW)
    lapsed = stage.take_and_lose()
    waiting = await begun(stage.limiter.wait_for_permit_again(lapsed, visitor(), math.inf))
    stage.limiter.change(ThrottleSettings(), stage.now)
    await cancelled(waiting)
    assert lapsed.state is ReservationState.RESERVED, "who has it gives it back"
    lapsed.release()
    stage.assert_clean(under_way=2)


async def test_a_crowd_that_leaves_at_once_leaves_nothing() -> None:
    stage = Stage(SLOW)
    stage.take()
    waiting = [await stage.wait() for _ in range(300)]
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    stage.vacate()
    stage.assert_clean()


# Giving up.


@both_loops
@pytest.mark.parametrize("cause", [ThrottleCause.DEADLINE, ThrottleCause.DRAINING])
async def test_who_gives_up_is_told_why_and_all_move_up(cause: ThrottleCause) -> None:
    stage = Stage(ONE_SLOT)
    stage.take()
    exchange = visitor()
    leaving, staying = await stage.wait(exchange), await stage.wait()
    assert exchange.queue_entry is not None
    exchange.queue_entry.give_up(cause)
    assert stage.queue.waiting == 1
    assert await leaving is cause
    assert stage.decisions.told == ["refused"]
    stage.vacate()
    assert not isinstance(await staying, ThrottleCause)


Deed = Callable[[Stage, Exchange, "asyncio.Task[Decision]"], object]


def give_up(_: Stage, exchange: Exchange, __: "asyncio.Task[Decision]") -> None:
    assert exchange.queue_entry is not None
    exchange.queue_entry.give_up(ThrottleCause.DEADLINE)


def cancel(_: Stage, __: Exchange, task: "asyncio.Task[Decision]") -> None:
    task.cancel()


def let_out(stage: Stage, _: Exchange, __: "asyncio.Task[Decision]") -> None:
    stage.vacate()


def pause(stage: Stage, _: Exchange, __: "asyncio.Task[Decision]") -> None:
    stage.limiter.pause(stage.now, 30.0)


@both_loops
@pytest.mark.parametrize(
    ("deeds", "end"),
    [
        pytest.param([give_up, give_up], ThrottleCause.DEADLINE, id="gives up twice"),
        pytest.param([give_up, let_out], ThrottleCause.DEADLINE, id="gives up before its turn"),
        pytest.param([let_out, give_up], None, id="gives up after its turn"),
        pytest.param([give_up, cancel], "cancelled", id="gives up and is cancelled"),
        pytest.param([cancel, give_up], "cancelled", id="is cancelled and gives up"),
        pytest.param([cancel, cancel, let_out], "cancelled", id="is cancelled twice"),
        pytest.param([let_out, give_up, cancel], "cancelled", id="all of it"),
        pytest.param([let_out, pause], None, id="a pause after its turn"),
        pytest.param([pause, let_out], ThrottleCause.PAUSED, id="a pause before its turn"),
        pytest.param([pause, give_up], ThrottleCause.PAUSED, id="a pause, and it gives up"),
        pytest.param([pause, cancel], "cancelled", id="a pause, and it is cancelled"),
        pytest.param([cancel, pause], "cancelled", id="is cancelled, and a pause"),
    ],
)
async def test_what_comes_first_counts_and_nothing_is_left(
    deeds: list[Deed], end: ThrottleCause | str | None
) -> None:
    """All of it in one iteration of the loop, in which no waiter can be woken."""
    stage = Stage(ONE_SLOT)
    stage.take()
    exchange = visitor()
    waiting = await stage.wait(exchange)
    for deed in deeds:
        deed(stage, exchange, waiting)
    await asyncio.wait([waiting])
    if waiting.cancelled():
        assert end == "cancelled"
    elif isinstance(waiting.result(), ThrottleCause):
        assert waiting.result() is end
    else:
        assert end is None
        stage.finish(waiting.result())
    if let_out not in deeds:
        stage.vacate()
    assert exchange.queue_entry is None
    stage.assert_clean()


# Pauses and changes.


async def test_a_pause_tells_those_who_cannot_wait_and_keeps_the_others() -> None:
    stage = Stage(ThrottleSettings(concurrency=5, max_wait=None))
    stage.limiter.pause(stage.now, 0.02)
    hurried = await begun(stage.limiter.wait_in_queue(visitor(), stage.now + 0.03))
    calm = await begun(stage.acquire_and_finish(visitor()))
    began = stage.now
    stage.limiter.pause(began, 0.05)
    assert await hurried is ThrottleCause.PAUSED
    assert not calm.done()
    assert not isinstance(await calm, ThrottleCause)
    assert stage.now - began == pytest.approx(0.05)
    assert stage.decisions.told == ["refused", "delayed"]
    stage.assert_clean()


async def test_a_change_wakes_those_who_may_go_now() -> None:
    stage = Stage(SLOW)
    stage.take()
    waiting = [await stage.wait() for _ in range(3)]
    stage.limiter.change(ThrottleSettings(), stage.now)
    assert all(not isinstance(waited, ThrottleCause) for waited in await gather(*waiting))
    assert timers() == 0


async def test_a_clock_that_was_late_lets_out_no_more_than_it_should() -> None:
    stage = Stage(SLOW)
    stage.take()
    waiting = [await stage.wait() for _ in range(3)]
    stage.clock.advance(3 * 3600.0)
    stage.limiter.serve_queue()
    await waiting[0]
    assert [task.done() for task in waiting] == [True, False, False]
    for task in waiting[1:]:
        await cancelled(task)


async def test_the_end_stops_the_timer() -> None:
    stage = Stage(SLOW)
    stage.take()
    waiting = await stage.wait()
    stage.limiter.close()
    assert timers() == 0
    await cancelled(waiting)
    assert timers() == 0


# Coming back.


@both_loops
async def test_who_comes_back_goes_first_and_is_not_counted_as_another_decision() -> None:
    stage = Stage(QUICK)
    order: list[str] = []

    async def newcomer() -> None:
        await stage.acquire_and_finish(visitor())
        order.append("newcomer")

    lapsed = stage.take_and_lose()

    async def late() -> None:
        assert await stage.limiter.wait_for_permit_again(lapsed, visitor(), math.inf) is None
        assert lapsed.commit(stage.now)
        order.append("late")
        lapsed.close()

    first = await begun(newcomer())
    await gather(first, await begun(late()))
    assert order == ["late", "newcomer"]
    assert stage.decisions.told == ["delayed"]
    stage.vacate()
    stage.assert_clean()


async def test_who_comes_back_passes_at_once_if_there_is_a_permit() -> None:
    stage = Stage(ThrottleSettings((Rate(1, 3600.0),), burst=2, concurrency=1))
    lapsed = stage.take()
    lapsed.release()
    assert await stage.limiter.wait_for_permit_again(lapsed, visitor(), math.inf) is None
    assert repr(stage.queue) == "<bucket, 0 waiting, 1 reserved>"


async def test_who_comes_back_to_a_long_pause_is_told_at_once() -> None:
    stage = Stage(QUICK)
    lapsed = stage.take()
    lapsed.release()
    stage.limiter.pause(stage.now, 6.0)
    cause = await stage.limiter.wait_for_permit_again(lapsed, visitor(), math.inf)
    assert cause is ThrottleCause.PAUSED
    stage.assert_clean(under_way=1)


# Permits that are kept elsewhere.


@pytest.mark.parametrize(
    ("took", "told"),
    [
        pytest.param(0.001, "passed", id="asking is no wait"),
        pytest.param(0.006, "delayed", id="unless it takes its time"),
    ],
)
async def test_who_only_waited_for_the_store_did_not_wait(took: float, told: str) -> None:
    far = RemoteLimiter()
    stage = Stage(QUICK, far)
    waiting = await stage.wait()
    stage.clock.advance(took)
    far.answer(1, next_at=None)
    stage.limiter.permits_changed()
    decision = await waiting
    assert not isinstance(decision, ThrottleCause)
    assert (decision[1] > 0) == (told == "delayed")
    assert stage.decisions.told == [told]


async def test_a_pause_that_another_instance_was_told_of() -> None:
    far = RemoteLimiter()
    stage = Stage(QUICK, far)
    waiting = await stage.wait()
    far.answer(7, next_at=None)
    stage.limiter.permits_paused(stage.now + 9.0)
    assert await waiting is ThrottleCause.PAUSED
    assert far.at_hand == 7, "the permits knew"
    stage.assert_clean()


class HastyPermits(RemoteLimiter):
    """A limiter that answers while it is being asked."""

    listener: LimiterListener

    def ask(self, now: float, waiting: int) -> bool:
        is_unsure = super().ask(now, waiting)
        if waiting and len(self.asked) == 1:
            self.answer(0, next_at=now + 100)
            self.listener.permits_changed()
        return is_unsure


@both_loops
async def test_permits_that_tell_us_to_look_while_we_look() -> None:
    hasty = HastyPermits()
    settings = ThrottleSettings((Rate(1, 1.0),), max_wait=None)

    def make(_: ThrottleSettings, listener: LimiterListener) -> Limiters:
        hasty.listener = listener
        return Limiters(hasty, LocalConcurrencyLimiter)

    limiter = AsyncLimiter(settings, make, Decisions(), SystemClock())
    waiting = await begun(limiter.wait_in_queue(visitor(), math.inf))
    assert hasty.asked == [1, 1]
    assert timers() == 1
    await cancelled(waiting)
    assert timers() == 0
