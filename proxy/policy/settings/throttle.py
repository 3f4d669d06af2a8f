"""Settings of a throttle: its rate limits, burst, concurrency, wait queue and key."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit of *count* calls in *period* seconds: ``100/s``, ``10/500ms``."""

    count: int
    period: float


@dataclass(frozen=True, slots=True)
class ThrottleKey:
    """What tells the callers of a throttle apart."""

    source: str
    """``client_ip``, ``header`` or ``query``."""
    name: str = ""
    """Name of the header, in lower case, or of the query parameter."""


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """The limits of a route or an upstream, and how long an attempt may wait for them."""

    rates: tuple[Rate, ...] = ()
    """Rate limits, all of which apply; empty: no rate limit."""
    burst: int | None = None
    """Calls that may go out at once, beyond the rate's count; None: none beyond it."""
    algorithm: str = "gcra"
    """``gcra`` (smooth) or ``window`` (as soon as the rate's count allows)."""
    concurrency: int | None = None
    max_wait: float | None = 5.0
    max_queue: int = 1000
    key: ThrottleKey | None = None
    max_keys: int = 10_000
    longest_pause: float | None = 60.0
    """Seconds for which a refused response with a hint may pause a bucket; None: no pauses."""
    on_store_error: str = "local"
    """``local``, ``open`` or ``closed``."""
    margin: float | None = None
    """Seconds by which the time from sending to arrival may vary; None: derived from the rate."""
