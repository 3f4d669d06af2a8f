"""From our own numbers to Prometheus families, when somebody asks.

Names and labels are a contract with dashboards: seconds as the unit, ``_total``
for what only grows, and labels that come from the configuration or from a closed
set, never from a client.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from proxy.observe.series import LATENCY_BOUNDS, Histogram, RouteSeries
from proxy.policy.outcome import Kind, outcome_label

_BUCKETS = (*map(str, LATENCY_BOUNDS), "+Inf")


class Collected:
    """What there is to export; the recorders hold parts of it."""

    def __init__(
        self, version: str, parser: str, loaded_at: float, lost_lines: Callable[[], int]
    ) -> None:
        self.version = version
        self.parser = parser
        self.routes: dict[str, RouteSeries] = {}
        self.upstreams: dict[str, Histogram] = {}
        """How long attempts took."""
        self.attempts: dict[tuple[str, str], dict[Kind | int, int]] = {}
        """By route and upstream: how many ended in each kind or status."""
        self.reloads = {"success": 0, "failure": 0}
        self.last_reload = loaded_at
        self.lost_lines = lost_lines

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
            "route",
            {route: series.duration for route, series in self._collected.routes.items()},
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
            "upstream",
            self._collected.upstreams,
        )

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


def _histograms(name: str, text: str, label: str, members: dict[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=(label,))
    for value, histogram in members.items():
        # Prometheus wants each bucket to include the ones below it.
        buckets = list(zip(_BUCKETS, accumulate(histogram.counts), strict=True))
        family.add_metric((value,), buckets, histogram.total)
    return family
