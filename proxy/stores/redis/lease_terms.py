"""The terms on which permits are leased ahead, so that no rate limit is exceeded.

A permit that an instance got from the store is used a little later, or lapses. It lives for L
seconds from the moment in which it was asked for, on all instances alike, however far away the
store is: what goes out in a window was granted in that window and L. So the due times of a rate are
further apart at the store than for one process (``policy/throttle/pacing.py``).

Because a permit lapses, it can be given before its due time, and kept until then: by L/2
at most, so that as much is left for the way to the instance and for its use. So an instance that
asks a little late loses nothing, and one command serves for several calls.

The longer permits live, the fewer the commands and the less of the rate is used: a 40th of the
window costs 2.4 % of it.
"""

from dataclasses import dataclass

from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.pacing import life_of, pace

_AHEAD = 0.5
"""The part of its life by which a permit may be given before its due time."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The limits of a throttle as the store's scripts take them."""

    life: float
    """Seconds for which a permit is good, from the moment in which it was asked for."""
    interval: float
    """Seconds from one permit to the next, when all are used up."""
    intervals: tuple[float, ...]
    """Seconds from one permit of a rate to the next, for each rate."""
    rates: tuple[int, ...]
    """For the script: calls, the microseconds that they take, burst, microseconds early; each."""
    longest_pause: float

    @property
    def ahead(self) -> float:
        """Seconds by which a permit may be given before its due time."""
        return self.life * _AHEAD


def lease_terms(settings: ThrottleSettings, permit_life: float | None = None) -> LeaseTerms:
    """Return the terms for *settings*."""
    # In an order that does not depend on the file's: the store knows them by number.
    rates = sorted(set(settings.rates), key=lambda rate: (rate.period, rate.count))
    life = life_of(settings.rates, permit_life)
    numbers: list[int] = []
    intervals: list[float] = []
    for rate in rates:
        sent = pace(settings, rate, life)
        width = -(-sent.width // 1000)
        numbers += (sent.calls, width, sent.burst, sent.early // 1000)
        intervals.append(sent.interval)
    longest_pause = settings.longest_pause or 0.0
    interval = max(intervals, default=0.0)
    return LeaseTerms(life, interval, tuple(intervals), tuple(numbers), longest_pause)
