"""The smooth rate, by its vectors and against the textbook's formula in fractions."""

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, strategies as st

from proxy.policy.settings import Rate
from proxy.policy.throttle.gcra import Gcra, GcraMeter
from proxy.policy.throttle.pacing import Pace
from tests.support.depth import FUZZ
from tests.vectors.load import cases, group

TOLERANCE = group("meta")["tolerance"]
NANOSECOND = 1e-9


def rule_of(calls: float, period: float, burst: int, ahead: float = 0.0) -> Gcra:
    rate = Fraction(calls) / Fraction(period)
    return Gcra(Rate(rate.numerator, float(rate.denominator)), burst, ahead)


@pytest.mark.parametrize("case", cases("gcra"))
def test_the_vectors(case: dict[str, Any]) -> None:
    max_wait = case.get("max_wait", 0)
    rule = rule_of(case["rate"], case["period"], case["burst"], ahead=max_wait)
    state = rule.leaving(rule.burst, 0.0)
    for step in case["steps"]:
        cost = step.get("cost", 1)
        assert (cost <= rule.burst) == (step.get("wait") != "never")
        if cost > rule.burst:
            continue
        after, wait = rule.reserve(state, step["t"], cost)
        assert wait == pytest.approx(step.get("wait", 0), abs=TOLERANCE)
        assert (wait == 0) == (step["allowed"] is True)
        assert (wait <= max_wait) == bool(step["allowed"])
        if step["allowed"]:
            state = after
        if "remaining" in step:
            assert rule.remaining(state, step["t"]) == step["remaining"]


@pytest.mark.parametrize("case", cases("token_bucket"))
def test_the_vectors_of_its_twin_the_token_bucket(case: dict[str, Any]) -> None:
    rule = rule_of(case["rate"], 1, case["capacity"])
    state = rule.leaving(rule.burst, case["steps"][0]["t"])
    for step in case["steps"]:
        after, wait = rule.reserve(state, step["t"])
        assert wait == pytest.approx(step.get("wait", 0), abs=TOLERANCE)
        assert (wait == 0) == step["allowed"]
        if step["allowed"]:
            state = after
        assert rule.remaining(state, step["t"]) == math.floor(step["tokens"])


THREE = rule_of(3, 1, burst=5)


@pytest.mark.parametrize("burst", [1, 2, 7])
@pytest.mark.parametrize("rate", [Rate(1, 1.0), Rate(3, 1.0), Rate(10, 0.5), Rate(5000, 3600.0)])
def test_not_even_a_nanosecond_too_early(rate: Rate, burst: int) -> None:
    rule = Gcra(rate, burst)
    state, _ = rule.reserve(rule.leaving(burst, 100.0), 100.0, burst)
    _, wait = rule.reserve(state, 100.0)
    assert wait == pytest.approx(rate.period / rate.count)
    assert rule.reserve(state, 100 + wait)[1] == 0
    for early in (NANOSECOND, wait / 2, wait / 2 - NANOSECOND):
        assert rule.reserve(state, 100 + wait - early)[1] == pytest.approx(early, abs=NANOSECOND)


def test_a_dear_call_does_not_pass_on_the_last_free_slot() -> None:
    state = THREE.leaving(1, 0.0)
    assert THREE.reserve(state, 0.0, 1)[1] == 0
    assert THREE.reserve(state, 0.0, 5)[1] == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("cost", "wait"),
    [
        pytest.param(5, 0, id="the last one of the burst"),
        pytest.param(6, 1 / 3, id="the first one behind it"),
        pytest.param(5 + 3 * 3600, 3600, id="an hour's worth later"),
    ],
)
def test_the_wait_of_the_nth_call_from_now(cost: int, wait: float) -> None:
    assert THREE.reserve(THREE.leaving(5, 0.0), 0.0, cost)[1] == pytest.approx(wait)


def test_nothing_happens_unless_the_state_is_kept() -> None:
    state = THREE.leaving(0, 50.0)
    assert [THREE.reserve(state, 50.0) for _ in range(3)] == [THREE.reserve(state, 50.0)] * 3


