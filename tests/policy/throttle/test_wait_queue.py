"""The wait queue: which caller goes out when, which is refused and why, in a time of our own."""

import math
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from proxy.policy.settings import Rate, RateAlgorithm, ThrottleSettings
from proxy.policy.throttle.limiter import (
    NEVER,
    Limiter,
    Limiters,
    LocalConcurrencyLimiter,
)
from proxy.policy.throttle.wait_queue import (
    Reservation,
    ReservationState,
    ThrottleCause,
    ThrottleRefusal,
    Waiter,
    WaitQueue,
)
from tests.policy.throttle.remote_limiter import GUESS, RemoteLimiter
from tests.policy.throttle.textbook import textbook_limiters

START = 1000.0
TEN = Rate(10, 1.0)
"""One each 0.1 s."""

MAX_WAIT, DEADLINE, QUEUE_FULL = (
    ThrottleCause.MAX_WAIT,
    ThrottleCause.DEADLINE,
    ThrottleCause.QUEUE_FULL,
)
PAUSED, STORE = ThrottleCause.PAUSED, ThrottleCause.STORE


def limits(
    *rates: Rate,
    burst: int = 1,
    concurrency: int | None = None,
    max_wait: float | None = 5.0,
    max_queue: int = 1000,
    longest_pause: float | None = 60.0,
    window: bool = False,
) -> ThrottleSettings:
    return ThrottleSettings(
        rates=rates,
        burst=burst,
        algorithm=RateAlgorithm.WINDOW if window else RateAlgorithm.GCRA,
        concurrency=concurrency,
        max_wait=max_wait,
        max_queue=max_queue,
        longest_pause=longest_pause,
    )


class Caller(Waiter):
    """A waiter, with a name for the story."""

    def __init__(
        self,
        name: str,
        entered: float,
        deadline: float = math.inf,
        reservation: Reservation | None = None,
    ) -> None:
        super().__init__(entered, deadline, reservation)
        self.name = name
        self.has_left = False

    @property
    def is_gone(self) -> bool:
        return self.has_left

    def __repr__(self) -> str:
        return self.name


class Story:
    """A wait queue, its time, and what happened when: ``("b", "out", 0.1)``, seconds from START.

    It does what the async limiter does: it serves the queue again when that asks for it, and a
    released caller sends at once, unless the story is about what happens when it does not.
    """

    def __init__(self, settings: ThrottleSettings, rates: Limiter | None = None) -> None:
        self.now = START
        limiters = textbook_limiters(settings, START)
        if rates is not None:
            limiters = Limiters(rates, LocalConcurrencyLimiter)
        self.queue: WaitQueue[Caller] = WaitQueue(settings, limiters)
        self.callers: dict[str, Caller] = {}
        self.out: list[Reservation] = []
        """Of calls that are not over, the oldest first."""
        self.told: list[tuple[str, str, float]] = []
        self.sends_at_once = True

    def tell(self, caller: Caller, what: str) -> None:
        self.told.append((caller.name, what, round(self.now - START, 6)))

    def come(self, *names: str, within: float = math.inf) -> None:
        """Let callers arrive one after the other, each with a deadline."""
        for name in names:
            caller = self.callers[name] = Caller(name, self.now, self.now + within)
            if self.send():
                self.tell(caller, "out")
                continue
            refusal = self.queue.refusal(self.now, within)
            if refusal is not None:
                self.tell(caller, refusal.cause)
                continue
            self.queue.join(caller, self.now)
            self.look()

    def look(self) -> bool:
        """See who is next; whether that brought anything."""
        served = self.queue.serve(self.now)
        for caller, reservation in served.out:
            assert reservation.state is ReservationState.RESERVED
            self.tell(caller, "out")
            if caller.reservation is None:
                self.out.append(reservation)
            else:
                assert caller.reservation is reservation
            if self.sends_at_once:
                assert reservation.commit(self.now)
        for caller, cause in served.refused:
            self.tell(caller, cause)
        return bool(served.out or served.refused)

    def send(self) -> bool:
        """Let a caller out at once, that sends."""
        reservation = self.queue.take(self.now)
        if reservation is None:
            return False
        self.out.append(reservation)
        return True

    def reserve(self) -> Reservation:
        """Let a caller out at once that does not send yet."""
        reservation = self.queue.reserve(self.now)
        assert reservation is not None
        self.out.append(reservation)
        return reservation

    def finish(self) -> bool:
        """End the oldest call; whether the queue has somebody for its slot."""
        return self.out.pop(0).close() and self.look()

    def come_back(
        self, reservation: Reservation, name: str = "late", *, within: float = math.inf
    ) -> bool:
        """Let a caller wait for another permit."""
        caller = Caller(name, self.now, self.now + within, reservation)
        self.callers[name] = caller
        return self.queue.come_back(caller)

    def leave(self, *names: str) -> None:
        for name in names:
            self.queue.leave(self.callers[name])
        self.look()

    def pause(self, seconds: float) -> None:
        for caller in self.queue.pause(self.now, seconds):
            self.tell(caller, PAUSED)
        self.look()

    def change(self, settings: ThrottleSettings) -> None:
        self.queue.change(settings, self.now)
        self.look()

    def until(self, seconds: float) -> "Story":
        """Let time pass up to so many seconds after START, and look whenever it is time."""
        end = START + seconds
        while (wait := self.queue.next_look(self.now)) is not None and self.now + wait <= end:
            self.now += wait
            assert self.look(), "somebody looked, and there was nothing to see"
        self.now = end
        return self

    @property
    def outs(self) -> dict[str, float]:
        return {name: at for name, what, at in self.told if what == "out"}

    @property
    def refusals(self) -> list[tuple[str, str, float]]:
        return [entry for entry in self.told if entry[1] != "out"]


# Newcomers.


