"""Rate limits of a configuration: the most calls in one window, and the part that can be used."""

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.config.diagnostics.units import format_duration
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


def most_in_windows(settings: Settings) -> list[MostInWindow]:
    """Return the most calls in a window for each rate of each upstream and route, in file order."""
    store = settings.store
    found: list[MostInWindow] = []
    for of, throttle in _throttles(settings):
        life = life_of(throttle.rates, store.permit_life) if store.shares_limits else 0.0
        found += (_most_in_window(of, throttle, rate, life) for rate in throttle.rates)
    return found


def _throttles(settings: Settings) -> Iterator[tuple[str, ThrottleSettings]]:
    for upstream in settings.upstreams:
        if upstream.throttle is not None:
            yield f"upstream {upstream.name}", upstream.throttle
    for route in settings.routes:
        if route.throttle is not None:
            yield f"route {route.name}", route.throttle


def _most_in_window(of: str, throttle: ThrottleSettings, rate: Rate, life: float) -> MostInWindow:
    window = format_duration(rate.period)
    key = throttle.key
    return MostInWindow(
        of=of,
        rate=f"{rate.count}/{window.removeprefix('1') if window[1:].isalpha() else window}",
        most=most_in_window(rate, throttle.burst),
        window=window,
        used=part_used(throttle, rate, life),
        key="" if key is None else f"{key.source}:{key.name}" if key.name else key.source,
    )
