"""The metrics condensed for a person: what ``/status`` and ``holdfast status`` show.

Counts since the start of the process, or since the route first appeared.
Quantiles are estimates from the histogram's buckets.
"""

from collections import Counter

from proxy.observe.collector import Collected
from proxy.observe.series import Histogram, RetrySeries, RouteSeries
from proxy.policy.reasons import Why


def summary(collected: Collected) -> dict[str, object]:
    """Per route and per upstream, in plain values that JSON can carry."""
    attempts: dict[str, Counter[str]] = {}
    for route, _upstream, outcomes in collected.outcomes():
        attempts.setdefault(route, Counter()).update(outcomes)
    budgets, breakers = collected.budgets(), collected.breakers()
    return {
        "routes": {
            name: {
                **_route(series, attempts.get(name, Counter())),
                **_retries(collected.retries.get(name)),
            }
            for name, series in collected.routes.items()
        },
        "upstreams": {
            name: {
                "attempts": sum(histogram.counts),
                "duration_ms": _milliseconds(histogram),
                **({"budget_remaining": round(budgets[name], 3)} if name in budgets else {}),
                **({"breaker": breakers[name].word} if name in breakers else {}),
            }
            for name, histogram in collected.upstreams.items()
        },
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


def _retries(series: RetrySeries | None) -> dict[str, object]:
    """What is told besides of a route that retries."""
    if series is None:
        return {}
    return {
        "retries": series.verdicts[Why.RETRIED],
        "recovered": series.verdicts[Why.RECOVERED],
        "verdicts": {why.value: count for why, count in series.verdicts.items() if count},
        "wait_ms": _milliseconds(Histogram.sum_of(series.waits.values())),
    }


def _milliseconds(histogram: Histogram) -> dict[str, float] | None:
    """Mean and quantiles, or None before the first observation."""
    observations = sum(histogram.counts)
    if not observations:
        return None
    figures = {"mean": histogram.total / observations}
    for name, rank in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        figures[name] = histogram.quantile(rank) or 0.0
    return {name: round(seconds * 1000, 3) for name, seconds in figures.items()}
