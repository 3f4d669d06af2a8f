"""The table of metrics: every family with its text, labels, source, and rule over workers.

This is the one place that lists them. ``/metrics`` shows the rows in this order
(``exposition.py``), ``aggregate.py`` merges them over workers, the reference of metrics is made
from them, and tests compare dashboards and alerts with them. Names and labels are a contract with
those: seconds as the unit, ``_total`` for what only grows, and labels that come from the
configuration or from a closed set, never from a client.

What only ``/status`` shows is a plain source, listed at the end.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from proxy.core.recorders import AddressState, ThrottleState
from proxy.http.refusal import RefusalReason
from proxy.observe.metrics.family import (
    Counted,
    Derived,
    Family,
    Given,
    Label,
    MetricSubject,
    MetricType,
    Sample,
)
from proxy.observe.metrics.series import Histogram, Tally, merge_by_key
from proxy.observe.metrics.snapshot import MetricSource, ProcessSnapshot, ThrottleName
from proxy.policy.attempt import STATUS_CLASSES, FailureKind, outcome_label
from proxy.policy.breaker import BreakerState
from proxy.policy.dead_letter import DeadLetterCounts, ReplayResult
from proxy.policy.delivery.counts import RouteDeliveries
from proxy.policy.delivery.line import LinePhase
from proxy.policy.delivery.words import DeferralReason, DeliveryEnd, DeliveryState
from proxy.policy.idempotency.record import KnownKeys
from proxy.policy.reasons import KeyResult, VerdictReason
from proxy.policy.settings import HandOffWhen

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

# Upper bounds of buckets, in seconds, each inclusive; one more bucket has no bound.
_MILLISECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
LATENCY_BOUNDS = (*_MILLISECONDS, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""A sidecar's own share of a request is below a millisecond, an upstream's may be a minute."""
WAIT_BOUNDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""A wait is chosen, so it may be next to nothing, or minutes that an upstream asked for."""
DELAY_BOUNDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0, 259200.0)
"""A delivery is sent at once, or when its upstream is back, days later."""
STORE_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
"""A store is near, and a request gives up on it before a caller would notice."""

PHASES = ("body", "queue", "backoff", "upstream", "response")
"""Where a client can leave: while it sends, while it waits (in a queue, between two
attempts, or for one), while it receives."""
WAIT_SOURCES = ("backoff", "hint")
"""What chose the wait before another attempt: our backoff, or a hint of the upstream."""
DECISIONS = ("passed", "delayed", "refused")
"""What a throttle can decide; every attempt has exactly one of these."""
RELOAD_RESULTS = ("success", "failure")

# What series are about.

PROCESS = MetricSubject()
STORE = MetricSubject()
"""The store, where it is shared."""
ROUTE = MetricSubject((Label("route"),))
RETRYING_ROUTE = MetricSubject(ROUTE.labels)
"""A route that retries or falls back."""
KEYED_ROUTE = MetricSubject(ROUTE.labels)
"""A route with idempotency keys."""
DEAD_LETTER_ROUTE = MetricSubject(ROUTE.labels)
"""A route that keeps dead letters."""
DELIVERING_ROUTE = MetricSubject(ROUTE.labels)
"""A route that hands off."""
UPSTREAM = MetricSubject((Label("upstream"),))
ROUTE_TO_UPSTREAM = MetricSubject((*ROUTE.labels, *UPSTREAM.labels), parts=(ROUTE, UPSTREAM))
THROTTLE = MetricSubject((Label("scope", ("route", "upstream")), Label("name")))


# Rules that make one value of those of several workers.


def by_key(
    merge: Callable[[Sequence[ValueT]], ValueT],
) -> Callable[[Sequence[Mapping[KeyT, ValueT]]], Mapping[KeyT, ValueT]]:
    """Return the rule that merges values which have the same key by *merge*."""
    return lambda parts: merge_by_key(parts, merge)


def first(parts: Sequence[ValueT]) -> ValueT:
    """Return the first value that says anything: that of the supervisor, if it has one."""
    return next(filter(None, parts), parts[0])


def known(
    merge: Callable[[Sequence[ValueT]], ValueT],
) -> Callable[[Sequence[ValueT | None]], ValueT | None]:
    """Return the rule that merges by *merge* what is known; None if nothing is."""

    def merge_known(parts: Sequence[ValueT | None]) -> ValueT | None:
        values = [part for part in parts if part is not None]
        return merge(values) if values else None

    return merge_known


def by_field(
    kind: Callable[..., ValueT],
    usual: Callable[[Sequence[Any]], Any],
    **rules: Callable[[Sequence[Any]], Any],
) -> Callable[[Sequence[ValueT]], ValueT]:
    """Return the rule that merges dataclasses of *kind* by the *usual* rule, but for *rules*."""

    def merge_fields(parts: Sequence[ValueT]) -> ValueT:
        names = parts[0].__dataclass_fields__  # type: ignore[attr-defined]  # a dataclass
        return kind(
            **{name: rules.get(name, usual)([getattr(p, name) for p in parts]) for name in names}
        )

    return merge_fields


def _worst_store(states: Sequence[str | None]) -> str | None:
    """Return ``down`` if the store is down for any worker."""
    return "down" if "down" in states else first(states)


def _addresses(parts: Sequence[Sequence[AddressState]]) -> list[AddressState]:
    by_address = ({state.address: state for state in part} for part in parts)
    # Each worker judges by its own attempts; callers that are refused feel the worst.
    merge = by_field(AddressState, sum, address=first, failing=any, breaker=known(max))
    return list(merge_by_key(by_address, merge).values())


# Sources that several families, or /status as well, read.

THROTTLES: MetricSource[Mapping[ThrottleName, ThrottleState]] = MetricSource(
    "throttles",
    # Queues and calls are each process's own; buckets and pauses are shared.
    merge=by_key(by_field(ThrottleState, max, waiting=sum, under_way=sum)),
    nothing=dict,
)
DEAD_LETTERS: MetricSource[tuple[float, Mapping[str, DeadLetterCounts]]] = MetricSource(
    # All workers count the same file.
    "dead_letters",
    merge=lambda parts: max(parts, key=lambda part: part[0]),
    nothing=lambda: (float("-inf"), {}),
)
"""When they were counted, in monotonic seconds, which all processes of a machine share; and the
counts by route."""
DELIVERIES: MetricSource[tuple[float, Mapping[str, RouteDeliveries]]] = MetricSource(
    # All workers count the same file.
    "deliveries",
    merge=lambda parts: max(parts, key=lambda part: part[0]),
    nothing=lambda: (float("-inf"), {}),
)
"""As for dead letters."""
BUILD: MetricSource[tuple[str, str]] = MetricSource(
    "build", merge=first, nothing=lambda: ("", ""), outlives=True
)
"""The version, and the HTTP parser in use."""


def _throttle_gauge(
    read: Callable[[ThrottleState], int],
) -> Callable[[ProcessSnapshot], Iterable[Sample]]:
    return lambda snapshot: (
        (throttle, read(state)) for throttle, state in snapshot[THROTTLES].items()
    )


def _breaker_addresses(snapshot: ProcessSnapshot) -> Iterable[Sample]:
    """Count the addresses of each upstream with breakers, by the state of their breaker."""
    addresses = snapshot[ADDRESSES]
    for upstream in snapshot[BREAKERS]:
        states = [address.breaker for address in addresses.get(upstream, ())]
        for state in BreakerState:
            yield (upstream, state.word), states.count(state)


def _pending(snapshot: ProcessSnapshot) -> Iterable[Sample]:
    """Read how many wait; a route that is not configured any more may have left some."""
    routes, (_, counts) = (route for (route,) in snapshot[LETTERS_KEPT]), snapshot[DEAD_LETTERS]
    for route in dict.fromkeys((*routes, *counts)):
        yield (route,), counts[route].waiting if route in counts else 0


def _delivery_states(snapshot: ProcessSnapshot) -> Iterable[Sample]:
    """Read how many deliveries are in each state; a route that is gone may have left some."""
    routes, (_, counts) = (route for (route,) in snapshot[ACCEPTED]), snapshot[DELIVERIES]
    for route in dict.fromkeys((*routes, *counts)):
        states = counts[route].states if route in counts else {}
        for state in DeliveryState:
            yield (route, state), states.get(state, 0)


# The rows: first what counts requests.

REQUESTS: Counted[dict[tuple[str, int], int]] = Counted(
    "holdfast_requests_total",
    "Requests answered, by the status that the client got; 499: it left first.",
    subject=ROUTE,
    labels=(Label("method"), Label("code")),
    to_labels=lambda key: (key[0], f"{key[1]:03d}"),
)
IN_FLIGHT: Counted[Tally] = Counted(
    "holdfast_requests_in_flight", "Requests being served.", subject=ROUTE
)
REFUSALS: Counted[dict[RefusalReason, int]] = Counted(
    "holdfast_refusals_total",
    "Requests that were answered by the proxy itself, by the reason of the problem.",
    subject=ROUTE,
    keys=(),  # a series for each of all reasons would be most of what a scrape shows
    labels=(Label("reason", tuple(RefusalReason)),),
    to_labels=lambda reason: (reason.value,),
    page="Requests that Holdfast answered itself, by the [reason](problem-types.md) of the "
    "problem; a fixed fallback answer is none. Absent until the first.",
)
DISCONNECTS: Counted[dict[str, int]] = Counted(
    "holdfast_client_disconnects_total",
    "Clients that left before their answer was complete, by what was going on.",
    subject=ROUTE,
    labels=(Label("phase", PHASES),),
)
DURATION: Counted[Histogram] = Counted(
    "holdfast_request_duration_seconds",
    "From the complete head of a request to the last byte of its answer handed over.",
    subject=ROUTE,
    bounds=LATENCY_BOUNDS,
)

# Attempts at upstreams.

ATTEMPTS: Counted[dict[FailureKind | int, int]] = Counted(
    "holdfast_upstream_attempts_total",
    "Attempts made, by the class of the status or by how they failed.",
    subject=ROUTE_TO_UPSTREAM,
    keys=(),
    labels=(Label("outcome", (*STATUS_CLASSES[1:], "other", "a kind")),),
    to_labels=lambda ending: (outcome_label(ending),),
)
ATTEMPT_DURATION: Counted[Histogram] = Counted(
    "holdfast_upstream_attempt_duration_seconds",
    "From the start of an attempt to the last byte of its response, or its failure.",
    subject=UPSTREAM,
    bounds=LATENCY_BOUNDS,
)
VERDICTS: Counted[dict[VerdictReason, int]] = Counted(
    "holdfast_retry_verdicts_total",
    "Attempts on routes that retry or fall back, by why they were the last or were not.",
    subject=RETRYING_ROUTE,
    labels=(Label("reason", tuple(VerdictReason)),),
)
RETRY_WAITS: Counted[dict[str, Histogram]] = Counted(
    "holdfast_retry_wait_seconds",
    "Waits between two attempts, by who chose them: we, or a hint of the upstream.",
    subject=RETRYING_ROUTE,
    bounds=WAIT_BOUNDS,
    labels=(Label("source", WAIT_SOURCES),),
    page="Waits between two attempts, by who chose them: Holdfast, or a hint of the upstream.",
)
BUDGETS: Given[Mapping[str, float]] = Given(
    "holdfast_retry_budget_remaining",
    "Retries that the upstream's budget would allow now.",
    labels=UPSTREAM.labels,
    merge=by_key(sum),  # each worker has its share of the budget
    nothing=dict,
)
BREAKERS: Given[Mapping[str, BreakerState]] = Given(
    "holdfast_breaker_state",
    "The breaker of the upstream's best address: 0 closed, 1 half-open, 2 open.",
    labels=UPSTREAM.labels,
    merge=by_key(max),  # an open breaker refuses its worker's share of the requests
    nothing=dict,
)
BREAKER_ADDRESSES = Derived(
    "holdfast_breaker_addresses",
    "Addresses of the upstream, by the state of their breaker.",
    labels=(*UPSTREAM.labels, Label("state", tuple(state.word for state in BreakerState))),
    read=_breaker_addresses,
    page="Addresses of the upstream, by the state of their breaker; of several workers, the worst. "
    "All are 0 until the upstream's name is first looked up.",
)

# Throttles.

THROTTLE_DECISIONS: Counted[dict[str, int]] = Counted(
    "holdfast_throttle_decisions_total",
    "Attempts that asked a throttle for a permit, by what it decided.",
    subject=THROTTLE,
    labels=(Label("decision", DECISIONS),),
    page="Attempts that a throttle let through at once, let through after a wait, or refused.",
)
THROTTLE_WAITS: Counted[Histogram] = Counted(
    "holdfast_throttle_wait_seconds",
    "Waits in the queue of a throttle, of attempts that were let through after one.",
    subject=THROTTLE,
    bounds=WAIT_BOUNDS,
)
QUEUE_LENGTH = Derived(
    "holdfast_throttle_queue_length",
    "Attempts waiting in the queue of a throttle.",
    labels=THROTTLE.labels,
    read=_throttle_gauge(lambda state: state.waiting),
)
PAUSED = Derived(
    "holdfast_throttle_paused",
    "Buckets paused because the upstream asked for it.",
    labels=THROTTLE.labels,
    read=_throttle_gauge(lambda state: state.paused),
    page="Buckets paused because the upstream asked for it; one at most where there is no key.",
)

# Idempotency keys.

KEY_RESULTS: Counted[dict[KeyResult, int]] = Counted(
    "holdfast_idempotency_total",
    "Requests with an idempotency key, by what the key meant for them.",
    subject=KEYED_ROUTE,
    labels=(Label("result", tuple(KeyResult)),),
    page="Requests with a key (`missing`: without one that is required), by what it meant: it ran, "
    "got an earlier result, waited for the first and got its result, or was refused; `bypassed`: "
    "it ran unprotected; `lease_lost`: counted besides `new`.",
)
EVICTIONS: Counted[Tally] = Counted(
    "holdfast_store_evictions_total",
    "Results of idempotency keys, and markers once only those were left, removed before their "
    "time, because the store was full.",
    subject=PROCESS,
    page="Results that the memory store removed before their `ttl`, because it was full (a marker "
    "stays: 409), and markers that it removed when only those were left (a duplicate runs again).",
)

# Dead letters.

LETTERS_PENDING = Derived(
    "holdfast_dead_letters_pending",
    "Dead letters that wait for a person.",
    labels=ROUTE.labels,
    read=_pending,
)
LETTERS_OLDEST = Derived(
    "holdfast_dead_letters_oldest_timestamp_seconds",
    "When the oldest of them was written; absent while there is none.",
    labels=ROUTE.labels,
    read=lambda snapshot: (
        ((route,), counts.oldest) for route, counts in snapshot[DEAD_LETTERS][1].items()
    ),
)
LETTERS_KEPT: Counted[Tally] = Counted(
    "holdfast_dead_letters_total",
    "Requests that failed for good and were kept as dead letters.",
    subject=DEAD_LETTER_ROUTE,
)
LETTERS_DROPPED: Counted[dict[str, int]] = Counted(
    "holdfast_dead_letters_dropped_total",
    "Dead letters that are lost: they expired, or could not be written.",
    subject=DEAD_LETTER_ROUTE,
    keys=("lost", "expired"),
    to_labels=lambda _: (),
)
# Deliveries.

DELIVERY_STATES = Derived(
    "holdfast_deliveries",
    "Deliveries on disk, by their state.",
    labels=(*ROUTE.labels, Label("state", tuple(DeliveryState))),
    read=_delivery_states,
)
DELIVERY_BYTES = Derived(
    "holdfast_deliveries_bytes",
    "Bytes of the deliveries that are open or have failed.",
    labels=ROUTE.labels,
    read=lambda snapshot: (
        ((route,), counts.size) for route, counts in snapshot[DELIVERIES][1].items()
    ),
)
DELIVERIES_USED: Given[float | None] = Given(
    "holdfast_deliveries_used_ratio",
    "What the deliveries use of their room, entries or bytes, whichever is more; from 0 to 1.",
    merge=known(max),
    nothing=lambda: None,
    only_if_any=True,
    page="What the deliveries use of their room, of `entries` or of `bytes`, whichever is more: "
    "from 0 to 1, and above 1 where the room was made smaller. Absent where no route hands off.",
)
DELIVERIES_OLDEST = Derived(
    "holdfast_deliveries_oldest_timestamp_seconds",
    "When the oldest open delivery was accepted; absent while there is none.",
    labels=ROUTE.labels,
    read=lambda snapshot: (
        ((route,), counts.oldest)
        for route, counts in snapshot[DELIVERIES][1].items()
        if counts.oldest
    ),
)
ACCEPTED: Counted[dict[str, int]] = Counted(
    "holdfast_deliveries_accepted_total",
    "Requests that were handed off, by when a route does so.",
    subject=DELIVERING_ROUTE,
    labels=(Label("when", tuple(HandOffWhen)),),
)
NOT_ACCEPTED: Counted[dict[str, int]] = Counted(
    "holdfast_deliveries_refused_total",
    "Requests that were to be handed off, and were not, by the reason.",
    subject=DELIVERING_ROUTE,
    labels=(Label("reason", ("credentials", "too_large", "queue_full", "not_durable")),),
)
DELIVERIES_ENDED: Counted[dict[str, int]] = Counted(
    "holdfast_deliveries_ended_total",
    "Deliveries that have ended, by how.",
    subject=DELIVERING_ROUTE,
    labels=(Label("result", ("delivered", "failed", "cancelled")),),
)
DELIVERY_RUNS: Counted[dict[str, int]] = Counted(
    "holdfast_delivery_runs_total",
    "Tries of deliveries, by what followed and why.",
    subject=DELIVERING_ROUTE,
    labels=(Label("why", (*VerdictReason, *DeliveryEnd, "deferred")),),
)
DEFERRALS: Counted[dict[str, int]] = Counted(
    "holdfast_delivery_deferrals_total",
    "Times that deliveries were put off without using an attempt, by the reason.",
    subject=DELIVERING_ROUTE,
    labels=(Label("reason", tuple(DeferralReason)),),
)
RECOVERED: Counted[dict[str, int]] = Counted(
    "holdfast_delivery_recovered_total",
    "Deliveries that were being sent when their process died, by what became of them.",
    subject=DELIVERING_ROUTE,
    labels=(Label("outcome", ("retried", "uncertain")),),
)
DELIVERY_DELAY: Counted[Histogram] = Counted(
    "holdfast_delivery_delay_seconds",
    "From the acceptance of a delivery until it was delivered.",
    subject=DELIVERING_ROUTE,
    bounds=DELAY_BOUNDS,
)
DELIVERY_LAG: Counted[Histogram] = Counted(
    "holdfast_delivery_lag_seconds",
    "From when a delivery was first due until it was sent.",
    subject=DELIVERING_ROUTE,
    bounds=WAIT_BOUNDS,
)
DELIVERY_LINES: Given[Mapping[str, LinePhase]] = Given(
    "holdfast_delivery_line",
    "Whether deliveries go to the upstream: 0 open, 1 ramping up, 2 closed.",
    labels=UPSTREAM.labels,
    merge=by_key(max),  # one worker delivers; the lines of the others are open
    nothing=dict,
)

REPLAYS: Counted[dict[ReplayResult, int]] = Counted(
    "holdfast_dead_letter_replays_total",
    "Replays of dead letters, by how they ended.",
    subject=DEAD_LETTER_ROUTE,
    labels=(Label("result", tuple(ReplayResult)),),
    page="Replays of dead letters, by how they ended: sent and gone; not sent and gone, because "
    "its key had a good result already; failed; refused by Holdfast before anything was sent; or "
    "cut off by the end of the process.",
)

# The store, where it is shared.

STORE_ERRORS: Counted[dict[str, int]] = Counted(
    "holdfast_store_errors_total",
    "Operations that the shared store did not answer, or not in time.",
    subject=STORE,
    labels=(Label("operation"),),
    only_if_any=True,
)
STORE_DURATIONS: Counted[dict[str, Histogram]] = Counted(
    "holdfast_store_operation_duration_seconds",
    "How long the shared store took to answer.",
    subject=STORE,
    bounds=STORE_BOUNDS,
    labels=(Label("operation"),),
    only_if_any=True,
)

# The process, or all of them. Reloads are the supervisor's: each worker takes part in every one.

RELOADS: Counted[dict[str, int]] = Counted(
    "holdfast_config_reloads_total",
    "Reloads of the configuration; a failed one changes nothing.",
    subject=PROCESS,
    labels=(Label("result", RELOAD_RESULTS),),
    merge=first,
)
LAST_RELOAD: Counted[Tally] = Counted(
    "holdfast_config_last_reload_success_timestamp_seconds",
    "When the configuration in force was read.",
    subject=PROCESS,
    merge=first,
)
LAST_RELOAD_SUCCESSFUL: Counted[Tally] = Counted(
    "holdfast_config_last_reload_successful",
    "Whether the last reload of the configuration succeeded: 1, or 0; 1 before the first.",
    subject=PROCESS,
    merge=first,
)
LOST_LINES: Given[int] = Given(
    "holdfast_access_log_dropped_total",
    "Lines of the access log that could not be written.",
    merge=sum,
    nothing=int,
    outlives=True,
)
WORKERS: Given[int] = Given("holdfast_workers", "Processes that serve.", merge=sum, nothing=int)
WORKER_RESTARTS: Counted[Tally] = Counted(
    "holdfast_worker_restarts_total",
    "Workers that ended by themselves and were replaced.",
    subject=PROCESS,
)
BUILD_INFO = Derived(
    "holdfast_build_info",
    "Always 1; the labels tell what is running.",
    labels=(Label("version"), Label("parser")),
    read=lambda snapshot: ((snapshot[BUILD], 1),),
)

# What the system knows of a process (``process.py``), on Linux; absent elsewhere.


def _system(
    name: str,
    text: str,
    merge: Callable[[Sequence[float]], float] = sum,
    *,
    outlives: bool = False,
) -> Given[float | None]:
    return Given(
        name,
        text,
        merge=known(merge),
        nothing=lambda: None,
        outlives=outlives,
        only_if_any=True,
    )


VIRTUAL_MEMORY = _system("process_virtual_memory_bytes", "Virtual memory size in bytes.")
RESIDENT_MEMORY = _system("process_resident_memory_bytes", "Resident memory size in bytes.")
START_TIME = _system(
    "process_start_time_seconds",
    "Start time of the process since unix epoch in seconds.",
    min,
)
CPU_SECONDS = _system(
    "process_cpu_seconds_total",
    "Total user and system CPU time spent in seconds.",
    outlives=True,
)
OPEN_FDS = _system("process_open_fds", "Number of open file descriptors.")
MAX_FDS = _system("process_max_fds", "Maximum number of open file descriptors.")

# Sources that only /status shows.

NOW: MetricSource[float] = MetricSource("now", merge=max, nothing=float)
"""When the snapshot was taken, in seconds since the epoch."""
CONNECTIONS: MetricSource[int] = MetricSource("connections", merge=sum, nothing=int)
"""Clients that are connected."""
KEYS_IN_FLIGHT: MetricSource[int] = MetricSource("keys_in_flight", merge=sum, nothing=int)
KEYS_WAITING: MetricSource[int] = MetricSource("keys_waiting", merge=sum, nothing=int)
"""Requests that wait for another one with the same idempotency key."""
KEYS_KNOWN: MetricSource[KnownKeys | None] = MetricSource(
    "keys_known",
    merge=known(by_field(KnownKeys, sum, oldest=known(max))),
    nothing=lambda: None,
)
"""What the memory of this process knows of keys; None where a store has them."""
ADDRESSES: MetricSource[Mapping[str, Sequence[AddressState]]] = MetricSource(
    "addresses", merge=by_key(_addresses), nothing=dict
)
"""The addresses of each upstream."""
STORE_STATE: MetricSource[str | None] = MetricSource(
    "store_state", merge=_worst_store, nothing=lambda: None
)
"""``up`` or ``down``; None where no store is shared."""
TRANSIENT: MetricSource[Mapping[tuple[str, str], frozenset[int]]] = MetricSource(
    # All workers have the same; during a reload, that of the first worker counts.
    "transient",
    merge=by_key(itemgetter(0)),
    nothing=dict,
    outlives=True,
)
"""By route and upstream: the statuses that may pass by themselves."""

FAMILIES = tuple(row for row in list(globals().values()) if isinstance(row, Family))
"""Every metric, in the order in which it is shown."""
SOURCES: tuple[MetricSource[Any], ...] = tuple(
    row for row in list(globals().values()) if isinstance(row, MetricSource)
)
"""All that a snapshot has."""
COUNTED: Mapping[str, Counted[Any]] = {
    row.name: row for row in FAMILIES if isinstance(row, Counted)
}
"""What recorders count, by the name of the metric."""
COUNTERS = tuple(row for row in COUNTED.values() if row.kind is not MetricType.GAUGE)
"""What only grows, as counters or histograms: what can be told of a span of time."""
