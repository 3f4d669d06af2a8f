"""All metrics of the process, and the recorders through which they are fed.

The recorders are made at load time, one per route and one per throttle. Those of a
reload go on counting where the old ones stopped; requests still in flight keep the
recorder that they began with. The series of a route that is gone are dropped, so its last
requests count into numbers that no scrape shows any more.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from proxy.core.exchange import Exchange
from proxy.core.recorders import StoreRecorder, ThrottleRecorder
from proxy.http.refusal import RefusalReason
from proxy.observe.metrics import families
from proxy.observe.metrics.family import Counted, MetricSubject
from proxy.observe.metrics.process import ProcessNumbers
from proxy.observe.metrics.series import Histogram, Tally
from proxy.observe.metrics.snapshot import ProcessSnapshot, Reading
from proxy.policy.attempt import Attempt, FailureKind, RetryDelay
from proxy.policy.reasons import KeyResult, VerdictReason

KNOWN_METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "CONNECT", "TRACE"}
)
OTHER_METHOD = "_OTHER"
"""Stands for every method that a client made up: labels come from closed sets."""

UNMATCHED = "_unmatched"
"""The route label of requests that no route took, unreadable ones included."""

LogLine = Callable[[str, Exchange], None]
"""Called with a route's name and a request of it that is over."""


SeriesT = TypeVar("SeriesT")


class RouteRecorder:
    """Counts what happens on one route. On the hot path: additions, nothing else.

    Attempts are counted by kind or status, and the scrape sums those up into labels;
    to look up the label each time would cost 0.3 µs more.
    """

    def __init__(
        self,
        name: str,
        series: Mapping[str, Any],
        upstreams: Mapping[str, tuple[dict[FailureKind | int, int], Histogram]],
        log: LogLine | None,
    ) -> None:
        """*series* are all of the route, by the names of their metrics.

        *upstreams* says where the attempts at each upstream of the route are counted.
        """
        self._name = name
        self._series = series
        self._in_flight: Tally = series[families.IN_FLIGHT.name]
        self._requests: dict[tuple[str, int], int] = series[families.REQUESTS.name]
        self._refusals: dict[RefusalReason, int] = series[families.REFUSALS.name]
        self._duration: Histogram = series[families.DURATION.name]
        self._upstreams = upstreams
        self._verdicts: dict[VerdictReason, int] = series[families.VERDICTS.name]
        self._waits: dict[str, Histogram] = series[families.RETRY_WAITS.name]
        self._keys: dict[KeyResult, int] = series[families.KEY_RESULTS.name]
        self._log = log

    def __repr__(self) -> str:
        return f"<recorder {self._name}, {self._in_flight.value} in flight>"

    def started(self) -> None:
        """Count a request that was matched to this route."""
        self._in_flight.value += 1

    def attempted(self, attempt: Attempt) -> None:
        """Count an attempt that has ended."""
        endings, durations = self._upstreams[attempt.upstream]
        ending = attempt.kind or attempt.status
        try:
            endings[ending] += 1
        except KeyError:
            endings[ending] = 1
        durations.observe(attempt.duration)

    def judged(self, reason: VerdictReason) -> None:
        """Count the verdict on whether another attempt follows."""
        self._verdicts[reason] += 1

    def waited(self, delay: RetryDelay) -> None:
        """Count a wait between two attempts that is over."""
        self._waits[delay.source].observe(delay.seconds)

    def keyed(self, result: KeyResult) -> None:
        """Count what an idempotency key meant for a request."""
        self._keys[result] += 1

    def count(self, metric: str, label: str = "") -> None:
        """Count one more under the route's *metric* of this name, and under *label* if it has one.

        A request that began before a reload counts where it began, seen by a scrape or not.
        """
        _add(self._series[metric], label, 1)

    def finished(self, exchange: Exchange) -> None:
        """Count a request that is over, and log it where the route does."""
        self._in_flight.value -= 1
        try:
            self._requests[exchange.method, exchange.code] += 1
        except KeyError:
            self._count_unusual(exchange.method, exchange.code)
        self._duration.observe(exchange.duration)
        if exchange.refusal is not None:
            reason = exchange.refusal.reason
            self._refusals[reason] = self._refusals.get(reason, 0) + 1
        if self._log is not None:
            self._log(self._name, exchange)

    def logged(self, exchange: Exchange) -> None:
        """Log a try of a delivery where the route logs its requests; count nothing."""
        if self._log is not None:
            self._log(self._name, exchange)

    def _count_unusual(self, method: str, code: int) -> None:
        """Count the first request with this method and code, or one with an unknown method."""
        key = (method if method in KNOWN_METHODS else OTHER_METHOD, code)
        self._requests[key] = self._requests.get(key, 0) + 1


