"""Checks of the throttles (rate limits, concurrency, waits) of routes and upstreams."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.diagnostics.position import Place
from proxy.config.diagnostics.rounding import rounded_down
from proxy.config.diagnostics.units import format_duration, format_in_seconds
from proxy.config.read.effective import EffectiveSection
from proxy.config.read.typed_tree import TypedMapping, TypedScalar, key_of
from proxy.config.values.stores import store_kind
from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.pacing import pace

_MAX_WINDOW_CALLS = 100_000
"""The most calls whose times a sliding window may have to remember."""


def check_throttles(
    routes: Sequence[EffectiveSection],
    upstreams: Sequence[EffectiveSection],
    file: EffectiveSection,
    diagnostics: Diagnostics,
) -> None:
    """Check rates, bursts, keys and waits of every throttle that is switched on."""
    on = [section for section in (*routes, *upstreams) if section.typed.mapping("throttle")]
    store = file.scalar("store.url")
    for section in on:
        _check_hidden_rates(section, store, diagnostics)
        _check_repeated_rates(section, diagnostics)
        _check_window(section, store, diagnostics)
        _check_margin(section, diagnostics)
        _check_purpose(section, diagnostics)
    _check_unused_keys(on, diagnostics)
    for route in routes:
        _check_wait(route, diagnostics)
    for upstream in upstreams:
        _check_shared_wait(upstream, _routes_to(upstream, routes), diagnostics)


def _check_hidden_rates(
    section: EffectiveSection, store: TypedScalar | None, diagnostics: Diagnostics
) -> None:
    """Warn of a rate that has no effect because of another one in the same list.

    A GCRA rate is hidden by one that is slower and lets no larger burst out.
    """
    algorithm, rates, burst = (
        section.scalar("throttle.algorithm"),
        section.scalars("throttle.rate"),
        _burst(section),
    )
    if algorithm is None or algorithm.value != "gcra" or not rates:
        return
    settings = ThrottleSettings(burst=burst)
    slowest = min(rates, key=lambda scalar: scalar.value.count / scalar.value.period)
    is_shared = store is None or store_kind(store.value).shares_limits
    instead = "remove it" if is_shared else "remove it or write algorithm: window to have both"
    at_once = pace(settings, slowest.value).burst
    for scalar in rates:
        is_hidden = pace(settings, scalar.value).burst >= at_once
        if scalar is not slowest and scalar.value != slowest.value and is_hidden:
            diagnostics.warn(
                scalar,
                f"{scalar.written.bare}{section.named('throttle.rate', 'throttle.algorithm')} has "
                f"no effect, {slowest.written.bare} lets less through at any time, {instead}",
            )


def _burst(section: EffectiveSection) -> int | None:
    scalar = section.scalar("throttle.burst")
    return None if scalar is None else scalar.value


def _check_repeated_rates(section: EffectiveSection, diagnostics: Diagnostics) -> None:
    seen = set()
    for scalar in section.scalars("throttle.rate"):
        if scalar.value in seen:
            diagnostics.fault(scalar, "this rate is already in the list, remove it")
        seen.add(scalar.value)


def _check_window(
    section: EffectiveSection, store: TypedScalar | None, diagnostics: Diagnostics
) -> None:
    """Check that a window is not too large and not shared: it remembers every call, in memory."""
    algorithm, rates = section.scalar("throttle.algorithm"), section.scalars("throttle.rate")
    if algorithm is None or algorithm.value != "window" or not rates:
        return
    if store is not None and store_kind(store.value).shares_limits:
        diagnostics.fault(
            algorithm,
            "a window is counted in one process and cannot be shared over redis, write algorithm: "
            "gcra, or store: memory",
        )
    for scalar in rates:
        if scalar.value.count > _MAX_WINDOW_CALLS:
            diagnostics.fault(
                scalar,
                f"a window remembers every call"
                f"{section.named('throttle.rate', 'throttle.algorithm')}, at most "
                f"{_MAX_WINDOW_CALLS}, write algorithm: gcra for more",
            )


def _check_margin(section: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn of a margin that takes more than half of a rate: most likely a wrong unit."""
    margin, rates = section.scalar("throttle.margin"), section.scalars("throttle.rate")
    if margin is None or margin.value is None or not rates or not section.writer("throttle.margin"):
        return
    shortest = min(rates, key=lambda scalar: scalar.value.period)
    if margin.value >= shortest.value.period:
        diagnostics.warn(
            margin,
            f"{margin.written.bare} is not below the time of {shortest.written.bare}"
            f"{section.named('throttle.margin', 'throttle.rate')}, so less than half of it can be "
            "used, write auto, or 20ms (say)",
        )


