"""From samples to a table: medians, ratios within a round, and how far they spread."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.load import Scenario
from bench.rounds import Series

AA_TOLERANCE = 0.03


@dataclass(frozen=True, slots=True)
class Ratio:
    """One proxy's figures over another's, round by round."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, series: Series, scenario: Scenario, above: str, below: str) -> "Ratio":
        pairs = zip(series[above], series[below], strict=True)
        ratios = [a.figure(scenario) / b.figure(scenario) for a, b in pairs]
        return cls(median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one scenario showed."""

    title: str
    medians: dict[str, float]
    """Microseconds, by name of the proxy."""
    ratio: Ratio
    """The subject over the peer that it is held against."""
    bar: float | None = None
    """The most that the ratio may be."""
    twins: Ratio | None = None
    """The subject over another instance of itself: how much to believe of the rest."""
    twins_must_agree: bool = False

    def faults(self) -> Iterable[str]:
        """What is wrong, one sentence each."""
        if self.bar is not None and self.ratio.median > self.bar:
            yield f"{self.title}: {self.ratio.median:.2f} times the peer, the bar is {self.bar:g}"
        if self.twins is not None and self.twins_must_agree:
            apart = abs(self.twins.median - 1)
            if apart > AA_TOLERANCE:
                yield f"{self.title}: two instances of one build are {apart:.1%} apart"


def find(
    scenario: Scenario, series: Series, subject: str, peer: str, bar: float | None = None
) -> Finding:
    """Sum up the rounds of one scenario."""
    twin = f"{subject}:twin"
    twins = Ratio.of(series, scenario, subject, twin) if twin in series else None
    return Finding(
        title=scenario.title,
        medians={
            name: median(sample.figure(scenario) for sample in samples)
            for name, samples in series.items()
        },
        ratio=Ratio.of(series, scenario, subject, peer),
        bar=bar,
        twins=twins,
        twins_must_agree=scenario.steady,
    )


@dataclass(frozen=True, slots=True)
class Startup:
    """How long it took from start to ready."""

    seconds: list[float]
    bar: float

    def faults(self) -> Iterable[str]:
        """What is wrong, one sentence each."""
        if median(self.seconds) > self.bar:
            yield f"{self}, the bar is {self.bar:g} s"

    def __str__(self) -> str:
        return f"start to ready: {median(self.seconds):.2f} s"


def markdown(findings: Sequence[Finding], names: Sequence[str], peer: str) -> str:
    """The table, ready for the README."""
    rows = [
        ["µs", *names, f"ratio to {peer}", "bar", "A/A"],
        ["---"] * (len(names) + 4),
    ]
    for finding in findings:
        figures = [f"{finding.medians[name]:.0f}" for name in names]
        bar = "" if finding.bar is None else f"{finding.bar:g}"
        twins = "" if finding.twins is None else str(finding.twins)
        rows.append([finding.title, *figures, str(finding.ratio), bar, twins])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
