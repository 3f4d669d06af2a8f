import pytest

from proxy.policy.attempt import RetryDelay
from proxy.policy.reasons import VerdictReason
from tests.observe.conftest import AppMetrics, MakeAttempt, keep_only, metrics_of
from tests.observe.scraping import by_label, samples, value

VERDICTS = "holdfast_retry_verdicts_total"
WAITS = "holdfast_retry_wait_seconds"
ATTEMPTS = "holdfast_upstream_attempts_total"
BUDGET = "holdfast_retry_budget_remaining"
BREAKER = "holdfast_breaker_state"


@pytest.fixture
def metrics() -> AppMetrics:
    return metrics_of()


class TestVerdicts:
    async def test_every_reason_is_there_from_the_start_and_no_other(
        self, metrics: AppMetrics
    ) -> None:
        metrics.route("charges", ["payments"], retries=True)
        shown = await by_label(metrics, VERDICTS, "reason")
        assert shown == dict.fromkeys([why.value for why in VerdictReason], 0)

    @pytest.mark.parametrize("why", VerdictReason)
    async def test_a_verdict_is_counted_under_its_own_word(
        self, metrics: AppMetrics, why: VerdictReason
    ) -> None:
        recorder = metrics.route("charges", ["payments"], retries=True)
        recorder.judged(why)
        recorder.judged(why)
        shown = await by_label(metrics, VERDICTS, "reason")
        assert {reason: count for reason, count in shown.items() if count} == {why.value: 2}

    async def test_routes_are_counted_apart(self, metrics: AppMetrics) -> None:
        metrics.route("charges", ["payments"], retries=True).judged(VerdictReason.RETRIED)
        metrics.route("refunds", ["payments"], retries=True)
        for route, count in (("charges", 1), ("refunds", 0)):
            assert await value(metrics, VERDICTS, route=route, reason="retried") == count


class TestWaits:
    async def test_both_sources_are_there_from_the_start(self, metrics: AppMetrics) -> None:
        metrics.route("charges", ["payments"], retries=True)
        assert await by_label(metrics, f"{WAITS}_count", "source") == {"backoff": 0, "hint": 0}

    async def test_a_wait_is_counted_by_who_chose_it(self, metrics: AppMetrics) -> None:
        recorder = metrics.route("charges", ["payments"], retries=True)
        for pause in (
            RetryDelay(0.1, "backoff"),
            RetryDelay(0.3, "backoff"),
            RetryDelay(5.0, "hint"),
        ):
            recorder.waited(pause)
        assert await by_label(metrics, f"{WAITS}_count", "source") == {"backoff": 2, "hint": 1}
        assert await by_label(metrics, f"{WAITS}_sum", "source") == {"backoff": 0.4, "hint": 5.0}
        for source, bound, count in (("backoff", "0.1", 1), ("hint", "2.5", 0), ("hint", "5.0", 1)):
            labels = {"route": "charges", "source": source, "le": bound}
            assert await value(metrics, f"{WAITS}_bucket", **labels) == count


async def test_a_route_that_does_not_retry_shows_nothing_even_if_it_is_judged(
    metrics: AppMetrics,
) -> None:
    for recorder in (metrics.route("search", ["search"], retries=False), metrics.unmatched()):
        recorder.judged(VerdictReason.SUCCESS)
        recorder.waited(RetryDelay(0.1, "backoff"))
    assert not [sample for sample in await samples(metrics) if "retry" in sample.name]


async def test_an_attempt_counts_for_the_upstream_that_it_went_to(
    metrics: AppMetrics, attempt: MakeAttempt
) -> None:
    recorder = metrics.route("charges", ["payments", "payments-eu"], retries=True)
    recorder.attempted(attempt(1, status=503, duration=0.2))
    recorder.attempted(attempt(2, status=503, duration=0.3))
    recorder.attempted(attempt(3, upstream="payments-eu", duration=0.7))
    counted = [
        (sample.labels, sample.value)
        for sample in await samples(metrics)
        if sample.name == ATTEMPTS
    ]
    assert counted == [
        ({"route": "charges", "upstream": "payments", "outcome": "5xx"}, 2),
        ({"route": "charges", "upstream": "payments-eu", "outcome": "2xx"}, 1),
    ]
    took = await by_label(metrics, "holdfast_upstream_attempt_duration_seconds_sum", "upstream")
    assert took == {"payments": pytest.approx(0.5), "payments-eu": pytest.approx(0.7)}


