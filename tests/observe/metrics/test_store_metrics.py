import pytest

from tests.observe.conftest import AppMetrics, keep_only, metrics_of
from tests.observe.scraping import by_label, samples, value

ERRORS = "holdfast_store_errors_total"
DURATIONS = "holdfast_store_operation_duration_seconds"


@pytest.fixture
def metrics() -> AppMetrics:
    return metrics_of()


async def test_every_operation_is_there_from_the_start_and_no_other(metrics: AppMetrics) -> None:
    metrics.store(["take", "pause"])
    assert await by_label(metrics, ERRORS, "operation") == {"take": 0, "pause": 0}
    assert await by_label(metrics, f"{DURATIONS}_count", "operation") == {"take": 0, "pause": 0}


async def test_where_nothing_is_shared_there_are_none(metrics: AppMetrics) -> None:
    metrics.throttle("route", "charges")
    text, _ = await metrics.exposition("")
    assert b"holdfast_store_errors" not in text
    assert b"holdfast_store_operation" not in text


async def test_what_failed_is_counted_and_what_was_answered_is_timed(metrics: AppMetrics) -> None:
    store = metrics.store(["take", "pause"])
    store.operated("take", 0.25)
    store.operated("take", 0.5)
    store.failed("take")
    assert await by_label(metrics, ERRORS, "operation") == {"take": 1, "pause": 0}
    assert await by_label(metrics, f"{DURATIONS}_count", "operation") == {"take": 2, "pause": 0}
    assert await value(metrics, f"{DURATIONS}_sum", operation="take") == 0.75


async def test_the_buckets_are_those_of_something_near(metrics: AppMetrics) -> None:
    metrics.store(["take"]).operated("take", 0.0005)
    buckets = await by_label(metrics, f"{DURATIONS}_bucket", "le")
    bounds = "0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 +Inf"
    assert list(buckets) == bounds.split()
    assert set(buckets.values()) == {1}


async def test_a_reload_leaves_it_alone(metrics: AppMetrics) -> None:
    store = metrics.store(["take"])
    store.failed("take")
    keep_only(metrics, routes=[], retrying=[], upstreams=[], throttles=[])
    store.failed("take")
    assert await by_label(metrics, ERRORS, "operation") == {"take": 2}


async def test_two_in_one_process_do_not_mix(metrics: AppMetrics) -> None:
    metrics.store(["take"]).failed("take")
    names = {sample.name for sample in await samples(metrics_of())}
    assert not [name for name in names if name.startswith((ERRORS, DURATIONS))]
