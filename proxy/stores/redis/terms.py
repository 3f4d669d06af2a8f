"""On what terms permits are lent, so that no rate is exceeded.

A permit that an instance got from the store is used a little later, or lapses. If it lives
for L seconds, what goes out in a window of W seconds was granted in W + L seconds. So with
a burst of b at the store, no more than ``rate * (W + L) + b`` go out in any window. What the
operator allows is ``rate * W + burst``, hence::

    b + rate * L <= burst

Half of the burst goes to either side: b at the store, for what comes at once, and L, the
longer the fewer the calls to the store. The default burst, a tenth of a second's worth,
makes L 50 ms.

Two things bend the rule, and neither shows in what goes out in a second, or in a period:

- ``rate * L`` is rounded to a whole number: an operator who writes ``burst: 5`` shall get
  five. Two calls may then be closer together than their rate says, by L.
- A permit must live long enough to come back from the store and be used. Where the burst is
  so small that less than ``SHORTEST`` is left, that is what it gets, at the cost of 1 % of
  a second's worth.
"""

import math
from dataclasses import dataclass

from proxy.policy.permits import usual_burst
from proxy.policy.settings import Rate, ThrottleSettings

LONGEST = 0.1
"""Seconds within which permits lapse that nobody used."""
SHORTEST = 0.01


@dataclass(frozen=True, slots=True)
class Terms:
    """What a throttle means to the store."""

    life: float
    """Seconds for which a permit is good, from the moment in which it was asked for."""
    interval: float
    """Seconds from one permit to the next, when all are used up."""
    rates: tuple[int, ...]
    """For the script: count, period in microseconds and burst of each."""
    longest_pause: float


def terms(settings: ThrottleSettings) -> Terms:
    """The terms for *settings*."""
    # In an order that does not depend on the file's: the store knows them by number.
    rates = sorted(set(settings.rates), key=lambda rate: (rate.period, rate.count))
    bursts = [settings.burst or usual_burst(rate) for rate in rates]
    life = LONGEST
    for rate, burst in zip(rates, bursts, strict=True):
        # Of a burst of one nothing can be spared; but half an interval is rounded away.
        life = min(life, max(burst // 2, 0.5) * rate.period / rate.count)
    life = max(life, SHORTEST)
    numbers: list[int] = []
    for rate, burst in zip(rates, bursts, strict=True):
        numbers += (rate.count, round(rate.period * 1e6), _at_the_store(rate, burst, life))
    interval = max((rate.period / rate.count for rate in rates), default=0.0)
    return Terms(life, interval, tuple(numbers), settings.longest_pause or 0.0)


def _at_the_store(rate: Rate, burst: int, life: float) -> int:
    lent = math.floor(rate.count * life / rate.period + 0.5)
    return max(burst - lent, 1)
