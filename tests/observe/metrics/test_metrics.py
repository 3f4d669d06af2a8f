import asyncio
import random
import re
import string

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as strictly_parsed,
)

from proxy.core.recorders import ThrottleState
from proxy.observe.metrics.families import FAMILIES
from proxy.observe.metrics.recorders import UNMATCHED, RouteRecorder
from proxy.policy.attempt import FailureKind, RetryDelay
from proxy.policy.reasons import VerdictReason
from tests.observe.conftest import AppMetrics, MakeAttempt, MakeExchange, keep_only, metrics_of
from tests.observe.scraping import families, samples, value
from tests.support import virtual_time

pytestmark = virtual_time


OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def metrics() -> AppMetrics:
    return metrics_of(
        lost_lines=7,
        budgets={"spare": 12.5},
        breakers={"spare": 0},
        throttles={("upstream", "spare"): ThrottleState(0, 0, 1, 0, 0.0)},
    )


async def test_a_configured_route_has_its_series_before_the_first_request(
    metrics: AppMetrics,
) -> None:
    metrics.route("charges", ["payments"], retries=False)
    found = [
        sample
        for sample in await samples(metrics)
        if {"charges", "payments"} & set(sample.labels.values())
    ]
    assert {sample.value for sample in found} == {0}
    assert {sample.name for sample in found} == {
        "holdfast_requests_in_flight",
        "holdfast_client_disconnects_total",
        "holdfast_request_duration_seconds_bucket",
        "holdfast_request_duration_seconds_count",
        "holdfast_request_duration_seconds_sum",
        "holdfast_upstream_attempt_duration_seconds_bucket",
        "holdfast_upstream_attempt_duration_seconds_count",
        "holdfast_upstream_attempt_duration_seconds_sum",
    }
    phases = {sample.labels["phase"] for sample in found if "phase" in sample.labels}
    assert phases == {"body", "queue", "backoff", "upstream", "response"}


async def test_one_request_from_start_to_finish(
    metrics: AppMetrics, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    recorder = metrics.route("charges", ["payments"], retries=False)

    recorder.started()
    assert await value(metrics, "holdfast_requests_in_flight", route="charges") == 1

    tried = attempt(status=201, duration=0.2)
    recorder.attempted(tried)
    recorder.finished(exchange(method="POST", code=201, duration=0.3, attempts=[tried]))

    assert await value(metrics, "holdfast_requests_in_flight", route="charges") == 0
    assert (
        await value(metrics, "holdfast_requests_total", route="charges", method="POST", code="201")
        == 1
    )
    assert (
        await value(
            metrics,
            "holdfast_upstream_attempts_total",
            route="charges",
            upstream="payments",
            outcome="2xx",
        )
        == 1
    )
    assert await value(
        metrics, "holdfast_upstream_attempt_duration_seconds_sum", upstream="payments"
    ) == pytest.approx(0.2)
    assert await value(
        metrics, "holdfast_request_duration_seconds_sum", route="charges"
    ) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("seconds", "lowest"),
    [
        pytest.param(0.0, "0.0005", id="nothing is in the first bucket"),
        pytest.param(0.0005, "0.0005", id="the first bound"),
        pytest.param(0.0006, "0.001", id="a sidecar's own time"),
        pytest.param(0.0022, "0.0025", id="one of a few milliseconds"),
        pytest.param(0.005, "0.005", id="a bound belongs to its own bucket"),
        pytest.param(0.0051, "0.01", id="just above a bound is in the next"),
        pytest.param(60.0, "60.0", id="the last bound"),
        pytest.param(61.0, "+Inf", id="beyond every bound"),
    ],
)
async def test_buckets_are_cumulative_and_include_their_bound(
    metrics: AppMetrics, exchange: MakeExchange, seconds: float, lowest: str
) -> None:
    recorder = metrics.route("charges", ["payments"], retries=False)
    recorder.started()
    recorder.finished(exchange(duration=seconds))
    buckets = {
        sample.labels["le"]: sample.value
        for sample in await samples(metrics)
        if sample.name == "holdfast_request_duration_seconds_bucket"
        and sample.labels["route"] == "charges"
    }
    holding = [bound for bound, count in buckets.items() if count == 1]
    assert min(holding, key=float) == lowest
    assert [float(bound) for bound in holding] == [
        float(bound) for bound in buckets if float(bound) >= float(lowest)
    ]
    assert list(buckets) == (
        [
            "0.0005",
            "0.001",
            "0.0025",
            "0.005",
            "0.01",
            "0.025",
            "0.05",
            "0.1",
            "0.25",
            "0.5",
            "1.0",
            "2.5",
            "5.0",
            "10.0",
            "30.0",
            "60.0",
            "+Inf",
        ]
    )