@pytest.mark.parametrize(
    ("settings", "before", "within", "outcome"),
    [
        pytest.param(limits(TEN), 0, math.inf, "out", id="the first passes"),
        pytest.param(limits(TEN, burst=3), 2, math.inf, "out", id="so does a burst"),
        pytest.param(limits(), 500, math.inf, "out", id="and anybody where there is no limit"),
        pytest.param(limits(TEN, max_wait=0.0), 0, math.inf, "out", id="without any wait"),
        pytest.param(limits(TEN, max_queue=0), 0, math.inf, "out", id="without any line"),
        pytest.param(limits(TEN), 1, math.inf, "line", id="the second waits"),
        pytest.param(limits(TEN, max_wait=0.3), 3, 9.0, "line", id="until the very last moment"),
        pytest.param(limits(TEN, max_wait=0.3), 4, 9.0, MAX_WAIT, id="but no longer"),
        pytest.param(limits(TEN), 1, 0.1, "line", id="up to its deadline"),
        pytest.param(limits(TEN), 1, 0.099, DEADLINE, id="but not past it"),
        pytest.param(limits(TEN), 1, -1.0, DEADLINE, id="that is over already"),
        pytest.param(limits(TEN, max_wait=0.2), 4, 0.3, MAX_WAIT, id="its patience is shorter"),
        pytest.param(limits(TEN, max_wait=0.3), 4, 0.2, DEADLINE, id="its deadline is sooner"),
        pytest.param(limits(TEN, max_wait=0.2), 4, 0.2, MAX_WAIT, id="both are equal"),
        pytest.param(limits(TEN, max_wait=None), 900, math.inf, "line", id="endless patience"),
        pytest.param(limits(TEN, max_wait=None), 900, 80.0, DEADLINE, id="but a deadline"),
        pytest.param(limits(TEN, max_wait=0.0), 1, math.inf, MAX_WAIT, id="no patience at all"),
        pytest.param(limits(TEN, max_queue=2), 3, math.inf, QUEUE_FULL, id="a full line"),
        pytest.param(limits(TEN, max_queue=2), 2, math.inf, "line", id="the last place in it"),
        pytest.param(limits(TEN, max_queue=0), 1, math.inf, QUEUE_FULL, id="no line at all"),
        pytest.param(
            limits(TEN, max_queue=2, max_wait=0.2), 3, 0.1, QUEUE_FULL, id="full and too late"
        ),
        pytest.param(
            limits(TEN, max_queue=0, max_wait=0.0), 1, 0.0, QUEUE_FULL, id="neither line nor wait"
        ),
        pytest.param(limits(concurrency=2), 1, math.inf, "out", id="a free place"),
        pytest.param(limits(concurrency=2), 2, math.inf, "line", id="no free place"),
        pytest.param(limits(concurrency=2), 2, 0.0, "line", id="which may come in time"),
        pytest.param(
            limits(concurrency=2, max_wait=0.0), 2, 9.0, MAX_WAIT, id="who would not wait"
        ),
        pytest.param(limits(TEN, concurrency=9), 3, 0.1, DEADLINE, id="a place, and no permit"),
    ],
)
def test_a_newcomer(settings: ThrottleSettings, before: int, within: float, outcome: str) -> None:
    story = Story(settings)
    story.come(*(f"before {number}" for number in range(before)))
    waiting = story.queue.waiting
    story.come("newcomer", within=within)
    told = [what for name, what, _ in story.told if name == "newcomer"]
    assert told == ([] if outcome == "line" else [outcome])
    assert story.queue.waiting == waiting + (outcome == "line")


@pytest.mark.parametrize("comes_back", [False, True], ids=["in the queue", "come back"])
def test_nobody_is_let_out_before_those_who_wait(*, comes_back: bool) -> None:
    story = Story(limits(TEN))
    if comes_back:
        assert story.come_back(Reservation.of(story.queue, ReservationState.RELEASED))
    else:
        story.queue.join(Caller("a", START), START)
    assert story.queue.reserve(START) is None
    assert story.queue.take(START) is None
    another = Reservation.of(story.queue, ReservationState.RELEASED)
    assert story.queue.reserve_again(another, START) is not comes_back


@pytest.mark.parametrize("rates", [(TEN,), ()], ids=["a rate", "no rate"])
@pytest.mark.parametrize(
    ("now", "opens"),
    [
        pytest.param(1.999, False, id="in a pause"),
        pytest.param(2.0, True, id="at its end"),
    ],
)
def test_when_a_pause_ends_one_may_go(now: float, rates: tuple[Rate, ...], *, opens: bool) -> None:
    def paused() -> WaitQueue[Caller]:
        story = Story(limits(*rates))
        story.pause(2.0)
        return story.queue

    moment = START + now
    assert (paused().reserve(moment) is not None) == opens
    assert (paused().take(moment) is not None) == opens
    released = Reservation.of(paused(), ReservationState.RELEASED)
    assert released.queue.reserve_again(released, moment) == opens


