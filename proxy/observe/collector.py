"""From our own numbers to Prometheus families, when somebody asks.

Names and labels are a contract with dashboards: seconds as the unit, ``_total``
for what only grows, and labels that come from the configuration or from a closed
set, never from a client.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from proxy.observe.series import LATENCY_BOUNDS, Histogram, RetrySeries, RouteSeries
from proxy.policy.breaker import State
from proxy.policy.outcome import Kind, outcome_label

_BUCKETS = (*map(str, LATENCY_BOUNDS), "+Inf")


@dataclass(slots=True, kw_only=True)
class Collected:
    """What there is to export; the recorders hold parts of it."""

    version: str
    parser: str
    last_reload: float
    """When the configuration in force was read, in seconds since the epoch."""
    reloads: dict[str, int] = field(default_factory=lambda: {"success": 0, "failure": 0})
    routes: dict[str, RouteSeries] = field(default_factory=dict)
    retries: dict[str, RetrySeries] = field(default_factory=dict)
    """Of the routes that retry."""
    upstreams: dict[str, Histogram] = field(default_factory=dict)
    """How long attempts took."""
    attempts: dict[tuple[str, str], dict[Kind | int, int]] = field(default_factory=dict)
    """By route and upstream: how many ended in each kind or status."""
    lost_lines: Callable[[], int]
    budgets: Callable[[], Mapping[str, float]]
    breakers: Callable[[], Mapping[str, State]]

    def outcomes(self) -> Iterator[tuple[str, str, Counter[str]]]:
        """Each route and upstream, with the number of attempts per outcome."""
        for (route, upstream), endings in self.attempts.items():
            outcomes: Counter[str] = Counter()
            for ending, count in endings.items():
                outcomes[outcome_label(ending)] += count
            yield route, upstream, outcomes


class SeriesCollector(Collector):
    """Builds the families anew for each scrape, one at a time."""

    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._upstreams()
        yield from self._retries()
        yield from self._process()

    def _requests(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "holdfast_requests",
            "Requests answered, by the status that the client got; 499: it left first.",
            labels=("route", "method", "code"),
        )
        in_flight = GaugeMetricFamily(
            "holdfast_requests_in_flight", "Requests being served.", labels=("route",)
        )
        disconnects = CounterMetricFamily(
            "holdfast_client_disconnects",
            "Clients that left before their answer was complete, by what was going on.",
            labels=("route", "phase"),
        )
        for route, series in self._collected.routes.items():
            in_flight.add_metric((route,), series.in_flight)
            for (method, code), count in series.requests.items():
                requests.add_metric((route, method, f"{code:03d}"), count)
            for phase, count in series.disconnects.items():
                disconnects.add_metric((route, phase), count)
        yield requests
        yield in_flight
        yield disconnects
        yield _histograms(
            "holdfast_request_duration_seconds",
            "From the complete head of a request to the last byte of its answer handed over.",
            ("route",),
            (((route,), series.duration) for route, series in self._collected.routes.items()),
        )

    def _upstreams(self) -> Iterator[Metric]:
        attempts = CounterMetricFamily(
            "holdfast_upstream_attempts",
            "Attempts made, by the class of the status or by how they failed.",
            labels=("route", "upstream", "outcome"),
        )
        for route, upstream, outcomes in self._collected.outcomes():
            for outcome, count in outcomes.items():
                attempts.add_metric((route, upstream, outcome), count)
        yield attempts
        yield _histograms(
            "holdfast_upstream_attempt_duration_seconds",
            "From the start of an attempt to the last byte of its response, or its failure.",
            ("upstream",),
            (((upstream,), series) for upstream, series in self._collected.upstreams.items()),
        )

    def _retries(self) -> Iterator[Metric]:
        verdicts = CounterMetricFamily(
            "holdfast_retry_verdicts",
            "Attempts on routes that retry or fall back, by why they were the last or were not.",
            labels=("route", "reason"),
        )
        for route, series in self._collected.retries.items():
            for why, count in series.verdicts.items():
                verdicts.add_metric((route, why), count)
        yield verdicts
        yield _histograms(
            "holdfast_retry_wait_seconds",
            "Waits between two attempts, by who chose them: we, or a hint of the upstream.",
            ("route", "source"),
            (
                ((route, source), waits)
                for route, series in self._collected.retries.items()
                for source, waits in series.waits.items()
            ),
        )
        budgets = GaugeMetricFamily(
            "holdfast_retry_budget_remaining",
            "Retries that the upstream's budget would allow now.",
            labels=("upstream",),
        )
        for upstream, remaining in self._collected.budgets().items():
            budgets.add_metric((upstream,), remaining)
        yield budgets
        breakers = GaugeMetricFamily(
            "holdfast_breaker_state",
            "The breaker of the upstream's best address: 0 closed, 1 half-open, 2 open.",
            labels=("upstream",),
        )
        for upstream, state in self._collected.breakers().items():
            breakers.add_metric((upstream,), state)
        yield breakers

    def _process(self) -> Iterator[Metric]:
        reloads = CounterMetricFamily(
            "holdfast_config_reloads",
            "Reloads of the configuration; a failed one changes nothing.",
            labels=("result",),
        )
        for result, count in self._collected.reloads.items():
            reloads.add_metric((result,), count)
        yield reloads
        yield GaugeMetricFamily(
            "holdfast_config_last_reload_success_timestamp_seconds",
            "When the configuration in force was read.",
            value=self._collected.last_reload,
        )
        yield CounterMetricFamily(
            "holdfast_access_log_dropped",
            "Lines of the access log that could not be written.",
            value=self._collected.lost_lines(),
        )
        build = GaugeMetricFamily(
            "holdfast_build_info",
            "Always 1; the labels tell what is running.",
            labels=("version", "parser"),
        )
        build.add_metric((self._collected.version, self._collected.parser), 1)
        yield build


def _histograms(
    name: str,
    text: str,
    labels: tuple[str, ...],
    members: Iterable[tuple[tuple[str, ...], Histogram]],
) -> Metric:
    """A family made by hand, in half the time that ``HistogramMetricFamily`` takes.

    It matters because the loop waits for it: with 200 routes one has 6,400 samples.
    """
    family = Metric(name, text, "histogram")
    for values, histogram in members:
        own = dict(zip(labels, values, strict=True))
        # Prometheus wants each bucket to include the ones below it.
        counts = list(accumulate(histogram.counts))
        family.samples += [
            Sample(f"{name}_bucket", {**own, "le": bound}, count)
            for bound, count in zip(_BUCKETS, counts, strict=True)
        ]
        family.samples.append(Sample(f"{name}_count", own, counts[-1]))
        family.samples.append(Sample(f"{name}_sum", own, histogram.total))
    return family
