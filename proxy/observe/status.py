"""The metrics condensed for a person, as ``/status`` and ``holdfast status`` show them.

Counts since the start of the process, or since the route first appeared; and beside them, by the
same code, those of the last minute. Quantiles are estimates from the histogram's buckets.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from proxy.core.recorders import AddressState, ThrottleState
from proxy.observe.history import CountedWindow
from proxy.observe.metrics import families
from proxy.observe.metrics.family import Counted
from proxy.observe.metrics.series import Histogram
from proxy.observe.metrics.snapshot import ProcessSnapshot, ThrottleName
from proxy.observe.trouble import UPSTREAM_FAILED, Trouble, find_trouble
from proxy.policy.attempt import outcome_label
from proxy.policy.delivery.counts import RouteDeliveries
from proxy.policy.delivery.state import OPEN
from proxy.policy.delivery.words import DeliveryState
from proxy.policy.failure_category import FailureCategory, category
from proxy.policy.idempotency.record import KnownKeys
from proxy.policy.reasons import VerdictReason

SeriesT = TypeVar("SeriesT")


def process_status(
    process: ProcessSnapshot,
    lately: CountedWindow,
    store: str,
    besides: Iterable[Trouble] = (),
) -> dict[str, object]:
    """Return the part of ``/status`` that is about requests, in values that JSON can carry.

    *lately* is what was counted in the last minute, *store* the masked URL of the store, and
    *besides* what is known to be wrong besides.
    """
    trouble = [*besides, *find_trouble(process, lately, store)]
    return {
        "trouble": [found.to_json() for found in trouble],
        "connections": process[families.CONNECTIONS],
        "keys": {
            "in_flight": process[families.KEYS_IN_FLIGHT],
            "waiting": process[families.KEYS_WAITING],
        },
        **_known_keys(process[families.KEYS_KNOWN]),
        "addresses": {
            upstream: [_address(state) for state in states]
            for upstream, states in process[families.ADDRESSES].items()
        },
        **summary(process),
        "store": {"url": store, **_store_health(process)},
        "last_minute": last_minute(lately, process[families.TRANSIENT]),
    }


def last_minute(
    window: CountedWindow, transient: Mapping[tuple[str, str], frozenset[int]]
) -> dict[str, object]:
    """Condense what was counted lately, per route and upstream that had anything to count.

    Members are called as those of the totals. *transient* are the statuses that may pass.
    """
    counted = window.counted
    throttles, attempts = _throttle_decisions(counted), _attempts(counted)
    failures = _failures(counted, transient)
    routes = {
        name: {
            "requests_per_second": _per_second(_requests(counted, name), window.seconds),
            **_counts(counted, name, attempts.get(name, Counter())),
            "failures": failures.get(name, _no_failures()),
            **_verdicts(counted, name),
            **throttles.get(("route", name), {}),
            **_keys(counted, name),
            **_letters_written(counted, name),
        }
        for name in _active_routes(counted)
    }
    upstreams: dict[str, object] = {
        name: {
            "attempts": histogram.observations,
            "attempts_per_second": _per_second(histogram.observations, window.seconds),
            "duration_ms": _milliseconds(histogram),
            **throttles.get(("upstream", name), {}),
        }
        for (name,), histogram in counted[families.ATTEMPT_DURATION].items()
    }
    for scope, name in throttles:
        if scope == "upstream" and name not in upstreams:  # all it did was to refuse
            upstreams[name] = throttles[scope, name]
    return {
        "seconds": round(window.seconds, 3),
        "routes": routes,
        "upstreams": upstreams,
        "store_errors": _series(counted, families.STORE_ERRORS).copy(),
    }


def _active_routes(counted: ProcessSnapshot) -> list[str]:
    """Return the routes of which anything was counted, in their order."""
    found: dict[str, None] = {}
    for metric in families.COUNTERS:
        if metric.subject.labels[:1] == families.ROUTE.labels:
            found |= {subject[0]: None for subject in counted[metric]}
    for scope, name in counted[families.THROTTLE_DECISIONS]:
        if scope == "route":
            found[name] = None
    return list(found)


def _per_second(count: int, seconds: float) -> float:
    return round(count / seconds, 3) if seconds > 0 else 0.0


def _known_keys(keys: KnownKeys | None) -> dict[str, object]:
    if keys is None:
        return {}
    oldest = None if keys.oldest is None else round(keys.oldest, 3)
    return {"known_keys": {"count": keys.known, "held": keys.held, "oldest_seconds": oldest}}


def _address(state: AddressState) -> dict[str, object]:
    return {
        "address": state.address,
        "open": state.open,
        "idle": state.idle,
        "failing": state.failing,
        **({} if state.breaker is None else {"breaker": state.breaker.word}),
    }


def summary(snapshot: ProcessSnapshot) -> dict[str, object]:
    """Condense the metrics per route and per upstream, in plain values that JSON can carry."""
    budgets, breakers = snapshot[families.BUDGETS], snapshot[families.BREAKERS]
    throttles = _throttles(snapshot)
    upstreams = _upstreams(snapshot)
    attempts = _attempts(snapshot)
    failures = _failures(snapshot, snapshot[families.TRANSIENT])
    return {
        "routes": {
            name: {
                **_counts(snapshot, name, attempts.get(name, Counter())),
                "in_flight": snapshot[families.IN_FLIGHT][name,].value,
                **({"upstreams": upstreams[name]} if name in upstreams else {}),
                "failures": failures.get(name, _no_failures()),
                **_verdicts(snapshot, name),
                **throttles.get(("route", name), {}),
                **_keys(snapshot, name),
                **_dead_letters(snapshot, name),
            }
            for (name,) in snapshot[families.REQUESTS]
        },
        "upstreams": {
            name: {
                "attempts": histogram.observations,
                "duration_ms": _milliseconds(histogram),
                **({"budget_remaining": round(budgets[name], 3)} if name in budgets else {}),
                **({"breaker": breakers[name].word} if name in breakers else {}),
                **throttles.get(("upstream", name), {}),
            }
            for (name,), histogram in snapshot[families.ATTEMPT_DURATION].items()
        },
        **_deliveries(snapshot),
        **_shared_store(snapshot),
        "reloads": dict(snapshot[families.RELOADS][()]),
        "access_log_dropped": snapshot[families.LOST_LINES],
    }


def _counts(snapshot: ProcessSnapshot, name: str, attempts: Counter[str]) -> dict[str, object]:
    """Return what every route counts."""
    classes: Counter[str] = Counter()
    for (_method, code), count in _series(snapshot, families.REQUESTS, name).items():
        classes[f"{code // 100}xx"] += count
    refused = _series(snapshot, families.REFUSALS, name)
    return {
        "requests": dict(sorted(classes.items())),
        "errors": classes["5xx"],
        "refused": {
            reason.value: count
            for reason, count in refused.items()
            if reason not in UPSTREAM_FAILED
        },
        "disconnects": _series(snapshot, families.DISCONNECTS, name).copy(),
        "attempts": dict(sorted(attempts.items())),
        "duration_ms": _milliseconds(_series(snapshot, families.DURATION, name)),
    }


def _requests(snapshot: ProcessSnapshot, name: str) -> int:
    return sum(_series(snapshot, families.REQUESTS, name).values())


def _attempts(snapshot: ProcessSnapshot) -> dict[str, Counter[str]]:
    """Count the attempts of each route by their outcome."""
    found: dict[str, Counter[str]] = {}
    for (route, _), endings in snapshot[families.ATTEMPTS].items():
        outcomes = found.setdefault(route, Counter())
        for ending, count in endings.items():
            outcomes[outcome_label(ending)] += count
    return found


def _upstreams(snapshot: ProcessSnapshot) -> dict[str, list[str]]:
    """List where the requests of each route may go: its own upstream, then its fallback's."""
    found: dict[str, list[str]] = {}
    for route, upstream in snapshot[families.ATTEMPTS]:
        found.setdefault(route, []).append(upstream)
    return found