@pytest.mark.parametrize(
    ("settings", "before", "pause", "within", "refusal"),
    [
        pytest.param(limits(TEN), 3, 4.0, 9.0, None, id="it can wait for the end"),
        pytest.param(limits(TEN), 0, 5.0, 9.0, None, id="to the very moment"),
        pytest.param(limits(TEN), 0, 5.1, 9.0, (PAUSED, 5.1), id="it is too long"),
        pytest.param(limits(TEN), 0, 4.0, 3.0, (PAUSED, 4.0), id="for its deadline"),
        pytest.param(limits(TEN, max_wait=None), 0, 50.0, math.inf, None, id="never too long"),
        pytest.param(limits(TEN, max_queue=0), 1, 9.0, 9.0, (PAUSED, 9.0), id="above a full line"),
        pytest.param(
            limits(TEN, max_queue=1), 2, 4.0, 9.0, (QUEUE_FULL, 4.1), id="full until then"
        ),
        pytest.param(limits(TEN), 13, 4.0, 9.0, (MAX_WAIT, 5.2), id="those before it come first"),
        pytest.param(limits(TEN), 8, 4.0, 4.6, (DEADLINE, 4.7), id="and its deadline"),
        pytest.param(limits(), 0, 5.0, 9.0, None, id="no rate"),
        pytest.param(limits(TEN, max_wait=0.0), 0, 1.0, 9.0, (PAUSED, 1.0), id="no patience"),
    ],
)
def test_a_newcomer_in_a_pause(
    settings: ThrottleSettings,
    before: int,
    pause: float,
    within: float,
    refusal: tuple[ThrottleCause, float] | None,
) -> None:
    story = Story(settings)
    story.come(*(f"before {number}" for number in range(before)))
    story.pause(pause)
    assert not story.send()
    found = story.queue.refusal(story.now, within)
    told = None if found is None else (found.cause, round(found.wait, 6))
    assert told == refusal


@pytest.mark.parametrize(
    ("settings", "before", "later", "within", "refusal"),
    [
        pytest.param(limits(TEN), 0, 1.0, 9.0, None, id="nobody is there"),
        pytest.param(limits(TEN), 4, 1.0, 0.0, None, id="all will have gone"),
        pytest.param(limits(TEN), 8, 0.5, 9.0, None, id="some will have gone"),
        pytest.param(limits(TEN), 8, 0.5, 0.2, DEADLINE, id="but too few for its deadline"),
        pytest.param(limits(TEN), 8, 0.5, -1.0, DEADLINE, id="which is over then"),
        pytest.param(limits(TEN, max_queue=2), 3, 0.1, 9.0, QUEUE_FULL, id="the line is full"),
        pytest.param(limits(TEN, max_queue=2), 3, 0.3, 9.0, None, id="but will be empty"),
        pytest.param(limits(TEN, max_queue=0), 1, 0.1, 9.0, None, id="no line is needed then"),
        pytest.param(limits(TEN, max_wait=0.0), 1, 0.1, 9.0, None, id="nor any wait"),
        pytest.param(limits(TEN, max_wait=0.0), 1, 0.09, 9.0, MAX_WAIT, id="unless it is early"),
        pytest.param(limits(concurrency=1, max_wait=0.0), 1, 0.1, 9.0, None, id="who knows"),
    ],
)
def test_somebody_who_comes_later(
    settings: ThrottleSettings,
    before: int,
    later: float,
    within: float,
    refusal: ThrottleCause | None,
) -> None:
    story = Story(settings)
    story.come(*(f"before {number}" for number in range(before)))
    found = story.queue.refusal(story.now, within, later)
    assert (found and found.cause) == refusal


def test_somebody_who_comes_when_a_pause_is_over() -> None:
    story = Story(limits(TEN))
    story.pause(10.0)
    assert story.queue.refusal(story.now, 20.0, later=4.9) == ThrottleRefusal(PAUSED, 5.1)
    assert story.queue.refusal(story.now, 20.0, later=5.0) is None
    assert story.queue.refusal(story.now, 0.0, later=10.0) is None


def test_what_is_undone_never_was() -> None:
    story = Story(limits(TEN, concurrency=1))
    for let_out in (story.queue.take, story.queue.reserve):
        undone = let_out(START)
        assert undone is not None
        undone.release()
        undone.close()
    assert story.queue.under_way == story.queue.reserved == 0
    assert story.queue.is_idle(START)


# The line.


@pytest.mark.parametrize(
    ("settings", "outs"),
    [
        pytest.param(limits(TEN), [0, 0.1, 0.2, 0.3, 0.4], id="one by one"),
        pytest.param(limits(TEN, burst=3), [0, 0, 0, 0.1, 0.2], id="after a burst"),
        pytest.param(limits(Rate(2, 3.0), window=True), [0, 0, 3, 3], id="window by window"),
        pytest.param(limits(TEN, Rate(3, 2.0), burst=2), [0, 0, 2 / 3, 4 / 3, 2], id="two rates"),
        pytest.param(limits(TEN, max_wait=0.2), [0, 0.1, 0.2], id="the last in the last moment"),
    ],
)
def test_first_come_first_served(settings: ThrottleSettings, outs: list[float]) -> None:
    story = Story(settings)
    story.come(*"abcde"[: len(outs)])
    assert list(story.until(9).outs.values()) == pytest.approx(outs)
    assert list(story.outs) == list("abcde"[: len(outs)])
    assert story.refusals == []


def test_who_comes_while_others_wait_is_behind_them() -> None:
    story = Story(limits(TEN))
    story.come("a", "b")
    story.now += 0.1  # there is a permit, but nobody has looked yet
    story.come("c")
    assert story.until(1).outs == {"a": 0, "b": 0.1, "c": 0.2}


def test_a_stalled_loop_costs_what_was_not_let_out_meanwhile_and_nothing_else() -> None:
    story = Story(limits(TEN, burst=2))
    story.come(*"abcdef")
    story.now += 3.0
    story.look()
    assert story.until(4).outs == {"a": 0, "b": 0, "c": 3, "d": 3, "e": 3.1, "f": 3.2}


def test_slots_go_to_those_who_came_first() -> None:
    story = Story(limits(concurrency=1))
    story.come(*"abc")
    assert story.queue.next_look(START) == 5, "nobody knows when a place becomes free"
    assert story.until(1).finish()
    assert story.until(2).finish()
    assert story.outs == {"a": 0, "b": 1, "c": 2}
    assert story.queue.under_way == 1


def test_who_finds_no_place_is_told_when_it_has_waited_long_enough() -> None:
    story = Story(limits(concurrency=1))
    story.come("a", "b")
    story.until(1).come("c")
    assert story.until(9).told == [("a", "out", 0), ("b", MAX_WAIT, 5), ("c", MAX_WAIT, 6)]
    assert story.queue.next_look(story.now) is None


