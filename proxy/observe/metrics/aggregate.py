"""The numbers of several processes as those of one.

Everything is added up in the form in which it is counted, so that quantiles, failures and
labels are made from the whole, by the same code as for one process. What cannot be added
up has its rule here, beside its name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from proxy.core.recorders import ThrottleState
from proxy.observe.metrics.series import (
    DeadLetterSeries,
    Histogram,
    RetrySeries,
    RouteSeries,
    StoreSeries,
    ThrottleSeries,
    sum_of_counts,
)
from proxy.observe.metrics.snapshot import MetricsSnapshot
from proxy.policy.breaker import BreakerState

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

START = "process_start_time_seconds"
"""Of all ``process_*`` metrics the one that is not a sum: it began when the first one did."""
CPU = "process_cpu_seconds_total"
"""The only one that outlives its process."""


@dataclass(frozen=True, slots=True)
class Constant(Generic[ValueT]):
    """An answer that stays the same, in place of somebody who is asked each time."""

    value: ValueT

    def __call__(self) -> ValueT:
        return self.value


def snapshot(collected: MetricsSnapshot) -> MetricsSnapshot:
    """The same as it is now, in a form that can be sent to another process."""
    return replace(
        collected,
        lost_lines=Constant(collected.lost_lines()),
        budgets=Constant(dict(collected.budgets())),
        breakers=Constant(dict(collected.breakers())),
        throttle_states=Constant(dict(collected.throttle_states())),
        store_state=Constant(collected.store_state()),
        transient=Constant(dict(collected.transient())),
        letter_counts=Constant(dict(collected.letter_counts())),
        letters_counted=Constant(collected.letters_counted()),
        process=Constant(dict(collected.process())),
    )


def aggregate(parts: Sequence[MetricsSnapshot]) -> MetricsSnapshot:
    """What all *parts* (at least one) counted, and what goes on in all of them."""
    counted_last = max(parts, key=lambda part: part.letters_counted())
    stores = [part.store for part in parts if part.store is not None]
    return replace(
        parts[0],
        routes=_joined([part.routes for part in parts], RouteSeries.sum_of),
        retries=_joined([part.retries for part in parts], RetrySeries.sum_of),
        keys=_joined([part.keys for part in parts], sum_of_counts),
        letters=_joined([part.letters for part in parts], DeadLetterSeries.sum_of),
        evictions=sum(part.evictions for part in parts),
        upstreams=_joined([part.upstreams for part in parts], Histogram.sum_of),
        attempts=_joined([part.attempts for part in parts], sum_of_counts),
        throttles=_joined([part.throttles for part in parts], ThrottleSeries.sum_of),
        store=StoreSeries.sum_of(stores) if stores else None,
        lost_lines=Constant(sum(part.lost_lines() for part in parts)),
        # Each has its share of the budget, so that all of them have all of it.
        budgets=Constant(_joined([part.budgets() for part in parts], sum)),
        # An open one refuses its share of the requests: the worst is what to know of.
        breakers=Constant(_joined([part.breakers() for part in parts], _worst)),
        throttle_states=Constant(_joined([part.throttle_states() for part in parts], _goings_on)),
        store_state=Constant(_worst_store([part.store_state() for part in parts])),
        transient=Constant(_joined([part.transient() for part in parts], _same)),
        # All of them count the same file.
        letter_counts=counted_last.letter_counts,
        letters_counted=counted_last.letters_counted,
        process=Constant(_processes([part.process() for part in parts])),
    )


def nothing(version: str, parser: str, loaded_at: float) -> MetricsSnapshot:
    """What is known while there is nobody to tell anything."""
    return MetricsSnapshot(
        version=version,
        parser=parser,
        last_reload=loaded_at,
        workers=0,
        lost_lines=Constant(0),
        budgets=Constant({}),
        breakers=Constant({}),
        throttle_states=Constant({}),
        store_state=Constant(None),
        transient=Constant({}),
        letter_counts=Constant({}),
        letters_counted=Constant(float("-inf")),
        process=Constant({}),
    )


def gone(last: MetricsSnapshot) -> MetricsSnapshot:
    """What stays of a process that has ended, by what it told last: all that only grows."""
    routes = {}
    for name, series in last.routes.items():
        routes[name] = RouteSeries.sum_of([series])
        routes[name].in_flight = 0
    return replace(
        last,
        routes=routes,
        budgets=Constant({}),
        breakers=Constant({}),
        throttle_states=Constant({}),
        store_state=Constant(None),
        letter_counts=Constant({}),
        letters_counted=Constant(float("-inf")),
        process=Constant({name: value for name, value in last.process().items() if name == CPU}),
    )


def kept_of(past: MetricsSnapshot, present: MetricsSnapshot) -> MetricsSnapshot:
    """*past* without the series that *present* does not have: a reload has let go of those."""
    return replace(
        past,
        routes=_kept(past.routes, present.routes),
        retries=_kept(past.retries, present.retries),
        keys=_kept(past.keys, present.keys),
        letters=_kept(past.letters, present.letters),
        upstreams=_kept(past.upstreams, present.upstreams),
        attempts=_kept(past.attempts, present.attempts),
        throttles=_kept(past.throttles, present.throttles),
        transient=Constant(_kept(past.transient(), present.transient())),
    )


def _joined(parts: Sequence[Mapping[KeyT, ValueT]], join: Any) -> dict[KeyT, Any]:  # noqa: ANN401 - of whatever they hold
    """For each key what *join* makes of all that the parts have under it, in their order."""
    found: dict[KeyT, list[ValueT]] = {}
    for part in parts:
        for key, value in part.items():
            found.setdefault(key, []).append(value)
    return {key: join(values) for key, values in found.items()}


def _kept(past: Mapping[KeyT, ValueT], present: Mapping[KeyT, object]) -> dict[KeyT, ValueT]:
    return {key: value for key, value in past.items() if key in present}


def _worst(states: Iterable[BreakerState]) -> BreakerState:
    return max(states)


def _worst_store(states: Sequence[str | None]) -> str | None:
    """``down`` if it is for anybody."""
    return "down" if "down" in states else next(filter(None, states), None)


def _same(values: Sequence[ValueT]) -> ValueT:
    """What all were configured with; during a reload that of the first."""
    return values[0]


def _goings_on(states: Sequence[ThrottleState]) -> ThrottleState:
    """Lines and calls are each process's own; buckets and pauses are the same ones, shared."""
    return ThrottleState(
        waiting=sum(state.waiting for state in states),
        under_way=sum(state.under_way for state in states),
        buckets=max(state.buckets for state in states),
        paused=max(state.paused for state in states),
        paused_for=max(state.paused_for for state in states),
    )


def _processes(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    whole: dict[str, float] = _joined(parts, sum)
    starts = [part[START] for part in parts if START in part]
    return {**whole, START: min(starts)} if starts else whole