_Failures = dict[str, dict[str, int]]
"""The failures of one route: by category, the number of attempts per kind or status."""


def _no_failures() -> _Failures:
    return {category.value: {} for category in FailureCategory}


def _failures(
    snapshot: ProcessSnapshot, transient: Mapping[tuple[str, str], frozenset[int]]
) -> dict[str, _Failures]:
    """Count the attempts of each route that failed, those that a retry saved included."""
    found: dict[str, _Failures] = {}
    for (route, upstream), endings in snapshot[families.ATTEMPTS].items():
        statuses = transient.get((route, upstream), frozenset())
        for ending, count in endings.items():
            of = category(ending, statuses)
            if of is not None:
                counts = found.setdefault(route, _no_failures())[of]
                counts[str(ending)] = counts.get(str(ending), 0) + count
    return found


def _verdicts(snapshot: ProcessSnapshot, route: str) -> dict[str, object]:
    """Return what is shown in addition of a route that retries."""
    if (route,) not in snapshot[families.VERDICTS]:
        return {}
    verdicts = snapshot[families.VERDICTS][route,]
    waits = _series(snapshot, families.RETRY_WAITS, route)
    return {
        "retries": verdicts.get(VerdictReason.RETRIED, 0),
        "recovered": verdicts.get(VerdictReason.RECOVERED, 0),
        "verdicts": {reason.value: count for reason, count in verdicts.items() if count},
        "wait_ms": _milliseconds(Histogram.sum_of(tuple(waits.values()))),
    }


