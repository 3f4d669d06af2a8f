"""All metrics of the process, and the recorders through which they are fed.

The recorders are made at load time, one per route and one per throttle. Those of a
reload go on counting where the old ones stopped; requests still in flight keep the
recorder that they began with. The series of what is gone are let go, so its last
requests count into numbers that nobody reads any more.
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
"""Told of a finished request, with its route's name."""


class RouteRecorder:
    """Counts what happens on one route. The hot path: additions, nothing else.

    Attempts are counted by kind or status, and the scrape sums those up into labels;
    to look up the label each time would cost 0.3 µs more.
    """

    __slots__ = (
        "_keys",
        "_letters",
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
        letters: DeadLetterSeries | None = None,
    ) -> None:
        """*upstreams* has, for each that the route may try, where its attempts are counted."""
        self._name = name
        self._series = series
        self._upstreams = upstreams
        self._verdicts = retries.verdicts
        self._waits = retries.waits
        self._keys = keys
        self._letters = letters
        self._log = log

    def __repr__(self) -> str:
        return f"<recorder {self._name}, {self._series.in_flight} in flight>"

    def started(self) -> None:
        """A request was matched to this route."""
        self._series.in_flight += 1

    def attempted(self, attempt: Attempt) -> None:
        """An attempt ended."""
        endings, durations = self._upstreams[attempt.upstream]
        ending = attempt.kind or attempt.status
        try:
            endings[ending] += 1
        except KeyError:
            endings[ending] = 1
        durations.observe(attempt.duration)

    def judged(self, why: VerdictReason) -> None:
        """It was decided whether another attempt follows."""
        self._verdicts[why] += 1

    def waited(self, pause: RetryDelay) -> None:
        """A wait between two attempts is over."""
        self._waits[pause.source].observe(pause.seconds)

    def keyed(self, result: KeyResult) -> None:
        """It is known what an idempotency key means for a request."""
        self._keys[result] += 1

    def dead_lettered(self, *, kept: bool) -> None:
        """A request failed for good, and is kept as a dead letter; or could not be."""
        if self._letters is not None:
            self._letters.kept += kept
            self._letters.lost += not kept

    def disconnected(self, phase: str) -> None:
        """The client left during *phase*."""
        disconnects = self._series.disconnects
        disconnects[phase] = disconnects.get(phase, 0) + 1

    def finished(self, exchange: Exchange) -> None:
        """The request is over."""
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
        letter_counts: Callable[[], Mapping[str, DeadLetterCounts]] = dict,
        letters_counted: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Start from zero.

        *parser* is the name of the HTTP parser in use, and *loaded_at* when (seconds
        since the epoch) the configuration was first read. The others are asked anew
        each time: *lost_lines* how many lines the access log had to drop, *budgets*
        how many retries each upstream with a budget would allow now, *breakers* the
        state of the best address of each upstream with a breaker, *throttles* what
        goes on at each throttle in force, *store_state* whether the shared store is
        ``up`` or ``down`` (None where there is none), *transient* after which
        statuses of an upstream a route may hope that the next attempt ends better;
        *letter_counts* tells how many dead letters each route has, and
        *letters_counted* when they were counted.
        """
        process = ProcessMetrics()
        self._collected = MetricsSnapshot(
            version=version,
            parser=parser,
            last_reload=loaded_at,
            lost_lines=lost_lines,
            budgets=budgets,
            breakers=breakers,
            throttle_states=throttles,
            store_state=store_state,
            transient=transient,
            letter_counts=letter_counts,
            letters_counted=letters_counted,
            process=process.values,
        )
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(SeriesCollector(self._collected))
        self._registry.register(process)
        self._unmatched = self._collected.routes[UNMATCHED] = RouteSeries()

    def route(
        self,
        name: str,
        upstreams: Sequence[str],
        log: LogLine | None = None,
        *,
        retries: bool,
        keys: bool = False,
        letters: bool = False,
    ) -> RouteRecorder:
        """The recorder of the route *name*, going on with its series if it has any.

        *upstreams* are all that it may try: its own, and that of its fallback. *log*
        is told of every finished request; without one that costs nothing. A route
        without *retries* shows no verdicts and no waits, one without *keys* not what
        these meant, one without *letters* none of those.
        """
        collected = self._collected
        return RouteRecorder(
            name,
            collected.routes.setdefault(name, RouteSeries()),
            {
                upstream: (
                    collected.attempts.setdefault((name, upstream), {}),
                    collected.upstreams.setdefault(upstream, Histogram(LATENCY_BOUNDS)),
                )
                for upstream in upstreams
            },
            collected.retries.setdefault(name, RetrySeries()) if retries else RetrySeries(),
            log,
            keys=collected.keys.setdefault(name, key_series()) if keys else {},
            letters=collected.letters.setdefault(name, DeadLetterSeries()) if letters else None,
        )

    def unmatched(self, log: LogLine | None = None) -> RouteRecorder:
        """The recorder of requests that belong to no route; they make no attempts."""
        return RouteRecorder(UNMATCHED, self._unmatched, {}, RetrySeries(), log, keys={})

    def throttle(self, scope: str, name: str) -> ThrottleRecorder:
        """The recorder of the throttle of one ``route`` or ``upstream``.

        After a reload it is the same one, whatever became of the throttle's settings.
        """
        return self._collected.throttles.setdefault((scope, name), ThrottleSeries())

    def store(self, operations: Iterable[str]) -> StoreRecorder:
        """The recorder of the shared store, which there is from now on.

        *operations* are all that it can be asked for. A reload cannot change the store,
        so this is asked for once.
        """
        series = self._collected.store = StoreSeries(operations)
        return series

    def expired(self, route: str, letters: int) -> None:
        """So many dead letters have expired (stores.letters.LetterLosses)."""
        self._collected.letters.setdefault(route, DeadLetterSeries()).expired += letters

    def replayed(self, route: str, result: ReplayResult) -> None:
        """A dead letter was sent again."""
        self._collected.letters.setdefault(route, DeadLetterSeries()).replays[result] += 1

    def evicted(self) -> None:
        """The record of a key was given up before its time."""
        self._collected.evictions += 1

    def keep_only(
        self,
        *,
        routes: Collection[str],
        retrying: Collection[str],
        upstreams: Collection[str],
        throttles: Collection[ThrottleName],
        keyed: Collection[str] = (),
        dead_lettered: Collection[str] = (),
    ) -> None:
        """Let go of the series of every other route, upstream and throttle, after a reload.

        *retrying* are those of the routes whose verdicts and waits are kept too, *keyed*
        those that heed idempotency keys, *dead_lettered* those that keep dead letters.
        """
        collected = self._collected
        collected.routes = {
            name: series
            for name, series in collected.routes.items()
            if name in routes or name == UNMATCHED
        }
        collected.retries = {
            name: series for name, series in collected.retries.items() if name in retrying
        }
        collected.keys = {name: series for name, series in collected.keys.items() if name in keyed}
        collected.letters = {
            name: series for name, series in collected.letters.items() if name in dead_lettered
        }
        collected.upstreams = {
            name: series for name, series in collected.upstreams.items() if name in upstreams
        }
        collected.attempts = {
            (route, upstream): endings
            for (route, upstream), endings in collected.attempts.items()
            if route in routes and upstream in upstreams
        }
        collected.throttles = {
            whose: series for whose, series in collected.throttles.items() if whose in throttles
        }

    def reload_succeeded(self, at: float) -> None:
        """A new configuration is in force since *at*, seconds since the epoch."""
        self._collected.reloads["success"] += 1
        self._collected.last_reload = at

    def reload_failed(self) -> None:
        """A new configuration was refused; the old one stays."""
        self._collected.reloads["failure"] += 1

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """What a scraper gets, and its content type.

        *accept* is the scraper's Accept field: OpenMetrics if it asks for that,
        else the classic text format.
        """
        return await expose(self._registry, accept)

    def snapshot(self) -> MetricsSnapshot:
        """All that is counted, as it is now, to be sent to another process."""
        return snapshot(self._collected)