def test_what_is_given_back_was_never_taken() -> None:
    state = THREE.leaving(2, 50.0)
    after, _ = THREE.reserve(state, 50.0, 2)
    assert THREE.give_back(after, 2) == state


@pytest.mark.parametrize(
    ("now", "remaining", "wait"),
    [
        pytest.param(1000.0, 0, 1 / 3, id="no time has passed"),
        pytest.param(1001.0, 3, 0, id="a second has passed"),
        pytest.param(1e9, 5, 0, id="a leap ahead fills the bucket, and no more"),
        pytest.param(999.9, 0, 1 / 3, id="a small step back costs an empty bucket at most"),
        pytest.param(0.0, 0, 1 / 3, id="so does a large one"),
        pytest.param(-1e9, 0, 1 / 3, id="or one to before the beginning"),
    ],
)
def test_clocks_that_jump(now: float, remaining: int, wait: float) -> None:
    state = THREE.leaving(0, 1000.0)
    assert THREE.remaining(state, now) == remaining
    assert THREE.reserve(state, now)[1] == pytest.approx(wait)
    assert THREE.is_full(state, now) == (remaining == 5)


@pytest.mark.parametrize("left", [0, 1, 4, 5])
def test_a_state_with_so_many_left(left: int) -> None:
    state = THREE.leaving(left, 20.0)
    assert THREE.remaining(state, 20.0) == left
    assert THREE.is_full(state, 20.0) == (left == 5)
    assert THREE.reserve(state, 20.0, left + 1)[1] == pytest.approx(1 / 3)


def test_no_more_are_left_than_fit() -> None:
    assert THREE.leaving(6, 20.0) == THREE.leaving(5, 20.0)


def test_a_drained_bucket_opens_with_one_call_and_goes_on_at_the_rate() -> None:
    rule = rule_of(2, 1, burst=4, ahead=10.0)
    state = rule.closed_until(rule.leaving(4, 100.0), 110.0)
    waits = [rule.reserve(state, 100.0, n)[1] for n in (1, 2, 3, 4, 5, 6)]
    assert waits == [10, 10.5, 11, 11.5, 12, 12.5]
    assert rule.remaining(state, 110.0) == 1
    assert rule.closed_until(state, 105.0) == state, "never earlier"
    assert rule.reserve(state, 99.0)[1] == 10.5, "a step back is still cut down"


def test_the_rule_of_a_pace() -> None:
    pace = Pace(10, width=1_500_000_000, burst=3, early=5_000_000, window=1_100_000_000)
    assert Gcra.of(pace) == Gcra(Rate(10, 1.5), 3, early=0.005)


@pytest.mark.parametrize(
    ("left", "until", "ahead"),
    [
        pytest.param(4, 100.0, 0.0, id="a whole burst is left"),
        pytest.param(1, 100.0, 0.0, id="one call is left"),
        pytest.param(0, 100.0, 0.5, id="none: the next one is an interval ahead"),
        pytest.param(4, 110.0, 10.0, id="closed for ten seconds"),
    ],
)
def test_a_rule_that_reaches_as_far_as_its_state_and_no_further(
    left: int, until: float, ahead: float
) -> None:
    rule = rule_of(2, 1, burst=4)
    state = rule.leaving(left, 100.0)
    if until > 100.0:
        state = rule.closed_until(state, until)
    reaching = rule.reaching(state, 100.0)
    assert reaching.ahead == ahead
    assert reaching.name == rule.name
    assert reaching.reserve(state, 100.0)[1] == ahead
    assert reaching.reserve(state, 0.0)[1] <= ahead + 0.5, "a step back is cut down"


# Other rules: what was sent by one counts for the other.

FAST, SLOW = Rate(10, 1.0), Rate(1, 1.0)


