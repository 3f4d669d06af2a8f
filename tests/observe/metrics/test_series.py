from bisect import bisect_left

import pytest

from proxy.observe.metrics.families import LATENCY_BOUNDS, STORE_BOUNDS, WAIT_BOUNDS
from proxy.observe.metrics.series import Histogram
from tests.observe.conftest import metrics_of


def histogram_of(*seconds: float, bounds: tuple[float, ...] = LATENCY_BOUNDS) -> Histogram:
    histogram = Histogram(bounds)
    for value in seconds:
        histogram.observe(value)
    return histogram


@pytest.mark.parametrize(
    ("seconds", "rank", "expected"),
    [
        pytest.param([], 0.5, None, id="no observations, no quantile"),
        pytest.param([0.2] * 4, 0.5, 0.175, id="half way through the only bucket in use"),
        pytest.param([0.2] * 4, 1.0, 0.25, id="the last one is at the bucket's upper bound"),
        pytest.param([0.0002] * 9 + [0.7], 0.9, 0.0005, id="ninety percent are in the first"),
        pytest.param([0.0008] * 8, 0.5, 0.00075, id="a sidecar's milliseconds are told apart"),
        pytest.param([0.001] * 9 + [0.7], 0.99, 0.95, id="the slow one decides the tail"),
        pytest.param([500.0], 0.5, 60.0, id="never beyond the highest bound"),
    ],
)
def test_quantile_is_estimated_from_the_buckets(
    seconds: list[float], rank: float, expected: float | None
) -> None:
    assert histogram_of(*seconds).quantile(rank) == pytest.approx(expected)


@pytest.mark.parametrize("bounds", [LATENCY_BOUNDS, WAIT_BOUNDS, STORE_BOUNDS])
def test_each_duration_is_in_the_bucket_that_bisect_finds(bounds: tuple[float, ...]) -> None:
    """``Histogram.observe`` looks at the lowest bounds without a call."""
    around = [bound * factor for bound in bounds for factor in (0.999, 1.0, 1.001)]
    for seconds in (0.0, *around):
        expected = [0] * (len(bounds) + 1)
        expected[bisect_left(bounds, seconds)] = 1
        assert histogram_of(seconds, bounds=bounds).counts == expected, seconds


def test_a_sum_holds_the_observations_of_all_and_leaves_them_as_they_are() -> None:
    parts = [histogram_of(0.02, 500.0), histogram_of(), histogram_of(0.02)]
    whole = Histogram.sum_of(parts)
    assert whole.counts == histogram_of(0.02, 500.0, 0.02).counts
    assert whole.total == pytest.approx(500.04)
    assert [sum(part.counts) for part in parts] == [2, 0, 1]


def test_each_has_bounds_of_its_own() -> None:
    waits = histogram_of(0.0005, 200.0, bounds=WAIT_BOUNDS)
    assert waits.counts == [1, *[0] * 12, 1, 0]
    assert waits.quantile(1.0) == 300.0
    assert histogram_of(0.0005, 200.0).quantile(1.0) == 60.0


def test_a_throttle_tells_what_it_decided() -> None:
    throttle = metrics_of().throttle("route", "charges")
    throttle.admitted()
    throttle.delayed(0.1)
    throttle.delayed(0.2)
    throttle.refused()
    assert repr(throttle) == "<throttle: 1 passed, 2 delayed, 1 refused>"
