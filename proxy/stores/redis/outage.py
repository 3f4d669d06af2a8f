"""What stands in for the store while it is down (``on_store_error``)."""

from dataclasses import replace

from proxy.policy.permits import NEVER, LocalPermits, Permits, Quota
from proxy.policy.settings import Rate, ThrottleSettings


def stand_in(settings: ThrottleSettings, instances: int, now: float, under_way: int) -> Permits:
    """Permits for the time being, with so many calls under way."""
    if settings.on_store_error == "open":
        return _Everything()
    if settings.on_store_error == "closed":
        return _Nothing()
    local = LocalPermits(share_of(settings, instances), now)
    # What the store gave out a moment ago is not known here: no burst on top of it.
    local.drain(now, now)
    for _ in range(under_way):
        local.occupy()
    return local


def share_of(settings: ThrottleSettings, instances: int) -> ThrottleSettings:
    """What is left for one of so many instances if each keeps to its share."""
    burst, concurrency = settings.burst, settings.concurrency
    return replace(
        settings,
        # The same count in a longer time: a count cannot be divided so well.
        rates=tuple(Rate(rate.count, rate.period * instances) for rate in settings.rates),
        burst=None if burst is None else max(burst // instances, 1),
        concurrency=None if concurrency is None else max(concurrency // instances, 1),
    )


class _Everything:
    """Every call passes."""

    def take(self, now: float, held: int) -> bool:  # noqa: ARG002 - no matter when
        return True

    def undo(self, now: float) -> None: ...

    def hold(self, now: float) -> None: ...

    def spend(self, now: float) -> bool:  # noqa: ARG002 - no matter when
        return True

    def has_room(self) -> bool:
        return True

    def occupy(self) -> None: ...

    def vacate(self) -> None: ...

    def wait(self, now: float, count: int) -> float:  # noqa: ARG002 - no matter when
        return 0.0

    def is_unsure(self, now: float) -> bool:  # noqa: ARG002 - no matter when
        return False

    def ask(self, now: float, waiting: int) -> None: ...

    def drain(self, now: float, until: float) -> None: ...

    def change(self, settings: ThrottleSettings, now: float) -> None: ...

    def is_idle(self, now: float) -> bool:  # noqa: ARG002 - no matter when
        return True

    def quotas(self, now: float) -> tuple[Quota, ...]:  # noqa: ARG002 - no matter when
        return ()


class _Nothing(_Everything):
    """No call passes."""

    def take(self, now: float, held: int) -> bool:  # noqa: ARG002 - no matter when
        return False

    def spend(self, now: float) -> bool:  # noqa: ARG002 - no matter when
        return False

    def wait(self, now: float, count: int) -> float:  # noqa: ARG002 - no matter when
        return NEVER
