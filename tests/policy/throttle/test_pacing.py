"""The number that was written is the number that the upstream sees, with time as an argument.

Calls go through a real bucket with real permits; timers are late by up to a millisecond and
arrivals vary by up to the margin, by chance and as badly as can be. Upstreams that count strictly
(``strict.py``) refuse none, and nearly all of the limit is used.
"""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from proxy.policy.settings import Rate, RateAlgorithm, ThrottleSettings
from proxy.policy.throttle.limiter import local_limiters
from proxy.policy.throttle.pacing import most_in_window, pace, part_used
from proxy.policy.throttle.wait_queue import Waiter, WaitQueue
from tests.policy.throttle.strict import most_in, refused
from tests.support.depth import fewer

CALLS = 10_000
LATE = 0.001
"""Seconds by which a timer is late at most."""
RATES = {
    "1/s": (Rate(1, 1.0),),
    "10/s": (Rate(10, 1.0),),
    "20/s": (Rate(20, 1.0),),
    "100/s": (Rate(100, 1.0),),
    "1000/s": (Rate(1000, 1.0),),
    "60/m": (Rate(60, 60.0),),
    "5000/h": (Rate(5000, 3600.0),),
    "10/s and 5000/h": (Rate(10, 1.0), Rate(5000, 3600.0)),
}
each_rate = pytest.mark.parametrize("rates", RATES.values(), ids=RATES.keys())
each_algorithm = pytest.mark.parametrize("algorithm", RateAlgorithm)


class Sender:
    """Callers without end at one bucket, and what arrives of them."""

    def __init__(self, settings: ThrottleSettings, seed: int = 1) -> None:
        self.settings = settings
        self.chance = random.Random(seed)
        self.now = 1000.0
        self.bucket: WaitQueue[Waiter] = WaitQueue(settings, local_limiters(settings, self.now))
        self.sent: list[float] = []

    def send(self, calls: int) -> None:
        """So many calls, each as soon as it may go out."""
        for _ in range(calls):
            self.now += self._turn()
            call = self.bucket.take(self.now)
            assert call is not None
            call.close()
            self.sent.append(self.now)

    def _turn(self) -> float:
        """Seconds to the next call: a timer that is late, if there has to be one."""
        wait = self.bucket.wait(self.now)
        return wait + self.chance.uniform(0, LATE) + 1e-9 if wait else 0.0

    def idle(self, seconds: float) -> None:
        self.now += seconds

    def pause(self, seconds: float) -> None:
        self.bucket.pause(self.now, seconds)

    def reload(self, settings: ThrottleSettings) -> None:
        self.settings = settings
        self.bucket.change(settings, self.now)

    def arrivals(self, margin: float) -> list[list[float]]:
        """When they arrive: by chance, and with the worst of luck for every pair of calls."""
        roll = self.chance.random
        by_chance = [moment + roll() * margin for moment in self.sent]
        either_way = [moment + self.chance.choice((0.0, margin)) for moment in self.sent]
        return [self.sent, by_chance, either_way]


def margin_of(settings: ThrottleSettings) -> float:
    """By how much arrivals may vary for all of the rates to hold."""
    auto = min(min(rate.period / 50, 0.05) for rate in settings.rates)
    return (auto if settings.margin is None else settings.margin) * 0.9999


def assert_none_refused(sender: Sender, extra: int = 0) -> None:
    for arrivals in sender.arrivals(margin_of(sender.settings)):
        for rate in sender.settings.rates:
            assert not refused(arrivals, rate.count + extra, rate.period)


def part_sent(sender: Sender, rate: Rate) -> float:
    """Which part of the limit was used after the first window, until another call could go."""
    later = [moment for moment in sender.sent if moment >= sender.sent[0] + rate.period]
    passed = sender.now + sender.bucket.wait(sender.now) - later[0]
    return len(later) / (passed / rate.period * rate.count)


