"""From measurements to findings: medians, and ratios within a round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.loads import Figures


@dataclass(frozen=True, slots=True)
class Metric:
    """Something that is measured, and how to write it."""

    title: str
    unit: str
    digits: int = 0
    compared: bool = True
    """Whether a ratio of it tells something of the proxies."""

    def text(self, value: float) -> str:
        """With its unit."""
        return f"{value:,.{self.digits}f} {self.unit}"


METRICS = {
    "cpu": Metric("CPU per request", "µs", 1),
    "cpu_mib": Metric("CPU per MiB", "µs"),
    "p50": Metric("median latency", "µs"),
    "p99": Metric("99th percentile", "µs"),
    "per_second": Metric("throughput", "requests/s"),
    "mib_per_second": Metric("throughput", "MiB/s"),
    "rss": Metric("memory", "MiB", 1),
    "above_idle": Metric("memory above idle", "MiB", 1),
    "kib_each": Metric("memory per idle connection", "KiB", 1),
    "seconds": Metric("start to first answer", "s", 3),
    "store_cpu": Metric("CPU of Redis per request", "µs", 1),
    "share": Metric("the lesser worker's share of the work", "of 1", 2),
    "rate": Metric("sent", "requests/s", compared=False),
    "late": Metric("sent late, median", "µs", compared=False),
    "late_p99": Metric("sent late, 99th percentile", "µs", compared=False),
}

Series = Mapping[str, Sequence[Figures]]
"""By name of the contender: one measurement per round."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """One contender's figures over another's, round by round."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(series: Series, metric: str, above: str, below: str) -> Ratio | None:
    """None unless both have that figure, in the same rounds."""
    pairs = [
        (mine[metric], theirs[metric])
        for mine, theirs in zip(series.get(above, ()), series.get(below, ()), strict=False)
        if metric in mine and theirs.get(metric, 0.0) > 0
    ]
    if not pairs:
        return None
    ratios = [mine / theirs for mine, theirs in pairs]
    return Ratio(median(ratios), min(ratios), max(ratios))


def medians(measured: Sequence[Figures]) -> dict[str, float]:
    """The median of each metric that was measured."""
    names = dict.fromkeys(name for figures in measured for name in figures)
    return {
        name: median(figures[name] for figures in measured if name in figures) for name in names
    }


def mean(measured: Sequence[Figures]) -> Figures:
    """Of each metric."""
    return {
        name: sum(figures[name] for figures in measured) / len(measured) for name in measured[0]
    }