@pytest.mark.parametrize(
    ("status", "kind", "outcome"),
    [
        pytest.param(200, None, "2xx", id="a success"),
        pytest.param(404, None, "4xx", id="an upstream's own refusal"),
        pytest.param(503, None, "5xx", id="an upstream's own failure"),
        pytest.param(999, None, "other", id="a status beyond the classes"),
        pytest.param(0, FailureKind.CONNECT, "connect", id="never connected"),
        pytest.param(200, FailureKind.TRUNCATED, "truncated", id="the kind outranks the status"),
    ],
)
async def test_an_attempt_is_counted_once_under_its_outcome(
    metrics: AppMetrics, attempt: MakeAttempt, status: int, kind: FailureKind | None, outcome: str
) -> None:
    recorder = metrics.route("charges", ["payments"], retries=False)
    recorder.attempted(attempt(status=status, kind=kind))
    recorder.attempted(attempt(status=status, kind=kind))
    counted = [
        (sample.labels, sample.value)
        for sample in await samples(metrics)
        if sample.name == "holdfast_upstream_attempts_total"
    ]
    assert counted == [({"route": "charges", "upstream": "payments", "outcome": outcome}, 2.0)]


async def test_statuses_of_one_class_share_an_outcome(
    metrics: AppMetrics, attempt: MakeAttempt
) -> None:
    recorder = metrics.route("charges", ["payments"], retries=False)
    for status in (500, 502, 503):
        recorder.attempted(attempt(status=status))
    labels = {"route": "charges", "upstream": "payments", "outcome": "5xx"}
    assert await value(metrics, "holdfast_upstream_attempts_total", **labels) == 3


async def test_a_client_that_left_is_counted_by_phase_and_as_499(
    metrics: AppMetrics, exchange: MakeExchange
) -> None:
    recorder = metrics.route("charges", ["payments"], retries=False)
    recorder.started()
    recorder.count("holdfast_client_disconnects_total", "upstream")
    recorder.finished(exchange(code=499))
    disconnects = "holdfast_client_disconnects_total"
    assert await value(metrics, disconnects, route="charges", phase="upstream") == 1
    assert await value(metrics, disconnects, route="charges", phase="body") == 0
    assert (
        await value(metrics, "holdfast_requests_total", route="charges", method="GET", code="499")
        == 1
    )


async def test_unmatched_requests_share_one_route(
    metrics: AppMetrics, exchange: MakeExchange
) -> None:
    recorder = metrics.unmatched()
    recorder.started()
    recorder.finished(exchange(code=404))
    # What the parser refused has no method.
    recorder.started()
    recorder.finished(exchange(method="", target="", code=400))
    for method, code in (("GET", "404"), ("_OTHER", "400")):
        assert (
            await value(
                metrics, "holdfast_requests_total", route=UNMATCHED, method=method, code=code
            )
            == 1
        )
    assert await value(metrics, "holdfast_requests_in_flight", route=UNMATCHED) == 0


async def test_ten_thousand_random_paths_and_methods_add_no_series(
    metrics: AppMetrics, exchange: MakeExchange
) -> None:
    recorder = metrics.route("charges", ["payments"], retries=False)
    dice = random.Random(7)  # the same strangers each time

    def text(letters: str) -> str:
        return "".join(dice.choices(letters, k=12))

    for _ in range(10_000):
        for each in (recorder, metrics.unmatched()):
            each.started()
            each.finished(
                exchange(
                    method=text(string.ascii_uppercase),
                    target="/" + text(string.printable),
                    code=404,
                )
            )
    counted = [
        (sample.labels, sample.value)
        for sample in await samples(metrics)
        if sample.name == "holdfast_requests_total"
    ]
    assert counted == [
        ({"route": UNMATCHED, "method": "_OTHER", "code": "404"}, 10_000),
        ({"route": "charges", "method": "_OTHER", "code": "404"}, 10_000),
    ]


