"""The numbers behind the metrics, as cheap as numbers can be.

A labelled counter of ``prometheus_client`` costs 1.5 µs per increment, a
histogram 2 µs, which is too much beside a request that takes 35. Here a request
adds to integers that belong to its route; the labels appear at the scrape.

All of it is touched by the event loop's thread alone, so there are no locks.
"""

from bisect import bisect_left
from collections.abc import Iterable

from proxy.policy.reasons import Why

LATENCY_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets, in seconds, each inclusive; one more has no bound."""

KNOWN_METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "CONNECT", "TRACE"}
)
OTHER_METHOD = "_OTHER"
"""Stands for every method that a client made up: labels come from closed sets."""

PHASES = ("body", "backoff", "upstream", "response")
"""Where a client can leave: while it sends, while it waits (between two attempts, or
for one), while it receives."""

WAIT_SOURCES = ("backoff", "hint")
"""Who chose the wait before another attempt: we, or the upstream."""


class Histogram:
    """Durations, sorted into buckets as they come."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        # Left, because Prometheus counts `le`: a value on a bound is within it.
        self.counts[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.total += seconds

    @classmethod
    def sum_of(cls, parts: "Iterable[Histogram]") -> "Histogram":
        """All the observations of *parts* in one."""
        whole = cls()
        for part in parts:
            whole.counts = [sum(pair) for pair in zip(whole.counts, part.counts, strict=True)]
            whole.total += part.total
        return whole

    def quantile(self, rank: float) -> float | None:
        """About how many seconds *rank* (0 to 1) of the observations stayed below.

        As ``histogram_quantile`` of Prometheus: evenly spread within a bucket, and
        never beyond the highest bound. None while there are no observations.
        """
        wanted = rank * sum(self.counts)
        if not wanted:
            return None
        below, lower = 0, 0.0
        for count, upper in zip(self.counts, LATENCY_BOUNDS, strict=False):
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
        self.duration = Histogram()

    def count_unusual(self, method: str, code: int) -> None:
        """Count the first request of its kind, or one with a method of its own making."""
        key = (method if method in KNOWN_METHODS else OTHER_METHOD, code)
        self.requests[key] = self.requests.get(key, 0) + 1


class RetrySeries:
    """What is counted besides for a route that retries."""

    __slots__ = ("verdicts", "waits")

    def __init__(self) -> None:
        self.verdicts = dict.fromkeys(Why, 0)
        self.waits = {source: Histogram() for source in WAIT_SOURCES}