def test_without_patience_to_lose_nobody_looks_before_a_place_is_free() -> None:
    story = Story(limits(concurrency=1, max_wait=None))
    story.come("a", "b")
    assert story.queue.next_look(START) is None


def test_a_place_and_a_permit_are_needed() -> None:
    story = Story(limits(TEN, burst=2, concurrency=1))
    story.come(*"abc")
    assert story.until(0.5).outs == {"a": 0}
    assert story.finish()
    assert story.finish()
    assert story.outs == {"a": 0, "b": 0.5, "c": 0.5}
    story.come("d")
    assert not story.finish()
    assert story.until(1).outs["d"] == 0.6


def test_who_leaves_moves_everybody_up() -> None:
    story = Story(limits(TEN))
    story.come(*"abcde")
    story.until(0.05).leave("b", "d")
    assert story.until(1).outs == {"a": 0, "c": 0.1, "e": 0.2}
    assert story.queue.is_idle(story.now) is False, "calls are under way"


def test_leaving_twice_or_after_ones_turn_means_nothing() -> None:
    story = Story(limits(TEN))
    story.come(*"abc")
    story.until(0.1).leave("a", "b", "b")
    assert story.until(1).outs == {"a": 0, "b": 0.1, "c": 0.2}


def test_who_is_gone_when_its_turn_comes_costs_nothing() -> None:
    story = Story(limits(TEN, concurrency=9))
    story.come(*"abcd")
    story.callers["b"].has_left = story.callers["c"].has_left = True
    assert story.until(1).told == [("a", "out", 0), ("d", "out", 0.1)]
    assert story.queue.under_way == 2


def test_who_is_gone_is_not_refused() -> None:
    story = Story(limits(concurrency=1))
    story.come(*"abc")
    story.callers["b"].has_left = True
    story.now += 5.0
    story.look()
    assert story.told == [("a", "out", 0), ("c", MAX_WAIT, 5)]


def test_five_thousand_in_queue_are_no_burden() -> None:
    crowd = [f"caller {number}" for number in range(5000)]
    story = Story(limits(Rate(1000, 1.0), max_wait=60.0, max_queue=5000))
    story.come("first")
    began = time.process_time()
    story.come(*crowd)
    for name in crowd[1:-1:2]:  # from the middle, and each of them has the line looked at
        story.leave(name)
    story.until(10)
    took = time.process_time() - began
    staying = [*crowd[0:-1:2], crowd[-1]]
    assert list(story.outs) == ["first", *staying]
    assert story.outs[crowd[-1]] == 2.501
    assert took < 2.0, "0.2 s alone on a machine; looking at all for each would take minutes"


# Between the release and the sending.


def test_what_is_held_is_nobody_elses() -> None:
    story = Story(limits(TEN, burst=2))
    story.sends_at_once = False
    story.reserve()
    assert story.send()
    assert not story.send()
    story.come("a")
    assert story.until(9).outs == {"a": 0.1}


def test_a_permit_is_spent_when_the_call_is_sent() -> None:
    story = Story(limits(TEN))
    reservation = story.reserve()
    story.come("a", "b")
    story.now = START + 0.07
    assert reservation.commit(story.now)
    assert story.until(1).outs == {"a": 0.17, "b": 0.27}


def test_a_permit_that_lapses_goes_to_the_next() -> None:
    story = Story(limits(TEN))
    reservation = story.reserve()
    story.come("a", "b")
    story.now = START + 0.1
    assert reservation.release(), "there are some to whom it may go"
    story.look()
    assert story.until(1).outs == {"a": 0.1, "b": 0.2}
    assert story.queue.under_way == 3, "it kept its place"


def set_aside(story: Story, now: float) -> Reservation | None:
    """Let a caller out at once for which a connection has to be made."""
    moment = START + now + 1e-6  # a tenth is no float
    reservation = story.queue.take(moment)
    if reservation is not None:
        reservation.set_aside(START + now)
    return reservation


@pytest.mark.parametrize(
    ("burst", "turns"),
    [
        pytest.param(1, [0.0, 0.1, 0.2, 0.3], id="one by one"),
        pytest.param(3, [0.0, 0.0, 0.0, 0.1, 0.2], id="after the burst one by one"),
    ],
)
def test_while_connections_are_made_turns_come_at_the_rate(burst: int, turns: list[float]) -> None:
    story = Story(limits(TEN, burst=burst))
    for now, following in pairwise([*turns, turns[-1] + 0.1]):
        assert set_aside(story, now)
        if following > now:
            assert not set_aside(story, now)
            assert not set_aside(story, following - 0.001)
    assert story.queue.under_way == len(turns)
    assert story.queue.rates.wait(START + 1, burst) == 0, "nothing was spent"


def test_whose_connection_is_there_goes_before_those_who_have_none() -> None:
    story = Story(limits(TEN))
    reservation = set_aside(story, 0.0)
    assert reservation is not None
    story.come("a", "b")
    story.now += 0.03
    assert reservation.release()
    assert story.queue.reserve_again(reservation, story.now)
    assert reservation.commit(story.now)
    assert not story.look()
    story.until(1.0)
    assert story.told == [("a", "out", 0.13), ("b", "out", 0.23)]


def test_a_slow_rate_does_not_wait_for_an_address_that_does_not_answer() -> None:
    story = Story(limits(Rate(1, 3600.0), max_wait=None))
    assert set_aside(story, 0.0)
    story.come("a")
    story.until(1.0)
    assert story.told == [("a", "out", 0.1)]


