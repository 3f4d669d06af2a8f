"""How far apart calls go out, so that an upstream that counts arrivals never finds too many.

``20/s`` means: at most 20 arrivals in any second, as the upstream counts them. Arrivals are not
sends: each is later than its send by a time that varies, by less than *margin*. The upstream may
count both ends of its window, and in whole milliseconds. A timer of ours is a little late. And a
permit that comes from a shared store is used a little after it was given.

Calls have *due times*, and one due time follows the other after T, or when the next call is made,
if that is later. A call may go out up to ``EARLY`` before its due time, so that a timer that is
late by less costs nothing; and one whose permit was leased goes out at most *life* after it. So
from the first to the last of n + 1 calls there are at least ``n T - early - life``. Where that is
the window, its margin and a millisecond for n = N, never more than N arrive in it::

    T = (window + margin + 1 ms + early + life) / N

With a configured burst B, up to B calls go out at once: a call may go out B - 1 due times early,
too, and N + B - 1 is the most in one window. Where none is configured and a window lasts a minute
or more, a fiftieth of N may go at once, and is taken out of N: ``b = 1 + N // 50`` at once,
N - b + 1 in the time above, and never more than N in any window.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from proxy.policy.settings import Rate, RateAlgorithm, ThrottleSettings

NANOSECONDS = 1_000_000_000
"""Nanoseconds in a second."""

_SHARE = 50
"""The part of a window that margin and early are at most, and the part of N that a long window lets
out at once."""
_WIDEST_MARGIN = 50_000_000
_EARLIEST = 5_000_000
_COARSE_CLOCK = 1_000_000
"""Nanoseconds by which a clock of whole milliseconds may be wrong about a distance."""
_LIFE_SHARE = 40
"""The part of a window for which a leased permit lives, within these bounds (seconds)."""
_SHORTEST_LIFE = 0.01
_LONGEST_LIFE = 0.1
_LONG = 60 * NANOSECONDS
"""Nanoseconds from which on a window is long enough for a part of it to go at once."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A rate as it is sent: *calls* in *width* nanoseconds, evenly, and a few at once."""

    calls: int
    width: int
    burst: int
    """Calls that may go out at once."""
    early: int
    """Nanoseconds by which a call may go out before its due time."""
    window: int
    """Nanoseconds in which no more than the rate's number may be sent, where that is counted."""

    @property
    def interval(self) -> float:
        """Seconds from one due time to the next."""
        return self.width / self.calls / NANOSECONDS

    def shared_by(self, instances: int) -> "Pace":
        """Return the share of each of *instances* that cannot coordinate, one call at a time."""
        return replace(self, width=self.width * instances, burst=1)


Pacing = Callable[[ThrottleSettings, Rate], Pace]
"""Computes the pace at which calls go out, for one rate of a throttle."""


def pace(settings: ThrottleSettings, rate: Rate, life: float = 0.0) -> Pace:
    """Return how the calls of *rate* go out; *life*: seconds from a permit's lease to its use."""
    period, burst = nanoseconds(rate.period), settings.burst
    margin = min(_WIDEST_MARGIN, period // _SHARE)
    if settings.margin is not None:
        margin = nanoseconds(settings.margin)
    early = min(_EARLIEST, period // _SHARE)
    window = period + margin + _COARSE_CLOCK
    width = window + early + nanoseconds(life)
    if burst is not None:
        return Pace(rate.count, width, burst, early, window)
    at_once = 1 + (rate.count // _SHARE if period >= _LONG else 0)
    return Pace(rate.count - at_once + 1, width, at_once, early, window)


def most_in_window(rate: Rate, burst: int | None) -> int:
    """Return how many calls can arrive in one window of *rate*."""
    return rate.count + (burst or 1) - 1


def life_of(rates: Collection[Rate], written: float | None = None) -> float:
    """Return the seconds for which a permit of these rates lives that a shared store has lent."""
    if written is not None:
        return written
    part = min((rate.period / _LIFE_SHARE for rate in rates), default=_LONGEST_LIFE)
    return min(max(part, _SHORTEST_LIFE), _LONGEST_LIFE)


def part_used(settings: ThrottleSettings, rate: Rate, life: float = 0.0) -> float:
    """Return the part of *rate* that goes out at best, when calls come all the time."""
    sent, period = pace(settings, rate, life), nanoseconds(rate.period)
    if settings.algorithm is RateAlgorithm.WINDOW:
        return period / sent.window
    return sent.calls / rate.count * period / sent.width


def nanoseconds(seconds: float) -> int:
    """Convert *seconds* to whole nanoseconds."""
    return round(seconds * NANOSECONDS)