async def test_routes_that_share_an_upstream_share_its_durations(
    metrics: AppMetrics, attempt: MakeAttempt
) -> None:
    metrics.route("charges", ["payments"], retries=True).attempted(attempt())
    metrics.route("refunds", ["legacy", "payments"], retries=False).attempted(attempt())
    counts = "holdfast_upstream_attempt_duration_seconds_count"
    assert await by_label(metrics, counts, "upstream") == {"payments": 2, "legacy": 0}
    for route in ("charges", "refunds"):
        labels = {"route": route, "upstream": "payments", "outcome": "2xx"}
        assert await value(metrics, ATTEMPTS, **labels) == 1


class TestReload:
    async def test_a_route_that_goes_on_retrying_goes_on_counting(
        self, metrics: AppMetrics
    ) -> None:
        before = metrics.route("charges", ["payments"], retries=True)
        before.judged(VerdictReason.RETRIED)
        after = metrics.route("charges", ["payments"], retries=True)
        keep_only(
            metrics, routes=["charges"], retrying=["charges"], upstreams=["payments"], throttles=[]
        )
        before.judged(VerdictReason.RETRIED)
        after.judged(VerdictReason.RETRIED)
        assert await value(metrics, VERDICTS, route="charges", reason="retried") == 3

    async def test_a_route_that_stops_retrying_loses_its_verdicts_and_waits(
        self, metrics: AppMetrics
    ) -> None:
        before = metrics.route("charges", ["payments"], retries=True)
        metrics.route("charges", ["payments"], retries=False)
        keep_only(metrics, routes=["charges"], retrying=[], upstreams=["payments"], throttles=[])
        # A request that began before the reload ends as it began.
        before.judged(VerdictReason.SUCCESS)
        assert not [sample for sample in await samples(metrics) if "retry" in sample.name]
        assert await value(metrics, "holdfast_requests_in_flight", route="charges") == 0

    async def test_what_a_refused_reload_would_have_begun_or_ended_stays_as_it_was(
        self, metrics: AppMetrics
    ) -> None:
        metrics.route("charges", ["payments"], retries=True).judged(VerdictReason.RETRIED)
        metrics.route("search", ["search"], retries=False)
        in_force = {"routes": ["charges", "search"], "upstreams": ["payments", "search"]}
        # The other way round is built, found impossible, and thrown away.
        metrics.route("charges", ["payments"], retries=False)
        metrics.route("search", ["search"], retries=True)
        keep_only(metrics, **in_force, retrying=["charges"], throttles=[])
        assert await value(metrics, VERDICTS, route="charges", reason="retried") == 1
        assert await value(metrics, VERDICTS, route="search", reason="retried") is None


class TestGauges:
    async def test_they_are_read_when_somebody_looks(self) -> None:
        budgets, breakers = {"payments": 10.0}, {"payments": 0}
        metrics = metrics_of(budgets=budgets, breakers=breakers)
        assert await value(metrics, BUDGET, upstream="payments") == 10.0
        assert await value(metrics, BREAKER, upstream="payments") == 0

        budgets["payments"], breakers["payments"] = 0.25, 2
        assert await value(metrics, BUDGET, upstream="payments") == 0.25
        assert await value(metrics, BREAKER, upstream="payments") == 2

    async def test_only_upstreams_that_have_one_show_it(self) -> None:
        metrics = metrics_of(budgets={"payments": 10.0}, breakers={"search": 1})
        metrics.route("charges", ["payments"], retries=True)
        metrics.route("search", ["search"], retries=False)
        assert await by_label(metrics, BUDGET, "upstream") == {"payments": 10.0}
        assert await by_label(metrics, BREAKER, "upstream") == {"search": 1}