def _keys(snapshot: ProcessSnapshot, route: str) -> dict[str, object]:
    """Return what is shown in addition of a route with idempotency keys."""
    results = snapshot[families.KEY_RESULTS].get((route,))
    return {} if results is None else {"idempotency": dict(results)}


def _dead_letters(snapshot: ProcessSnapshot, route: str) -> dict[str, object]:
    """Return what is shown in addition of a route that keeps dead letters, or has left some."""
    counts = snapshot[families.DEAD_LETTERS][1].get(route)
    if counts is None and (route,) not in snapshot[families.LETTERS_KEPT]:
        return {}
    dropped = _series(snapshot, families.LETTERS_DROPPED, route)
    replays = _series(snapshot, families.REPLAYS, route)
    return {
        "dead_letters": {
            "waiting": 0 if counts is None else counts.waiting,
            "replayable": 0 if counts is None else counts.replayable,
            "bytes": 0 if counts is None else counts.size,
            "oldest": None if counts is None else round(counts.oldest, 3),
            "kept": _series(snapshot, families.LETTERS_KEPT, route).value,
            "lost": dropped["lost"],
            "expired": dropped["expired"],
            "replays": dict(replays),
        }
    }


def _letters_written(counted: ProcessSnapshot, route: str) -> dict[str, object]:
    """Return how many dead letters were kept, lost and deleted lately; nothing if none was."""
    kept = _series(counted, families.LETTERS_KEPT, route).value
    dropped = _series(counted, families.LETTERS_DROPPED, route)
    lost, expired = dropped.get("lost", 0), dropped.get("expired", 0)
    if not (kept or lost or expired):
        return {}
    return {"dead_letters": {"kept": kept, "lost": lost, "expired": expired}}


