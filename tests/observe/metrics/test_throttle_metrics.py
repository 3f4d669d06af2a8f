import asyncio
import random
from collections import Counter

import pytest
from prometheus_client import parser

from proxy.core.recorders import ThrottleState
from tests.observe.conftest import AppMetrics, keep_only, metrics_of
from tests.observe.scraping import by_label, samples, value
from tests.support import virtual_time

pytestmark = virtual_time


DECISIONS = "holdfast_throttle_decisions_total"
WAITS = "holdfast_throttle_wait_seconds"
QUEUE = "holdfast_throttle_queue_length"
PAUSED = "holdfast_throttle_paused"
CHARGES = {"scope": "route", "name": "charges"}
QUIET = ThrottleState(waiting=0, under_way=0, buckets=1, paused=0, paused_for=0.0)


@pytest.fixture
def metrics() -> AppMetrics:
    return metrics_of()


async def decisions(metrics: AppMetrics, scope: str, name: str) -> dict[str, float]:
    return {
        sample.labels["decision"]: sample.value
        for sample in await samples(metrics)
        if sample.name == DECISIONS
        and (sample.labels["scope"], sample.labels["name"]) == (scope, name)
    }


class TestDecisions:
    async def test_every_one_is_there_from_the_start(self, metrics: AppMetrics) -> None:
        metrics.throttle("route", "charges")
        expected = {"passed": 0, "delayed": 0, "refused": 0}
        assert await decisions(metrics, "route", "charges") == expected
        assert await value(metrics, f"{WAITS}_count", **CHARGES) == 0

    async def test_each_attempt_is_counted_once(self, metrics: AppMetrics) -> None:
        throttle = metrics.throttle("route", "charges")
        for _ in range(3):
            throttle.admitted()
        throttle.delayed(0.2)
        throttle.delayed(0.0)
        throttle.refused()
        expected = {"passed": 3, "delayed": 2, "refused": 1}
        assert await decisions(metrics, "route", "charges") == expected

    async def test_a_route_and_an_upstream_of_the_same_name_are_counted_apart(
        self, metrics: AppMetrics
    ) -> None:
        metrics.throttle("route", "search").admitted()
        metrics.throttle("upstream", "search").refused()
        assert (await decisions(metrics, "route", "search"))["passed"] == 1
        assert (await decisions(metrics, "upstream", "search"))["passed"] == 0

    async def test_without_a_throttle_there_are_none(self, metrics: AppMetrics) -> None:
        metrics.route("charges", ["payments"], retries=True)
        assert not [sample for sample in await samples(metrics) if "throttle" in sample.name]


class TestWaits:
    @pytest.mark.parametrize(
        ("seconds", "lowest"),
        [
            pytest.param(0.0, "0.001", id="hardly a wait"),
            pytest.param(0.001, "0.001", id="a bound belongs to its own bucket"),
            pytest.param(0.02, "0.05", id="some milliseconds"),
            pytest.param(4.9, "5.0", id="the longest that is usual"),
            pytest.param(90.0, "120.0", id="minutes"),
            pytest.param(301.0, "+Inf", id="beyond every bound"),
        ],
    )
    async def test_a_wait_is_sorted_into_buckets_for_waits(
        self, metrics: AppMetrics, seconds: float, lowest: str
    ) -> None:
        metrics.throttle("route", "charges").delayed(seconds)
        buckets = await by_label(metrics, f"{WAITS}_bucket", "le")
        bounds = "0.001 0.01 0.05 0.1 0.25 0.5 1.0 2.5 5.0 10.0 30.0 60.0 120.0 300.0 +Inf"
        assert list(buckets) == bounds.split()
        holding = [bound for bound, count in buckets.items() if count]
        assert holding == bounds.split()[bounds.split().index(lowest) :]
        assert await value(metrics, f"{WAITS}_sum", **CHARGES) == seconds

    async def test_who_did_not_wait_is_not_among_them(self, metrics: AppMetrics) -> None:
        throttle = metrics.throttle("route", "charges")
        throttle.admitted()
        throttle.refused()
        assert await value(metrics, f"{WAITS}_count", **CHARGES) == 0


