"""What is wrong with the throttles of routes and upstreams: values that do not go together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.diagnostics.position import Position
from proxy.config.diagnostics.rounding import rounded_down
from proxy.config.diagnostics.units import format_duration, format_in_seconds
from proxy.config.read.effective import EffectiveSection
from proxy.config.read.typed_tree import TypedMapping, TypedScalar
from proxy.config.values.stores import RedisUrl
from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.pacing import pace

_LONGEST_LOG = 100_000
"""Calls whose times a window can be asked to remember."""


def check_throttles(
    routes: Sequence[EffectiveSection],
    upstreams: Sequence[EffectiveSection],
    file: EffectiveSection,
    diagnostics: Diagnostics,
) -> None:
    """Rates, bursts, keys and waits of every throttle that is switched on."""
    on = [owner for owner in (*routes, *upstreams) if owner.section.branch("throttle")]
    store = file.leaf("store.url")
    for owner in on:
        _check_hidden_rates(owner, store, diagnostics)
        _check_repeated_rates(owner, diagnostics)
        _check_window(owner, store, diagnostics)
        _check_margin(owner, diagnostics)
        _check_purpose(owner, diagnostics)
    _check_idle_keys(on, diagnostics)
    for route in routes:
        _check_wait(route, diagnostics)
    for upstream in upstreams:
        _check_shared_wait(upstream, _routes_to(upstream, routes), diagnostics)


def _check_hidden_rates(
    owner: EffectiveSection, store: TypedScalar | None, diagnostics: Diagnostics
) -> None:
    """Warn of a rate that another one in the same list never lets come to bear.

    A smooth rate is hidden by one that is slower and lets no more out at once.
    """
    algorithm, rates, burst = owner.leaf("throttle.algorithm"), _rates(owner), _burst(owner)
    if algorithm is None or algorithm.value != "gcra" or not rates:
        return
    settings = ThrottleSettings(burst=burst)
    slowest = min(rates, key=lambda leaf: leaf.value.count / leaf.value.period)
    is_shared = store is None or isinstance(store.value, RedisUrl)
    instead = "remove it" if is_shared else "remove it or write algorithm: window to have both"
    at_once = pace(settings, slowest.value).burst
    for leaf in rates:
        is_hidden = pace(settings, leaf.value).burst >= at_once
        if leaf is not slowest and leaf.value != slowest.value and is_hidden:
            diagnostics.warn(
                leaf.position,
                leaf.path,
                f"{leaf.scalar.bare}{owner.named('throttle.rate', 'throttle.algorithm')} has no "
                f"effect, {slowest.scalar.bare} lets less through at any time, {instead}",
            )


def _burst(owner: EffectiveSection) -> int | None:
    leaf = owner.leaf("throttle.burst")
    return None if leaf is None else leaf.value


def _check_repeated_rates(owner: EffectiveSection, diagnostics: Diagnostics) -> None:
    seen = set()
    for leaf in _rates(owner):
        if leaf.value in seen:
            diagnostics.fault(
                leaf.position, leaf.path, "this rate is already in the list, remove it"
            )
        seen.add(leaf.value)


def _check_window(
    owner: EffectiveSection, store: TypedScalar | None, diagnostics: Diagnostics
) -> None:
    """A window is exact because it remembers every call; that is not for any size or place."""
    algorithm, rates = owner.leaf("throttle.algorithm"), _rates(owner)
    if algorithm is None or algorithm.value != "window" or not rates:
        return
    if store is not None and isinstance(store.value, RedisUrl):
        diagnostics.fault(
            algorithm.position,
            algorithm.path,
            "a window is counted in one process and cannot be shared over redis, write algorithm: "
            "gcra, or store: memory",
        )
    for leaf in rates:
        if leaf.value.count > _LONGEST_LOG:
            diagnostics.fault(
                leaf.position,
                leaf.path,
                f"a window remembers every call{owner.named('throttle.rate', 'throttle.algorithm')}"
                f", at most {_LONGEST_LOG}, write algorithm: gcra for more",
            )


def _check_margin(owner: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn of a margin that takes more than half of a rate: a wrong unit, most likely."""
    margin, rates = owner.leaf("throttle.margin"), _rates(owner)
    if margin is None or margin.value is None or not rates or not owner.writer("throttle.margin"):
        return
    shortest = min(rates, key=lambda leaf: leaf.value.period)
    if margin.value >= shortest.value.period:
        diagnostics.warn(
            margin.position,
            margin.path,
            f"{margin.scalar.bare} is not below the time of {shortest.scalar.bare}"
            f"{owner.named('throttle.margin', 'throttle.rate')}, so less than half of it can be "
            "used, write auto, or 20ms (say)",
        )


