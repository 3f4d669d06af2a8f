"""Settings of a throttle: its rate limits, burst, concurrency, wait queue and key."""

from dataclasses import dataclass
from enum import StrEnum

from proxy.policy.settings.validation import above, at_least, check, choose, lower_case


class RateAlgorithm(StrEnum):
    """How calls are spaced: smoothly, or as soon as the rate's count allows."""

    GCRA = "gcra"
    WINDOW = "window"


class ThrottleWithoutStore(StrEnum):
    """How calls are limited while the store does not answer."""

    LOCAL = "local"
    OPEN = "open"
    CLOSED = "closed"


class CallerSource(StrEnum):
    """The part of a request that tells the callers of a throttle apart."""

    CLIENT_IP = "client_ip"
    HEADER = "header"
    QUERY = "query"


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit of *count* calls in *period* seconds: ``100/s``, ``10/500ms``."""

    count: int
    period: float

    def __post_init__(self) -> None:
        at_least(self, 1, "count")
        above(self, 0, "period")


@dataclass(frozen=True, slots=True)
class ThrottleKey:
    """What tells the callers of a throttle apart."""

    source: CallerSource
    name: str = ""
    """Name of the header, in lower case, or of the query parameter."""

    def __post_init__(self) -> None:
        choose(self, CallerSource, "source")
        is_named = self.source != CallerSource.CLIENT_IP
        check(self, "name", "that of a header or parameter", holds=bool(self.name) == is_named)
        if self.source == CallerSource.HEADER:
            lower_case(self, "name")


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """The limits of a route or an upstream, and how long an attempt may wait for them."""

    rates: tuple[Rate, ...] = ()
    """Rate limits, all of which apply; empty: no rate limit."""
    burst: int | None = None
    """Calls that may go out at once, beyond the rate's count; None: none beyond it."""
    algorithm: RateAlgorithm = RateAlgorithm.GCRA
    concurrency: int | None = None
    max_wait: float | None = 5.0
    max_queue: int = 1000
    key: ThrottleKey | None = None
    max_keys: int = 10_000
    longest_pause: float | None = 60.0
    """Seconds for which a refused response with a hint may pause a bucket; None: no pauses."""
    on_store_error: ThrottleWithoutStore = ThrottleWithoutStore.LOCAL
    margin: float | None = None
    """Seconds by which the time from sending to arrival may vary; None: derived from the rate."""

    def __post_init__(self) -> None:
        at_least(self, 1, "burst", "concurrency", "max_keys")
        choose(self, RateAlgorithm, "algorithm")
        at_least(self, 0, "max_wait", "max_queue", "margin")
        above(self, 0, "longest_pause")
        choose(self, ThrottleWithoutStore, "on_store_error")
