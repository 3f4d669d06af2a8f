"""Deadlines: never early, never forgotten, and nothing left behind.

Two times are at work. The clock says how late it is, and a test moves it; the
loop's own timers say when somebody looks, and those run in real milliseconds.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given, strategies as st

from proxy.core.exchange import Exchange
from proxy.pipeline.deadlines import Deadlines, Ticket
from proxy.policy.attempt import FailureKind
from tests.support import eventually
from tests.support.clock import FakeClock
from tests.support.depth import fewer
from tests.support.exchanges import UnservedExchange

TIMEOUT = 0.02


def _never_called(*_: object, **__: object) -> None:
    raise AssertionError("a deadline relays nothing")


def exchange_at(started: float) -> Exchange:
    """An exchange that began at *started* and waits for nobody."""
    return UnservedExchange(started=started)


class FailingStream:
    """An attempt under way that tells when it is given up."""

    def __init__(self, on_failure: Callable[[], None]) -> None:
        self._on_failure = on_failure

    def fail(self, kind: FailureKind) -> None:
        assert kind is FailureKind.TIMEOUT
        self._on_failure()

    pause_reading = resume_reading = write = _never_called


class Stage:
    """Deadlines, their clock, and what the test started."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self.clock = FakeClock()
        self.deadlines = Deadlines(timeout, self.clock)

    def begin(self, ago: float = 0.0) -> tuple[Exchange, Ticket]:
        """Start one that began *ago* seconds before."""
        exchange = exchange_at(self.clock.monotonic() - ago)
        return exchange, self.deadlines.start(exchange)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    made.deadlines.close()


async def test_one_expires_when_its_time_is_up_and_not_before(stage: Stage) -> None:
    exchange, _ = stage.begin()
    assert not exchange.expired
    await eventually(lambda: exchange.expired)
    assert stage.clock.monotonic() - exchange.started >= TIMEOUT
    assert stage.deadlines.watched == 0


async def test_they_fall_due_in_the_order_in_which_they_began(stage: Stage) -> None:
    failed: list[float] = []
    for ago in (0.015, 0.010, 0.005, 0.0):
        exchange, _ = stage.begin(ago)
        exchange.stream = FailingStream(lambda ago=ago: failed.append(ago))  # type: ignore[misc]  # mypy cannot infer a lambda's default
    await eventually(lambda: len(failed) == 4)
    assert failed == [0.015, 0.010, 0.005, 0.0]


async def test_one_that_finished_does_not_expire(stage: Stage) -> None:
    early, ticket = stage.begin()
    late, _ = stage.begin()
    stage.deadlines.finish(ticket)
    assert stage.deadlines.watched == 1
    await eventually(lambda: late.expired)
    assert not early.expired
    assert stage.deadlines.watched == 0


async def test_finishing_twice_counts_once(stage: Stage) -> None:
    _, ticket = stage.begin()
    stage.begin()
    stage.deadlines.finish(ticket)
    stage.deadlines.finish(ticket)
    assert stage.deadlines.watched == 1


async def test_finishing_after_it_expired_counts_not_at_all(stage: Stage) -> None:
    exchange, ticket = stage.begin()
    await eventually(lambda: exchange.expired)
    stage.deadlines.finish(ticket)
    assert stage.deadlines.watched == 0


async def test_idle_deadlines_start_again(stage: Stage) -> None:
    for _ in range(2):
        exchange, _ = stage.begin()
        await eventually(lambda: exchange.expired)  # noqa: B023 - awaited at once


async def test_expiry_after_the_answer_began_means_nothing(stage: Stage) -> None:
    answered, _ = stage.begin()
    answered.code = 200
    other, _ = stage.begin()
    await eventually(lambda: other.expired)
    assert not answered.expired


class TestGranted:
    """A client that kept us waiting gets that time on top."""

    @staticmethod
    async def granted(stage: Stage, extra: float) -> tuple[Exchange, Ticket]:
        """One that was due, and got *extra* seconds."""
        exchange, ticket = stage.begin()
        exchange.client_wait = extra
        await eventually(lambda: ticket.timer is not None)
        return exchange, ticket

    async def test_it_expires_that_much_later(self, stage: Stage) -> None:
        began = stage.clock.monotonic()
        exchange, _ = await self.granted(stage, 0.03)
        assert stage.deadlines.watched == 1
        await eventually(lambda: exchange.expired)
        assert stage.clock.monotonic() - began >= TIMEOUT + 0.03
        assert stage.deadlines.watched == 0

    async def test_a_wait_that_goes_on_is_granted_as_it_goes(self, stage: Stage) -> None:
        exchange, ticket = stage.begin()
        exchange.waiting_since = exchange.started
        await eventually(lambda: ticket.timer is not None)
        stage.clock.advance(3600)
        first = ticket.timer
        await eventually(lambda: ticket.timer is not first)
        assert not exchange.expired
        exchange.client_wait, exchange.waiting_since = 3600.0, 0.0
        stage.clock.advance(TIMEOUT)
        await eventually(lambda: exchange.expired)

    async def test_finished_it_is_not_counted_below_nothing(self, stage: Stage) -> None:
        exchange, ticket = await self.granted(stage, 30)
        stage.deadlines.finish(ticket)
        assert stage.deadlines.watched == 0
        _, other = stage.begin()
        assert stage.deadlines.watched == 1
        stage.deadlines.finish(other)
        assert stage.deadlines.watched == 0
        assert not exchange.expired

    async def test_finished_it_leaves_no_timer(self, stage: Stage) -> None:
        exchange, ticket = await self.granted(stage, 3600)
        timer = ticket.timer
        assert timer is not None
        stage.deadlines.finish(ticket)
        assert timer.cancelled()
        assert not exchange.expired

    async def test_others_fall_due_meanwhile(self, stage: Stage) -> None:
        slow, _ = await self.granted(stage, 30)
        other, _ = stage.begin()
        await eventually(lambda: other.expired)
        assert not slow.expired
        assert stage.deadlines.watched == 1

    async def test_closing_ends_its_timer_too(self, stage: Stage) -> None:
        _, ticket = await self.granted(stage, 3600)
        timer = ticket.timer
        stage.deadlines.close()
        assert timer is not None
        assert timer.cancelled()
        assert stage.deadlines.watched == 0


