"""What idempotency keys meant: counted, shown and logged in the same words."""

import pytest

from proxy.observe.status import summary
from proxy.policy.reasons import KeyResult
from tests.observe.conftest import AppMetrics, keep_only, metrics_of
from tests.observe.scraping import by_label, samples, value

KEYS = "holdfast_idempotency_total"


@pytest.fixture
def metrics() -> AppMetrics:
    return metrics_of()


async def test_every_result_is_there_from_the_start(metrics: AppMetrics) -> None:
    metrics.route("charges", ["payments"], retries=False, keys=True)
    assert await by_label(metrics, KEYS, "result") == dict.fromkeys(KeyResult, 0)


def test_the_words_are_those_of_the_contract() -> None:
    words = (
        "new replayed joined in_flight mismatch missing invalid held unstored bypassed lease_lost"
    )
    assert [result.value for result in KeyResult] == words.split()


async def test_a_route_that_heeds_no_keys_shows_none(metrics: AppMetrics) -> None:
    metrics.route("charges", ["payments"], retries=False)
    assert not [sample for sample in await samples(metrics) if sample.name == KEYS]
    assert "idempotency" not in status_of(metrics)


async def test_they_are_counted_by_route(metrics: AppMetrics) -> None:
    charges = metrics.route("charges", ["payments"], retries=False, keys=True)
    metrics.route("refunds", ["payments"], retries=False, keys=True)
    charges.keyed(KeyResult.NEW)
    charges.keyed(KeyResult.REPLAYED)
    charges.keyed(KeyResult.REPLAYED)
    assert await value(metrics, KEYS, route="charges", result="replayed") == 2
    assert await value(metrics, KEYS, route="refunds", result="replayed") == 0
    shown = status_of(metrics)["idempotency"]
    counted = {KeyResult.NEW: 1, KeyResult.REPLAYED: 2}
    assert shown == dict.fromkeys(KeyResult, 0) | counted


async def test_a_reload_goes_on_counting_or_lets_go(metrics: AppMetrics) -> None:
    for _ in range(2):
        metrics.route("charges", [], retries=False, keys=True).keyed(KeyResult.NEW)
    keep_only(
        metrics, routes=["charges"], retrying=[], upstreams=[], throttles=[], with_keys=["charges"]
    )
    assert await value(metrics, KEYS, route="charges", result="new") == 2
    keep_only(metrics, routes=["charges"], retrying=[], upstreams=[], throttles=[])
    assert not [sample for sample in await samples(metrics) if sample.name == KEYS]


async def test_evictions(metrics: AppMetrics) -> None:
    assert await value(metrics, "holdfast_store_evictions_total") == 0
    metrics.count("holdfast_store_evictions_total")
    assert await value(metrics, "holdfast_store_evictions_total") == 1


def status_of(metrics: AppMetrics) -> dict[str, object]:
    routes = summary(metrics.snapshot())["routes"]
    assert isinstance(routes, dict)
    shown = routes["charges"]
    assert isinstance(shown, dict)
    return shown
