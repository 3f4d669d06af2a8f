from sys import getsizeof

import pytest
from hypothesis import example, given, strategies as st

from proxy.policy.window import Window

SECONDS = 10.0
SLICE = SECONDS / 20


def counts(window: Window, now: float) -> tuple[int, int]:
    return window.at_least(now), window.at_most(now)


def test_nothing_has_happened_yet() -> None:
    assert counts(Window(SECONDS), 0.0) == (0, 0)


@pytest.mark.parametrize("start", [-5.0, 0.0, 3.3, 1000.0])
@pytest.mark.parametrize(
    ("later", "expected"),
    [
        pytest.param(0.0, (1, 1), id="at once"),
        pytest.param(9.9, (1, 1), id="within the window"),
        pytest.param(10.0, (0, 1), id="where its slice is cut by the edge"),
        pytest.param(10.5, (0, 0), id="when all of its slice is out"),
        pytest.param(1e9, (0, 0), id="long after"),
        pytest.param(-3.0, (1, 1), id="before it happened: time stepped back"),
        pytest.param(-1e9, (1, 1), id="long before it happened"),
    ],
)
def test_one_event(start: float, later: float, expected: tuple[int, int]) -> None:
    window = Window(SECONDS)
    window.add(start)
    assert counts(window, start + later) == expected


def test_after_time_stepped_back_events_still_grow_old() -> None:
    window = Window(SECONDS)
    window.add(1000.0)
    assert counts(window, 500.0) == (1, 1)
    window.add(504.0)
    assert counts(window, 511.0) == (1, 1)
    assert counts(window, 515.0) == (0, 0)


def test_what_is_taken_back_leaves_its_own_slice() -> None:
    window = Window(SECONDS)
    window.add(1000.0)
    window.add(1003.25)
    window.take_back(1003.25, 1009.0)
    assert counts(window, 1009.0) == (1, 1)
    assert counts(window, 1010.6) == (0, 0)


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        pytest.param(1000.0, [5, 4, 2, 0], id="of the oldest slice"),
        pytest.param(1000.5, [5, 3, 2, 0], id="of the one behind it"),
        pytest.param(1001.0, [5, 3, 1, 0], id="of the latest"),
    ],
)
@pytest.mark.parametrize("now", [1001.0, 1001.5, 1003.25, 1010.0])
def test_one_of_several_events_is_taken_back_whenever_that_is(
    then: float, expected: list[int], now: float
) -> None:
    window = Window(SECONDS)
    for event in (1000.0, 1000.0, 1000.5, 1000.5, 1001.0, 1001.0):
        window.add(event)
    window.take_back(then, now)
    # The slices leave the window one after the other.
    assert [window.at_most(later) for later in (1010.0, 1010.5, 1011.0, 1011.5)] == expected


def test_a_slice_ends_where_the_next_one_begins() -> None:
    window = Window(SECONDS)
    window.add(1000.0)
    window.add(1000.0 + SLICE)
    assert window.at_most(1000.0 + SECONDS + SLICE) == 1
    window = Window(SECONDS)
    window.add(1000.0)
    window.add(1000.0 + SECONDS)
    assert window.at_most(1000.0 + SECONDS + SLICE) == 1


@pytest.mark.parametrize(
    ("then", "now"),
    [
        pytest.param(1000.0, 1000.0, id="twice"),
        pytest.param(995.0, 1000.0, id="what was never counted"),
        pytest.param(900.0, 1000.0, id="what was never counted, long ago"),
        pytest.param(1000.0, 1020.0, id="what is out of the window"),
        pytest.param(2000.0, 1000.0, id="what has not happened yet"),
    ],
)
def test_nothing_falls_below_zero(then: float, now: float) -> None:
    window = Window(SECONDS)
    window.add(1000.0)
    window.take_back(1000.0, 1000.0)
    window.take_back(then, now)
    assert counts(window, now) == (0, 0)


def test_memory_does_not_grow_with_what_is_counted() -> None:
    window = Window(SECONDS)
    before = getsizeof(window._past)
    for event in range(100_000):
        window.add(event / 100)
    assert getsizeof(window._past) == before


@example(start=1.0909964093390592, steps=[30.0, 1.0, 9.25])  # a slice that ends by rounding
@given(
    start=st.floats(0, 1e7),
    steps=st.lists(st.floats(0, 3 * SECONDS) | st.sampled_from([0.0, SLICE, SECONDS]), min_size=1),
)
def test_the_truth_lies_between(start: float, steps: list[float]) -> None:
    window = Window(SECONDS)
    now, events = start, []
    for step in steps:
        now += step
        window.add(now)
        events.append(now)
        slack = 1e-6  # for the rounding of times
        certain = sum(event > now - SECONDS + SLICE + slack for event in events)
        at_most = sum(event > now - SECONDS - SLICE - slack for event in events)
        inside = [sum(event > now - SECONDS + s for event in events) for s in (-slack, slack)]
        low, high = counts(window, now)
        assert certain <= low <= inside[0]
        assert inside[1] <= high <= at_most