class ThrottleSeries:
    """Counts what one throttle decided. To let pass costs one addition.

    Implements :class:`proxy.core.recorders.ThrottleRecorder`.
    """

    __slots__ = ("_decisions", "_waits")

    def __init__(self, decisions: dict[str, int], waits: Histogram) -> None:
        self._decisions = decisions
        self._waits = waits

    def __repr__(self) -> str:
        counted = ", ".join(f"{count} {word}" for word, count in self._decisions.items())
        return f"<throttle: {counted}>"

    def admitted(self) -> None:
        """Count an attempt that went through at once."""
        self._decisions["passed"] += 1

    def delayed(self, seconds: float) -> None:
        """Count an attempt that went through after a wait."""
        self._decisions["delayed"] += 1
        self._waits.observe(seconds)

    def refused(self) -> None:
        """Count an attempt that was refused."""
        self._decisions["refused"] += 1


class StoreSeries:
    """Counts how a shared store does, operation by operation.

    Implements :class:`proxy.core.recorders.StoreRecorder`.
    """

    __slots__ = ("_durations", "_errors")

    def __init__(self, durations: dict[str, Histogram], errors: dict[str, int]) -> None:
        self._durations = durations
        """Durations of the operations that were answered."""
        self._errors = errors

    def __repr__(self) -> str:
        return f"<store: {sum(self._errors.values())} errors>"

    def operated(self, operation: str, seconds: float) -> None:
        """Count an operation that the store answered."""
        self._durations[operation].observe(seconds)

    def failed(self, operation: str) -> None:
        """Count an operation that the store did not answer, or not in time."""
        self._errors[operation] += 1


