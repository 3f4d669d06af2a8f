"""The text of a scrape is, byte by byte, what the library of Prometheus writes."""

from collections.abc import Iterator
from itertools import accumulate

import pytest
from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from proxy.observe.metrics.exposition import expose
from proxy.observe.metrics.families import FAMILIES
from proxy.observe.metrics.family import Family, MetricType
from proxy.observe.metrics.process import ProcessNumbers
from proxy.observe.metrics.series import Histogram
from proxy.observe.metrics.snapshot import ProcessSnapshot
from tests.observe.conftest import AppMetrics, MakeAttempt, MakeExchange, metrics_of

CLASSIC = "text/plain; version=0.0.4; charset=utf-8"
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.fixture
def metrics(exchange: MakeExchange, attempt: MakeAttempt) -> AppMetrics:
    """Every kind of value: large ones, none, and names that need escaping."""
    metrics = metrics_of(
        lost_lines=123_456_789,
        budgets={"payments": 0.1 + 0.2, "search": 1e16, "spare": float("inf")},
    )
    for name in ("charges", 'odd "name"\\\n', "Gebühren"):
        recorder = metrics.route(name, ["payments"], retries=True, keys=True, dead_letters=True)
        for number in range(30):
            recorder.started()
            recorder.attempted(attempt(duration=number / 3))
            recorder.finished(exchange(duration=number * 1000.5, code=200 + number))
        metrics.throttle("route", name).delayed(0.2)
    metrics.store(["take", "pause"]).operated("take", 0.0007)
    return metrics


class Reference(Collector):
    """The families as objects of the library."""

    def __init__(self, snapshot: ProcessSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            samples = list(family.samples(self._snapshot))
            if samples or not family.only_if_any:
                yield metric_of(family, samples)


def metric_of(family: Family, samples: list[tuple[tuple[str, ...], float | Histogram]]) -> Metric:
    labels = [label.name for label in family.all_labels]
    if family.kind is MetricType.HISTOGRAM:
        metric = Metric(family.name, family.text, "histogram")
        for values, histogram in samples:
            assert isinstance(histogram, Histogram)
            own = dict(zip(labels, values, strict=True))
            counts = list(accumulate(histogram.counts))
            for bound, count in zip((*histogram.bounds, "+Inf"), counts, strict=True):
                metric.add_sample(f"{family.name}_bucket", {**own, "le": str(bound)}, count)
            metric.add_sample(f"{family.name}_count", own, counts[-1])
            metric.add_sample(f"{family.name}_sum", own, histogram.total)
        return metric
    kind = CounterMetricFamily if family.kind is MetricType.COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.text, labels=labels)
    for values, value in samples:
        assert not isinstance(value, Histogram)
        metric.add_metric(values, value)
    return metric


@pytest.mark.parametrize(
    "accept",
    [
        pytest.param("", id="nothing asked for"),
        pytest.param("text/html, */*", id="a browser"),
        pytest.param("application/openmetrics-text", id="OpenMetrics, any version"),
        pytest.param(
            "application/openmetrics-text; version=1.0.0; charset=utf-8", id="OpenMetrics"
        ),
        pytest.param("application/openmetrics-text;version=0.0.1", id="a version there is not"),
        pytest.param("application/openmetrics-text;version=2.0.0", id="a later version"),
        pytest.param(PROMETHEUS_3, id="Prometheus 3"),
        pytest.param("text/plain;version=1.0.0;escaping=dots", id="text, names with dots"),
        pytest.param("text/plain;version=1.0.0;escaping=values", id="text, escaped values"),
        pytest.param("text/plain;version=1.0.0;escaping=none", id="text, unknown escaping"),
        pytest.param("text/plain;version=1.0", id="text, a version with two numbers"),
        pytest.param(
            "application/openmetrics-text;version=1.0.0;escaping=dots", id="OpenMetrics with dots"
        ),
    ],
)
async def test_every_byte_is_that_of_the_library(metrics: AppMetrics, accept: str) -> None:
    snapshot = metrics.snapshot()
    text, content_type = await expose(snapshot, accept)
    encode, expected_type = choose_encoder(accept)
    assert text.decode() == encode(Reference(snapshot)).decode()
    assert content_type == expected_type


@pytest.mark.parametrize(
    "accept",
    [
        pytest.param("application/openmetrics-text;version=one", id="no number"),
        pytest.param("text/plain;version=1.x.0", id="not all numbers"),
        pytest.param(";;;,=,;version", id="nonsense"),
    ],
)
async def test_nonsense_gets_the_classic_text(metrics: AppMetrics, accept: str) -> None:
    text, content_type = await expose(metrics.snapshot(), accept)
    assert content_type == CLASSIC
    assert b"# TYPE holdfast_requests_total counter\n" in text


def test_no_text_needs_to_be_escaped() -> None:
    for family in FAMILIES:
        assert not set('\\"\n') & set(family.text), family


def test_the_numbers_of_the_process_are_those_of_the_library() -> None:
    expected = {
        sample.name: sample.value
        for family in ProcessCollector(registry=None).collect()
        for sample in family.samples
    }
    found = dict(ProcessNumbers().readings())
    assert list(found) == list(expected)
    assert [name for name in expected if name not in {row.name for row in FAMILIES}] == []
    for name, value in found.items():
        assert value == pytest.approx(expected[name], rel=0.05, abs=1.0), name
