"""The numbers behind the metrics, as cheap as numbers can be.

A labelled counter of ``prometheus_client`` costs 1.5 µs per increment, a
histogram 2 µs, which is too much beside a request that takes 35. Here a request
adds to integers that belong to its route; the labels appear at the scrape.

All of it is touched by the event loop's thread alone, so there are no locks.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from proxy.policy.dead_letter import ReplayResult
from proxy.policy.reasons import KeyResult, VerdictReason

# Upper bounds of buckets, in seconds, each inclusive; one more bucket has no bound.
LATENCY_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
WAIT_BOUNDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""A wait is chosen, so it may be next to nothing, or minutes that an upstream asked for."""
STORE_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
"""A store is near, and a request gives up on it before a caller would notice."""

KNOWN_METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "CONNECT", "TRACE"}
)
OTHER_METHOD = "_OTHER"
"""Stands for every method that a client made up: labels come from closed sets."""

PHASES = ("body", "queue", "backoff", "upstream", "response")
"""Where a client can leave: while it sends, while it waits (in a queue, between two
attempts, or for one), while it receives."""

WAIT_SOURCES = ("backoff", "hint")
"""What chose the wait before another attempt: our backoff, or a hint of the upstream."""


KeyT = TypeVar("KeyT")


def sum_of_counts(parts: Iterable[Mapping[KeyT, int]]) -> dict[KeyT, int]:
    """Add up the counts of all *parts*, key by key; zeroes stay."""
    whole: Counter[KeyT] = Counter()
    for part in parts:
        whole.update(part)
    return dict(whole)