def _check_purpose(owner: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn of a throttle that does nothing."""
    items, concurrency = owner.items("throttle.rate"), owner.leaf("throttle.concurrency")
    pause, entry = owner.entry("throttle.pause"), owner.entry("throttle")
    if items is None or items.items or concurrency is None or concurrency.value is not None:
        return
    if pause is None or entry is None or not isinstance(pause.node, TypedMapping):
        return
    # Where a policy leaves pauses out, it may be for routes that have a rate.
    if pause.node.is_off and owner.writer("throttle.pause") == owner.home:
        diagnostics.warn(
            entry.position,
            entry.node.path,
            "it limits nothing and obeys no pause, write rate: 100/s (say) in it, or throttle: "
            "false",
        )


@dataclass(frozen=True, slots=True)
class _Idle:
    """A key that has no effect beside what another key says."""

    key: str
    other: str
    is_idle: Callable[[EffectiveSection], bool]
    text: str


def _has_no_rate(owner: EffectiveSection) -> bool:
    # Who writes none has said so.
    items = owner.items("throttle.rate")
    return items is not None and not items.items and not owner.writer("throttle.rate")


def _has_nothing_to_burst(owner: EffectiveSection) -> bool:
    return _burst(owner) is not None and _has_no_rate(owner)


def _is_window(owner: EffectiveSection) -> bool:
    algorithm = owner.leaf("throttle.algorithm")
    if algorithm is None or _burst(owner) is None:
        return False
    return algorithm.value == "window" and not _has_no_rate(owner)


def _has_no_key(owner: EffectiveSection) -> bool:
    key = owner.leaf("throttle.key")
    return key is not None and key.value is None and not owner.writer("throttle.key")


_IDLE_KEYS = (
    _Idle(
        "throttle.burst",
        "throttle.rate",
        _has_nothing_to_burst,
        "there is no rate that could burst, write rate: 100/s (say) beside it",
    ),
    _Idle(
        "throttle.burst",
        "throttle.algorithm",
        _is_window,
        "a window has no burst (the whole rate may go out at once), remove it or write algorithm: "
        "gcra",
    ),
    _Idle(
        "throttle.margin",
        "throttle.rate",
        _has_no_rate,
        "there is no rate whose calls could arrive late, write rate: 100/s (say) beside it",
    ),
    _Idle(
        "throttle.max_keys",
        "throttle.key",
        _has_no_key,
        "there is no key that tells callers apart, write key: client_ip (say) beside it",
    ),
)


def _check_idle_keys(owners: Sequence[EffectiveSection], diagnostics: Diagnostics) -> None:
    """Refuse keys that have no effect on anything.

    What defaults or a policy say may be meant for some routes only: it is enough
    that one of them has a use for it, or that those without one chose so.
    """
    for idle in _IDLE_KEYS:
        useless: dict[tuple[Position, str], bool] = {}
        for owner in owners:
            entry, writer = owner.entry(idle.key), owner.writer(idle.key)
            if entry is None or not writer:
                continue
            is_useless = idle.is_idle(owner) and (
                owner.writer(idle.other) in {writer, ""} or writer == owner.home
            )
            place = entry.position, entry.node.path
            useless[place] = useless.get(place, True) and is_useless
        for (position, path), is_useless in useless.items():
            if is_useless:
                diagnostics.fault(position, path, idle.text)


def _check_wait(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn of a wait that is longer than a request may take."""
    wait, timeout = route.leaf("throttle.max_wait"), route.leaf("timeout")
    if wait is None or timeout is None or not route.writer("throttle.max_wait"):
        return
    if wait.value is None or timeout.value is None or wait.value < timeout.value:
        return
    shorter = rounded_down(timeout.value * 2 / 3)
    longer = format_in_seconds(wait.value + timeout.value)
    instead = f"max_wait: {format_duration(shorter)} or timeout: {longer}"
    if wait.scalar.references or timeout.scalar.references:
        instead = "a shorter one or a longer timeout"
    diagnostics.warn(
        wait.position,
        wait.path,
        f"a wait of {wait.scalar.bare} cannot fit into timeout {timeout.scalar.bare}"
        f"{route.named('throttle.max_wait', 'timeout')}, write {instead}",
    )


def _check_shared_wait(
    upstream: EffectiveSection, routes: Sequence[EffectiveSection], diagnostics: Diagnostics
) -> None:
    """The same for an upstream, whose wait has to fit into one route at least."""
    wait = upstream.leaf("throttle.max_wait")
    timeouts = [route.leaf("timeout") for route in routes]
    known = [leaf for leaf in timeouts if leaf is not None and leaf.value is not None]
    if wait is None or wait.value is None or not upstream.writer("throttle.max_wait"):
        return
    if not known or len(known) < len(timeouts):  # one has no limit, or one that nobody can read
        return
    longest = max(known, key=lambda leaf: leaf.value)
    if wait.value < longest.value:
        return
    diagnostics.warn(
        wait.position,
        wait.path,
        f"a wait of {wait.scalar.bare} fits into no route's timeout (the longest is "
        f"{longest.scalar.bare}), write a shorter one or a longer timeout",
    )


def _routes_to(
    upstream: EffectiveSection, routes: Sequence[EffectiveSection]
) -> list[EffectiveSection]:
    """Those that send to it, in the first place or as a fallback."""
    name = upstream.home.removeprefix("upstreams.")
    leaves = (
        (route, route.leaf(key)) for route in routes for key in ("upstream", "fallback.upstream")
    )
    return [route for route, leaf in leaves if leaf is not None and leaf.value == name]


def _rates(owner: EffectiveSection) -> list[TypedScalar]:
    items = owner.items("throttle.rate")
    return [item for item in items.items if isinstance(item, TypedScalar)] if items else []
