"""A throttle: its rates, burst, concurrency, queue and key."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """So many calls in so many seconds: ``100/s``, ``10/500ms``."""

    count: int
    period: float


@dataclass(frozen=True, slots=True)
class ThrottleKey:
    """What tells the callers of a throttle apart."""

    source: str
    """``client_ip``, ``header`` or ``query``."""
    name: str = ""
    """Of the header, in lower case, or of the query parameter."""


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """How many calls a route or an upstream lets through, and who waits for how long."""

    rates: tuple[Rate, ...] = ()
    """All of them hold; none: as many as come."""
    burst: int | None = None
    """Calls that may go out together, beyond the rate's count; None: nothing beyond it."""
    algorithm: str = "gcra"
    """``gcra`` (smooth) or ``window`` (as soon as the rate's count allows)."""
    concurrency: int | None = None
    max_wait: float | None = 5.0
    max_queue: int = 1000
    key: ThrottleKey | None = None
    max_keys: int = 10_000
    longest_pause: float | None = 60.0
    """How long a refused response with a hint may close a bucket; None: not at all."""
    on_store_error: str = "local"
    """``local``, ``open`` or ``closed``."""
    margin: float | None = None
    """Seconds by which the time from sending to arrival may vary; None: what suits the rate."""
