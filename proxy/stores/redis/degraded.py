"""The limiter of a bucket while the store is down (``on_store_error``): degraded operation."""

from dataclasses import replace

from proxy.http.refusal import QuotaLeft
from proxy.policy.settings import Rate, ThrottleSettings
from proxy.policy.throttle.limiter import NEVER, Limiter, LocalLimiter
from proxy.policy.throttle.pacing import Pace, pace


def degraded_limiter(
    settings: ThrottleSettings, instances: int, now: float, under_way: int, life: float
) -> Limiter:
    """Return a limiter for the time being, with *under_way* calls under way.

    Permits that the store gave out a moment ago, to live for *life*, are not known here. So a share
    opens after one of its own intervals, and each time anew: a client that makes the store fail
    again and again gains nothing.
    """
    if settings.on_store_error == "open":
        return _Everything()
    if settings.on_store_error == "closed":
        return _Nothing()

    def pacing(_: ThrottleSettings, rate: Rate) -> Pace:
        whole = Rate(rate.count, rate.period / instances)
        return pace(settings, whole, life).shared_by(instances)

    share = share_of(settings, instances)
    local = LocalLimiter(share, now, pacing)
    local.close_until(
        now, now + max((pacing(share, rate).interval for rate in share.rates), default=0.0)
    )
    for _ in range(under_way):
        local.occupy()
    return local


def share_of(settings: ThrottleSettings, instances: int) -> ThrottleSettings:
    """Return the limits of one of *instances* if each keeps to its share."""
    concurrency = settings.concurrency
    return replace(
        settings,
        # The same count in a longer time: a count cannot be divided so well.
        rates=tuple(Rate(rate.count, rate.period * instances) for rate in settings.rates),
        concurrency=None if concurrency is None else max(concurrency // instances, 1),
    )


class _Everything:
    """Admits every call."""

    def take(self, now: float, reserved: int) -> bool:  # noqa: ARG002 - no matter when
        return True

    def undo(self, now: float) -> None: ...

    def reserve(self, now: float) -> None: ...

    def spend(self, now: float) -> bool:  # noqa: ARG002 - no matter when
        return True

    def has_capacity(self) -> bool:
        return True

    def occupy(self) -> None: ...

    def vacate(self) -> None: ...

    def wait(self, now: float, count: int) -> float:  # noqa: ARG002 - no matter when
        return 0.0

    def is_unsure(self, now: float) -> bool:  # noqa: ARG002 - no matter when
        return False

    def ask(self, now: float, waiting: int) -> None: ...

    def close_until(self, now: float, until: float) -> None: ...

    def change(self, settings: ThrottleSettings, now: float) -> None: ...

    def is_idle(self, now: float) -> bool:  # noqa: ARG002 - no matter when
        return True

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:  # noqa: ARG002 - no matter when
        return ()


class _Nothing(_Everything):
    """Admits no call."""

    def take(self, now: float, reserved: int) -> bool:  # noqa: ARG002 - no matter when
        return False

    def spend(self, now: float) -> bool:  # noqa: ARG002 - no matter when
        return False

    def wait(self, now: float, count: int) -> float:  # noqa: ARG002 - no matter when
        return NEVER