class Histogram:
    """Durations, sorted into buckets as they come."""

    __slots__ = ("_least", "bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._least = bounds[0]
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        # Left, because Prometheus counts `le`: a value on a bound is within it.
        if seconds <= self._least:
            self.counts[0] += 1
        else:
            self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    @property
    def observations(self) -> int:
        return sum(self.counts)

    @classmethod
    def sum_of(cls, parts: "Sequence[Histogram]") -> "Histogram":
        """Add up the observations of *parts*, whose bounds are the same."""
        whole = cls(parts[0].bounds)
        for part in parts:
            whole.counts = [sum(pair) for pair in zip(whole.counts, part.counts, strict=True)]
            whole.total += part.total
        return whole

    def quantile(self, rank: float) -> float | None:
        """Estimate how many seconds *rank* (0 to 1) of the observations stayed below.

        Works as ``histogram_quantile`` of Prometheus: evenly spread within a bucket, and
        never beyond the highest bound. None while there are no observations.
        """
        wanted = rank * self.observations
        if not wanted:
            return None
        below, lower = 0, 0.0
        for count, upper in zip(self.counts, self.bounds, strict=False):
            if count and below + count >= wanted:
                return lower + (upper - lower) * (wanted - below) / count
            below, lower = below + count, upper
        return lower


class RouteSeries:
    """What is counted for one route, whatever happens to its configuration."""

    __slots__ = ("disconnects", "duration", "in_flight", "requests")

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = {}
        """By method and status."""
        self.in_flight = 0
        self.disconnects = dict.fromkeys(PHASES, 0)
        self.duration = Histogram(LATENCY_BOUNDS)

    @classmethod
    def sum_of(cls, parts: "Sequence[RouteSeries]") -> "RouteSeries":
        """Add up what all *parts* counted of the same route."""
        whole = cls()
        whole.requests = sum_of_counts(part.requests for part in parts)
        whole.in_flight = sum(part.in_flight for part in parts)
        whole.disconnects = sum_of_counts(part.disconnects for part in parts)
        whole.duration = Histogram.sum_of([part.duration for part in parts])
        return whole

    def count_unusual(self, method: str, code: int) -> None:
        """Count the first request with this method and code, or one with an unknown method."""
        key = (method if method in KNOWN_METHODS else OTHER_METHOD, code)
        self.requests[key] = self.requests.get(key, 0) + 1


class RetrySeries:
    """What is counted in addition for a route that retries."""

    __slots__ = ("verdicts", "waits")

    def __init__(self) -> None:
        self.verdicts = dict.fromkeys(VerdictReason, 0)
        self.waits = {source: Histogram(WAIT_BOUNDS) for source in WAIT_SOURCES}

    @classmethod
    def sum_of(cls, parts: "Sequence[RetrySeries]") -> "RetrySeries":
        """Add up what all *parts* counted of the same route."""
        whole = cls()
        whole.verdicts = sum_of_counts(part.verdicts for part in parts)
        whole.waits = {
            source: Histogram.sum_of([part.waits[source] for part in parts])
            for source in WAIT_SOURCES
        }
        return whole


def key_series() -> dict[KeyResult, int]:
    """Make the counters of a route on which requests with a key run once."""
    return dict.fromkeys(KeyResult, 0)


class DeadLetterSeries:
    """What is counted in addition for a route that keeps dead letters."""

    __slots__ = ("expired", "kept", "lost", "replays")

    def __init__(self) -> None:
        self.kept = 0
        self.lost = 0
        """Dead letters that could not be kept."""
        self.expired = 0
        """Dead letters that were kept, and not handled in time."""
        self.replays = dict.fromkeys(ReplayResult, 0)

    @classmethod
    def sum_of(cls, parts: "Sequence[DeadLetterSeries]") -> "DeadLetterSeries":
        """Add up what all *parts* counted of the same route."""
        whole = cls()
        whole.kept = sum(part.kept for part in parts)
        whole.lost = sum(part.lost for part in parts)
        whole.expired = sum(part.expired for part in parts)
        whole.replays = sum_of_counts(part.replays for part in parts)
        return whole


class ThrottleSeries:
    """What one throttle decided. The series is its own recorder: to let pass costs one addition.

    Implements :class:`proxy.core.recorders.ThrottleRecorder`.
    """

    __slots__ = ("_passed", "_refused", "waits")

    def __init__(self) -> None:
        self._passed = 0
        self._refused = 0
        self.waits = Histogram(WAIT_BOUNDS)
        """Waits of the attempts that passed after one."""

    @classmethod
    def sum_of(cls, parts: "Sequence[ThrottleSeries]") -> "ThrottleSeries":
        """Add up what all *parts* decided at the same throttle."""
        whole = cls()
        whole._passed = sum(part.decisions()["passed"] for part in parts)
        whole._refused = sum(part.decisions()["refused"] for part in parts)
        whole.waits = Histogram.sum_of([part.waits for part in parts])
        return whole

    def __repr__(self) -> str:
        counted = ", ".join(f"{count} {word}" for word, count in self.decisions().items())
        return f"<throttle: {counted}>"

    def admitted(self) -> None:
        """Count an attempt that went through at once."""
        self._passed += 1

    def delayed(self, seconds: float) -> None:
        """Count an attempt that went through after a wait."""
        self.waits.observe(seconds)

    def refused(self) -> None:
        """Count an attempt that was refused."""
        self._refused += 1

    def decisions(self) -> dict[str, int]:
        """Return the number of attempts per decision; every attempt has exactly one."""
        return {
            "passed": self._passed,
            "delayed": self.waits.observations,
            "refused": self._refused,
        }


class StoreSeries:
    """How a shared store does, operation by operation.

    Implements :class:`proxy.core.recorders.StoreRecorder`.
    """

    __slots__ = ("durations", "errors")

    def __init__(self, operations: Iterable[str]) -> None:
        """*operations* are all names that will ever be counted: they are labels."""
        self.durations = {operation: Histogram(STORE_BOUNDS) for operation in operations}
        """Durations of the operations that were answered."""
        self.errors = dict.fromkeys(self.durations, 0)

    @classmethod
    def sum_of(cls, parts: "Sequence[StoreSeries]") -> "StoreSeries":
        """Add up how the same store did for all of *parts*."""
        whole = cls(parts[0].durations)
        whole.durations = {
            operation: Histogram.sum_of([part.durations[operation] for part in parts])
            for operation in whole.durations
        }
        whole.errors = sum_of_counts(part.errors for part in parts)
        return whole

    def __repr__(self) -> str:
        return f"<store: {sum(self.errors.values())} errors>"

    def operated(self, operation: str, seconds: float) -> None:
        """Count an operation that the store answered."""
        self.durations[operation].observe(seconds)

    def failed(self, operation: str) -> None:
        """Count an operation that the store did not answer, or not in time."""
        self.errors[operation] += 1