class TestSooner:
    """One whose client grants less time than the others have."""

    async def test_it_expires_before_the_others(self) -> None:
        stage = Stage(timeout=3600)
        other, _ = stage.begin()
        sooner = exchange_at(stage.clock.monotonic())
        stage.deadlines.start_sooner(sooner, 0.02)
        assert stage.deadlines.watched == 2
        await eventually(lambda: sooner.expired)
        assert stage.clock.monotonic() - sooner.started >= 0.02
        assert not other.expired
        assert stage.deadlines.watched == 1
        stage.deadlines.close()

    async def test_its_time_counts_from_its_beginning(self, stage: Stage) -> None:
        late = exchange_at(stage.clock.monotonic() - 1)
        stage.deadlines.start_sooner(late, 0.5)
        await eventually(lambda: late.expired, within=0.4)

    async def test_its_client_s_own_time_is_granted_too(self, stage: Stage) -> None:
        exchange = exchange_at(stage.clock.monotonic())
        stage.deadlines.start_sooner(exchange, 0.01)
        exchange.client_wait = 0.04
        await eventually(lambda: exchange.expired)
        assert stage.clock.monotonic() - exchange.started >= 0.05
        assert stage.deadlines.watched == 0

    @pytest.mark.parametrize("end", ["finish", "close"])
    async def test_its_timer_goes_with_it(self, stage: Stage, end: str) -> None:
        exchange = exchange_at(stage.clock.monotonic())
        ticket = stage.deadlines.start_sooner(exchange, 3600)
        timer = ticket.timer
        assert timer is not None
        if end == "finish":
            stage.deadlines.finish(ticket)
        else:
            stage.deadlines.close()
        assert timer.cancelled()
        assert stage.deadlines.watched == 0
        assert not exchange.expired


class TestAttempts:
    """A limit for one attempt: the exchange itself goes on."""

    async def test_the_attempt_is_given_up_and_the_exchange_is_not(self, stage: Stage) -> None:
        exchange, failed = exchange_at(stage.clock.monotonic() - 10), asyncio.Event()
        exchange.stream = FailingStream(failed.set)
        began = stage.clock.monotonic()
        stage.deadlines.start_attempt(exchange)
        await failed.wait()
        assert stage.clock.monotonic() - began >= TIMEOUT
        assert (exchange.attempt_expired, exchange.expired) == (True, False)
        assert stage.deadlines.watched == 0

    async def test_each_begins_anew(self, stage: Stage) -> None:
        exchange = exchange_at(stage.clock.monotonic())
        for _ in range(3):
            began = stage.clock.monotonic()
            exchange.attempt_expired = False
            stage.deadlines.start_attempt(exchange)
            await eventually(lambda: exchange.attempt_expired)
            assert stage.clock.monotonic() - began >= TIMEOUT

    async def test_one_that_waits_for_a_connection_is_marked(self, stage: Stage) -> None:
        exchange = exchange_at(stage.clock.monotonic())
        assert exchange.stream is None
        stage.deadlines.start_attempt(exchange)
        await eventually(lambda: exchange.attempt_expired)

    async def test_finished_it_is_left_alone(self, stage: Stage) -> None:
        exchange = exchange_at(stage.clock.monotonic())
        ticket = stage.deadlines.start_attempt(exchange)
        stage.deadlines.finish(ticket)
        other, _ = stage.begin()
        await eventually(lambda: other.expired)
        assert not exchange.attempt_expired

    async def test_it_means_nothing_once_the_answer_began(self, stage: Stage) -> None:
        exchange = exchange_at(stage.clock.monotonic())
        exchange.stream = FailingStream(_never_called)
        stage.deadlines.start_attempt(exchange)
        exchange.code = 200
        await eventually(lambda: stage.deadlines.watched == 0)
        assert not exchange.attempt_expired

    async def test_what_its_client_used_up_before_is_not_granted_again(self, stage: Stage) -> None:
        exchange = exchange_at(stage.clock.monotonic())
        exchange.client_wait = 3600.0
        stage.deadlines.start_attempt(exchange)
        await eventually(lambda: exchange.attempt_expired)

    async def test_what_its_client_uses_up_meanwhile_is_granted(self, stage: Stage) -> None:
        exchange = exchange_at(stage.clock.monotonic())
        exchange.client_wait = 3600.0
        began = stage.clock.monotonic()
        stage.deadlines.start_attempt(exchange)
        exchange.client_wait += 0.03
        await eventually(lambda: exchange.attempt_expired)
        assert stage.clock.monotonic() - began >= TIMEOUT + 0.03

    async def test_a_wait_for_the_client_that_goes_on_holds_it_up(self, stage: Stage) -> None:
        exchange = exchange_at(stage.clock.monotonic())
        exchange.waiting_since = stage.clock.monotonic() - 3600
        ticket = stage.deadlines.start_attempt(exchange)
        await eventually(lambda: ticket.timer is not None)
        stage.clock.advance(3600)
        first = ticket.timer
        await eventually(lambda: ticket.timer is not first)
        assert not exchange.attempt_expired
        exchange.client_wait = exchange.waited_for_client(stage.clock.monotonic())
        exchange.waiting_since = 0.0
        stage.clock.advance(TIMEOUT)
        await eventually(lambda: exchange.attempt_expired)


