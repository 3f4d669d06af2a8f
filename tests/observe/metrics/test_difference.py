"""What was counted between two moments."""

from collections.abc import Callable
from typing import Any

import pytest

from proxy.observe.metrics import families
from proxy.observe.metrics.difference import counted_since, sample_counters
from proxy.observe.metrics.family import Counted
from proxy.observe.metrics.series import Histogram, Tally
from proxy.observe.metrics.snapshot import ProcessSnapshot
from proxy.policy.reasons import VerdictReason

CHARGES = ("charges",)


def durations(*seconds: float) -> Histogram:
    histogram = Histogram(families.LATENCY_BOUNDS)
    for one in seconds:
        histogram.observe(one)
    return histogram


def waits(*seconds: float) -> dict[str, Histogram]:
    histogram = Histogram(families.WAIT_BOUNDS)
    for one in seconds:
        histogram.observe(one)
    return {"backoff": histogram, "hint": Histogram(families.WAIT_BOUNDS)}


def snapshot(metric: Counted[Any], series: object | None) -> ProcessSnapshot:
    return ProcessSnapshot({metric.name: {} if series is None else {CHARGES: series}})


def plain(series: Any) -> object:  # noqa: ANN401 - of whatever is counted
    """A series as something that can be compared."""
    match series:
        case Tally():
            return series.value
        case Histogram():
            return series.observations, pytest.approx(series.total)
        case dict():
            return {key: plain(value) for key, value in series.items()}
    return series


NEW, RETRIED = VerdictReason.SUCCESS, VerdictReason.RETRIED


@pytest.mark.parametrize(
    ("metric", "then", "now", "added"),
    [
        pytest.param(families.LETTERS_KEPT, Tally(3), Tally(5), 2, id="a number"),
        pytest.param(families.LETTERS_KEPT, Tally(3), Tally(3), None, id="nothing new"),
        pytest.param(families.LETTERS_KEPT, None, Tally(5), 5, id="a new route"),
        pytest.param(families.LETTERS_KEPT, None, Tally(0), None, id="a new route, idle"),
        pytest.param(families.LETTERS_KEPT, Tally(3), None, None, id="a route that is gone"),
        pytest.param(families.LETTERS_KEPT, Tally(3), Tally(1), 1, id="gone, and back again"),
        pytest.param(
            families.REQUESTS,
            {("GET", 200): 3, ("GET", 503): 1},
            {("GET", 200): 5, ("GET", 503): 1, ("PUT", 201): 4},
            {("GET", 200): 2, ("PUT", 201): 4},
            id="by key",
        ),
        pytest.param(
            families.REQUESTS,
            {("GET", 200): 3, ("GET", 503): 9},
            {("GET", 200): 5, ("GET", 503): 1},
            {("GET", 200): 5, ("GET", 503): 1},
            id="by key, gone, and back again",
        ),
        pytest.param(
            families.REQUESTS,
            {("GET", 503): 9},
            {("GET", 200): 5},
            {("GET", 200): 5},
            id="a key that is gone",
        ),
        pytest.param(
            families.VERDICTS,
            {NEW: 0, RETRIED: 2},
            {NEW: 0, RETRIED: 3},
            {RETRIED: 1},
            id="zeroes are left out",
        ),
        pytest.param(
            families.DURATION,
            durations(0.001, 1.0),
            durations(0.001, 1.0, 0.5, 2.0),
            (2, 2.5),
            id="a histogram",
        ),
        pytest.param(
            families.DURATION, durations(0.5), durations(0.5), None, id="a histogram as it was"
        ),
        pytest.param(
            families.DURATION,
            durations(0.5, 0.5),
            durations(0.001),
            (1, 0.001),
            id="a histogram that began anew",
        ),
        pytest.param(
            families.DURATION, None, durations(0.25), (1, 0.25), id="a histogram of a new route"
        ),
        pytest.param(
            families.RETRY_WAITS,
            waits(1.0),
            waits(1.0, 3.0),
            {"backoff": (1, 3.0)},
            id="histograms by key",
        ),
        pytest.param(
            families.RETRY_WAITS,
            waits(1.0, 1.0),
            waits(3.0),
            {"backoff": (1, 3.0)},
            id="histograms by key that began anew",
        ),
    ],
)
def test_what_was_added(
    metric: Counted[Any], then: object | None, now: object | None, added: object | None
) -> None:
    sample = sample_counters(snapshot(metric, then), None)
    found = counted_since(sample, snapshot(metric, now))[metric].get(CHARGES)
    assert (None if found is None else plain(found)) == added


def test_quantiles_are_those_of_what_was_added() -> None:
    slow, both = durations(*[30.0] * 1000), durations(*[30.0] * 1000, *[0.002] * 10)
    sample = sample_counters(snapshot(families.DURATION, slow), None)
    added = counted_since(sample, snapshot(families.DURATION, both))[families.DURATION][CHARGES]
    assert added.quantile(0.95) == pytest.approx(0.0025, abs=0.001)
    assert both.quantile(0.95) == pytest.approx(30.0, abs=21)


CHANGES: list[tuple[Counted[Any], Callable[[], Any], Callable[[Any], object]]] = [
    (families.LETTERS_KEPT, lambda: Tally(1), lambda series: setattr(series, "value", 2)),
    (families.REQUESTS, lambda: {("GET", 200): 1}, lambda series: series.update({("GET", 200): 2})),
    (families.DURATION, lambda: durations(1.0), lambda series: series.observe(1.0)),
    (families.RETRY_WAITS, lambda: waits(1.0), lambda series: series["backoff"].observe(1.0)),
]


@pytest.mark.parametrize(("metric", "make", "change"), CHANGES)
def test_a_sample_stays_as_it_was_while_counting_goes_on(
    metric: Counted[Any], make: Callable[[], Any], change: Callable[[Any], object]
) -> None:
    series = make()
    sample = sample_counters(snapshot(metric, series), None)
    before = sample[metric.name][CHARGES]
    change(series)
    assert sample[metric.name][CHARGES] == before
    assert sample_counters(snapshot(metric, series), sample)[metric.name][CHARGES] != before


@pytest.mark.parametrize(("metric", "make", "change"), CHANGES)
def test_what_did_not_change_is_kept_once(
    metric: Counted[Any], make: Callable[[], Any], change: Callable[[Any], object]
) -> None:
    del change
    now = snapshot(metric, make())
    first = sample_counters(now, None)
    second = sample_counters(now, first)
    assert second[metric.name][CHARGES] is first[metric.name][CHARGES]


def test_no_gauge_is_sampled() -> None:
    names = {metric.name for metric in families.COUNTERS}
    assert families.IN_FLIGHT.name not in names
    assert families.LAST_RELOAD.name not in names
    assert {families.REQUESTS.name, families.DURATION.name, families.REFUSALS.name} <= names
