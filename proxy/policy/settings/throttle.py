"""Settings of a throttle: its rate limits, burst, concurrency, wait queue and key."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from proxy.policy.settings.validation import Validated, above, at_least, require


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
class Rate(Validated):
    """A rate limit of *count* calls in *period* seconds: ``100/s``, ``10/500ms``."""

    count: Annotated[int, at_least(1)]
    period: Annotated[float, above(0)]


@dataclass(frozen=True, slots=True)
class ThrottleKey(Validated):
    """What tells the callers of a throttle apart."""

    source: CallerSource
    name: str = ""
    """Name of the header, in lower case, or of the query parameter."""

    def check_fields(self) -> None:
        is_named = self.source is not CallerSource.CLIENT_IP
        require(self, "name", "that of a header or parameter", holds=bool(self.name) == is_named)
        is_lower = self.source is not CallerSource.HEADER or self.name == self.name.lower()
        require(self, "name", "in lower case", holds=is_lower)


@dataclass(frozen=True, slots=True)
class ThrottleSettings(Validated):
    """The limits of a route or an upstream, and how long an attempt may wait for them."""

    rates: tuple[Rate, ...] = ()
    """Rate limits, all of which apply; empty: no rate limit."""
    burst: Annotated[int | None, at_least(1)] = None
    """Calls that may go out at once, beyond the rate's count; None: none beyond it."""
    algorithm: RateAlgorithm = RateAlgorithm.GCRA
    concurrency: Annotated[int | None, at_least(1)] = None
    max_wait: Annotated[float | None, at_least(0)] = 5.0
    max_queue: Annotated[int, at_least(0)] = 1000
    key: ThrottleKey | None = None
    max_keys: Annotated[int, at_least(1)] = 10_000
    longest_pause: Annotated[float | None, above(0)] = 60.0
    """Seconds for which a refused response with a hint may pause a bucket; None: no pauses."""
    on_store_error: ThrottleWithoutStore = ThrottleWithoutStore.LOCAL
    margin: Annotated[float | None, at_least(0)] = None
    """Seconds by which the time from sending to arrival may vary; None: derived from the rate."""