@pytest.mark.parametrize(
    "method",
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "CONNECT", "TRACE"],
)
async def test_known_methods_have_a_label_of_their_own(
    metrics: AppMetrics, exchange: MakeExchange, method: str
) -> None:
    recorder = metrics.route("charges", ["payments"], retries=False)
    recorder.started()
    recorder.finished(exchange(method=method))
    assert (
        await value(metrics, "holdfast_requests_total", route="charges", method=method, code="200")
        == 1
    )


class TestReload:
    async def test_a_route_that_stays_goes_on_counting(
        self, metrics: AppMetrics, exchange: MakeExchange
    ) -> None:
        before = metrics.route("charges", ["payments"], retries=False)
        before.started()
        after = metrics.route("charges", ["payments"], retries=False)
        keep_only(metrics, routes=["charges"], retrying=[], upstreams=["payments"], throttles=[])
        after.started()
        assert await value(metrics, "holdfast_requests_in_flight", route="charges") == 2

        before.finished(exchange())
        after.finished(exchange())
        assert await value(metrics, "holdfast_requests_in_flight", route="charges") == 0
        labels = {"route": "charges", "method": "GET", "code": "200"}
        assert await value(metrics, "holdfast_requests_total", **labels) == 2

    async def test_what_is_gone_is_dropped_and_its_last_requests_do_no_harm(
        self, metrics: AppMetrics, exchange: MakeExchange, attempt: MakeAttempt
    ) -> None:
        gone = metrics.route("old", ["legacy"], retries=True)
        gone.started()
        gone.attempted(attempt(upstream="legacy"))
        metrics.route("charges", ["payments"], retries=False)
        keep_only(metrics, routes=["charges"], retrying=[], upstreams=["payments"], throttles=[])

        gone.attempted(attempt(upstream="legacy"))
        gone.judged(VerdictReason.RETRIED)
        gone.waited(RetryDelay(0.1, "backoff"))
        gone.count("holdfast_client_disconnects_total", "response")
        gone.finished(exchange(code=499))

        labels = {name for sample in await samples(metrics) for name in sample.labels.values()}
        assert not {"old", "legacy"} & labels
        assert {UNMATCHED, "charges", "payments"} <= labels

    async def test_a_route_that_comes_back_starts_from_zero(
        self, metrics: AppMetrics, exchange: MakeExchange
    ) -> None:
        gone = metrics.route("charges", ["payments"], retries=False)
        gone.started()
        keep_only(metrics, routes=[], retrying=[], upstreams=[], throttles=[])
        metrics.route("charges", ["payments"], retries=False)
        gone.finished(exchange())
        assert await value(metrics, "holdfast_requests_in_flight", route="charges") == 0

    async def test_another_upstream_for_the_same_route(
        self, metrics: AppMetrics, attempt: MakeAttempt
    ) -> None:
        metrics.route("charges", ["payments"], retries=False).attempted(attempt())
        moved = metrics.route("charges", ["payments-eu"], retries=False)
        moved.attempted(attempt(upstream="payments-eu"))
        keep_only(metrics, routes=["charges"], retrying=[], upstreams=["payments-eu"], throttles=[])
        counted = [
            sample.labels["upstream"]
            for sample in await samples(metrics)
            if sample.name == "holdfast_upstream_attempts_total"
        ]
        assert counted == ["payments-eu"]

    async def test_reloads_are_counted_and_dated(self, metrics: AppMetrics) -> None:
        reloads = "holdfast_config_reloads_total"
        date = "holdfast_config_last_reload_success_timestamp_seconds"
        last = "holdfast_config_last_reload_successful"
        assert await value(metrics, last) == 1
        assert await value(metrics, reloads, result="success") == 0
        assert await value(metrics, reloads, result="failure") == 0
        assert await value(metrics, date) == 1700000000.5

        metrics.reload_failed()
        assert await value(metrics, date) == 1700000000.5
        assert await value(metrics, last) == 0

        metrics.reload_succeeded(at=1700000100.0)
        assert await value(metrics, reloads, result="success") == 1
        assert await value(metrics, reloads, result="failure") == 1
        assert await value(metrics, date) == 1700000100.0
        assert await value(metrics, last) == 1


