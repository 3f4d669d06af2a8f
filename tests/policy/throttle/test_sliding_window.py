"""The exact window, by its vectors and against counting one by one."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from proxy.policy.settings import Rate
from proxy.policy.throttle.sliding_window import SlidingWindow
from tests.support.depth import FUZZ
from tests.vectors.load import cases, group

TOLERANCE = group("meta")["tolerance"]
NANOSECOND = 1e-9


def log_of(*sent: float, count: int = 3, period: float = 10.0) -> SlidingWindow:
    log = SlidingWindow(Rate(count, period))
    for now in sent:
        assert log.take(now, 0)
    return log


def slots(log: SlidingWindow, now: float, count: int) -> list[float]:
    """When the next calls may go out."""
    return [now + log.wait(now, n) for n in range(1, count + 1)]


@pytest.mark.parametrize("case", cases("sliding_window_log"))
def test_the_vectors(case: dict[str, Any]) -> None:
    log = SlidingWindow(Rate(case["limit"], case["window"]))
    for step in case["steps"]:
        wait = log.wait(step["t"], 1)
        assert wait == pytest.approx(step.get("wait", 0), abs=TOLERANCE)
        assert log.take(step["t"], 0) == step["allowed"]


@pytest.mark.parametrize(
    ("sent", "now", "expected"),
    [
        pytest.param((), 3, [3, 3, 3, 13, 13, 13, 23], id="nothing was sent"),
        pytest.param((0, 1), 3, [3, 10, 11, 13, 20, 21, 23], id="one is free"),
        pytest.param((0, 1, 2), 3, [10, 11, 12, 20, 21, 22, 30], id="none is free"),
        pytest.param((0, 1, 2), 11, [11, 11, 12, 21, 21, 22, 31], id="two have left the window"),
        pytest.param((0, 1, 2), 99, [99, 99, 99, 109, 109, 109, 119], id="all have, long ago"),
        pytest.param((0, 1, 2, 10), 10, [11, 12, 20, 21, 22, 30, 31], id="the oldest is forgotten"),
    ],
)
def test_the_next_slots(sent: tuple[float, ...], now: float, expected: list[float]) -> None:
    assert slots(log_of(*sent), now, len(expected)) == expected


@pytest.mark.parametrize(
    ("reserved", "passes"),
    [
        pytest.param(0, True, id="none"),
        pytest.param(1, True, id="one, and there are two free ones"),
        pytest.param(2, False, id="as many as there are free ones"),
        pytest.param(3, False, id="more than there are free ones"),
    ],
)
def test_what_others_hold_is_kept_for_them(reserved: int, *, passes: bool) -> None:
    log = log_of(0.0)
    assert log.take(1.0, reserved) == passes
    assert log.remaining(1.0) == (1 if passes else 2)


@pytest.mark.parametrize("sent", [(), (0.0, 1.0), (0.0, 1.0, 2.0)], ids=["empty", "some", "full"])
def test_what_is_taken_back_was_never_counted(sent: tuple[float, ...]) -> None:
    log = log_of(*sent)
    assert log.take(10.0, 0)
    log.take_back()
    assert len(log) == len(sent)
    assert slots(log, 10.0, 4) == slots(log_of(*sent), 10.0, 4)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param((), [60, 65, 70, 75], id="one by one, though nothing was sent"),
        pytest.param((40.0, 44.0), [60, 65, 70, 75], id="what was sent before matters no more"),
        pytest.param((50.0, 50.0), [60, 65, 70, 75], id="nor does what was sent just now"),
        pytest.param((49.0,) * 3, [64, 65, 70, 79], id="unless its slots open even later"),
    ],
)
def test_a_drained_log(sent: tuple[float, ...], expected: list[float]) -> None:
    log = log_of(*sent, period=15.0)
    log.close_until(51.0, 60.0)
    assert slots(log, 51.0, 4) == expected
    assert log.remaining(51.0) == 0
    assert not log.is_full(51.0)


def test_the_first_one_after_it_was_drained_counts_unless_it_is_taken_back() -> None:
    log = log_of(period=15.0)
    log.close_until(51.0, 60.0)
    assert not log.take(52.0, 0)
    assert log.take(60.0, 0)
    assert slots(log, 60.0, 4) == [65, 70, 75, 80]
    assert [log.remaining(now) for now in (60.0, 64.9, 65.0, 70.0)] == [0, 0, 1, 2]
    log.take_back()
    assert slots(log, 60.0, 4) == [60, 65, 70, 75]
    assert log.remaining(60.0) == 1


def test_drained_again_it_gives_out_nothing_earlier() -> None:
    log = log_of(period=15.0)
    log.close_until(51.0, 60.0)
    assert log.take(60.0, 0)
    log.close_until(60.0, 60.0)
    assert slots(log, 60.0, 4) == [65, 70, 75, 80]
    log.close_until(60.0, 67.0)
    assert slots(log, 60.0, 4) == [67, 72, 77, 82]


def test_a_window_after_it_was_drained_nothing_is_left_of_that() -> None:
    log = log_of(period=15.0)
    log.close_until(51.0, 60.0)
    assert [log.remaining(now) for now in (59.9, 60, 64.9, 65, 70, 99)] == [0, 1, 1, 2, 3, 3]
    assert slots(log, 75.0, 4) == [75, 75, 75, 90]


def test_drained_slots_are_never_too_close() -> None:
    """A third of a second is no whole number of nanoseconds."""
    log = log_of(period=1.0)
    log.close_until(5.0, 5.0)
    assert slots(log, 5.0, 4) == pytest.approx([5, 5 + 1 / 3, 5 + 2 / 3, 6], abs=NANOSECOND)
    assert log.wait(5.0, 2) >= 1 / 3


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_log_that_leaves_so_many(left: int) -> None:
    log = log_of(50.0, 50.0, 50.0, period=15.0)
    log.leave(51.0, left)
    assert log.remaining(51.0) == left
    assert log.is_full(51.0) == (left == 3)
    assert slots(log, 51.0, 3) == [51.0] * left + [56.0, 61.0, 66.0][: 3 - left]


def test_more_than_there_are_cannot_be_left() -> None:
    log = log_of(50.0)
    log.leave(51.0, 100)
    assert log.remaining(51.0) == 3


@pytest.mark.parametrize(
    ("count", "period", "expected"),
    [
        pytest.param(3, 10.0, [10, 11, 12], id="an equal one"),
        pytest.param(5, 10.0, [3, 3, 10, 11, 12], id="more calls: the additional ones are free"),
        pytest.param(2, 10.0, [11, 12], id="fewer calls: the latest ones count"),
        pytest.param(3, 60.0, [60, 61, 62], id="a longer window"),
        pytest.param(3, 2.0, [3, 3, 4], id="a shorter window"),
    ],
)
def test_a_log_that_goes_on_from_another_one(
    count: int, period: float, expected: list[float]
) -> None:
    log = log_of(0.0, 1.0, 2.0).changed_to(Rate(count, period), 3.0)
    assert slots(log, 3.0, count) == expected
    assert len(log) == min(count, 3), "what counts no more is forgotten"


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(51.0, [60, 63, 66, 69, 72], id="while it is drained"),
        pytest.param(61.0, [61, 63, 66, 69, 72], id="shortly after"),
        pytest.param(75.0, [75, 75, 75, 75, 75], id="a window later"),
    ],
)
def test_a_log_that_goes_on_from_a_drained_one(now: float, expected: list[float]) -> None:
    log = log_of(period=15.0)
    log.close_until(51.0, 60.0)
    assert slots(log.changed_to(Rate(5, 15.0), now), now, 5) == expected


@pytest.mark.parametrize(
    ("now", "wait"),
    [
        pytest.param(1002.0, 8, id="no time has passed"),
        pytest.param(1e8, 0, id="a leap ahead empties the window"),
        pytest.param(1001.0, 8, id="a small step back counts as no time"),
        pytest.param(0.0, 8, id="so does a large one"),
        pytest.param(-1e6, 8, id="or one to before the beginning"),
    ],
)
@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda log, now: log.wait(now, 1), id="asked for a wait"),
        pytest.param(lambda log, now: log.remaining(now), id="asked for what is left"),
        pytest.param(lambda log, now: log.is_full(now), id="asked whether it is full"),
        pytest.param(lambda log, now: log.take(now, 5), id="asked for a call"),
    ],
)
def test_clocks_that_jump(
    look: Callable[[SlidingWindow, float], object], now: float, wait: float
) -> None:
    log = log_of(1000.0, 1001.0, 1002.0)
    look(log, now)
    assert log.wait(now, 1) == wait
    assert log.remaining(now) == (0 if wait else 3)
    assert log.take(now + wait, 0)
    assert len(log) == 3


def test_a_drained_log_whose_clock_is_set_back() -> None:
    log = log_of(1000.0, period=15.0)
    log.close_until(1000.0, 1004.0)
    assert slots(log, 7.0, 4) == [11, 16, 22, 26]


def test_it_tells_what_it_is() -> None:
    assert repr(log_of(1.0, 2.0, period=0.5)) == "<log 3/0.5s of 2 calls>"


@FUZZ
@given(
    count=st.integers(1, 6),
    window=st.integers(1, 2000),
    pauses=st.lists(st.integers(0, 1000), max_size=60),
)
def test_counting_one_by_one_says_the_same(count: int, window: int, pauses: list[int]) -> None:
    log = SlidingWindow(Rate(count, window / 1e9))
    sent: list[int] = []
    now = 0
    for pause in pauses:
        now += pause
        in_window = sum(now - window < moment <= now for moment in sent)
        assert log.remaining(now / 1e9) == count - in_window
        assert log.is_full(now / 1e9) == (in_window == 0)
        if log.take(now / 1e9, 0):
            sent.append(now)
            in_window += 1
        assert in_window <= count
        assert (log.wait(now / 1e9, 1) == 0) == (in_window < count)
