"""The limits of a bucket while the store is down (``on_store_error``): degraded operation."""

from dataclasses import replace
from math import inf

from proxy.policy.settings import Rate, ThrottleSettings, ThrottleWithoutStore
from proxy.policy.throttle.limiter import NEVER, LocalRateLimiter
from proxy.policy.throttle.pacing import Pace, pace


def degraded_rates(
    settings: ThrottleSettings, instances: int, now: float, life: float
) -> LocalRateLimiter:
    """Return a limiter of the rates for the time being.

    Permits that the store gave out a moment ago, to live for *life*, are not known here. So a share
    opens after one of its own intervals, and each time anew: a client that makes the store fail
    again and again gains nothing.
    """
    if settings.on_store_error is ThrottleWithoutStore.OPEN:
        return LocalRateLimiter(replace(settings, rates=()), now)
    if settings.on_store_error is ThrottleWithoutStore.CLOSED:
        return _NoPermits(replace(settings, rates=()), now)

    def pacing(_: ThrottleSettings, rate: Rate) -> Pace:
        whole = Rate(rate.count, rate.period / instances)
        return pace(settings, whole, life).shared_by(instances)

    # The same count in a longer time: a count cannot be divided so well.
    rates = tuple(Rate(rate.count, rate.period * instances) for rate in settings.rates)
    share = replace(settings, rates=rates)
    local = LocalRateLimiter(share, now, pacing)
    local.close_until(now, now + max((pacing(share, rate).interval for rate in rates), default=0.0))
    return local


def degraded_slots(settings: ThrottleSettings, instances: int) -> float:
    """Return how many concurrency slots this instance may use for the time being."""
    if settings.on_store_error is not ThrottleWithoutStore.LOCAL:
        return inf  # it is for the rates to admit no call
    return max((settings.concurrency or 0) // instances, 1)


class _NoPermits(LocalRateLimiter):
    """Admits no call."""

    __slots__ = ()

    def take(self, now: float, reserved: int) -> bool:  # noqa: ARG002 - no matter when
        return False

    def wait(self, now: float, count: int) -> float:  # noqa: ARG002 - no matter when
        return NEVER
