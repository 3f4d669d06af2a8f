"""Limits of a configuration: the most calls in a window and at a time, and what can be used."""

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.config.diagnostics.units import format_duration
from proxy.config.values.rates import CallRate
from proxy.config.values.throttling import CallerKey
from proxy.policy.settings import Rate, Settings, ThrottleSettings
from proxy.policy.throttle.pacing import life_of, most_in_window, part_used


@dataclass(frozen=True, slots=True)
class MostInWindow:
    """The most calls that one rate of one throttle lets through in a window."""

    of: str
    """The route or upstream: ``route NAME`` or ``upstream NAME``."""
    rate: str
    most: int
    """The most calls in any window of the rate's length."""
    window: str
    used: float
    """The part of the rate that can be used at best."""
    key: str
    """The key that distinguishes callers, each of whom has this limit; empty if all share it."""

    def __str__(self) -> str:
        each = f" for each {self.key}" if self.key else ""
        return (
            f"throttle of {self.of}: at most {self.most} in any {self.window}{each}; "
            f"{int(self.used * 100)}% of {self.rate} can be used"
        )


@dataclass(frozen=True, slots=True)
class MostAtOnce:
    """The most calls of one throttle that are in flight at a time."""

    of: str
    """The route or upstream: ``route NAME`` or ``upstream NAME``."""
    most: int
    key: str
    """The key that distinguishes callers, each of whom has this limit; empty if all share it."""

    def __str__(self) -> str:
        each = f" for each {self.key}" if self.key else ""
        return f"throttle of {self.of}: at most {self.most} at a time{each}"


def throttle_limits(settings: Settings) -> list[MostInWindow | MostAtOnce]:
    """Return what each throttle of an upstream or a route lets through, in file order."""
    store = settings.store
    found: list[MostInWindow | MostAtOnce] = []
    for of, throttle in _throttles(settings):
        life = life_of(throttle.rates, store.permit_life) if store.shares_limits else 0.0
        found += (_most_in_window(of, throttle, rate, life) for rate in throttle.rates)
        if throttle.concurrency is not None:
            found.append(MostAtOnce(of, throttle.concurrency, _key(throttle)))
    return found


def _throttles(settings: Settings) -> Iterator[tuple[str, ThrottleSettings]]:
    for upstream in settings.upstreams:
        if upstream.throttle is not None:
            yield f"upstream {upstream.name}", upstream.throttle
    for route in settings.routes:
        if route.throttle is not None:
            yield f"route {route.name}", route.throttle


def _most_in_window(of: str, throttle: ThrottleSettings, rate: Rate, life: float) -> MostInWindow:
    return MostInWindow(
        of=of,
        rate=CallRate().write(rate),
        most=most_in_window(rate, throttle.burst),
        window=format_duration(rate.period),
        used=part_used(throttle, rate, life),
        key=_key(throttle),
    )


def _key(throttle: ThrottleSettings) -> str:
    return "" if throttle.key is None else CallerKey().write(throttle.key)