def _check_purpose(section: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn of a throttle that does nothing."""
    items, concurrency = section.items("throttle.rate"), section.scalar("throttle.concurrency")
    pause, entry = section.entry("throttle.pause"), section.entry("throttle")
    if items is None or items.items or concurrency is None or concurrency.value is not None:
        return
    if pause is None or entry is None or not isinstance(pause.node, TypedMapping):
        return
    # A policy that switches pauses off may be meant for routes that have a rate.
    if pause.node.is_off and section.writer("throttle.pause") == section.path:
        diagnostics.warn(
            key_of(entry),
            "it limits nothing and obeys no pause, write rate: 100/s (say) in it, or throttle: "
            "false",
        )


@dataclass(frozen=True, slots=True)
class _UnusedKey:
    """A key that has no effect beside what another key says."""

    key: str
    other: str
    is_unused: Callable[[EffectiveSection], bool]
    text: str


def _has_no_rate(section: EffectiveSection) -> bool:
    # An empty list that is written is intended.
    items = section.items("throttle.rate")
    return items is not None and not items.items and not section.writer("throttle.rate")


def _has_nothing_to_burst(section: EffectiveSection) -> bool:
    return _burst(section) is not None and _has_no_rate(section)


def _is_window(section: EffectiveSection) -> bool:
    algorithm = section.scalar("throttle.algorithm")
    if algorithm is None or _burst(section) is None:
        return False
    return algorithm.value == "window" and not _has_no_rate(section)


def _has_no_key(section: EffectiveSection) -> bool:
    key = section.scalar("throttle.key")
    return key is not None and key.value is None and not section.writer("throttle.key")


_UNUSED_KEYS = (
    _UnusedKey(
        "throttle.burst",
        "throttle.rate",
        _has_nothing_to_burst,
        "there is no rate that could burst, write rate: 100/s (say) beside it",
    ),
    _UnusedKey(
        "throttle.burst",
        "throttle.algorithm",
        _is_window,
        "a window has no burst (the whole rate may go out at once), remove it or write algorithm: "
        "gcra",
    ),
    _UnusedKey(
        "throttle.margin",
        "throttle.rate",
        _has_no_rate,
        "there is no rate that it could belong to, write rate: 100/s (say) beside it",
    ),
    _UnusedKey(
        "throttle.max_keys",
        "throttle.key",
        _has_no_key,
        "there is no key that tells callers apart, write key: client_ip (say) beside it",
    ),
)


def _check_unused_keys(sections: Sequence[EffectiveSection], diagnostics: Diagnostics) -> None:
    """Refuse keys that have no effect on any route or upstream.

    A key in defaults or a policy may be meant for some routes only: it is accepted if one
    of them uses it, or if those that do not use it made that choice themselves.
    """
    for unused in _UNUSED_KEYS:
        unused_at: dict[Place, bool] = {}
        for section in sections:
            entry, writer = section.entry(unused.key), section.writer(unused.key)
            if entry is None or not writer:
                continue
            has_no_effect = unused.is_unused(section) and (
                section.writer(unused.other) in {writer, ""} or writer == section.path
            )
            written_at = key_of(entry)
            unused_at[written_at] = unused_at.get(written_at, True) and has_no_effect
        for written_at, has_no_effect in unused_at.items():
            if has_no_effect:
                diagnostics.fault(written_at, unused.text)


def _check_wait(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn of a wait that is longer than a request may take."""
    wait, timeout = route.scalar("throttle.max_wait"), route.scalar("timeout")
    if wait is None or timeout is None or not route.writer("throttle.max_wait"):
        return
    if wait.value is None or timeout.value is None or wait.value < timeout.value:
        return
    shorter = rounded_down(timeout.value * 2 / 3)
    longer = format_in_seconds(wait.value + timeout.value)
    instead = f"max_wait: {format_duration(shorter)} or timeout: {longer}"
    if wait.written.references or timeout.written.references:
        instead = "a shorter one or a longer timeout"
    diagnostics.warn(
        wait,
        f"a wait of {wait.written.bare} cannot fit into timeout {timeout.written.bare}"
        f"{route.named('throttle.max_wait', 'timeout')}, write {instead}",
    )


def _check_shared_wait(
    upstream: EffectiveSection, routes: Sequence[EffectiveSection], diagnostics: Diagnostics
) -> None:
    """Warn of an upstream's wait that is longer than a request may take on all of its routes."""
    wait = upstream.scalar("throttle.max_wait")
    timeouts = [route.scalar("timeout") for route in routes]
    known = [scalar for scalar in timeouts if scalar is not None and scalar.value is not None]
    if wait is None or wait.value is None or not upstream.writer("throttle.max_wait"):
        return
    if not known or len(known) < len(timeouts):  # one has no limit, or could not be read
        return
    longest = max(known, key=lambda scalar: scalar.value)
    if wait.value < longest.value:
        return
    diagnostics.warn(
        wait,
        f"a wait of {wait.written.bare} fits into no route's timeout (the longest is "
        f"{longest.written.bare}), write a shorter one or a longer timeout",
    )


def _routes_to(
    upstream: EffectiveSection, routes: Sequence[EffectiveSection]
) -> list[EffectiveSection]:
    """Return the routes that send to *upstream*, directly or as a fallback."""
    name = upstream.path.removeprefix("upstreams.")
    scalars = (
        (route, route.scalar(key)) for route in routes for key in ("upstream", "fallback.upstream")
    )
    return [route for route, scalar in scalars if scalar is not None and scalar.value == name]
