"""The metrics condensed for a person, as ``/status`` and ``holdfast status`` show them.

Counts since the start of the process, or since the route first appeared.
Quantiles are estimates from the histogram's buckets.
"""

from collections import Counter

from proxy.core.recorders import ThrottleState
from proxy.observe.metrics.series import (
    DeadLetterSeries,
    Histogram,
    RetrySeries,
    RouteSeries,
    StoreSeries,
    ThrottleSeries,
)
from proxy.observe.metrics.snapshot import (
    AddressState,
    MetricsSnapshot,
    ProcessSnapshot,
    ThrottleName,
)
from proxy.policy.dead_letter import DeadLetterCounts
from proxy.policy.failure_category import FailureCategory
from proxy.policy.idempotency.record import KnownKeys
from proxy.policy.reasons import KeyResult, VerdictReason


def process_status(process: ProcessSnapshot) -> dict[str, object]:
    """Return the part of ``/status`` that is about requests, in values that JSON can carry."""
    return {
        "connections": process.connections,
        "keys": {"in_flight": process.keys_in_flight, "waiting": process.keys_waiting},
        **_known_keys(process.keys_known),
        "addresses": {
            upstream: [_address(state) for state in states]
            for upstream, states in process.addresses.items()
        },
        **summary(process.metrics),
    }


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


def summary(snapshot: MetricsSnapshot) -> dict[str, object]:
    """Condense the metrics per route and per upstream, in plain values that JSON can carry."""
    attempts: dict[str, Counter[str]] = {}
    for route, _, outcomes in snapshot.outcomes():
        attempts.setdefault(route, Counter()).update(outcomes)
    upstreams = _upstreams(snapshot)
    failures = _failures(snapshot)
    budgets, breakers = snapshot.budgets(), snapshot.breakers()
    throttles = _throttles(snapshot)
    counts = snapshot.dead_letter_counts()
    return {
        "routes": {
            name: {
                **_route(series, attempts.get(name, Counter())),
                **({"upstreams": upstreams[name]} if name in upstreams else {}),
                "failures": failures.get(name, _no_failures()),
                **_retries(snapshot.retries.get(name)),
                **throttles.get(("route", name), {}),
                **_keys(snapshot.keys.get(name)),
                **_dead_letters(snapshot.dead_letters.get(name), counts.get(name)),
            }
            for name, series in snapshot.routes.items()
        },
        "upstreams": {
            name: {
                "attempts": histogram.observations,
                "duration_ms": _milliseconds(histogram),
                **({"budget_remaining": round(budgets[name], 3)} if name in budgets else {}),
                **({"breaker": breakers[name].word} if name in breakers else {}),
                **throttles.get(("upstream", name), {}),
            }
            for name, histogram in snapshot.upstreams.items()
        },
        **_store(snapshot.store, snapshot.store_state()),
        "reloads": dict(snapshot.reloads),
        "access_log_dropped": snapshot.lost_lines(),
    }


def _route(series: RouteSeries, attempts: Counter[str]) -> dict[str, object]:
    classes: Counter[str] = Counter()
    for (_method, code), count in series.requests.items():
        classes[f"{code // 100}xx"] += count
    return {
        "requests": dict(sorted(classes.items())),
        "errors": classes["5xx"],
        "in_flight": series.in_flight,
        "disconnects": dict(series.disconnects),
        "attempts": dict(sorted(attempts.items())),
        "duration_ms": _milliseconds(series.duration),
    }


def _upstreams(snapshot: MetricsSnapshot) -> dict[str, list[str]]:
    """List where the requests of each route may go: its own upstream, then its fallback's."""
    found: dict[str, list[str]] = {}
    for route, upstream in snapshot.attempts:
        found.setdefault(route, []).append(upstream)
    return found


_Failures = dict[str, dict[str, int]]
"""The failures of one route: by category, the number of attempts per kind or status."""


def _no_failures() -> _Failures:
    return {category.value: {} for category in FailureCategory}


def _failures(snapshot: MetricsSnapshot) -> dict[str, _Failures]:
    """Count the attempts of each route that failed, those that a retry saved included."""
    found: dict[str, _Failures] = {}
    for route, category, ending, count in snapshot.failures():
        endings = found.setdefault(route, _no_failures())[category]
        endings[ending] = endings.get(ending, 0) + count
    return found


def _retries(series: RetrySeries | None) -> dict[str, object]:
    """Return what is shown in addition of a route that retries."""
    if series is None:
        return {}
    return {
        "retries": series.verdicts[VerdictReason.RETRIED],
        "recovered": series.verdicts[VerdictReason.RECOVERED],
        "verdicts": {reason.value: count for reason, count in series.verdicts.items() if count},
        "wait_ms": _milliseconds(Histogram.sum_of(tuple(series.waits.values()))),
    }


def _keys(results: dict[KeyResult, int] | None) -> dict[str, object]:
    """Return what is shown in addition of a route with idempotency keys."""
    return {} if results is None else {"idempotency": dict(results)}


def _dead_letters(
    series: DeadLetterSeries | None, counts: DeadLetterCounts | None
) -> dict[str, object]:
    """Return what is shown in addition of a route that keeps dead letters, or has left some."""
    if series is None and counts is None:
        return {}
    series = series or DeadLetterSeries()
    return {
        "dead_letters": {
            "waiting": 0 if counts is None else counts.waiting,
            "replayable": 0 if counts is None else counts.replayable,
            "bytes": 0 if counts is None else counts.size,
            "oldest": None if counts is None else round(counts.oldest, 3),
            "kept": series.kept,
            "lost": series.lost,
            "expired": series.expired,
            "replays": dict(series.replays),
        }
    }


def _throttles(snapshot: MetricsSnapshot) -> dict[ThrottleName, dict[str, object]]:
    """Return what is shown in addition of each route and upstream that has a throttle."""
    states = snapshot.throttle_states()
    return {
        label: {"throttle": {**_decisions(series), **_throttle_state(states[label])}}
        for label, series in snapshot.throttles.items()
        if label in states
    }


def _decisions(series: ThrottleSeries) -> dict[str, object]:
    return {**series.decisions(), "wait_ms": _milliseconds(series.waits)}


def _throttle_state(state: ThrottleState) -> dict[str, object]:
    return {
        "waiting": state.waiting,
        "under_way": state.under_way,
        "buckets": state.buckets,
        "paused": state.paused,
        "paused_for_seconds": round(state.paused_for, 3),
    }


def _store(series: StoreSeries | None, state: str | None) -> dict[str, object]:
    """Return what is shown of a shared store, where there is one."""
    if series is None:
        return {}
    return {
        "store": {
            "state": state,
            "errors": dict(series.errors),
            "duration_ms": {
                operation: _milliseconds(durations)
                for operation, durations in series.durations.items()
            },
        }
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