def test_turns_are_an_interval_apart_however_many_are_set_aside() -> None:
    interval = 1 / 128
    story = Story(limits(Rate(128, 1.0)))
    for turn in range(5):
        now = START + turn * interval
        assert story.queue.reserve(now - 1e-6) is None or not turn
        reservation = story.queue.reserve(now)
        assert reservation is not None
        assert reservation.commit(now)
        reservation.set_aside(now)


def test_where_no_more_permits_come_the_one_left_is_for_anybody_at_once() -> None:
    remote = RemoteLimiter()
    remote.answer(1, next_at=NEVER)
    story = Story(limits(TEN), remote)
    assert set_aside(story, 0.0)
    assert story.queue.take(START)


def test_turns_are_apart_until_nobody_is_set_aside() -> None:
    story = Story(limits(TEN, burst=2))
    first, second = set_aside(story, 0.0), set_aside(story, 0.0)
    assert first is not None
    assert second is not None
    now = START + 0.01
    assert story.queue.wait(now) > 0, "both will need a permit"
    first.release()
    assert story.queue.wait(now) == 0
    assert story.queue.reserve(now) is None, "one is still set aside"
    second.release()
    assert story.queue.reserve(now), "nobody is"
    assert story.queue.reserve(now)


def test_who_is_set_aside_comes_before_those_in_queue() -> None:
    story = Story(limits(TEN, max_wait=0.25))
    assert set_aside(story, 0.0)
    story.come("a", "b", "c")
    assert story.told == [("c", "max_wait", 0.0)]


def test_who_comes_back_is_first() -> None:
    story = Story(limits(TEN))
    reservation = story.reserve()
    story.come("a", "b")
    reservation.release()
    story.look()
    assert not story.queue.reserve_again(reservation, story.now)
    assert story.come_back(reservation)
    story.come("c")
    assert story.queue.waiting == 3
    assert story.until(1).outs == {"a": 0, "late": 0.1, "b": 0.2, "c": 0.3}
    assert story.queue.under_way == 4, "nobody is counted twice"


def test_who_comes_back_needs_no_second_place() -> None:
    story = Story(limits(TEN, concurrency=1))
    reservation = story.reserve()
    reservation.release()
    assert story.queue.reserve_again(reservation, START), "nobody came back before it"
    # Others, from before there was one slot only.
    late, later = (Reservation.of(story.queue, ReservationState.RELEASED) for _ in range(2))
    assert not story.queue.reserve_again(late, START)
    assert story.come_back(late, "late")
    assert story.come_back(later, "later")
    assert not story.queue.reserve_again(reservation, START + 9), "others came back before"
    reservation.release()
    story.look()
    assert story.until(1).outs == {"late": 0, "later": 0.1}
    assert story.queue.under_way == 1


def test_who_comes_back_is_not_held_to_the_patience_of_newcomers() -> None:
    story = Story(limits(Rate(1, 10.0), max_wait=0.0))
    assert story.send()
    assert story.come_back(Reservation.of(story.queue, ReservationState.RELEASED))
    assert story.until(10).told == [("late", "out", 10)]


def test_who_comes_back_may_leave() -> None:
    story = Story(limits(TEN))
    story.come("a")
    assert story.come_back(Reservation.of(story.queue, ReservationState.RELEASED))
    story.come("b")
    story.leave("late")
    assert story.until(1).outs == {"a": 0, "b": 0.1}


def test_who_came_back_and_is_gone_costs_nothing() -> None:
    story = Story(limits(TEN))
    story.come("a")
    assert story.come_back(Reservation.of(story.queue, ReservationState.RELEASED))
    story.callers["late"].has_left = True
    story.come("b")
    assert story.until(1).outs == {"a": 0, "b": 0.1}


# Pauses.


def test_nobody_goes_out_in_a_pause_and_then_they_go_at_the_rate() -> None:
    story = Story(limits(TEN, burst=5))
    story.pause(2.0)
    assert story.queue.paused_for(START + 0.5) == 1.5
    story.come(*"abc")
    story.until(1).come("d")
    assert story.queue.paused_for(START + 2) == 0
    assert story.until(9).outs == {"a": 2, "b": 2.1, "c": 2.2, "d": 2.3}


def test_without_a_rate_they_are_spread_over_a_second() -> None:
    story = Story(limits(concurrency=9))
    story.pause(2.0)
    story.come(*"abcd")
    story.until(2.3).come("late")
    assert story.until(9).outs == {"a": 2, "b": 2.25, "c": 2.5, "d": 2.75, "late": 3}


def test_the_spread_ends_with_those_it_is_for() -> None:
    story = Story(limits(concurrency=2))
    story.pause(2.0)
    story.come("a", "b")
    story.until(2.5).come("c")
    assert story.finish()
    assert story.outs == {"a": 2, "b": 2.5, "c": 2.5}


@pytest.mark.parametrize("now", [2.0, 2.1], ids=["at its end", "after it"])
def test_a_pause_that_nobody_waited_for_spreads_nobody(now: float) -> None:
    story = Story(limits(concurrency=1))
    story.pause(2.0)
    story.until(now).come(*"abc")
    for _ in "bc":
        assert story.finish()
    assert story.outs == {"a": now, "b": now, "c": now}


def test_who_comes_while_others_are_spread_is_told_if_its_share_is_too_late() -> None:
    story = Story(limits(concurrency=9))
    story.pause(2.0)
    story.come(*"abcd")
    story.until(2.25)
    assert story.queue.wait(story.now) == 0.75, "two are before it"
    story.come("hurried", within=0.7)
    assert story.refusals == [("hurried", DEADLINE, 2.25)]


def test_who_could_not_stay_for_its_share_of_the_spread_is_told_at_once() -> None:
    story = Story(limits(max_wait=0.65))
    story.pause(0.1)
    story.come(*"abc")
    assert story.told == [("c", MAX_WAIT, 0)]
    assert story.until(2).outs == {"a": 0.1, "b": 0.6}