class TestGauges:
    async def test_they_are_read_when_somebody_looks(self) -> None:
        states = {("route", "charges"): QUIET}
        metrics = metrics_of(throttles=states)
        assert await value(metrics, QUEUE, **CHARGES) == 0
        assert await value(metrics, PAUSED, **CHARGES) == 0

        states["route", "charges"] = ThrottleState(17, 4, 250, 3, 12.5)
        assert await value(metrics, QUEUE, **CHARGES) == 17
        assert await value(metrics, PAUSED, **CHARGES) == 3

    async def test_only_throttles_in_force_have_them(self) -> None:
        metrics = metrics_of(throttles={("upstream", "payments"): QUIET})
        metrics.throttle("route", "charges")
        for gauge in (QUEUE, PAUSED):
            assert await by_label(metrics, gauge, "name") == {"payments": 0}


class TestReload:
    async def test_a_throttle_that_stays_goes_on_counting(self, metrics: AppMetrics) -> None:
        before = metrics.throttle("route", "charges")
        before.admitted()
        after = metrics.throttle("route", "charges")
        keep(metrics, ("route", "charges"))
        before.delayed(0.1)
        after.admitted()
        expected = {"passed": 2, "delayed": 1, "refused": 0}
        assert await decisions(metrics, "route", "charges") == expected

    async def test_what_is_gone_is_dropped_and_its_last_waiters_do_no_harm(
        self, metrics: AppMetrics
    ) -> None:
        gone = metrics.throttle("upstream", "charges")
        metrics.throttle("route", "charges")
        keep(metrics, ("route", "charges"))
        gone.delayed(0.1)
        gone.refused()
        assert await by_label(metrics, DECISIONS, "scope") == {"route": 0}

    async def test_one_that_comes_back_starts_from_zero(self, metrics: AppMetrics) -> None:
        metrics.throttle("route", "charges").admitted()
        keep(metrics)
        metrics.throttle("route", "charges")
        assert (await decisions(metrics, "route", "charges"))["passed"] == 0


def keep(metrics: AppMetrics, *throttles: tuple[str, str]) -> None:
    keep_only(metrics, routes=["charges"], retrying=[], upstreams=["payments"], throttles=throttles)


async def test_ten_thousand_decisions_add_no_series(metrics: AppMetrics) -> None:
    throttle = metrics.throttle("route", "charges")
    before = [(sample.name, sample.labels) for sample in await samples(metrics)]
    dice = random.Random(7)  # the same callers each time
    for _ in range(10_000):
        throttle.admitted()
        throttle.delayed(dice.expovariate(1.0))
        throttle.refused()
    assert [(sample.name, sample.labels) for sample in await samples(metrics)] == before


async def test_a_scrape_of_many_throttles_lets_others_run() -> None:
    names = [(scope, f"n{number}") for scope in ("route", "upstream") for number in range(200)]
    metrics = metrics_of(throttles=dict.fromkeys(names, QUIET))
    for scope, name in names:
        metrics.throttle(scope, name).delayed(0.2)
    scrape = asyncio.ensure_future(metrics.exposition(""))
    turns = 0
    while not scrape.done():
        turns += 1
        await asyncio.sleep(0)
    text = scrape.result()[0].decode()

    lines = text.splitlines()
    assert turns > len(lines) / 250, "between slices the loop serves requests"
    assert len(lines) == len(set(lines)), "no sample and no comment comes twice"
    found = Counter(
        (sample.labels["scope"], sample.labels["name"])
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
        if family.name.startswith("holdfast_throttle_")
    )
    # Three decisions, fifteen buckets with their sum and count, two gauges.
    assert found == dict.fromkeys(names, 22)