@pytest.mark.parametrize(
    ("before", "used", "after", "counts"),
    [
        pytest.param(Gcra(FAST, 5), 2, Gcra(SLOW, 5), 2, id="slower: what was used stays used"),
        pytest.param(Gcra(FAST, 3), 2, Gcra(SLOW, 5), 4, id="a larger burst leaves no more"),
        pytest.param(Gcra(FAST, 5), 2, Gcra(SLOW, 3), 2, id="a smaller one leaves less"),
        pytest.param(Gcra(FAST, 5), 4, Gcra(SLOW, 3), 3, id="but it is not used up twice"),
        pytest.param(Gcra(FAST, 5), 2, Gcra(SLOW, 1), 1, id="nor is one call"),
        pytest.param(Gcra(FAST, 5), 0, Gcra(SLOW, 5), 0, id="nothing was used"),
        pytest.param(Gcra(SLOW, 5), 4, Gcra(FAST, 3), 4, id="faster: all that was used counts"),
        pytest.param(Gcra(FAST, 5), 4, Gcra(FAST, 3), 4, id="equally fast"),
    ],
)
def test_what_another_rule_has_used(before: Gcra, used: int, after: Gcra, counts: int) -> None:
    state = after.after(before, Fraction(used), 100.0)
    assert after.used(state, 100.0) == counts


@pytest.mark.parametrize(
    ("former", "used", "counts"),
    [
        pytest.param(Gcra(SLOW, 2), 0, 1, id="a slower one counts each call"),
        pytest.param(Gcra(SLOW, 2), 1, 2, id="up to its burst"),
        pytest.param(Gcra(SLOW, 2), 2, 2, id="and not beyond it"),
        pytest.param(Gcra(Rate(5, 1.0), 2), 2, 3, id="an equally fast one counts on"),
        pytest.param(Gcra(FAST, 2), 2, 3, id="and so does a faster one"),
    ],
)
def test_what_a_former_rule_counts_while_another_is_in_force(
    former: Gcra, used: int, counts: int
) -> None:
    state = former.leaving(former.burst - used, 100.0)
    state = former.next_after(Gcra(Rate(5, 1.0), 4), state, 100.0)
    assert former.used(state, 100.0) == counts


many = pytest.mark.parametrize("calls", [100_000, pytest.param(1_000_000, marks=pytest.mark.deep)])


@many
def test_slots_at_a_third_of_a_second_do_not_drift(calls: int) -> None:
    state = THREE.leaving(5, 7.0)
    rule = rule_of(3, 1, burst=5, ahead=1e6)
    for _ in range(calls + 5):
        state, wait = rule.reserve(state, 7.0)
    assert wait == pytest.approx(calls / 3, abs=NANOSECOND)


@many
def test_calls_in_time_do_not_drift(calls: int) -> None:
    meter, nanoseconds = GcraMeter(THREE, 0.0), 0
    for _ in range(calls + 5):
        nanoseconds += round(meter.wait(nanoseconds / 1e9, 1) * 1e9)
        assert meter.take(nanoseconds / 1e9, 0)
    assert nanoseconds == math.ceil(Fraction(calls * 10**9, 3))


def test_a_meter_tells_where_it_stands() -> None:
    assert repr(GcraMeter(Gcra(Rate(10, 0.5), 2), 3.0)) == "<gcra 10/0.5s, full at 3s>"


@FUZZ
@given(
    count=st.integers(1, 10**6),
    period=st.integers(1, 10**14),
    burst=st.integers(1, 1000),
    calls=st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 50)), max_size=30),
)
def test_the_textbook_in_fractions_says_the_same(
    count: int, period: int, burst: int, calls: list[tuple[int, int]]
) -> None:
    rule = Gcra(Rate(count, period / 1e9), burst)
    interval = Fraction(period, count)
    state, now, full_at = rule.leaving(burst, 0.0), 0, Fraction(0)
    for pause, cost in calls:
        now += pause
        state_after, wait = rule.reserve(state, now / 1e9, cost)
        after = max(full_at, Fraction(now)) + cost * interval
        early = after - burst * interval - now
        assert round(wait * 1e9) == pytest.approx(max(math.ceil(early), 0), rel=1e-15)
        assert (wait == 0) == (early <= 0)
        if early <= 0:
            state, full_at = state_after, after
        left = (burst * interval - max(full_at - now, Fraction(0))) / interval
        assert rule.remaining(state, now / 1e9) == math.floor(left)