def test_who_holds_a_permit_when_a_pause_begins_comes_back_before_those_in_queue() -> None:
    queue: WaitQueue[Caller] = WaitQueue(limits(), textbook_limiters(limits(), START))
    assert queue.reserve(START)
    assert queue.pause(START, 0.1) == []
    assert queue.wait(START) == pytest.approx(0.1 + 0.5), "two share the second that follows"
    refusal = queue.refusal(START, 0.3)
    assert refusal is not None
    assert refusal.cause is DEADLINE


def test_another_pause_stops_the_spread() -> None:
    story = Story(limits())
    story.pause(1.0)
    story.come(*"abcd")
    story.until(1.3).pause(1.0)
    assert story.until(9).outs == {"a": 1, "b": 1.25, "c": 2.3, "d": 2.8}


def test_those_who_cannot_wait_for_its_end_are_told_at_once() -> None:
    story = Story(limits(concurrency=1))
    story.come("a", "patient")
    story.until(1).come("hurried", within=2.0)
    story.come("calm")
    assert story.come_back(Reservation.of(story.queue, ReservationState.RELEASED), within=1.0)
    story.pause(4.5)
    assert story.refusals == [
        ("late", PAUSED, 1),
        ("patient", PAUSED, 1),
        ("hurried", PAUSED, 1),
    ]
    assert story.queue.waiting == 1


def test_those_who_can_wait_to_the_very_end_of_a_pause_stay() -> None:
    story = Story(limits(TEN, burst=2, max_wait=4.0))
    story.come("a", "b", "by its patience")
    story.queue.join(Caller("by its deadline", START, START + 4.0), START)
    story.pause(4.0)
    assert story.refusals == []
    assert story.queue.waiting == 2


def test_a_pause_of_no_time_spreads_nobody() -> None:
    story = Story(limits(concurrency=1))
    story.come(*"abc")
    story.now += 1.0
    story.pause(0.0)
    for _ in "bc":
        assert story.finish()
    assert story.outs == {"a": 0, "b": 1, "c": 1}


def test_who_has_waited_for_too_long_in_a_pause_is_told_that_it_was_the_pause() -> None:
    story = Story(limits(TEN))
    story.come("a")
    story.pause(4.0)
    story.come("b")
    story.change(limits(TEN, max_wait=3.0))
    assert story.until(3.5).refusals == [("b", PAUSED, 3)]


def test_a_pause_begins_between_ones_turn_and_sending() -> None:
    story = Story(limits(TEN))
    reservation = story.reserve()
    story.come("b")
    story.pause(2.0)
    assert not reservation.commit(START + 0.01)
    assert not story.queue.reserve_again(reservation, START + 0.01)
    assert story.come_back(reservation)
    assert story.until(9).outs == {"late": 2, "b": 2.1}


@pytest.mark.parametrize(
    ("pause", "within", "stays"),
    [
        pytest.param(5.1, math.inf, False, id="longer than its patience"),
        pytest.param(5.0, math.inf, True, id="as long as its patience"),
        pytest.param(2.0, 1.0, False, id="longer than its time"),
        pytest.param(2.0, 2.0, True, id="as long as its time"),
    ],
)
def test_who_comes_back_to_a_pause_that_is_too_long_is_told(
    pause: float, within: float, *, stays: bool
) -> None:
    story = Story(limits(TEN))
    reservation = story.reserve()
    story.pause(pause)
    assert not reservation.commit(START)
    assert story.come_back(reservation, within=within) is stays
    assert story.queue.waiting == stays


@pytest.mark.parametrize(
    ("longest", "pauses", "opens"),
    [
        pytest.param(60.0, [3.0, 2.0], 3.0, id="the longer one counts"),
        pytest.param(60.0, [2.0, 3.0], 3.0, id="whatever the order"),
        pytest.param(60.0, [100.0], 60.0, id="no longer than allowed"),
        pytest.param(1.5, [1.0, math.inf], 1.5, id="not even forever"),
        pytest.param(None, [10.0], 0.0, id="not at all"),
        pytest.param(60.0, [0.0], 0.0, id="for no time"),
        pytest.param(60.0, [-1.0], 0.0, id="until a moment ago"),
    ],
)
def test_how_long_a_pause_is(longest: float | None, pauses: list[float], opens: float) -> None:
    story = Story(limits(TEN, max_wait=None, longest_pause=longest))
    for seconds in pauses:
        story.pause(seconds)
    assert story.queue.paused_for(START) == opens
    story.come("a")
    assert story.until(99).outs == {"a": opens}


def test_a_pause_that_the_permits_know_of_is_not_news_to_them() -> None:
    remote = RemoteLimiter()
    remote.answer(3, next_at=START + 99)
    story = Story(limits(TEN), remote)
    assert story.queue.pause(START, 2.0, tells_limiter=False) == []
    assert remote.at_hand == 3
    story.queue.pause(START, 3.0)
    assert remote.at_hand == 0


# Other limits.


@pytest.mark.parametrize(
    ("after", "told"),
    [
        pytest.param(limits(Rate(20, 1.0)), {"b": 0.05, "c": 0.1, "d": 0.15}, id="faster"),
        pytest.param(limits(Rate(5, 1.0)), {"b": 0.2, "c": 0.4, "d": 0.6}, id="slower"),
        pytest.param(limits(), {"b": 0, "c": 0, "d": 0}, id="no limit any more"),
        pytest.param(limits(TEN, max_queue=1), {"b": 0.1, "c": 0.2, "d": 0.3}, id="shorter line"),
        pytest.param(limits(TEN, max_wait=0.15), {"b": 0.1}, id="less patience"),
        pytest.param(limits(TEN, concurrency=2), {"b": 0.1}, id="slots as well"),
        pytest.param(limits(concurrency=2), {"b": 0}, id="slots instead"),
    ],
)
def test_other_limits_hold_for_those_in_queue(
    after: ThrottleSettings, told: dict[str, float]
) -> None:
    story = Story(limits(TEN))
    story.come(*"abcd")
    story.change(after)
    assert story.until(3).outs == {"a": 0, **told}