async def test_thousands_finished_behind_a_slow_one_are_not_kept() -> None:
    stage = Stage(timeout=3600)
    slow, _ = stage.begin()
    for _ in range(10_000):
        _, ticket = stage.begin()
        stage.deadlines.finish(ticket)
    assert stage.deadlines.watched == 1
    assert len(stage.deadlines._queue) < 2500
    stage.deadlines.close()
    assert not slow.expired


async def test_tidying_forgets_nobody() -> None:
    stage = Stage(timeout=3600)
    alive = []
    for n in range(5000):
        exchange, ticket = stage.begin()
        if n % 100:
            stage.deadlines.finish(ticket)
        else:
            alive.append(exchange)
    assert stage.deadlines.watched == len(alive)
    stage.deadlines.close()


async def test_closed_nothing_expires_and_nothing_is_counted(stage: Stage) -> None:
    exchange, ticket = stage.begin()
    stage.deadlines.close()
    assert stage.deadlines.watched == 0
    stage.deadlines.finish(ticket)
    assert stage.deadlines.watched == 0
    later, _ = stage.begin()
    await eventually(lambda: later.expired)
    assert not exchange.expired


async def test_one_that_began_before_its_predecessor_does_not_wait_for_that_one(
    stage: Stage,
) -> None:
    ahead, _ = stage.begin()
    held_up, ticket = stage.begin(ago=TIMEOUT * 0.9)
    assert stage.deadlines.watched == 2
    await eventually(lambda: held_up.expired)
    assert not ahead.expired
    await eventually(lambda: ahead.expired)
    stage.deadlines.finish(ticket)
    assert stage.deadlines.watched == 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "finish", "wait", "pass"]),
        st.integers(0, 9),
        st.floats(0, 2 * TIMEOUT),
    ),
    max_size=30,
)


@given(steps=STEPS)
@fewer(10)
def test_whatever_happens_none_expires_early_and_the_count_is_right(
    steps: list[tuple[str, int, float]],
) -> None:
    async def play() -> None:
        stage = Stage()
        begun: list[tuple[Exchange, Ticket]] = []
        finished: set[Ticket] = set()
        expired: set[Exchange] = set()
        for step, which, seconds in steps:
            if step == "begin":
                begun.append(stage.begin(ago=seconds / 4))
            elif step == "pass":
                stage.clock.advance(seconds)
                await asyncio.sleep(0.002)
            elif begun and step == "finish":
                ticket = begun[which % len(begun)][1]
                stage.deadlines.finish(ticket)
                finished.add(ticket)
            elif begun:
                begun[which % len(begun)][0].client_wait += seconds
            now = stage.clock.monotonic()
            for exchange in {e for e, _ in begun if e.expired} - expired:
                # Steps are short of awaits but for "pass", so this is as it was then.
                assert now >= exchange.started + TIMEOUT + exchange.client_wait
                expired.add(exchange)
            open_ones = [e for e, t in begun if t not in finished and not e.expired]
            assert stage.deadlines.watched == len(open_ones)
        stage.clock.advance(1000)
        await eventually(lambda: all(e.expired for e, t in begun if t not in finished))
        assert stage.deadlines.watched == 0
        stage.deadlines.close()

    asyncio.run(play())


async def test_a_finished_exchange_is_not_kept_though_its_ticket_waits_in_the_queue() -> None:
    deadlines = Deadlines(30.0, FakeClock())
    for start in (deadlines.start, deadlines.start_attempt):
        exchange = exchange_at(0.0)
        still_there = weakref.ref(exchange)
        deadlines.finish(start(exchange))
        del exchange
        assert still_there() is None
    deadlines.close()