class Metrics:
    """Everything that is counted in this process.

    Implements :class:`proxy.core.recorders.Meter`.
    """

    def __init__(self, *, version: str, parser: str, loaded_at: float) -> None:
        """Start from zero.

        *parser* is the name of the HTTP parser in use, and *loaded_at* when (seconds
        since the epoch) the configuration was first read.
        """
        self._build = families.BUILD.reading((version, parser))
        self._process = ProcessNumbers()
        self._counted: dict[str, dict[tuple[str, ...], Any]] = {
            name: {} for name in families.COUNTED
        }
        for metric in families.COUNTED.values():
            if metric.subject is families.PROCESS:
                self._series(metric)
        self._series(families.LAST_RELOAD).value = loaded_at
        self._series(families.LAST_RELOAD_SUCCESSFUL).value = 1

    def _series(self, metric: Counted[SeriesT], *subject: str) -> SeriesT:
        """Return what *subject* counts into under *metric*, from zero if that is new."""
        counted: dict[tuple[str, ...], SeriesT] = self._counted[metric.name]
        if subject not in counted:
            counted[subject] = metric.new()
        return counted[subject]

    def route(
        self,
        name: str,
        upstreams: Iterable[str],
        log: LogLine | None = None,
        *,
        retries: bool = False,
        keys: bool = False,
        dead_letters: bool = False,
        deliveries: bool = False,
    ) -> RouteRecorder:
        """Make the recorder of the route *name*, going on with its series if it has any.

        *upstreams* are all that the route may try: its own, and that of its fallback. *log*
        is called with every finished request; without it logging costs nothing. A route
        without *retries* shows no verdicts and no waits, one without *keys* no results of
        keys, one without *dead_letters* or *deliveries* none of those.
        """
        is_shown: dict[MetricSubject, bool] = {
            families.ROUTE: True,
            families.RETRYING_ROUTE: retries,
            families.KEYED_ROUTE: keys,
            families.DEAD_LETTER_ROUTE: dead_letters,
            families.DELIVERING_ROUTE: deliveries,
        }
        series = {
            metric.name: self._series(metric, name) if is_shown[metric.subject] else metric.new()
            for metric in families.COUNTED.values()
            if metric.subject in is_shown
        }
        attempts = {
            upstream: (
                self._series(families.ATTEMPTS, name, upstream),
                self._series(families.ATTEMPT_DURATION, upstream),
            )
            for upstream in upstreams
        }
        return RouteRecorder(name, series, attempts, log)

    def unmatched(self, log: LogLine | None = None) -> RouteRecorder:
        """Make the recorder of requests that belong to no route; they make no attempts."""
        return self.route(UNMATCHED, (), log)

    def throttle(self, scope: str, name: str) -> ThrottleRecorder:
        """Return the recorder of the throttle of one ``route`` or ``upstream``.

        It goes on with the series of the throttle, whatever became of its settings.
        """
        return ThrottleSeries(
            self._series(families.THROTTLE_DECISIONS, scope, name),
            self._series(families.THROTTLE_WAITS, scope, name),
        )

    def store(self, operations: Iterable[str]) -> StoreRecorder:
        """Make the recorder of the shared store.

        *operations* are the names of all that the store does: they are labels. A reload cannot
        change the store, so this is called once.
        """
        durations, errors = (
            self._series(families.STORE_DURATIONS),
            self._series(families.STORE_ERRORS),
        )
        for operation in operations:
            durations.setdefault(operation, Histogram(families.STORE_DURATIONS.bounds))
            errors.setdefault(operation, 0)
        return StoreSeries(durations, errors)

    def count(self, metric: str, *labels: str, by: int = 1) -> None:
        """Add to the series of *metric* that has these *labels*.

        A route that is not configured any more, but has left something, gets all its series anew.
        """
        size = len(families.COUNTED[metric].subject.labels)
        _add(self._series_of(metric, labels[:size]), "".join(labels[size:]), by)

    def observe(self, metric: str, seconds: float, *labels: str) -> None:
        """Add *seconds* to the histogram of *metric* that has these *labels*."""
        self._series_of(metric, labels).observe(seconds)

    def _series_of(self, metric: str, subject: tuple[str, ...]) -> Any:  # noqa: ANN401 - by metric
        """Return the series of *metric* for *subject*, which gets all its series if it has none."""
        kind, counted = families.COUNTED[metric].subject, self._counted[metric]
        if subject not in counted:
            for other in families.COUNTED.values():
                if other.subject is kind:
                    self._series(other, *subject)
        return counted[subject]

    def keep_only(self, configured: Mapping[MetricSubject, Collection[tuple[str, ...]]]) -> None:
        """Drop the series of all subjects but those *configured*, after a reload.

        What is not about a kind of subject that is named there stays.
        """
        for metric in families.COUNTED.values():
            kinds = metric.subject.parts or (metric.subject,)
            if all(kind in configured for kind in kinds):
                self._counted[metric.name] = {
                    subject: series
                    for subject, series in self._counted[metric.name].items()
                    if _is_kept(metric.subject, subject, configured)
                }

    def reload_succeeded(self, at: float) -> None:
        """Count a reload that is in force since *at*, seconds since the epoch."""
        self._series(families.RELOADS)["success"] += 1
        self._series(families.LAST_RELOAD).value = at
        self._series(families.LAST_RELOAD_SUCCESSFUL).value = 1

    def reload_failed(self) -> None:
        """Count a reload that was refused; the old configuration stays."""
        self._series(families.RELOADS)["failure"] += 1
        self._series(families.LAST_RELOAD_SUCCESSFUL).value = 0

    def counted(self) -> ProcessSnapshot:
        """Return all that is counted, and nothing that would have to be read."""
        return ProcessSnapshot(self._counted)

    def snapshot(self, *readings: Reading) -> ProcessSnapshot:
        """Return all that is counted, and beside it *readings* of what goes on at this moment.

        What is counted goes on counting, unless the snapshot is sent to another process.
        """
        read = dict((*readings, *self._process.readings(), self._build))
        return ProcessSnapshot({**self._counted, **read})


def _add(series: Any, label: str, number: int) -> None:  # noqa: ANN401 - of whatever is counted
    if isinstance(series, Tally):
        series.value += number
    else:
        series[label] += number


def _is_kept(
    kind: MetricSubject,
    subject: tuple[str, ...],
    configured: Mapping[MetricSubject, Collection[tuple[str, ...]]],
) -> bool:
    if not kind.parts:
        return subject in configured[kind]
    return all((name,) in configured[part] for part, name in zip(kind.parts, subject, strict=True))
