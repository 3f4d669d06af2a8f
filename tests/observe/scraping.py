"""What a scraper reads, as Prometheus' own parser understands it."""

from collections.abc import Iterator

from prometheus_client import parser
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from tests.observe.conftest import AppMetrics


async def families(metrics: AppMetrics) -> dict[str, Metric]:
    text, content_type = await metrics.exposition("")
    assert content_type.startswith("text/plain")
    return {family.name: family for family in parser.text_string_to_metric_families(text.decode())}


async def samples(metrics: AppMetrics) -> Iterator[Sample]:
    return (sample for family in (await families(metrics)).values() for sample in family.samples)


async def by_label(metrics: AppMetrics, name: str, label: str) -> dict[str, float]:
    """The values of one metric, by one of its labels."""
    return {
        sample.labels[label]: sample.value
        for sample in await samples(metrics)
        if sample.name == name
    }


async def value(metrics: AppMetrics, name: str, /, **labels: str) -> float | None:
    """The value of the one series with exactly these labels."""
    for sample in await samples(metrics):
        if sample.name == name and sample.labels == labels:
            return float(sample.value)
    return None
