"""The limiters of one process: what they promise, whatever happens in whatever order."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import example, given, strategies as st

from proxy.http.refusal import QuotaLeft
from proxy.policy.settings import Rate, RateAlgorithm, ThrottleSettings
from proxy.policy.throttle.limiter import NEVER, LocalConcurrencyLimiter, LocalRateLimiter
from proxy.policy.throttle.wait_queue import Reservation, Waiter, WaitQueue
from tests.policy.throttle.textbook import textbook_limiter, textbook_limiters
from tests.support.depth import FUZZ, fewer

START = 1000.0
TEN = Rate(10, 1.0)
HOURLY = Rate(5000, 3600.0)
OPEN = -math.inf
"""The end of no pause."""


def limiter_of(*rates: Rate, burst: int | None = None, window: bool = False) -> LocalRateLimiter:
    return textbook_limiter(limits(*rates, burst=burst, window=window), START)


def bucket_of(settings: ThrottleSettings, now: float = START) -> WaitQueue[Waiter]:
    """Both limiters, before which nobody waits."""
    return WaitQueue(settings, textbook_limiters(settings, now))


def limits(
    *rates: Rate, burst: int | None = None, concurrency: int | None = None, window: bool = False
) -> ThrottleSettings:
    algorithm = RateAlgorithm.WINDOW if window else RateAlgorithm.GCRA
    return ThrottleSettings(rates, burst, algorithm, concurrency)


def take_all(limiter: LocalRateLimiter | LocalConcurrencyLimiter, now: float) -> int:
    """How many calls go out at *now*."""
    taken = 0
    while taken < 1000 and limiter.take(now, 0):
        taken += 1
    return taken


def send_all(bucket: WaitQueue[Waiter], now: float) -> int:
    """How many calls both limiters let out at *now*."""
    sent = 0
    while sent < 1000 and bucket.take(now):
        sent += 1
    return sent


# What is there, and who gets it.


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        pytest.param(limits(TEN, burst=4), 4, id="a burst"),
        pytest.param(limits(TEN, HOURLY, burst=4), 4, id="one burst for every rate"),
        pytest.param(limits(TEN, window=True), 10, id="a window"),
        pytest.param(limits(TEN, Rate(7, 60.0), window=True), 7, id="two windows"),
        pytest.param(limits(TEN, TEN, burst=4), 4, id="a rate that is there twice"),
        pytest.param(limits(concurrency=3), 3, id="slots"),
        pytest.param(limits(TEN, burst=4, concurrency=3), 3, id="more permits than slots"),
        pytest.param(limits(TEN, burst=4, concurrency=30), 4, id="more slots than permits"),
        pytest.param(limits(), 1000, id="no limit at all"),
    ],
)
def test_how_many_go_out_at_once(settings: ThrottleSettings, sent: int) -> None:
    bucket = bucket_of(settings)
    assert send_all(bucket, START) == sent
    assert send_all(bucket, START) == (sent if sent == 1000 else 0)
    assert take_all(textbook_limiter(settings, START), START) >= sent


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
def test_a_call_that_one_rate_refuses_costs_the_others_nothing(*, window: bool) -> None:
    limiter = limiter_of(Rate(50, 1.0), Rate(3, 60.0), burst=3, window=window)
    assert take_all(limiter, START) == 3
    before = limiter.quotas(START)
    assert not limiter.take(START, 0)
    assert limiter.quotas(START) == before


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
def test_what_others_hold_is_not_given_away(*, window: bool) -> None:
    limiter = limiter_of(Rate(3, 60.0), burst=3, window=window)
    assert not limiter.take(START, 3)
    assert limiter.take(START, 2)
    assert not limiter.take(START, 2)
    limiter.give_back()
    assert limiter.take(START, 1)
    assert limiter.take(START, 0), "that of the reservation"
    assert limiter.take(START, 0)
    assert not limiter.take(START, 0)


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_what_is_given_back_leaves_no_trace(earlier: int, *, window: bool) -> None:
    settings = limits(Rate(3, 60.0), HOURLY, burst=3, window=window, concurrency=5)
    bucket, untouched = (bucket_of(settings) for _ in range(2))
    for _ in range(earlier):
        for each in (bucket, untouched):
            sent = each.take(START)
            assert sent is not None
            sent.close()
    undone = bucket.take(START + 0.5)
    assert undone is not None
    undone.release()
    undone.close()
    kept = bucket.reserve(START + 0.5)
    assert kept is not None
    assert kept.commit(START + 0.5)
    kept.release()
    kept.close()
    for later in (0.5, 1.0, 19.9, 60.0):
        assert bucket.quotas(START + later) == untouched.quotas(START + later)
        assert bucket.is_idle(START + later) == untouched.is_idle(START + later)


def test_slots() -> None:
    limiter = LocalConcurrencyLimiter(limits(concurrency=2), 1)
    assert limiter.wait(START, 1) == 0
    assert limiter.wait(START, 2) == NEVER, "nobody knows when a slot becomes free"
    assert not limiter.take(START, 1), "the free one is for another"
    assert limiter.take(START, 0)
    assert limiter.wait(START, 1) == NEVER
    assert not limiter.take(START, 0)
    assert not limiter.ask(START, 5)
    limiter.give_back()
    assert limiter.wait(START, 1) == 0


def test_where_there_is_no_rate_there_is_nothing_to_reserve() -> None:
    bucket = bucket_of(limits(concurrency=2))
    assert bucket.reserve(START)
    assert bucket.take(START)
    assert not bucket.reserve(START), "a slot is missing, and not a permit"


# When there is more.


@pytest.mark.parametrize(
    ("limiter", "waits"),
    [
        pytest.param(limiter_of(), [0] * 5, id="no rate"),
        pytest.param(limiter_of(TEN, burst=2), [0, 0, 0.1, 0.2, 0.3], id="one rate"),
        pytest.param(
            limiter_of(TEN, Rate(120, 60.0), burst=2), [0, 0, 0.5, 1, 1.5], id="the slower one"
        ),
        pytest.param(limiter_of(Rate(2, 3.0), window=True), [0, 0, 3, 3, 6], id="a window"),
        pytest.param(
            limiter_of(Rate(2, 3.0), Rate(3, 5.0), window=True), [0, 0, 3, 5, 6], id="two windows"
        ),
    ],
)
def test_wait(limiter: LocalRateLimiter, waits: list[float]) -> None:
    assert [limiter.wait(START, count) for count in range(1, 6)] == waits
    assert not limiter.ask(START, 0)
    assert not limiter.ask(START, 5)
    assert limiter.wait(START, 1) == 0


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
def test_after_a_pause_calls_go_out_one_by_one(*, window: bool) -> None:
    limiter = limiter_of(TEN, burst=5, window=window)
    limiter.close_until(START, START + 30)
    assert [limiter.wait(START, n) for n in (1, 2, 3)] == pytest.approx([30, 30.1, 30.2])
    assert not limiter.take(START + 29.999, 0)
    assert take_all(limiter, START + 30) == 1
    assert take_all(limiter, START + 30.1) == 1
    assert take_all(limiter, START + 100) == (10 if window else 5)


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
@pytest.mark.parametrize(
    ("until", "opens"),
    [
        pytest.param(30.0, 30, id="longer"),
        pytest.param(5.0, 20, id="shorter: nothing comes earlier"),
        pytest.param(-5.0, 20, id="over already"),
    ],
)
def test_a_second_pause(until: float, opens: float, *, window: bool) -> None:
    limiter = limiter_of(TEN, burst=5, window=window)
    limiter.close_until(START, START + 20)
    limiter.close_until(START, START + until)
    assert limiter.wait(START, 1) == opens


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
def test_of_two_pauses_the_longer_one_is_shortened(*, window: bool) -> None:
    limiter = limiter_of(TEN, burst=5, window=window)
    limiter.close_until(START, START + 20)
    limiter.close_until(START, START + 5)
    limiter.change(limits(TEN, burst=5, window=window), START, START + 10)
    assert limiter.wait(START, 1) == pytest.approx(10.0 if window else 10.1)


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
def test_a_pause_that_is_over_takes_the_burst_away(*, window: bool) -> None:
    limiter = limiter_of(TEN, burst=5, window=window)
    limiter.close_until(START, START - 100)
    assert take_all(limiter, START) == 1


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
def test_a_pause_does_not_bring_anything_forward(*, window: bool) -> None:
    limiter = limiter_of(Rate(2, 60.0), burst=2, window=window)
    take_all(limiter, START)
    before = limiter.wait(START, 1)
    limiter.close_until(START, START + 1)
    assert limiter.wait(START, 1) >= before


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
def test_a_clock_that_is_set_back_costs_an_empty_bucket_at_most(*, window: bool) -> None:
    limiter = limiter_of(TEN, burst=5, window=window)
    take_all(limiter, START)
    assert limiter.wait(0.0, 1) == (1.0 if window else 0.1)


# Other limits.


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        pytest.param(limits(TEN, burst=5), limits(Rate(20, 1.0), burst=5), 3, id="a faster rate"),
        pytest.param(limits(TEN, burst=5), limits(TEN, burst=9), 7, id="a larger burst"),
        pytest.param(limits(TEN, burst=5), limits(TEN, burst=2), 0, id="a smaller burst"),
        pytest.param(limits(TEN, burst=5), limits(HOURLY, burst=5), 3, id="another period"),
        pytest.param(limits(), limits(TEN, burst=5), 5, id="a rate where there was none"),
        pytest.param(limits(TEN, burst=5), limits(), 1000, id="no rate where there was one"),
        pytest.param(
            limits(TEN, burst=5), limits(TEN, HOURLY, burst=5), 3, id="one more that knows nothing"
        ),
        pytest.param(limits(TEN, HOURLY, burst=5), limits(Rate(9, 1.0), burst=5), 3, id="one less"),
        pytest.param(limits(TEN, burst=5), limits(TEN, window=True), 3, id="a window instead"),
        pytest.param(
            limits(TEN, window=True), limits(TEN, burst=5), 3, id="a burst instead of a window"
        ),
        pytest.param(
            limits(TEN, window=True), limits(Rate(20, 1.0), window=True), 18, id="a larger window"
        ),
        pytest.param(
            limits(TEN, window=True), limits(Rate(3, 1.0), window=True), 1, id="a smaller window"
        ),
        pytest.param(
            limits(TEN, window=True),
            limits(TEN, Rate(7, 60.0), window=True),
            5,
            id="a second window that is told what was sent",
        ),
        pytest.param(
            limits(TEN, window=True, concurrency=5),
            limits(TEN, window=True, concurrency=6),
            4,
            id="more slots",
        ),
    ],
)
def test_what_was_sent_counts(before: ThrottleSettings, after: ThrottleSettings, left: int) -> None:
    bucket = bucket_of(before)
    assert bucket.take(START)
    assert bucket.take(START)
    bucket.change(after, START)
    assert send_all(bucket, START) == left


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
def test_an_unchanged_rate_does_not_notice_that_others_change(*, window: bool) -> None:
    """Else who reloads often enough would never see a call that may go out once an hour."""
    once = Rate(1, 3600.0)
    limiter = limiter_of(once, window=window)
    assert limiter.take(START, 0)
    for tick in range(1, 60):
        limiter.change(limits(Rate(tick, 1.0), once, window=window), START + 60 * tick, OPEN)
    assert limiter.wait(START + 3540, 1) == 60
    assert limiter.take(START + 3600, 0)


def test_a_rate_of_the_same_period_is_the_same_limit() -> None:
    limiter = limiter_of(Rate(1, 1.0), Rate(1, 3600.0), burst=2)
    take_all(limiter, START)
    limiter.change(limits(Rate(2, 3600.0), Rate(2, 1.0), burst=2), START + 1, OPEN)
    assert [quota.remaining for quota in limiter.quotas(START + 1)] == [0, 2]
    limiter.change(limits(Rate(1, 3600.0), burst=2), START + 1, OPEN)
    assert limiter.wait(START + 1, 1) == 3599, "it counts from the last call"


def test_a_rate_counts_on_for_its_own_period_and_not_for_another_one() -> None:
    limiter = limiter_of(Rate(1, 1.0), Rate(1, 3600.0), burst=2)
    assert limiter.take(START, 0)
    assert limiter.take(START + 10, 0)
    limiter.change(limits(Rate(2, 3600.0), Rate(2, 1.0), burst=2), START + 10, OPEN)
    assert [quota.remaining for quota in limiter.quotas(START + 10)] == [0, 1]


@pytest.mark.parametrize(
    ("later", "left"),
    [
        pytest.param(0.0, 0, id="at once: all of it is used up"),
        pytest.param(0.2, 1, id="two came back, and one went out meanwhile"),
        pytest.param(0.6, 4, id="all came back before that one"),
    ],
)
def test_a_rate_that_comes_back_knows_what_it_knew(later: float, left: int) -> None:
    limiter = limiter_of(TEN, burst=5)
    assert take_all(limiter, START) == 5
    limiter.change(limits(Rate(5, 1.0)), START, OPEN)
    assert take_all(limiter, START + later) == (1 if later else 0)
    limiter.change(limits(TEN, burst=5), START + later, OPEN)
    assert take_all(limiter, START + later) == left


def test_an_unchanged_rate_does_not_learn_from_one_that_goes() -> None:
    limiter = limiter_of(TEN, Rate(1, 1.0), burst=3)
    assert take_all(limiter, START) == 3
    assert limiter.take(START + 1, 0)
    limiter.change(limits(TEN, burst=3), START + 1, OPEN)
    assert take_all(limiter, START + 1) == 2


def test_a_rate_is_known_by_what_was_configured_whatever_its_pace() -> None:
    settings = limits(TEN, Rate(100, 60.0))
    limiter = LocalRateLimiter(settings, START)
    assert [quota.name for quota in limiter.quotas(START)] == ["10-per-1s", "100-per-60s"]


def test_a_new_window_is_told_by_the_one_that_knows_most() -> None:
    limiter = limiter_of(Rate(1, 1.0), Rate(100, 60.0), window=True)
    for second in range(10):
        assert limiter.take(START + second, 0)
    limiter.change(limits(Rate(8, 30.0), window=True), START + 10, OPEN)
    assert limiter.wait(START + 10, 1) == 22


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
@pytest.mark.parametrize("was_window", [False, True], ids=["from gcra", "from a window"])
def test_a_pause_survives(*, was_window: bool, window: bool) -> None:
    limiter = limiter_of(TEN, burst=5, window=was_window)
    limiter.close_until(START, START + 30)
    limiter.change(limits(Rate(4, 1.0), burst=5, window=window), START + 10, START + 30)
    assert [limiter.wait(START + 10, n) for n in (1, 2, 3)] == [20, 20.25, 20.5]


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
@pytest.mark.parametrize(
    ("longest", "waits"),
    [
        pytest.param(None, [0.1, 0.2], id="not allowed any more: it is over, without a burst"),
        pytest.param(5.0, [5.1, 5.2], id="allowed for a shorter time: it ends sooner"),
        pytest.param(60.0, [20.0, 20.1], id="allowed for as long as it lasts: nothing changes"),
    ],
)
def test_a_pause_is_no_longer_than_allowed_now(
    longest: float | None, waits: list[float], *, window: bool
) -> None:
    settings = limits(TEN, burst=10, window=window)
    bucket = bucket_of(settings)
    bucket.pause(START, 30)
    bucket.change(replace(settings, longest_pause=longest), START + 10)
    found = [bucket.rates.wait(START + 10, n) for n in (1, 2)]
    early = 0.1 if window and longest != 60.0 else 0.0  # a log knows that nothing was sent
    assert found == pytest.approx([wait - early for wait in waits])


def test_slots_in_use_stay_in_use() -> None:
    limiter = LocalConcurrencyLimiter(limits(concurrency=3))
    assert take_all(limiter, START) == 3
    limiter.change(limits(concurrency=2), START, OPEN)
    for _ in range(2):
        assert limiter.wait(START, 1) == NEVER
        assert limiter.quotas(START) == (QuotaLeft("concurrency", 2, None, 0, None),)
        limiter.give_back()
    assert limiter.wait(START, 1) == 0


def test_slots_count_before_there_is_a_limit_to_them() -> None:
    bucket = bucket_of(limits(TEN, burst=5))
    assert send_all(bucket, START) == 5
    bucket.change(limits(TEN, burst=5, concurrency=6), START + 10)
    assert send_all(bucket, START + 10) == 1
    bucket.change(limits(TEN, burst=5), START + 20)
    assert send_all(bucket, START + 20) == 5
    bucket.change(limits(TEN, burst=5, concurrency=12), START + 30)
    assert send_all(bucket, START + 30) == 1


# What others see of it.


@pytest.mark.parametrize("window", [False, True], ids=["gcra", "window"])
def test_idle(*, window: bool) -> None:
    bucket = bucket_of(limits(TEN, burst=2, window=window))
    assert bucket.is_idle(START)
    sent = bucket.take(START)
    assert sent is not None
    assert not bucket.is_idle(START + 10), "its call is under way"
    sent.close()
    assert not bucket.is_idle(START + 0.05), "a new one would have more"
    assert bucket.is_idle(START + 1)
    bucket.pause(START + 1, 8)
    assert not bucket.is_idle(START + 9)
    assert bucket.is_idle(START + 11)


def test_slots_in_use_are_not_idle() -> None:
    limiter = LocalConcurrencyLimiter(limits(concurrency=2))
    assert limiter.is_idle(START)
    assert limiter.take(START, 0)
    assert not limiter.is_idle(START)
    limiter.give_back()
    assert limiter.is_idle(START)


@pytest.mark.parametrize(
    ("rate", "name", "limit", "window"),
    [
        pytest.param(Rate(100, 1.0), "100-per-1s", 100, 1, id="a second"),
        pytest.param(HOURLY, "5000-per-3600s", 5000, 3600, id="an hour"),
        pytest.param(Rate(10, 0.5), "20-per-1s", 20, 1, id="half a second"),
        pytest.param(Rate(1, 0.3), "3-per-1s", 3, 1, id="no more than we let out"),
        pytest.param(Rate(10, 1.5), "13-per-2s", 13, 2, id="one and a half"),
        pytest.param(Rate(1, 59.999), "1-per-60s", 1, 60, id="almost a minute"),
    ],
)
def test_the_policy_of_a_rate(rate: Rate, name: str, limit: int, window: int) -> None:
    (quota,) = limiter_of(rate).quotas(START)
    assert (quota.name, quota.limit, quota.window) == (name, limit, window)
    assert Fraction(limit, window) <= Fraction(rate.count) / Fraction(str(rate.period))


@pytest.mark.parametrize(
    ("taken", "later", "remaining", "reset"),
    [
        pytest.param(0, 0.0, 3, None, id="all"),
        pytest.param(1, 0.0, 2, None, id="some"),
        pytest.param(3, 0.0, 0, 20, id="nothing"),
        pytest.param(3, 0.1, 0, 20, id="nothing, and seconds are rounded up"),
        pytest.param(3, 19.999, 0, 1, id="nothing for another moment"),
        pytest.param(3, 20.0, 1, None, id="one again"),
    ],
)
def test_what_is_left(taken: int, later: float, remaining: int, reset: int | None) -> None:
    limiter = limiter_of(Rate(3, 60.0), burst=3)
    for _ in range(taken):
        assert limiter.take(START, 0)
    expected = QuotaLeft("3-per-60s", 3, 60, remaining, reset)
    assert limiter.quotas(START + later) == (expected,)


def test_every_limit_is_told() -> None:
    bucket = bucket_of(limits(TEN, HOURLY, concurrency=8))
    assert bucket.take(START)
    assert bucket.quotas(START) == (
        QuotaLeft("10-per-1s", 10, 1, 0, 1),
        QuotaLeft("5000-per-3600s", 5000, 3600, 0, 1),
        QuotaLeft("concurrency", 8, None, 7, None),
    )
    assert bucket_of(limits()).quotas(START) == ()


def test_it_tells_where_it_stands() -> None:
    assert repr(limiter_of(TEN)) == "<rates (<gcra 10/1s, full at 1000s>,)>"
    assert repr(LocalConcurrencyLimiter(limits(concurrency=2), 1)) == "<1 of 2 slots>"


# Whatever happens.

rates = st.builds(
    lambda count, interval: Rate(count, count * interval / 1e9),
    st.integers(1, 20),
    st.sampled_from([1, 7, 1000, 10**6, 333 * 10**6, 10**9, 90 * 10**9]),
)
"""Their intervals are whole nanoseconds, so that waits can be told exactly."""

steps = st.one_of(
    st.just(0),
    st.integers(1, 1000),
    st.integers(1, 3 * 10**9),
    st.just(2 * 10**9),  # the loop was stalled
    st.sampled_from([10**11, 10**14]),
)
"""Nanoseconds."""


class Run:
    """Limiters in use, as callers use them, and what went out when."""

    def __init__(self, settings: ThrottleSettings) -> None:
        self.bucket = bucket_of(settings, 0.0)
        self.most = math.inf if settings.concurrency is None else settings.concurrency
        self.nanoseconds = 0
        self.reserved: list[Reservation] = []
        self.over: list[Reservation] = []
        """Those whose calls were sent, or have given up."""
        self.sent: list[int] = []
        self.has_changed = False
        """Whether there were other limits, or a pause, since a permit was reserved."""

    @property
    def now(self) -> float:
        return self.nanoseconds / 1e9

    def send(self) -> None:
        reservation = self.bucket.take(self.now)
        if reservation is not None:
            self.over.append(reservation)
            self.sent.append(self.nanoseconds)

    def reserve(self) -> None:
        reservation = self.bucket.reserve(self.now)
        if reservation is not None:
            self.reserved.append(reservation)

    def set_aside(self) -> None:
        reservation = self.bucket.take(self.now)
        if reservation is not None:
            reservation.set_aside(self.now)
            reservation.release()
            self.over.append(reservation)

    def commit(self) -> None:
        if self.reserved:
            reservation = self.reserved.pop()
            self.over.append(reservation)
            if reservation.commit(self.now):
                self.sent.append(self.nanoseconds)
            else:
                assert self.has_changed, "a permit that was kept free is gone"

    def commit_in_vain(self) -> None:
        if self.reserved:
            reservation = self.reserved.pop()
            assert reservation.commit(self.now) or self.has_changed
            reservation.release()
            self.over.append(reservation)

    def release(self) -> None:
        if self.reserved:
            self.over.append(self.reserved.pop())
            self.over[-1].release()

    def undo(self) -> None:
        reservation = self.bucket.take(self.now)
        if reservation is not None:
            reservation.release()
            reservation.close()

    def close(self) -> None:
        if self.over:
            self.over.pop().close()

    def pause(self) -> None:
        self.bucket.pause(self.now, 1.5)
        self.has_changed = True

    def change(self, settings: ThrottleSettings) -> None:
        self.bucket.change(settings, self.now)
        self.has_changed = True

    def go_on(self, actions: list[tuple[int, Callable[["Run"], None]]]) -> None:
        for step, action in actions:
            self.nanoseconds += step
            action(self)
            self.has_changed = self.has_changed and bool(self.reserved)
            under_way = len(self.reserved) + len(self.over)
            assert under_way == self.bucket.under_way <= self.most
            assert len(self.reserved) == self.bucket.reserved


actions = st.lists(
    st.tuples(
        steps,
        st.sampled_from(
            [
                Run.send,
                Run.send,
                Run.reserve,
                Run.reserve,
                Run.set_aside,
                Run.commit,
                Run.commit_in_vain,
                Run.release,
                Run.undo,
                Run.close,
                Run.pause,
            ]
        ),
    ),
    max_size=60,
)
throttles = st.builds(
    ThrottleSettings,
    rates=st.lists(rates, max_size=3).map(tuple),
    burst=st.none() | st.integers(1, 5),
    algorithm=st.sampled_from(RateAlgorithm),
    concurrency=st.none() | st.integers(1, 10),
)


@FUZZ
@given(throttles, actions)
def test_no_limit_is_ever_exceeded(
    settings: ThrottleSettings, happening: list[tuple[int, Callable[[Run], None]]]
) -> None:
    run = Run(settings)
    run.go_on(happening)
    for rate in settings.rates:
        period = round(rate.period * 1e9)
        if settings.algorithm is RateAlgorithm.WINDOW:
            for first, beyond in zip(run.sent, run.sent[rate.count :], strict=False):
                assert beyond - first >= period
            continue
        burst = settings.burst or 1
        for first, since in enumerate(run.sent):
            for last, until in enumerate(run.sent[first:], first):
                most = Fraction(rate.count * (until - since), period) + burst
                assert last - first + 1 <= most


@FUZZ
@given(throttles, actions, st.integers(1, 30))
def test_a_wait_is_true_to_the_nanosecond(
    settings: ThrottleSettings, happening: list[tuple[int, Callable[[Run], None]]], count: int
) -> None:
    """So long, and the call goes out, if those before it go as soon as they can."""
    run = Run(settings)
    run.go_on(happening)
    limiter, start = run.bucket.rates, run.nanoseconds
    foretold = [round(limiter.wait(run.now, n) * 1e9) for n in range(1, count + 1)]
    assert foretold == sorted(foretold)
    # Several windows can delay each other, from where the smallest of them begins anew.
    exact = count
    if settings.algorithm is RateAlgorithm.WINDOW and len(set(settings.rates)) > 1:
        exact = min(rate.count for rate in settings.rates)
    for n, wait in enumerate(foretold, 1):
        earliest = run.nanoseconds + round(limiter.wait(run.now, 1) * 1e9)
        if earliest > run.nanoseconds:
            assert not limiter.take((earliest - 1) / 1e9, 0)
        run.nanoseconds = earliest
        assert limiter.take(run.now, 0)
        assert run.nanoseconds - start == wait if n <= exact else run.nanoseconds - start >= wait


@fewer(10)
@given(throttles, throttles, st.lists(st.tuples(st.booleans(), actions), max_size=5))
def test_windows_in_which_a_rate_changes_hold_what_the_larger_one_allows(
    one: ThrottleSettings,
    other: ThrottleSettings,
    happening: list[tuple[bool, list[tuple[int, Callable[[Run], None]]]]],
) -> None:
    """Of single smooth rates of one period, that is: else there is no larger one."""
    period = 10**9
    both = [
        replace(each, rates=(Rate(count, 1.0),), algorithm=RateAlgorithm.GCRA, concurrency=None)
        for each, count in ((one, len(one.rates) + 1), (other, 5))
    ]
    run = Run(both[0])
    for which, course in happening:
        run.change(both[which])
        run.go_on(course)
    most = max(each.rates[0].count + (each.burst or 1) - 1 for each in both)
    for first, beyond in zip(run.sent, run.sent[most:], strict=False):
        assert beyond - first >= period


@FUZZ
@given(rates, actions, rates)
@example(
    Rate(1, 1e-9), [(1, Run.send), (2_999_985_823, Run.send), (1_000, Run.pause)], Rate(1, 1e-9)
)
def test_a_window_holds_for_what_was_sent_before_it_changed(
    before: Rate, happening: list[tuple[int, Callable[[Run], None]]], after: Rate
) -> None:
    run = Run(limits(before, window=True))
    run.go_on(happening)
    while run.reserved:
        run.release()
    earlier = len(run.sent)
    run.change(limits(after, window=True))
    for _ in range(20):
        # Up: the end of a pause may lie between two nanoseconds.
        run.nanoseconds += math.ceil(run.bucket.wait(run.now) * 1e9)
        run.send()
    assert len(run.sent) == earlier + 20
    if after.count > before.count and after.period > before.period:
        return  # what it would have to know is forgotten
    for position in range(max(earlier, after.count), earlier + 20):
        assert run.sent[position] - run.sent[position - after.count] >= round(after.period * 1e9)
