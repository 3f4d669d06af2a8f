"""All metrics of the process, and the recorders through which they are fed.

The recorders are made at load time, one per route and one per throttle. Those of a
reload go on counting where the old ones stopped; requests still in flight keep the
recorder that they began with. The series of a route that is gone are dropped, so its last
requests count into numbers that no scrape shows any more.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry

from proxy.core.exchange import Exchange
from proxy.core.recorders import StoreRecorder, ThrottleRecorder, ThrottleState
from proxy.observe.metrics.aggregate import snapshot
from proxy.observe.metrics.collector import SeriesCollector
from proxy.observe.metrics.exposition import expose
from proxy.observe.metrics.process import ProcessMetrics
from proxy.observe.metrics.series import (
    LATENCY_BOUNDS,
    DeadLetterSeries,
    Histogram,
    RetrySeries,
    RouteSeries,
    StoreSeries,
    ThrottleSeries,
    key_series,
)
from proxy.observe.metrics.snapshot import MetricsSnapshot, ThrottleName
from proxy.policy.attempt import Attempt, FailureKind, RetryDelay
from proxy.policy.breaker import BreakerState
from proxy.policy.dead_letter import DeadLetterCounts, ReplayResult
from proxy.policy.reasons import KeyResult, VerdictReason

UNMATCHED = "_unmatched"
"""The route label of requests that no route took, unreadable ones included."""

LogLine = Callable[[str, Exchange], None]
"""Called with a route's name and a request of it that is over."""


class RouteRecorder:
    """Counts what happens on one route. On the hot path: additions, nothing else.

    Attempts are counted by kind or status, and the scrape sums those up into labels;
    to look up the label each time would cost 0.3 µs more.
    """

    __slots__ = (
        "_dead_letters",
        "_keys",
        "_log",
        "_name",
        "_series",
        "_upstreams",
        "_verdicts",
        "_waits",
    )

    def __init__(
        self,
        name: str,
        series: RouteSeries,
        upstreams: Mapping[str, tuple[dict[FailureKind | int, int], Histogram]],
        retries: RetrySeries,
        log: LogLine | None,
        *,
        keys: dict[KeyResult, int],
        dead_letters: DeadLetterSeries | None = None,
    ) -> None:
        """*upstreams* says where the attempts at each upstream of the route are counted."""
        self._name = name
        self._series = series
        self._upstreams = upstreams
        self._verdicts = retries.verdicts
        self._waits = retries.waits
        self._keys = keys
        self._dead_letters = dead_letters
        self._log = log

    def __repr__(self) -> str:
        return f"<recorder {self._name}, {self._series.in_flight} in flight>"

    def started(self) -> None:
        """Count a request that was matched to this route."""
        self._series.in_flight += 1

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

    def dead_lettered(self, *, kept: bool) -> None:
        """Count a request that failed for good and was kept as a dead letter, or could not be."""
        if self._dead_letters is not None:
            self._dead_letters.kept += kept
            self._dead_letters.lost += not kept

    def disconnected(self, phase: str) -> None:
        """Count a client that left during *phase*."""
        disconnects = self._series.disconnects
        disconnects[phase] = disconnects.get(phase, 0) + 1

    def finished(self, exchange: Exchange) -> None:
        """Count a request that is over, and log it where the route does."""
        series = self._series
        series.in_flight -= 1
        try:
            series.requests[exchange.method, exchange.code] += 1
        except KeyError:
            series.count_unusual(exchange.method, exchange.code)
        series.duration.observe(exchange.duration)
        if self._log is not None:
            self._log(self._name, exchange)


