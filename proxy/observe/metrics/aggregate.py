"""Metrics aggregation: the numbers of several worker processes as those of one.

Everything is added up in the form in which it is counted, so that quantiles, failures and
labels are made from the sum, by the same code as for one process. What cannot be added
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
from proxy.observe.metrics.snapshot import AddressState, MetricsSnapshot, ProcessSnapshot
from proxy.policy.breaker import BreakerState
from proxy.policy.idempotency.record import KnownKeys

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

START = "process_start_time_seconds"
"""The one ``process_*`` metric that is no sum: the earliest start of all processes counts."""
CPU = "process_cpu_seconds_total"
"""The only ``process_*`` metric that outlives its process."""


@dataclass(frozen=True, slots=True)
class Constant(Generic[ValueT]):
    """A callable that always returns the same value, in place of one that looks it up."""

    value: ValueT

    def __call__(self) -> ValueT:
        return self.value


def snapshot(live: MetricsSnapshot) -> MetricsSnapshot:
    """Copy the *live* metrics as they are now, in a form that can be sent to another process."""
    return replace(
        live,
        lost_lines=Constant(live.lost_lines()),
        budgets=Constant(dict(live.budgets())),
        breakers=Constant(dict(live.breakers())),
        throttle_states=Constant(dict(live.throttle_states())),
        store_state=Constant(live.store_state()),
        transient=Constant(dict(live.transient())),
        dead_letter_counts=Constant(dict(live.dead_letter_counts())),
        dead_letters_counted=Constant(live.dead_letters_counted()),
        process=Constant(dict(live.process())),
    )


def aggregate(parts: Sequence[MetricsSnapshot]) -> MetricsSnapshot:
    """Add up what all *parts* (at least one) counted, and what goes on in all of them."""
    counted_last = max(parts, key=lambda part: part.dead_letters_counted())
    stores = [part.store for part in parts if part.store is not None]
    return replace(
        parts[0],
        routes=_merged([part.routes for part in parts], RouteSeries.sum_of),
        retries=_merged([part.retries for part in parts], RetrySeries.sum_of),
        keys=_merged([part.keys for part in parts], sum_of_counts),
        dead_letters=_merged([part.dead_letters for part in parts], DeadLetterSeries.sum_of),
        evictions=sum(part.evictions for part in parts),
        upstreams=_merged([part.upstreams for part in parts], Histogram.sum_of),
        attempts=_merged([part.attempts for part in parts], sum_of_counts),
        throttles=_merged([part.throttles for part in parts], ThrottleSeries.sum_of),
        store=StoreSeries.sum_of(stores) if stores else None,
        lost_lines=Constant(sum(part.lost_lines() for part in parts)),
        # Each worker has its share of the budget, so that the sum is all of it.
        budgets=Constant(_merged([part.budgets() for part in parts], sum)),
        # An open breaker refuses its worker's share of the requests: the worst one is shown.
        breakers=Constant(_merged([part.breakers() for part in parts], _worst)),
        throttle_states=Constant(
            _merged([part.throttle_states() for part in parts], _throttle_state)
        ),
        store_state=Constant(_worst_store([part.store_state() for part in parts])),
        transient=Constant(_merged([part.transient() for part in parts], _of_the_first)),
        # All workers count the same file.
        dead_letter_counts=counted_last.dead_letter_counts,
        dead_letters_counted=counted_last.dead_letters_counted,
        process=Constant(_process_metrics([part.process() for part in parts])),
    )


def aggregate_processes(parts: Sequence[ProcessSnapshot]) -> ProcessSnapshot:
    """Add up the snapshots of several processes, at least one, as if they were one process."""
    upstreams = dict.fromkeys(name for part in parts for name in part.addresses)
    return ProcessSnapshot(
        metrics=aggregate([part.metrics for part in parts]),
        connections=sum(part.connections for part in parts),
        keys_in_flight=sum(part.keys_in_flight for part in parts),
        keys_waiting=sum(part.keys_waiting for part in parts),
        addresses={
            name: _addresses([part.addresses.get(name, ()) for part in parts]) for name in upstreams
        },
        keys_known=_known_keys([part.keys_known for part in parts]),
    )


def empty(version: str, parser: str, loaded_at: float) -> MetricsSnapshot:
    """Make the metrics that are known while no worker has reported any."""
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
        dead_letter_counts=Constant({}),
        dead_letters_counted=Constant(float("-inf")),
        process=Constant({}),
    )


def after_exit(last: MetricsSnapshot) -> MetricsSnapshot:
    """Keep of an ended process's last report what counts on: all that only grows."""
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
        dead_letter_counts=Constant({}),
        dead_letters_counted=Constant(float("-inf")),
        process=Constant({name: value for name, value in last.process().items() if name == CPU}),
    )