async def test_the_process_describes_itself(metrics: AppMetrics) -> None:
    assert await value(metrics, "holdfast_build_info", version="1.2.3", parser="c") == 1
    assert await value(metrics, "holdfast_access_log_dropped_total") == 7
    resident = await value(metrics, "process_resident_memory_bytes")
    assert resident is not None
    assert resident > 0


def busy(metrics: AppMetrics, exchange: MakeExchange, attempt: MakeAttempt, routes: int) -> None:
    """Every metric in use on as many routes, one with a name that needs escaping."""
    recorders: list[tuple[RouteRecorder, str]] = []
    for number in range(routes):
        upstream = f"upstream-{number}"
        recorder = metrics.route(
            f"route-{number}",
            [upstream],
            retries=True,
            keys=True,
            dead_letters=True,
            deliveries=True,
        )
        recorders.append((recorder, upstream))
    odd = metrics.route('odd "name"\\\n', ["payments"], retries=True)
    for recorder, upstream in [*recorders, (odd, "payments")]:
        recorder.started()
        tried = attempt(upstream=upstream)
        recorder.attempted(tried)
        recorder.judged(VerdictReason.SUCCESS)
        recorder.finished(exchange(attempts=[tried]))
        metrics.throttle("upstream", upstream).delayed(0.2)
    metrics.store(["take"]).operated("take", 0.001)


async def test_names_and_labels_follow_the_conventions(
    metrics: AppMetrics, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    busy(metrics, exchange, attempt, routes=1)
    ours = {
        name: family
        for name, family in (await families(metrics)).items()
        if not name.startswith("process_")
    }
    labels = {
        name: {label for sample in family.samples for label in sample.labels if label != "le"}
        for name, family in ours.items()
    }
    # The parser leaves `_total` off the name of a counter's family.
    assert labels == {
        row.name.removesuffix("_total"): {label.name for label in row.all_labels}
        for row in FAMILIES
        if row.name.startswith("holdfast_")
    }
    for name, family in ours.items():
        assert re.fullmatch(r"holdfast(_[a-z]+)+", name)
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")


async def test_open_metrics_for_those_who_ask(
    metrics: AppMetrics, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    busy(metrics, exchange, attempt, routes=40)
    text, content_type = await metrics.exposition(OPEN_METRICS)
    assert content_type.startswith("application/openmetrics-text")
    parsed = list(strictly_parsed(text.decode()))  # type: ignore[no-untyped-call]  # prometheus_client has no types here
    names = [family.name for family in parsed]
    assert {
        "holdfast_requests",
        "holdfast_retry_verdicts",
        "holdfast_breaker_state",
        "holdfast_throttle_wait_seconds",
        "holdfast_store_errors",
        "holdfast_dead_letters_pending",
        "holdfast_dead_letters",
    } <= set(names)
    assert len(names) == len(set(names)), "each family has a name of its own"
    assert text.count(b"# EOF") == 1


async def test_a_large_scrape_is_the_same_text_and_lets_others_run(
    metrics: AppMetrics, exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    busy(metrics, exchange, attempt, routes=200)
    scrape = asyncio.ensure_future(metrics.exposition(""))
    turns = 0
    while not scrape.done():
        turns += 1
        await asyncio.sleep(0)
    text, _ = scrape.result()
    lines = text.decode().splitlines()

    assert turns > len(lines) / 250, "between slices the loop serves requests"
    assert len(lines) == len(set(lines)), "no sample and no comment comes twice"
    found = list(parser.text_string_to_metric_families(text.decode()))
    assert len(found) == len({family.name for family in found})
    counted = next(family for family in found if family.name == "holdfast_requests")
    assert {sample.labels["route"] for sample in counted.samples} == {
        *(f"route-{number}" for number in range(200)),
        'odd "name"\\\n',
    }


async def test_two_in_one_process_do_not_mix() -> None:
    first, second = metrics_of(), metrics_of()
    second.route("charges", ["payments"], retries=False)
    first.route("charges", ["payments"], retries=False).started()
    assert await value(second, "holdfast_requests_in_flight", route="charges") == 0
