"""All the numbers of a process in one place, for a scrape, for ``/status`` and for a supervisor.

:class:`MetricsSnapshot` has what is counted; the live one of a process reads some values anew
each time, a copy that is sent to another process has constants in their stead
(:func:`proxy.observe.metrics.aggregate.snapshot`). :class:`ProcessSnapshot` adds what goes on.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from proxy.policy.idempotency.record import KnownKeys
from proxy.policy.reasons import KeyResult

ThrottleName = tuple[str, str]
"""The scope of a throttle (``route`` or ``upstream``) and the name of its route or upstream."""


@dataclass(slots=True, kw_only=True)
class MetricsSnapshot:
    """What there is to export; the recorders count into parts of it."""

    version: str
    parser: str
    last_reload: float
    """When the configuration in force was read, in seconds since the epoch."""
    reloads: dict[str, int] = field(default_factory=lambda: {"success": 0, "failure": 0})
    routes: dict[str, RouteSeries] = field(default_factory=dict)
    retries: dict[str, RetrySeries] = field(default_factory=dict)
    """Of the routes that retry."""
    keys: dict[str, dict[KeyResult, int]] = field(default_factory=dict)
    """What idempotency keys meant, on the routes that have them."""
    dead_letters: dict[str, DeadLetterSeries] = field(default_factory=dict)
    """Of the routes that keep dead letters."""
    evictions: int = 0
    """Records of keys that were given up before their time."""
    upstreams: dict[str, Histogram] = field(default_factory=dict)
    """How long attempts took."""
    attempts: dict[tuple[str, str], dict[FailureKind | int, int]] = field(default_factory=dict)
    """By route and upstream: how many ended in each kind or status."""
    throttles: dict[ThrottleName, ThrottleSeries] = field(default_factory=dict)
    store: StoreSeries | None = None
    """None where no store is shared."""
    workers: int = 1
    """Processes that serve."""
    worker_restarts: int = 0
    """How often a worker had to be replaced."""
    lost_lines: Callable[[], int]
    budgets: Callable[[], Mapping[str, float]]
    breakers: Callable[[], Mapping[str, BreakerState]]
    throttle_states: Callable[[], Mapping[ThrottleName, ThrottleState]]
    store_state: Callable[[], str | None]
    transient: Callable[[], Mapping[tuple[str, str], frozenset[int]]]
    """By route and upstream: the statuses that may pass by themselves."""
    dead_letter_counts: Callable[[], Mapping[str, DeadLetterCounts]]
    dead_letters_counted: Callable[[], float]
    """When they were counted, in monotonic seconds, which all processes of a machine share."""
    process: Callable[[], Mapping[str, float]]
    """What the system knows of this process: the samples of ``process_*``, by their names."""

    def outcomes(self) -> Iterator[tuple[str, str, Counter[str]]]:
        """Yield each route and upstream, with the number of attempts per outcome."""
        for (route, upstream), endings in self.attempts.items():
            outcomes: Counter[str] = Counter()
            for ending, count in endings.items():
                outcomes[outcome_label(ending)] += count
            yield route, upstream, outcomes

    def failures(self) -> Iterator[tuple[str, FailureCategory, str, int]]:
        """Yield each route, category, and kind or status in it, with its number of attempts."""
        transient = self.transient()
        for (route, upstream), endings in self.attempts.items():
            statuses = transient.get((route, upstream), frozenset())
            for ending, count in endings.items():
                found = category(ending, statuses)
                if found is not None:
                    yield route, found, str(ending), count


@dataclass(frozen=True, slots=True)
class AddressState:
    """The connection pool and the breaker of one address of an upstream."""

    address: str
    open: int
    """Connections that are open."""
    idle: int
    """Open connections that wait in the pool."""
    failing: bool
    """Whether the last attempt to connect failed."""
    breaker: BreakerState | None
    """None without a breaker."""


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """One moment of one process, or of several."""

    metrics: MetricsSnapshot
    connections: int
    """Clients that are connected."""
    keys_in_flight: int
    keys_waiting: int
    """Requests that wait for another one with the same idempotency key."""
    addresses: Mapping[str, Sequence[AddressState]]
    """The addresses of each upstream."""
    keys_known: KnownKeys | None = None
    """What the memory of this process knows of keys; None where a store has them."""
