"""All the numbers of the process in one place, for a scrape and for ``/status``."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from proxy.core.recorders import ThrottleState
from proxy.observe.metrics.series import (
    DeadLetterSeries,
    Histogram,
    RetrySeries,
    RouteSeries,
    StoreSeries,
    ThrottleSeries,
)
from proxy.policy.attempt import FailureKind, outcome_label
from proxy.policy.breaker import BreakerState
from proxy.policy.dead_letter import DeadLetterCounts
from proxy.policy.failure_category import FailureCategory, category
from proxy.policy.reasons import KeyResult

ThrottleName = tuple[str, str]
"""Whose throttle it is: its scope, route or upstream, and the name of that one."""


@dataclass(slots=True, kw_only=True)
class MetricsSnapshot:
    """What there is to export; the recorders hold parts of it."""

    version: str
    parser: str
    last_reload: float
    """When the configuration in force was read, in seconds since the epoch."""
    reloads: dict[str, int] = field(default_factory=lambda: {"success": 0, "failure": 0})
    routes: dict[str, RouteSeries] = field(default_factory=dict)
    retries: dict[str, RetrySeries] = field(default_factory=dict)
    """Of the routes that retry."""
    keys: dict[str, dict[KeyResult, int]] = field(default_factory=dict)
    """What idempotency keys meant, of the routes that heed them."""
    letters: dict[str, DeadLetterSeries] = field(default_factory=dict)
    """Of the routes that keep dead letters."""
    evictions: int = 0
    """Records of keys that were given up before their time."""
    upstreams: dict[str, Histogram] = field(default_factory=dict)
    """How long attempts took."""
    attempts: dict[tuple[str, str], dict[FailureKind | int, int]] = field(default_factory=dict)
    """By route and upstream: how many ended in each kind or status."""
    throttles: dict[ThrottleName, ThrottleSeries] = field(default_factory=dict)
    store: StoreSeries | None = None
    """None where nothing is shared."""
    workers: int = 1
    """Processes that serve."""
    worker_restarts: int = 0
    """How often one had to be replaced."""
    lost_lines: Callable[[], int]
    budgets: Callable[[], Mapping[str, float]]
    breakers: Callable[[], Mapping[str, BreakerState]]
    throttle_states: Callable[[], Mapping[ThrottleName, ThrottleState]]
    store_state: Callable[[], str | None]
    transient: Callable[[], Mapping[tuple[str, str], frozenset[int]]]
    """By route and upstream: the statuses that may pass by themselves."""
    letter_counts: Callable[[], Mapping[str, DeadLetterCounts]]
    letters_counted: Callable[[], float]
    """When they were, in monotonic seconds, which all processes of a machine share."""
    process: Callable[[], Mapping[str, float]]
    """What the system knows of this process: the samples of ``process_*``, by their names."""

    def outcomes(self) -> Iterator[tuple[str, str, Counter[str]]]:
        """Each route and upstream, with the number of attempts per outcome."""
        for (route, upstream), endings in self.attempts.items():
            outcomes: Counter[str] = Counter()
            for ending, count in endings.items():
                outcomes[outcome_label(ending)] += count
            yield route, upstream, outcomes

    def failures(self) -> Iterator[tuple[str, FailureCategory, str, int]]:
        """Each route with a category, a kind or status of it, and how many attempts had that."""
        transient = self.transient()
        for (route, upstream), endings in self.attempts.items():
            statuses = transient.get((route, upstream), frozenset())
            for ending, count in endings.items():
                found = category(ending, statuses)
                if found is not None:
                    yield route, found, str(ending), count
