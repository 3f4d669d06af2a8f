"""What a row of the table of metrics has: name, text, labels, source, rule to merge.

There are three kinds of rows. What is :class:`Counted` implies its series: a recorder asks for
them by the row, and adds to them. What is :class:`Given` the process says anew each time. What is
:class:`Derived` is read from other sources.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TypeVar, cast

from proxy.observe.metrics.series import Histogram, Tally, add_up
from proxy.observe.metrics.snapshot import MetricSource, ProcessSnapshot

SeriesT = TypeVar("SeriesT")
ValueT = TypeVar("ValueT")

Sample = tuple[tuple[str, ...], float | Histogram]
"""The values of the labels, and the number or histogram that stands under them."""


class MetricType(StrEnum):
    """The types of Prometheus that are used."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Label:
    """A label. Its values come from the configuration or from a closed set."""

    name: str
    values: tuple[str, ...] = ()
    """The closed set, for the reference; empty if the configuration has them."""


@dataclass(frozen=True, slots=True, eq=False)
class MetricSubject:
    """What a series is about. Its labels stand before those of the metric."""

    labels: tuple[Label, ...] = ()
    parts: "tuple[MetricSubject, ...]" = ()
    """For a pair: the two subjects, each with one label."""


@dataclass(frozen=True, eq=False)
class Family:
    """A metric family: what is the same for all kinds of rows."""

    name: str
    """The name in queries; that of a counter ends in ``_total``."""
    text: str
    """What a scraper gets as help."""
    _: KW_ONLY
    labels: tuple[Label, ...] = ()
    page: str = ""
    """What the reference says in place of the text, if that is more."""
    only_if_any: bool = False
    """Whether the family is left out while it has no series."""

    @property
    def kind(self) -> MetricType:
        """The type of the metric."""
        return MetricType.COUNTER if self.name.endswith("_total") else MetricType.GAUGE

    @property
    def all_labels(self) -> tuple[Label, ...]:
        """The labels, with those of what the series are about."""
        return self.labels

    def samples(self, snapshot: ProcessSnapshot) -> Iterable[Sample]:
        """Return all that *snapshot* has of this family."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False, kw_only=True)
class Derived(Family):
    """A metric family that is read from other sources."""

    read: Callable[[ProcessSnapshot], Iterable[Sample]]

    def samples(self, snapshot: ProcessSnapshot) -> Iterable[Sample]:
        return self.read(snapshot)


@dataclass(frozen=True, eq=False, kw_only=True)
class Given(MetricSource[ValueT], Family):
    """A metric family that the process says anew each time: a number, or numbers by label."""

    def samples(self, snapshot: ProcessSnapshot) -> Iterable[Sample]:
        value = snapshot[self]
        if isinstance(value, Mapping):
            return (((label,), number) for label, number in value.items())
        return () if value is None else (((), cast("float", value)),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Counted(MetricSource[dict[tuple[str, ...], SeriesT]], Family, Generic[SeriesT]):
    """A metric family with series of its own, to which recorders add.

    The value of the source is a series for each subject, by the values of its labels. What was
    counted by a process that has ended stays in the sum; a gauge goes to zero.
    """

    subject: MetricSubject
    bounds: tuple[float, ...] = ()
    """The bounds of the buckets, if it is a histogram."""
    keys: Collection[Any] | None = None
    """What it is counted by, as known from the start, if that is not the closed set of a label."""
    to_labels: Callable[[Any], tuple[str, ...]] | None = None
    """Makes labels of these keys; what has the same ones is added up."""
    merge: Callable[[Sequence[Any]], Any] = add_up
    nothing: Callable[[], Any] = dict

    @property
    def kind(self) -> MetricType:
        return MetricType.HISTOGRAM if self.bounds else super().kind

    @property
    def all_labels(self) -> tuple[Label, ...]:
        return (*self.subject.labels, *self.labels)

    def new(self) -> SeriesT:
        """Make a series: a tally, a histogram, or a dictionary of numbers or histograms by key."""
        one = partial(Histogram, self.bounds) if self.bounds else int
        if self.keys is None and not self.labels:
            return cast("SeriesT", one() if self.bounds else Tally())
        keys = self.labels[0].values if self.keys is None else self.keys
        return cast("SeriesT", {key: one() for key in keys})

    def after_exit(self, last: Any) -> Any:  # noqa: ANN401 - of whatever is counted
        if self.kind is MetricType.GAUGE:
            return {subject: self.new() for subject in last}
        return last

    def drop_absent(self, past: Any, present: Any) -> Any:  # noqa: ANN401 - as above
        if not self.subject.labels:
            return past
        return {subject: series for subject, series in past.items() if subject in present}

    def samples(self, snapshot: ProcessSnapshot) -> Iterable[Sample]:
        for subject, series in snapshot[self].items():
            match series:
                case Tally():
                    yield subject, series.value
                case dict():
                    for labels, value in self._labelled(series):
                        yield (*subject, *labels), value
                case Histogram():
                    yield subject, series

    def _labelled(self, series: Mapping[Any, Any]) -> Iterable[Sample]:
        if self.to_labels is None:
            return (((label,), value) for label, value in series.items())
        whole: Counter[tuple[str, ...]] = Counter()
        for key, count in series.items():
            whole[self.to_labels(key)] += count
        return whole.items()
