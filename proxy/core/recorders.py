"""The recorder ports of throttles, stores and all else: what they report to the metrics.

A route's recorder is :class:`proxy.core.route.Recorder`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from proxy.policy.breaker import BreakerState


class Meter(Protocol):
    """Counts what is about no route in use and no throttle. Must not raise and must not wait.

    Implemented by ``observe`` (metrics), called by ``stores`` and ``replay``.
    """

    def count(self, metric: str, *labels: str, by: int = 1) -> None:
        """Add to the series that has these *labels*, of a counter in the table of metrics."""


class DeliveryMeter(Meter, Protocol):
    """Counts and measures what becomes of deliveries, as :class:`Meter` does."""

    def observe(self, metric: str, seconds: float, *labels: str) -> None:
        """Add *seconds* to the series with these *labels*, of a histogram in the table."""


class ThrottleRecorder(Protocol):
    """Records what one throttle decided. Must not raise and must not wait.

    Implemented by ``observe`` (metrics), called by ``pipeline`` (throttle).
    """

    def admitted(self) -> None:
        """Count an attempt that was admitted at once."""

    def delayed(self, seconds: float) -> None:
        """Count an attempt that was admitted after a wait of *seconds*."""

    def refused(self) -> None:
        """Count an attempt that was refused."""


@dataclass(frozen=True, slots=True)
class ThrottleState:
    """The present state of one throttle, summed over all its buckets.

    Read by ``pipeline`` (throttle), shown by ``observe`` (metrics, status).
    """

    waiting: int
    """Attempts in the wait queues."""
    under_way: int
    """Attempts that were admitted and have not ended, where a concurrency limit counts them."""
    buckets: int
    """Buckets in use: one per value of the key; one where there is no key."""
    paused: int
    """Buckets that are paused because the upstream asked for it."""
    paused_for: float
    """Seconds until the last pause of a bucket ends."""


@dataclass(frozen=True, slots=True)
class AddressState:
    """The connection pool and the breaker of one address of an upstream.

    Read by ``pipeline`` (generation), shown by ``observe`` (status).
    """

    address: str
    open: int
    """Connections that are open."""
    idle: int
    """Open connections that wait in the pool."""
    failing: bool
    """Whether the last attempt to connect failed, within about a minute."""
    breaker: BreakerState | None
    """None without a breaker."""


class StoreRecorder(Protocol):
    """Records how a shared store does. Must not raise and must not wait.

    Implemented by ``observe`` (metrics), called by ``stores`` (sqlite, redis) and by ``pipeline``
    (idempotency).
    """

    def operated(self, operation: str, seconds: float) -> None:
        """Record that the store answered *operation* after *seconds*."""

    def failed(self, operation: str) -> None:
        """Count an *operation* that the store did not answer, or not in time."""


class StoreMeter(Meter, Protocol):
    """Counts what the store does. Must not raise and must not wait.

    Implemented by ``observe`` (metrics), called by ``stores`` when the store is opened.
    """

    def store(self, operations: Iterable[str]) -> StoreRecorder:
        """Make the recorder of a shared store; *operations* are the names of all that it does."""