@each_rate
@each_algorithm
def test_callers_without_end(rates: tuple[Rate, ...], algorithm: RateAlgorithm) -> None:
    sender = Sender(ThrottleSettings(rates, algorithm=algorithm))
    sender.send(CALLS)
    assert_none_refused(sender)
    slowest = min(rates, key=lambda rate: rate.count / rate.period)
    assert part_sent(sender, slowest) >= 0.95


@each_rate
@each_algorithm
def test_idle_times_pauses_and_reloads(rates: tuple[Rate, ...], algorithm: RateAlgorithm) -> None:
    settings = ThrottleSettings(rates, algorithm=algorithm)
    sender = Sender(settings)
    period = max(rate.period for rate in rates)
    events: list[Callable[[], None]] = [
        lambda: sender.idle(sender.chance.uniform(0, 2) * period),
        lambda: sender.idle(sender.chance.uniform(0, 0.1) * period),
        lambda: sender.pause(sender.chance.uniform(0, 2) * min(period, 30)),
        lambda: sender.reload(replace(sender.settings, max_queue=sender.chance.randrange(1000))),
        lambda: sender.reload(replace(sender.settings, margin=0.05)),
        lambda: sender.reload(replace(sender.settings, margin=None)),
    ]
    while len(sender.sent) < CALLS:
        sender.send(sender.chance.randint(1, 2 * max(rate.count for rate in rates)))
        sender.chance.choice(events)()
    sender.reload(settings)
    assert_none_refused(sender)


@pytest.mark.parametrize("seed", range(40))
def test_windows_in_which_a_rate_was_changed_hold_the_larger_number(seed: int) -> None:
    chance = random.Random(seed)
    settings = [
        ThrottleSettings((Rate(count, period),), algorithm=algorithm)
        for period in [chance.choice([0.5, 1.0, 60.0])]
        for count in (chance.randint(1, 60), chance.randint(1, 60))
        for algorithm in [chance.choice([*RateAlgorithm])]
    ]
    sender = Sender(settings[0], seed)
    for turn in range(1, 20):
        sender.send(chance.randint(1, 100))
        sender.idle(chance.choice([0.0, 0.001, 0.1]))
        sender.reload(settings[turn % 2])
    most = max(settings, key=lambda each: each.rates[0].count)
    (rate,) = most.rates
    for arrivals in sender.arrivals(margin_of(most)):
        assert not refused(arrivals, rate.count, rate.period)


@pytest.mark.parametrize("algorithm", RateAlgorithm)
@pytest.mark.parametrize(("before", "after"), [(1, 10), (10, 1), (100, 3), (2, 1000)])
def test_a_changed_rate_counts_from_the_last_call(
    before: int, after: int, algorithm: RateAlgorithm
) -> None:
    one, other = (
        ThrottleSettings((Rate(count, 3600.0),), burst=1, algorithm=algorithm)
        for count in (before, after)
    )
    sender = Sender(one)
    sender.send(1)
    sender.idle(1.0)
    sender.reload(other)
    fresh = Sender(other)
    fresh.send(1)
    fresh.idle(1.0)
    assert sender.bucket.wait(sender.now) == pytest.approx(fresh.bucket.wait(fresh.now), abs=1e-6)


@pytest.mark.parametrize("burst", [1, 2, 10, 40])
@each_rate
def test_a_written_burst_and_not_one_more(rates: tuple[Rate, ...], burst: int) -> None:
    sender = Sender(ThrottleSettings(rates, burst=burst))
    while len(sender.sent) < CALLS / 2:
        sender.send(sender.chance.randint(1, min(2 * rates[0].count, 3000) + burst))
        sender.idle(sender.chance.uniform(0, 2) * rates[0].period)
    assert_none_refused(sender, extra=burst - 1)
    rate = rates[0]
    assert most_in_window(rate, burst) == rate.count + burst - 1
    fresh = Sender(ThrottleSettings((rate,), burst=burst))
    while fresh.bucket.take(fresh.now):
        fresh.sent.append(fresh.now)
    assert len(fresh.sent) >= burst, "so many go out at once"
    fresh.send(2 * rate.count)
    seen = most_in(fresh.sent, rate.period)
    assert seen >= burst + int(rate.count * 0.9), "and the others at the rate"