def _deliveries(snapshot: ProcessSnapshot) -> dict[str, object]:
    """Return what is shown of deliveries, where a route hands off or has left some."""
    counts, now = snapshot[families.DELIVERIES][1], snapshot[families.NOW]
    upstreams = _upstreams(snapshot)
    routes = dict.fromkeys((*(route for (route,) in snapshot[families.ACCEPTED]), *counts))
    if not routes:
        return {}
    used = snapshot[families.DELIVERIES_USED]
    lines = snapshot[families.DELIVERY_LINES]
    return {
        "deliveries": {
            "used_ratio": None if used is None else round(used, 6),
            "routes": {
                name: {
                    **_open_deliveries(counts.get(name), now),
                    "upstream": next(iter(upstreams.get(name, ())), None),
                }
                for name in routes
            },
            "lines": {upstream: phase.name.lower() for upstream, phase in lines.items()},
        }
    }


def _open_deliveries(counts: RouteDeliveries | None, now: float) -> dict[str, object]:
    states = {} if counts is None else counts.states
    oldest, soonest = (counts.oldest, counts.next_due) if counts is not None else (0.0, 0.0)
    return {
        "open": sum(states.get(state, 0) for state in OPEN),
        "states": {state.value: states.get(state, 0) for state in DeliveryState},
        "bytes": 0 if counts is None else counts.size,
        "oldest_seconds": round(max(now - oldest, 0.0), 3) if oldest else None,
        "next_seconds": round(max(soonest - now, 0.0), 3) if soonest else None,
    }


def _series(snapshot: ProcessSnapshot, metric: Counted[SeriesT], *subject: str) -> SeriesT:
    """Return what was counted; zero if nothing was."""
    return snapshot[metric].get(subject) or metric.new()


def _throttles(snapshot: ProcessSnapshot) -> dict[ThrottleName, dict[str, object]]:
    """Return what is shown in addition of each route and upstream that has a throttle."""
    states = snapshot[families.THROTTLES]
    return {
        (scope, name): {"throttle": {**counted["throttle"], **_throttle_state(states[scope, name])}}
        for (scope, name), counted in _throttle_decisions(snapshot).items()
        if (scope, name) in states
    }


def _throttle_decisions(
    snapshot: ProcessSnapshot,
) -> dict[ThrottleName, dict[str, dict[str, object]]]:
    """Return what each throttle decided, and how long attempts waited for it."""
    found: dict[ThrottleName, dict[str, dict[str, object]]] = {}
    for (scope, name), decisions in snapshot[families.THROTTLE_DECISIONS].items():
        waits = _series(snapshot, families.THROTTLE_WAITS, scope, name)
        counts = {decision: decisions.get(decision, 0) for decision in families.DECISIONS}
        found[scope, name] = {"throttle": {**counts, "wait_ms": _milliseconds(waits)}}
    return found


def _throttle_state(state: ThrottleState) -> dict[str, object]:
    return {
        "waiting": state.waiting,
        "under_way": state.under_way,
        "buckets": state.buckets,
        "paused": state.paused,
        "paused_for_seconds": round(state.paused_for, 3),
    }


def _shared_store(snapshot: ProcessSnapshot) -> dict[str, object]:
    """Return what is shown of a shared store, where there is one."""
    health = _store_health(snapshot)
    return {"store": health} if health else {}


def _store_health(snapshot: ProcessSnapshot) -> dict[str, object]:
    """Return how a shared store does; nothing where there is none."""
    if () not in snapshot[families.STORE_ERRORS]:
        return {}
    return {
        "state": snapshot[families.STORE_STATE],
        "errors": dict(snapshot[families.STORE_ERRORS][()]),
        "duration_ms": {
            operation: _milliseconds(durations)
            for operation, durations in snapshot[families.STORE_DURATIONS][()].items()
        },
    }


def _milliseconds(histogram: Histogram) -> dict[str, float] | None:
    """Return mean and quantiles, or None before the first observation."""
    observations = histogram.observations
    if not observations:
        return None
    figures = {"mean": histogram.total / observations}
    for name, rank in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        figures[name] = histogram.quantile(rank) or 0.0
    return {name: round(seconds * 1000, 3) for name, seconds in figures.items()}