class Metrics:
    """Everything that is counted in this process.

    The registry is our own: importing or starting Holdfast changes nothing for
    other users of ``prometheus_client`` in the same interpreter.
    """

    def __init__(
        self,
        *,
        version: str,
        parser: str,
        loaded_at: float,
        lost_lines: Callable[[], int],
        budgets: Callable[[], Mapping[str, float]],
        breakers: Callable[[], Mapping[str, BreakerState]],
        throttles: Callable[[], Mapping[ThrottleName, ThrottleState]],
        store_state: Callable[[], str | None],
        transient: Callable[[], Mapping[tuple[str, str], frozenset[int]]],
        dead_letter_counts: Callable[[], Mapping[str, DeadLetterCounts]] = dict,
        dead_letters_counted: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Start from zero.

        *parser* is the name of the HTTP parser in use, and *loaded_at* when (seconds
        since the epoch) the configuration was first read. The others are called anew
        each time: *lost_lines* says how many lines the access log had to drop, *budgets*
        how many retries each upstream with a budget would allow now, *breakers* the
        state of the best address of each upstream with a breaker, *throttles* what
        goes on at each throttle in force, *store_state* whether the shared store is
        ``up`` or ``down`` (None where there is none), *transient* after which
        statuses of an upstream a route may hope that the next attempt ends better,
        *dead_letter_counts* how many dead letters each route has, and
        *dead_letters_counted* when they were counted.
        """
        process = ProcessMetrics()
        self._live = MetricsSnapshot(
            version=version,
            parser=parser,
            last_reload=loaded_at,
            lost_lines=lost_lines,
            budgets=budgets,
            breakers=breakers,
            throttle_states=throttles,
            store_state=store_state,
            transient=transient,
            dead_letter_counts=dead_letter_counts,
            dead_letters_counted=dead_letters_counted,
            process=process.values,
        )
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(SeriesCollector(self._live))
        self._registry.register(process)
        self._unmatched = self._live.routes[UNMATCHED] = RouteSeries()

    def route(
        self,
        name: str,
        upstreams: Sequence[str],
        log: LogLine | None = None,
        *,
        retries: bool,
        keys: bool = False,
        dead_letters: bool = False,
    ) -> RouteRecorder:
        """Make the recorder of the route *name*, going on with its series if it has any.

        *upstreams* are all that the route may try: its own, and that of its fallback. *log*
        is called with every finished request; without it logging costs nothing. A route
        without *retries* shows no verdicts and no waits, one without *keys* no results of
        keys, one without *dead_letters* none of those.
        """
        live = self._live
        return RouteRecorder(
            name,
            live.routes.setdefault(name, RouteSeries()),
            {
                upstream: (
                    live.attempts.setdefault((name, upstream), {}),
                    live.upstreams.setdefault(upstream, Histogram(LATENCY_BOUNDS)),
                )
                for upstream in upstreams
            },
            live.retries.setdefault(name, RetrySeries()) if retries else RetrySeries(),
            log,
            keys=live.keys.setdefault(name, key_series()) if keys else {},
            dead_letters=live.dead_letters.setdefault(name, DeadLetterSeries())
            if dead_letters
            else None,
        )

    def unmatched(self, log: LogLine | None = None) -> RouteRecorder:
        """Make the recorder of requests that belong to no route; they make no attempts."""
        return RouteRecorder(UNMATCHED, self._unmatched, {}, RetrySeries(), log, keys={})

    def throttle(self, scope: str, name: str) -> ThrottleRecorder:
        """Return the recorder of the throttle of one ``route`` or ``upstream``.

        A reload keeps the recorder, whatever became of the throttle's settings.
        """
        return self._live.throttles.setdefault((scope, name), ThrottleSeries())

    def store(self, operations: Iterable[str]) -> StoreRecorder:
        """Make the recorder of the shared store.

        *operations* are the names of all that the store does. A reload cannot change the
        store, so this is called once.
        """
        series = self._live.store = StoreSeries(operations)
        return series

    def expired(self, route: str, count: int) -> None:
        """Count dead letters of *route* that expired (stores.dead_letters.DeadLetterLosses)."""
        self._live.dead_letters.setdefault(route, DeadLetterSeries()).expired += count

    def replayed(self, route: str, result: ReplayResult) -> None:
        """Count a dead letter that was sent again."""
        self._live.dead_letters.setdefault(route, DeadLetterSeries()).replays[result] += 1

    def evicted(self) -> None:
        """Count the record of a key that was given up before its time."""
        self._live.evictions += 1

    def keep_only(
        self,
        *,
        routes: Collection[str],
        retrying: Collection[str],
        upstreams: Collection[str],
        throttles: Collection[ThrottleName],
        with_keys: Collection[str] = (),
        with_dead_letters: Collection[str] = (),
    ) -> None:
        """Drop the series of every other route, upstream and throttle, after a reload.

        *retrying* are the routes whose verdicts and waits are kept too, *with_keys* those
        that have idempotency keys, *with_dead_letters* those that keep dead letters.
        """
        live = self._live
        live.routes = {
            name: series
            for name, series in live.routes.items()
            if name in routes or name == UNMATCHED
        }
        live.retries = {name: series for name, series in live.retries.items() if name in retrying}
        live.keys = {name: series for name, series in live.keys.items() if name in with_keys}
        live.dead_letters = {
            name: series for name, series in live.dead_letters.items() if name in with_dead_letters
        }
        live.upstreams = {
            name: series for name, series in live.upstreams.items() if name in upstreams
        }
        live.attempts = {
            (route, upstream): endings
            for (route, upstream), endings in live.attempts.items()
            if route in routes and upstream in upstreams
        }
        live.throttles = {
            label: series for label, series in live.throttles.items() if label in throttles
        }

    def reload_succeeded(self, at: float) -> None:
        """Count a reload that is in force since *at*, seconds since the epoch."""
        self._live.reloads["success"] += 1
        self._live.last_reload = at

    def reload_failed(self) -> None:
        """Count a reload that was refused; the old configuration stays."""
        self._live.reloads["failure"] += 1

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return what a scraper gets, and its content type.

        *accept* is the scraper's Accept field: OpenMetrics if it asks for that,
        else the classic text format.
        """
        return await expose(self._registry, accept)

    def snapshot(self) -> MetricsSnapshot:
        """Copy all that is counted, as it is now, to be sent to another process."""
        return snapshot(self._live)
