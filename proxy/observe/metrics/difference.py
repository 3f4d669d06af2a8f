"""What was counted between two moments: copies of the counters, and the difference to a later one.

A sample has all that only grows (``families.COUNTERS``) as plain numbers. What did not change since
the sample before is not copied again but shared with it, so that idle routes take no memory. The
difference is a snapshot again: the code that condenses the totals condenses it as well.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from proxy.observe.metrics import families
from proxy.observe.metrics.family import Counted
from proxy.observe.metrics.series import Histogram, Tally
from proxy.observe.metrics.snapshot import ProcessSnapshot

Copy = Any
"""A number, the counts of a histogram followed by its total, or a dictionary of one of these."""
CounterSample = Mapping[str, Mapping[tuple[str, ...], Copy]]
"""The copies by metric and by subject, as they were at one moment."""


def sample_counters(snapshot: ProcessSnapshot, before: CounterSample | None) -> CounterSample:
    """Copy all that *snapshot* counts; share with the sample *before* what is still the same."""
    earlier = before or {}
    sample: dict[str, dict[tuple[str, ...], Copy]] = {}
    for metric, copied in _COPIERS:
        known = earlier.get(metric.name, {})
        copies = sample[metric.name] = {}
        for subject, series in snapshot[metric].items():
            copy, old = copied(series), known.get(subject)
            copies[subject] = old if old == copy else copy
    return sample


def _copy_tally(tally: Tally) -> Copy:
    return tally.value


def _copy_numbers(numbers: Mapping[Any, float]) -> Copy:
    return {key: number for key, number in numbers.items() if number}


def _copy_histogram(histogram: Histogram) -> Copy:
    return (*histogram.counts, histogram.total)


def _copy_histograms(histograms: Mapping[Any, Histogram]) -> Copy:
    return {key: _copy_histogram(one) for key, one in histograms.items() if any(one.counts)}


def _copier(metric: Counted[Any]) -> Callable[[Any], Copy]:
    """Return the function that copies a series of *metric*: the same form for each of them."""
    has_keys = isinstance(metric.new(), dict)
    if metric.bounds:
        return _copy_histograms if has_keys else _copy_histogram
    return _copy_numbers if has_keys else _copy_tally


_COPIERS = [(metric, _copier(metric)) for metric in families.COUNTERS]


def counted_since(sample: CounterSample, now: ProcessSnapshot) -> ProcessSnapshot:
    """Return what was counted from *sample* to *now*; series to which nothing was added are absent.

    A series that is not in the sample is new, and all of it was counted since. So is one of which a
    number is lower than it was: it was dropped by a reload, and came back with another.
    """
    found: dict[str, dict[tuple[str, ...], Any]] = {}
    for metric in families.COUNTERS:
        then = sample.get(metric.name, {})
        found[metric.name] = {
            subject: added
            for subject, series in now[metric].items()
            if (added := _added(series, then.get(subject))) is not None
        }
    return ProcessSnapshot(found)


def _added(series: Any, then: Copy | None) -> Any | None:  # noqa: ANN401 - as above
    """Return what was added to *series* since *then*, in its own form; None if nothing was."""
    if isinstance(series, dict):
        return _added_by_key(series, then or {})
    if isinstance(series, Histogram):
        return _added_to_histogram(series, then)
    number = series.value if isinstance(series, Tally) else series
    added = number - then if then is not None and number >= then else number
    if not added:
        return None
    return Tally(added) if isinstance(series, Tally) else added


def _added_by_key(series: Mapping[Any, Any], then: Mapping[Any, Copy]) -> dict[Any, Any] | None:
    if any(_is_lower(series.get(key), copy) for key, copy in then.items()):
        then = {}
    pairs = ((key, _added(value, then.get(key))) for key, value in series.items())
    return {key: added for key, added in pairs if added is not None} or None


def _is_lower(value: Any, then: Copy) -> bool:  # noqa: ANN401 - as above
    if isinstance(value, Histogram):
        return any(now < before for now, before in _bucket_pairs(value, then))
    return value is None or value < then


def _bucket_pairs(histogram: Histogram, then: tuple[float, ...]) -> Iterator[tuple[int, float]]:
    return zip(histogram.counts, then[:-1], strict=True)


def _added_to_histogram(histogram: Histogram, then: tuple[float, ...] | None) -> Histogram | None:
    if then is None or _is_lower(histogram, then):
        return histogram if histogram.observations else None
    added = Histogram(histogram.bounds)
    added.counts = [now - int(before) for now, before in _bucket_pairs(histogram, then)]
    added.total = max(histogram.total - then[-1], 0.0)
    return added if any(added.counts) else None
