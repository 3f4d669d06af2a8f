"""The metrics condensed for a person: what ``/status`` and ``holdfast status`` show.

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
from proxy.observe.metrics.snapshot import MetricsSnapshot, ThrottleName
from proxy.policy.dead_letter import DeadLetterCounts
from proxy.policy.failure_category import FailureCategory
from proxy.policy.reasons import KeyResult, VerdictReason


def summary(collected: MetricsSnapshot) -> dict[str, object]:
    """Per route and per upstream, in plain values that JSON can carry."""
    attempts: dict[str, Counter[str]] = {}
    for route, _, outcomes in collected.outcomes():
        attempts.setdefault(route, Counter()).update(outcomes)
    upstreams = _upstreams(collected)
    failures = _failures(collected)
    budgets, breakers = collected.budgets(), collected.breakers()
    throttles = _throttles(collected)
    counts = collected.letter_counts()
    return {
        "routes": {
            name: {
                **_route(series, attempts.get(name, Counter())),
                **({"upstreams": upstreams[name]} if name in upstreams else {}),
                "failures": failures.get(name, _no_failures()),
                **_retries(collected.retries.get(name)),
                **throttles.get(("route", name), {}),
                **_keys(collected.keys.get(name)),
                **_letters(collected.letters.get(name), counts.get(name)),
            }
            for name, series in collected.routes.items()
        },
        "upstreams": {
            name: {
                "attempts": histogram.observations,
                "duration_ms": _milliseconds(histogram),
                **({"budget_remaining": round(budgets[name], 3)} if name in budgets else {}),
                **({"breaker": breakers[name].word} if name in breakers else {}),
                **throttles.get(("upstream", name), {}),
            }
            for name, histogram in collected.upstreams.items()
        },
        **_store(collected.store, collected.store_state()),
        "reloads": dict(collected.reloads),
        "access_log_dropped": collected.lost_lines(),
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


def _upstreams(collected: MetricsSnapshot) -> dict[str, list[str]]:
    """Where the requests of each route may go: its own upstream, then that of its fallback."""
    found: dict[str, list[str]] = {}
    for route, upstream in collected.attempts:
        found.setdefault(route, []).append(upstream)
    return found


_Failures = dict[str, dict[str, int]]
"""Of one route: each category with its kinds and statuses, and how many attempts had each."""


def _no_failures() -> _Failures:
    return {category.value: {} for category in FailureCategory}


def _failures(collected: MetricsSnapshot) -> dict[str, _Failures]:
    """Attempts of each route that failed, those that a retry saved included."""
    found: dict[str, _Failures] = {}
    for route, category, ending, count in collected.failures():
        endings = found.setdefault(route, _no_failures())[category]
        endings[ending] = endings.get(ending, 0) + count
    return found


def _retries(series: RetrySeries | None) -> dict[str, object]:
    """What is told besides of a route that retries."""
    if series is None:
        return {}
    return {
        "retries": series.verdicts[VerdictReason.RETRIED],
        "recovered": series.verdicts[VerdictReason.RECOVERED],
        "verdicts": {why.value: count for why, count in series.verdicts.items() if count},
        "wait_ms": _milliseconds(Histogram.sum_of(tuple(series.waits.values()))),
    }


def _keys(results: dict[KeyResult, int] | None) -> dict[str, object]:
    """What is told besides of a route that heeds idempotency keys."""
    return {} if results is None else {"idempotency": dict(results)}


def _letters(series: DeadLetterSeries | None, counts: DeadLetterCounts | None) -> dict[str, object]:
    """What is told besides of a route that keeps dead letters, or has left some."""
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


def _throttles(collected: MetricsSnapshot) -> dict[ThrottleName, dict[str, object]]:
    """What is told besides of each route and each upstream that has a throttle."""
    states = collected.throttle_states()
    return {
        whose: {"throttle": {**_decided(series), **_goes_on(states[whose])}}
        for whose, series in collected.throttles.items()
        if whose in states
    }


def _decided(series: ThrottleSeries) -> dict[str, object]:
    return {**series.decisions(), "wait_ms": _milliseconds(series.waits)}


def _goes_on(state: ThrottleState) -> dict[str, object]:
    return {
        "waiting": state.waiting,
        "under_way": state.under_way,
        "buckets": state.buckets,
        "paused": state.paused,
        "paused_for_seconds": round(state.paused_for, 3),
    }


def _store(series: StoreSeries | None, state: str | None) -> dict[str, object]:
    """What is told of a shared store, where there is one."""
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
    """Mean and quantiles, or None before the first observation."""
    observations = histogram.observations
    if not observations:
        return None
    figures = {"mean": histogram.total / observations}
    for name, rank in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        figures[name] = histogram.quantile(rank) or 0.0
    return {name: round(seconds * 1000, 3) for name, seconds in figures.items()}
