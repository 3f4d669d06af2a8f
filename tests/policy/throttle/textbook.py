"""Rates as a textbook has them: N calls are a window / N apart, and nothing is to spare.

For tests of what is made of a pace, whatever that is; which pace keeps a promise to an upstream
is for ``test_pacing.py``.
"""

from proxy.policy.settings import Rate, ThrottleSettings
from proxy.policy.throttle.limiter import Limiters, LocalConcurrencyLimiter, LocalRateLimiter
from proxy.policy.throttle.pacing import Pace, nanoseconds


def textbook_pace(settings: ThrottleSettings, rate: Rate) -> Pace:
    """Return a pace without margin, and without calls before their time."""
    period = nanoseconds(rate.period)
    return Pace(rate.count, period, settings.burst or 1, early=0, window=period)


def textbook_limiter(settings: ThrottleSettings, now: float) -> LocalRateLimiter:
    """Return the limiter of the rates of one process at that pace."""
    return LocalRateLimiter(settings, now, textbook_pace)


def textbook_limiters(settings: ThrottleSettings, now: float) -> Limiters:
    """Return the limiters of one process at that pace."""
    return Limiters(textbook_limiter(settings, now), LocalConcurrencyLimiter)
