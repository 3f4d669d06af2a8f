from collections.abc import Iterable

import pytest

from proxy.policy.body_rate import WINDOW, BodyRate

RATE = 500
Course = Iterable[tuple[float, int]]
"""Seconds waited since the look before, and bytes that came meanwhile."""


def cut_after(course: Course, rate: int = RATE) -> float | None:
    """The waited seconds after which a body that comes like this is too slow; None: never."""
    body, waited, received = BodyRate(rate), 0.0, 0
    for seconds, size in course:
        waited += seconds
        received += size
        if body.is_too_slow(waited, received):
            return waited
    return None


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        pytest.param([(1.0, 500)] * 300, None, id="just fast enough, for minutes"),
        pytest.param([(1.0, 499)] * 300, 30.0, id="a byte a second too slow"),
        pytest.param([(1.0, 2)] * 300, 30.0, id="one byte every half second"),
        pytest.param([(1.0, 0)] * 300, 30.0, id="nothing at all"),
        pytest.param([(1.0, 0)] * 29 + [(1.0, 15_000)], None, id="all of it in the last second"),
        pytest.param(
            [(1.0, 15_000)] + [(1.0, 0)] * 60, 31.0, id="all in the first second, then nothing"
        ),
        pytest.param(
            [(1.0, 1_000_000)] + [(1.0, 0)] * 60, 31.0, id="a lot at first does not last for ever"
        ),
        pytest.param([(1.0, 600)] * 60 + [(1.0, 0)] * 60, 66.0, id="slower and slower"),
        pytest.param([(1.0, 1_000), (1.0, 0)] * 100, None, id="in bursts"),
        pytest.param([(10.0, 4_990)] * 10, 30.0, id="seldom looked at"),
        pytest.param([(1.0, 1_000_000), (31.0, 0)], 32.0, id="not looked at for a whole window"),
        pytest.param([(0.0, 1), (0.0, 0)] * 300, None, id="never waited for"),
        pytest.param([(0.0, 1)] * 300 + [(1.0, 0)] * 31, 30.0, id="waited for at last"),
        pytest.param([(0.1, 50)] * 3000, None, id="often looked at, just fast enough"),
    ],
)
def test_a_body_must_bring_its_rate_in_every_window_of_waiting(
    course: Course, expected: float | None
) -> None:
    assert cut_after(course) == expected


def test_the_window_lies_in_the_time_that_was_waited() -> None:
    """A body that is not read for an hour has brought nothing in it, and is not to blame."""
    body = BodyRate(RATE)
    assert not body.is_too_slow(20.0, 0)
    assert not any(body.is_too_slow(20.0, 0) for _ in range(3600))
    assert body.is_too_slow(WINDOW, 0)


def test_however_long_it_takes_it_remembers_one_window() -> None:
    body = BodyRate(RATE)
    for second in range(10_000):
        assert not body.is_too_slow(float(second), second * 1_000)
    assert len(body._samples) < 70


def test_however_often_it_is_looked_at_it_remembers_two_samples_a_second() -> None:
    body = BodyRate(RATE)
    for hundredth in range(10_000):
        assert not body.is_too_slow(hundredth / 100, hundredth * 10)
    assert len(body._samples) < 70


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        pytest.param([(0.0, 0)], False, id="not waited for"),
        pytest.param([(0.9, 0)], False, id="not for long"),
        pytest.param([(1.0, 499)], True, id="too slow from the beginning"),
        pytest.param([(1.0, 500)], False, id="just fast enough"),
        pytest.param([(2.0, 999)], True, id="too slow for two seconds"),
        pytest.param([(2.0, 1_000)], False, id="just fast enough for two seconds"),
        pytest.param([(1.0, 1_000_000), (1.0, 1)], True, id="fast at first, slow now"),
        pytest.param([(1.0, 1_000_000), (0.6, 1)], False, id="fast a moment ago"),
        pytest.param([(1.0, 0)] * 5 + [(1.0, 500)], False, id="slow at first, fast now"),
        pytest.param([(1.0, 500)] * 20 + [(0.5, 0), (0.5, 0)], True, id="stopped a second ago"),
    ],
)
def test_is_behind(course: Course, *, expected: bool) -> None:
    body, waited, received = BodyRate(RATE), 0.0, 0
    for seconds, size in course:
        waited += seconds
        received += size
        behind = body.is_behind(waited, received)
        body.is_too_slow(waited, received)
    assert behind is expected