@pytest.mark.parametrize(
    ("longest", "outs"),
    [
        pytest.param(None, {"a": 1.1, "b": 1.2}, id="none any more"),
        pytest.param(2.0, {"a": 3.1, "b": 3.2}, id="a shorter one"),
        pytest.param(60.0, {"a": 4, "b": 4.1}, id="a longer one"),
    ],
)
def test_a_pause_is_no_longer_than_allowed_now(
    longest: float | None, outs: dict[str, float]
) -> None:
    story = Story(limits(TEN))
    story.pause(4)
    story.come("a", "b")
    story.until(1).change(replace(limits(TEN), longest_pause=longest))
    assert story.until(5).outs == pytest.approx(outs)


def test_who_has_waited_for_longer_than_is_allowed_now_is_refused() -> None:
    story = Story(limits(concurrency=1))
    story.come("a", "b")
    story.until(1).come("c")
    story.until(2).change(limits(concurrency=1, max_wait=1.5))
    assert story.until(3).refusals == [("b", MAX_WAIT, 2), ("c", MAX_WAIT, 2.5)]


# Permits that are kept elsewhere.


def far_story(settings: ThrottleSettings) -> tuple[Story, RemoteLimiter]:
    remote = RemoteLimiter()
    story = Story(settings, remote)
    story.come(*"abc")
    assert story.told == []
    assert remote.asked == [1, 2, 3]
    return story, remote


def test_who_comes_while_nobody_knows_is_let_in_and_the_store_is_asked() -> None:
    story, remote = far_story(limits(TEN))
    assert story.queue.next_look(START) == GUESS
    story.now += 0.003
    remote.answer(2, next_at=START + 0.1, interval=0.1)
    story.look()
    assert story.outs == {"a": 0.003, "b": 0.003}
    assert remote.asked[3:] == [1], "whoever still waits says so"
    assert story.queue.next_look(story.now) == pytest.approx(0.097)


@pytest.mark.parametrize(
    ("settings", "given", "next_at", "refused"),
    [
        pytest.param(limits(TEN), 1, 0.5, [], id="in time"),
        pytest.param(
            limits(TEN, max_wait=0.4), 1, 0.5, ["b max_wait", "c max_wait"], id="too late"
        ),
        pytest.param(limits(TEN, max_wait=0.5), 1, 0.5, ["c max_wait"], id="for one of them"),
        pytest.param(limits(TEN, max_wait=0.5), 0, 0.25, [], id="all in time, one after the other"),
        pytest.param(limits(TEN, max_wait=0.4), 0, 0.25, ["c max_wait"], id="but for the last one"),
        pytest.param(limits(TEN, max_wait=0.0), 2, 0.5, ["c max_wait"], id="nobody may wait"),
        pytest.param(limits(TEN, max_wait=0.0), 3, 0.5, [], id="nobody has to"),
        pytest.param(limits(TEN, max_queue=1), 1, 0.5, ["c queue_full"], id="one may wait"),
        pytest.param(limits(TEN, max_queue=0), 2, 0.5, ["c queue_full"], id="there is no line"),
        pytest.param(limits(TEN), 1, NEVER, ["b store", "c store"], id="there will be none"),
    ],
)
def test_once_it_is_known_all_are_told(
    settings: ThrottleSettings, given: int, next_at: float, refused: list[str]
) -> None:
    story, remote = far_story(settings)
    remote.answer(given, next_at=START + next_at, interval=0.1)
    story.look()
    assert list(story.outs) == list("abc"[:given])
    assert [f"{name} {cause}" for name, cause, _ in story.refusals] == refused
    assert story.queue.waiting == 3 - given - len(refused)


def test_who_is_refused_does_not_delay_those_behind_it() -> None:
    remote = RemoteLimiter()
    story = Story(limits(TEN, max_wait=0.3), remote)
    story.come("hurried", within=0.1)
    story.come("patient")
    remote.answer(0, next_at=START + 0.25, interval=0.25)
    story.look()
    assert story.told == [("hurried", DEADLINE, 0)]


def test_who_is_gone_when_it_becomes_known_is_not_refused() -> None:
    story, remote = far_story(limits(TEN, max_wait=0.1))
    story.callers["b"].has_left = True
    remote.answer(0, next_at=START + 0.1, interval=0.1)
    story.look()
    assert story.refusals == [("c", MAX_WAIT, 0)]


def test_who_comes_when_it_is_known_again_does_not_hide_those_who_guessed() -> None:
    story, remote = far_story(limits(TEN, max_wait=0.5))
    remote.answer(0, next_at=START + 0.9, interval=0.1)
    assert not story.send()
    story.queue.join(Caller("d", START), START)
    story.look()
    assert [name for name, _, _ in story.refusals] == ["a", "b", "c", "d"]


def test_who_may_wait_once_it_is_known_is_not_examined_again() -> None:
    story, remote = far_story(limits(TEN, max_wait=0.5))
    remote.answer(0, next_at=START + 0.25, interval=0.1)
    assert not story.look()
    remote.answer(0, next_at=START + 0.9, interval=0.1)
    assert not story.look(), "it was told to wait"
    assert story.queue.next_look(START) == 0.5
    story.until(0.8)
    assert story.told == [(name, MAX_WAIT, 0.5) for name in "abc"]


def test_nobody_is_refused_while_the_store_has_not_answered_nor_looks_all_the_time() -> None:
    story, remote = far_story(limits(TEN, max_wait=0.0))
    for _ in range(3):
        story.now += 0.05
        assert not story.look()
        assert story.queue.next_look(story.now) == GUESS
    remote.answer(0, next_at=story.now + 0.1)
    story.look()
    assert [cause for _, cause, _ in story.refusals] == [MAX_WAIT] * 3


