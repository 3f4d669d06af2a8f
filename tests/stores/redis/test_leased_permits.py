"""Permits at hand: they lapse, and the next ones are got in time."""

import pytest
from hypothesis import given, strategies as st

from proxy.stores.redis.leased_permits import LeasedPermits

OFTEN = 0.0001
"""Seconds from one permit to the next where the rate is no matter."""


def used_up_to(leases: LeasedPermits, begin: float, end: float, per_second: int) -> int:
    """Take at a steady pace, and get more as soon as it is low; how often that was."""
    asked = 0
    for step in range(round((end - begin) * per_second)):
        now = begin + step / per_second
        if not leases.take(now, 0) or leases.left < leases.low:
            leases.put(max(leases.ask_ahead_count(now), 1), now + 0.1, now)
            asked += 1
    return asked


def test_a_lot_lapses_when_its_time_is_over() -> None:
    leases = LeasedPermits(0.1, OFTEN, 0.0)
    leases.put(2, 0.1, 0.0)
    leases.put(2, 0.2, 0.05)
    assert leases.take(0.05, 0)
    assert leases.count(0.1) == 2
    assert leases.take(0.1, 0)
    assert leases.count(0.2) == 0
    assert not leases.take(0.2, 0)


def test_what_comes_too_late_is_not_used() -> None:
    leases = LeasedPermits(0.1, OFTEN, 0.0)
    leases.put(5, 0.1, 0.15)
    assert leases.count(0.15) == 0


def test_those_that_are_held_are_not_given_to_others() -> None:
    leases = LeasedPermits(0.1, OFTEN, 0.0)
    leases.put(2, 0.1, 0.0)
    assert leases.take(0.0, 1)
    assert not leases.take(0.0, 1)
    assert leases.take(0.0, 0)


def test_what_is_taken_back_lapses_as_before() -> None:
    leases = LeasedPermits(0.1, OFTEN, 0.0)
    leases.put(1, 0.1, 0.0)
    assert leases.take(0.0, 0)
    leases.take_back()
    assert leases.count(0.09) == 1
    assert leases.count(0.1) == 0


def test_the_last_of_a_lot_may_be_taken_back_too() -> None:
    leases = LeasedPermits(0.1, OFTEN, 0.0)
    leases.put(1, 0.1, 0.0)
    leases.put(1, 0.2, 0.0)
    for _ in range(5):
        assert leases.take(0.0, 0)
        leases.take_back()
    assert leases.count(0.0) == 2


def test_what_is_taken_back_is_there_even_if_somebody_has_looked() -> None:
    leases = LeasedPermits(0.1, OFTEN, 0.0)
    leases.put(1, 0.1, 0.0)
    assert leases.take(0.0, 0)
    assert leases.count(0.0) == 0
    leases.take_back()
    assert leases.count(0.0) == 1
    assert leases.take(0.0, 0)


def test_what_was_dropped_is_not_taken_back() -> None:
    leases = LeasedPermits(0.1, OFTEN, 0.0)
    leases.put(1, 0.1, 0.0)
    assert leases.take(0.0, 0)
    leases.drop()
    leases.take_back()
    assert leases.count(0.0) == 0
    assert not leases.take(0.0, 0)


def test_steady_use_is_served_by_few_lots() -> None:
    leases = LeasedPermits(0.1, OFTEN, 0.0)
    used_up_to(leases, 0.0, 1.0, 5000)
    assert used_up_to(leases, 1.0, 2.0, 5000) <= 30


def test_now_and_then_nothing_is_got_ahead() -> None:
    leases = LeasedPermits(0.1, OFTEN, 0.0)
    used_up_to(leases, 0.0, 5.0, 2)
    assert leases.ask_ahead_count(5.0) == 0
    assert leases.low < 1


@pytest.mark.parametrize(
    ("interval", "ahead"),
    [
        pytest.param(3600.0, 0, id="one an hour is none while it lives"),
        pytest.param(0.1, 0, id="one in a life leaves no share to get ahead"),
        pytest.param(0.01, 7, id="ten in a life"),
        pytest.param(OFTEN, 375, id="more than are used"),
        pytest.param(0.0, 0, id="no rate at all"),
    ],
)
def test_no_more_is_got_ahead_than_comes_anew(interval: float, ahead: int) -> None:
    leases = LeasedPermits(0.1, interval, 0.0)
    leases.put(500, 0.1, 0.0)
    for step in range(500):
        assert leases.take(step / 5000, 0)
    assert leases.ask_ahead_count(0.1) == ahead


def test_after_a_rest_the_use_of_yesterday_is_forgotten() -> None:
    leases = LeasedPermits(0.1, OFTEN, 0.0)
    used_up_to(leases, 0.0, 1.0, 5000)
    assert leases.ask_ahead_count(60.0) < 10


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 3), st.floats(0, 1)),
            st.tuples(st.just("take"), st.integers(0, 2), st.floats(0, 0.3)),
            st.tuples(st.just("take back"), st.just(0), st.just(0.0)),
            st.tuples(st.just("drop"), st.just(0), st.just(0.0)),
        )
    )
)
def test_what_is_said_to_be_there_can_be_taken(steps: list[tuple[str, int, float]]) -> None:
    leases, now, was_taken = LeasedPermits(0.1, OFTEN, 0.0), 0.0, False
    for step, number, seconds in steps:
        if step == "put":
            leases.put(number, now + seconds, now)
        elif step == "take":
            now += seconds
            there = leases.count(now)
            was_taken = leases.take(now, number)
            assert was_taken == (there > number)
            assert leases.count(now) == there - was_taken
        elif step == "take back" and was_taken:
            leases.take_back()
            was_taken = False
        elif step == "drop":
            leases.drop()


def test_what_was_given_ahead_is_not_used_before_its_time() -> None:
    leases = LeasedPermits(0.1, OFTEN, 0.0)
    leases.put(1, 0.1, 0.0, opens=0.0)
    leases.put(1, 0.1, 0.0, opens=0.02)
    leases.put(1, 0.1, 0.0, opens=0.04)
    assert leases.count(0.0) == 3
    assert [leases.wait(0.0, count) for count in (1, 2, 3)] == [0.0, 0.02, 0.04]
    assert [leases.take(now, 0) for now in (0.0, 0.0, 0.019, 0.02)] == [True, False, False, True]
    leases.take_back()
    assert [leases.take(now, 0) for now in (0.02, 0.02, 0.1)] == [True, False, False]


def test_those_held_are_kept_of_what_is_open() -> None:
    leases = LeasedPermits(0.1, OFTEN, 0.0)
    leases.put(1, 0.1, 0.0, opens=0.0)
    leases.put(1, 0.1, 0.0, opens=0.02)
    assert not leases.take(0.0, 1), "the other one is not open yet"
    assert leases.take(0.02, 1)
    assert not leases.take(0.02, 1)