@pytest.mark.parametrize(
    ("rate", "at_once"),
    [
        pytest.param(Rate(20, 1.0), 1, id="one by one"),
        pytest.param(Rate(1000, 1.0), 5, id="what comes within the 5 ms that a timer may be late"),
        pytest.param(Rate(60, 60.0), 2, id="of a minute a fiftieth"),
        pytest.param(Rate(49, 60.0), 1, id="if that is a call at all"),
        pytest.param(Rate(5000, 3600.0), 101, id="of an hour as well"),
        pytest.param(Rate(5000, 59.9), 1, id="of less than a minute nothing"),
    ],
)
def test_how_many_go_at_once_where_nothing_is_written(rate: Rate, at_once: int) -> None:
    sender = Sender(ThrottleSettings((rate,)))
    while sender.bucket.take(sender.now):
        sender.sent.append(sender.now)
    assert len(sender.sent) == at_once


@pytest.mark.parametrize("algorithm", RateAlgorithm)
@pytest.mark.parametrize("margin", [0.0, 0.001, 0.2])
def test_a_written_margin_is_what_arrivals_may_vary_by(
    margin: float, algorithm: RateAlgorithm
) -> None:
    sender = Sender(ThrottleSettings((Rate(50, 1.0),), margin=margin, algorithm=algorithm))
    sender.send(CALLS)
    assert_none_refused(sender)
    if margin == 0.2:
        late = [moment + 0.3 * (at // 50 % 2 == 0) for at, moment in enumerate(sender.sent)]
        assert refused(late, 50, 1.0), "more would have been noticed"


def test_beyond_the_margin_gcra_exceeds_by_little_and_a_window_by_all() -> None:
    for algorithm, most in ((RateAlgorithm.GCRA, 22), (RateAlgorithm.WINDOW, 40)):
        sender = Sender(ThrottleSettings((Rate(20, 1.0),), algorithm=algorithm))
        sender.send(1000)
        late = [moment + (0.1 if at % 20 == 0 else 0.0) for at, moment in enumerate(sender.sent)]
        all_late = [moment + 0.1 * (at // 20 % 2 == 0) for at, moment in enumerate(sender.sent)]
        seen = max(most_in(each, 1.0) for each in (late, all_late))
        assert 20 < seen <= most


@pytest.mark.parametrize(
    ("burst", "most"),
    [
        pytest.param(None, 10, id="nothing is written: the rate, and not one more"),
        pytest.param(1, 10, id="one by one"),
        pytest.param(5, 14, id="a burst goes out besides"),
    ],
)
def test_the_most_in_one_window(burst: int | None, most: int) -> None:
    assert most_in_window(Rate(10, 1.0), burst) == most


def test_instances_that_share_a_rate_send_one_by_one_and_together_no_more_than_it() -> None:
    rate = Rate(100, 60.0)
    alone = pace(ThrottleSettings((rate,)), rate)
    assert alone.burst == 3
    share = alone.shared_by(4)
    assert share == replace(alone, width=4 * alone.width, burst=1)
    assert share.interval == pytest.approx(4 * alone.interval)


@fewer(10)
@given(
    count=st.integers(1, 10**5),
    period=st.sampled_from([0.001, 0.05, 0.5, 1.0, 59.0, 60.0, 3600.0, 86400.0 * 365]),
    burst=st.none() | st.integers(1, 1000),
    margin=st.none() | st.floats(0, 10),
    life=st.floats(0, 0.1),
)
def test_the_arithmetic(
    count: int, period: float, burst: int | None, margin: float | None, life: float
) -> None:
    rate = Rate(count, period)
    settings = ThrottleSettings((rate,), burst, margin=margin)
    sent = pace(settings, rate, life)
    most = most_in_window(rate, burst)
    # From the first to the last of one call too many, as far apart as they are at the least.
    least = most * sent.width - (sent.burst - 1) * sent.width - sent.early * sent.calls
    assert least >= (sent.window + round(life * 1e9)) * sent.calls
    if margin is None and not life and burst is None and period >= 1:
        assert part_used(settings, rate) >= 0.95