def drop_absent(past: MetricsSnapshot, present: MetricsSnapshot) -> MetricsSnapshot:
    """Drop the series of *past* that *present* does not have: a reload has dropped those."""
    return replace(
        past,
        routes=_present_in(past.routes, present.routes),
        retries=_present_in(past.retries, present.retries),
        keys=_present_in(past.keys, present.keys),
        dead_letters=_present_in(past.dead_letters, present.dead_letters),
        upstreams=_present_in(past.upstreams, present.upstreams),
        attempts=_present_in(past.attempts, present.attempts),
        throttles=_present_in(past.throttles, present.throttles),
        transient=Constant(_present_in(past.transient(), present.transient())),
    )


def _merged(parts: Sequence[Mapping[KeyT, ValueT]], merge: Any) -> dict[KeyT, Any]:  # noqa: ANN401 - of whatever they contain
    """Merge, for each key, the values that the parts have under it, in their order."""
    found: dict[KeyT, list[ValueT]] = {}
    for part in parts:
        for key, value in part.items():
            found.setdefault(key, []).append(value)
    return {key: merge(values) for key, values in found.items()}


def _present_in(past: Mapping[KeyT, ValueT], present: Mapping[KeyT, object]) -> dict[KeyT, ValueT]:
    return {key: value for key, value in past.items() if key in present}


def _worst(states: Iterable[BreakerState]) -> BreakerState:
    return max(states)


def _worst_store(states: Sequence[str | None]) -> str | None:
    """Return ``down`` if the store is down for any worker."""
    return "down" if "down" in states else next(filter(None, states), None)


def _of_the_first(values: Sequence[ValueT]) -> ValueT:
    """Return the value that all workers have; during a reload, that of the first worker."""
    return values[0]


def _throttle_state(states: Sequence[ThrottleState]) -> ThrottleState:
    """Add up queues and calls, which are each process's own; buckets and pauses are shared."""
    return ThrottleState(
        waiting=sum(state.waiting for state in states),
        under_way=sum(state.under_way for state in states),
        buckets=max(state.buckets for state in states),
        paused=max(state.paused for state in states),
        paused_for=max(state.paused_for for state in states),
    )


def _process_metrics(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = _merged(parts, sum)
    starts = [part[START] for part in parts if START in part]
    return {**sums, START: min(starts)} if starts else sums


def _known_keys(parts: Sequence[KnownKeys | None]) -> KnownKeys | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    oldest = [part.oldest for part in known if part.oldest is not None]
    held = sum(part.held for part in known)
    return KnownKeys(sum(part.known for part in known), held, max(oldest, default=None))


def _addresses(parts: Sequence[Sequence[AddressState]]) -> list[AddressState]:
    found: dict[str, list[AddressState]] = {}
    for part in parts:
        for state in part:
            found.setdefault(state.address, []).append(state)
    return [
        AddressState(
            address=address,
            open=sum(state.open for state in states),
            idle=sum(state.idle for state in states),
            failing=any(state.failing for state in states),
            # Each worker judges by its own attempts; callers that are refused feel the worst.
            breaker=max(
                (state.breaker for state in states if state.breaker is not None), default=None
            ),
        )
        for address, states in found.items()
    ]