def test_where_there_will_be_none_newcomers_are_told_so() -> None:
    remote = RemoteLimiter()
    remote.answer(0, next_at=NEVER)
    story = Story(limits(TEN, max_wait=None), remote)
    story.pause(10.0)
    remote.answer(0, next_at=NEVER)
    assert story.queue.refusal(START, 99.0) == ThrottleRefusal(STORE, 0.0)
    assert story.queue.refusal(START, 99.0, later=9.0) == ThrottleRefusal(STORE, 0.0)


def test_who_waits_is_not_refused_while_a_permit_is_reserved_that_it_may_get() -> None:
    remote = RemoteLimiter()
    remote.answer(1, next_at=START + 1)
    story = Story(limits(TEN), remote)
    reservation = story.reserve()
    story.come("a")
    remote.answer(0, next_at=NEVER)
    assert not story.look()
    assert reservation.release()
    assert story.look()
    assert story.told == [("a", "out", 0)]


def test_where_there_will_be_none_all_who_wait_are_told_so() -> None:
    remote = RemoteLimiter()
    remote.answer(0, next_at=START + 1)
    story = Story(limits(TEN), remote)
    story.come("a", "gone", "b")
    assert story.come_back(Reservation.of(story.queue, ReservationState.RELEASED))
    story.callers["gone"].has_left = True
    remote.answer(0, next_at=NEVER)
    assert story.look()
    assert story.told == [(name, STORE, 0) for name in ("late", "a", "b")]
    assert story.queue.waiting == 0


def test_a_store_is_not_asked_in_a_pause_but_at_its_end() -> None:
    remote = RemoteLimiter()
    story = Story(limits(TEN), remote)
    story.pause(2.0)
    story.come("a")
    story.now += 1.0
    assert not story.look()
    assert remote.asked == []
    story.now += 1.0
    remote.answer(0, next_at=None)
    assert not story.look()
    assert remote.asked == [1]


def test_a_permit_that_lapsed_in_the_store_is_none() -> None:
    remote = RemoteLimiter()
    remote.answer(1, next_at=None)
    story = Story(limits(TEN), remote)
    reservation = story.reserve()
    remote.answer(-1, next_at=START + 0.1)
    assert not reservation.commit(START)
    assert story.come_back(reservation)
    remote.answer(1, next_at=START + 0.2)
    story.look()
    assert story.outs == {"late": 0}
    assert story.queue.under_way == 1


def test_permits_are_asked_for_those_only_who_could_use_them() -> None:
    remote = RemoteLimiter()
    remote.answer(2, next_at=None)
    story = Story(limits(TEN, concurrency=3), remote)
    story.come(*"ab")
    story.come(*"cdef")
    assert remote.asked == [1] * 4, "one slot is free, however many wait"
    story.finish()
    story.finish()
    story.leave("d", "e", "f")
    assert remote.asked[-1] == 1, "one waits, however many slots are free"


def test_slots_are_asked_for_those_only_who_wait_for_one() -> None:
    rates, slots = RemoteLimiter(), RemoteLimiter()
    rates.answer(9, next_at=NEVER)
    slots.answer(1, next_at=NEVER)
    settings = limits(TEN, concurrency=1)
    queue: WaitQueue[Caller] = WaitQueue(settings, Limiters(rates, lambda _, __: slots))
    queue.join(Caller("a", START), START)
    assert len(queue.serve(START).out) == 1
    assert queue.refusal(START, math.inf) is None
    assert slots.asked == [], "who is not in the queue yet may be refused"
    for waiting in (1, 2):
        queue.join(Caller("b", START), START)
        assert queue.serve(START).out == []
        assert slots.asked[-1] == waiting
    assert rates.asked == [], "a permit without a slot is no use"


def test_who_has_its_slot_is_not_forgotten_where_all_slots_are_taken() -> None:
    remote = RemoteLimiter()
    remote.answer(1, next_at=None)
    story = Story(limits(TEN, concurrency=1), remote)
    reservation = story.reserve()
    story.come("a", "b")
    assert remote.asked == []
    remote.answer(-1, next_at=None)
    assert not reservation.commit(START)
    assert story.come_back(reservation)
    story.look()
    assert remote.asked == [1], "it needs a permit, and the others a slot"


# What others see of it.


def test_idle() -> None:
    story = Story(limits(TEN))
    queue = story.queue
    assert queue.is_idle(START)
    reservation = story.reserve()
    assert not queue.is_idle(START), "somebody is about to send"
    reservation.close()
    assert queue.is_idle(START)
    queue.join(Caller("a", START), START)
    assert not queue.is_idle(START), "somebody waits"
    queue.leave(next(iter(queue.waiters)))
    queue.pause(START, 1.0)
    assert not queue.is_idle(START + 0.9), "it is closed"
    assert queue.is_idle(START + 2)


def test_what_a_store_has_granted_is_not_idle() -> None:
    slots = RemoteLimiter()
    settings = limits(concurrency=1)
    rates = textbook_limiters(settings, START).rates
    queue: WaitQueue[Caller] = WaitQueue(settings, Limiters(rates, lambda _, __: slots))
    assert queue.is_idle(START)
    slots.answer(1, next_at=NEVER)
    assert not queue.is_idle(START), "it would be lost to all until it lapses"


def test_it_tells_where_it_stands() -> None:
    story = Story(limits(TEN))
    story.reserve()
    story.come("a")
    assert repr(story.queue) == "<bucket, 1 waiting, 1 reserved>"


def test_a_change_reaches_the_permits() -> None:
    story = Story(limits(TEN))
    assert story.queue.take(START)
    after = replace(limits(TEN), concurrency=1)
    story.change(after)
    assert story.queue.settings == after
    assert not story.send()
