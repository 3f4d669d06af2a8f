import json

import pytest

from proxy.core.recorders import ThrottleState
from proxy.http.refusal import Refusal, RefusalReason
from proxy.observe.status import summary
from proxy.policy.attempt import FailureKind, RetryDelay
from proxy.policy.reasons import VerdictReason
from tests.observe.conftest import MakeAttempt, MakeExchange, metrics_of


def test_a_snapshot_tells_what_happened_on_each_route(
    exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    metrics = metrics_of(lost_lines=2)
    recorder = metrics.route("charges", ["payments"], retries=False)
    for status, kind, code in ((200, None, 200), (201, None, 201), (0, FailureKind.RESET, 502)):
        recorder.started()
        recorder.attempted(attempt(status=status, kind=kind, duration=0.02))
        recorder.finished(exchange(code=code, duration=0.04))
    recorder.started()
    recorder.count("holdfast_client_disconnects_total", "body")
    metrics.reload_failed()

    snapshot = summary(metrics.snapshot())

    assert json.loads(json.dumps(snapshot)) == snapshot
    nothing_yet = {
        "requests": {},
        "errors": 0,
        "refused": {},
        "in_flight": 0,
        "disconnects": {"body": 0, "queue": 0, "backoff": 0, "upstream": 0, "response": 0},
        "attempts": {},
        "duration_ms": None,
        "failures": {"transient": {}, "permanent": {}},
    }
    assert snapshot == {
        "routes": {
            "_unmatched": nothing_yet,
            "charges": {
                "requests": {"2xx": 2, "5xx": 1},
                "errors": 1,
                "refused": {},
                "in_flight": 1,
                "disconnects": {"body": 1, "queue": 0, "backoff": 0, "upstream": 0, "response": 0},
                "upstreams": ["payments"],
                "attempts": {"2xx": 2, "reset": 1},
                "failures": {"transient": {"reset": 1}, "permanent": {}},
                "duration_ms": {"mean": 40.0, "p50": 37.5, "p95": 48.75, "p99": 49.75},
            },
        },
        "upstreams": {
            "payments": {
                "attempts": 3,
                "duration_ms": {"mean": 20.0, "p50": 17.5, "p95": 24.25, "p99": 24.85},
            }
        },
        "reloads": {"success": 0, "failure": 1},
        "access_log_dropped": 2,
    }


def status_of(snapshot: dict[str, object], part: str, name: str) -> dict[str, object]:
    """What the snapshot says about one route or upstream."""
    parts = snapshot[part]
    assert isinstance(parts, dict)
    shown_part = parts[name]
    assert isinstance(shown_part, dict)
    return shown_part


def test_refusals_are_told_by_reason_and_a_failed_upstream_is_none(exchange: MakeExchange) -> None:
    metrics = metrics_of()
    recorder = metrics.route("charges", ["payments"])
    for reason in (RefusalReason.THROTTLED, RefusalReason.THROTTLED, RefusalReason.TIMEOUT):
        recorder.started()
        recorder.finished(exchange(code=reason.status, refusal=Refusal(reason, "")))
    recorder.started()
    recorder.finished(exchange(code=429))
    charges = status_of(summary(metrics.snapshot()), "routes", "charges")
    assert charges["refused"] == {"throttled": 2}
    assert (charges["requests"], charges["errors"]) == ({"4xx": 3, "5xx": 1}, 1)


class TestFailures:
    def test_they_are_told_by_category(self, attempt: MakeAttempt) -> None:
        listed = {("charges", "payments"): frozenset({503}), ("charges", "old"): frozenset({404})}
        metrics = metrics_of(transient=listed)
        recorder = metrics.route("charges", ["payments", "old"], retries=True)
        for status, kind in (
            *((200, None), (302, None), (0, FailureKind.CANCELLED)),
            *(
                (503, None),
                (503, None),
                (404, None),
                (0, FailureKind.TIMEOUT),
                (200, FailureKind.TRUNCATED),
            ),
        ):
            recorder.attempted(attempt(status=status, kind=kind))
        for status in (404, 503):
            recorder.attempted(attempt(status=status, upstream="old"))

        snapshot = summary(metrics.snapshot())

        assert json.loads(json.dumps(snapshot)) == snapshot
        charges = status_of(snapshot, "routes", "charges")
        assert charges["upstreams"] == ["payments", "old"]
        assert charges["failures"] == {
            "transient": {"503": 2, "timeout": 1, "404": 1},
            "permanent": {"404": 1, "truncated": 1, "503": 1},
        }

    def test_a_status_changes_sides_when_the_file_does(self, attempt: MakeAttempt) -> None:
        listed: dict[tuple[str, str], frozenset[int]] = {("charges", "payments"): frozenset()}
        metrics = metrics_of(transient=listed)
        recorder = metrics.route("charges", ["payments"], retries=True)
        recorder.attempted(attempt(status=500))
        before = status_of(summary(metrics.snapshot()), "routes", "charges")["failures"]
        listed["charges", "payments"] = frozenset({500})
        after = status_of(summary(metrics.snapshot()), "routes", "charges")["failures"]
        assert before == {"transient": {}, "permanent": {"500": 1}}
        assert after == {"transient": {"500": 1}, "permanent": {}}


class TestRetries:
    def test_a_route_that_retries_tells_how_often_and_with_what_success(self) -> None:
        metrics = metrics_of()
        recorder = metrics.route("charges", ["payments"], retries=True)
        for why in (
            VerdictReason.RETRIED,
            VerdictReason.RECOVERED,
            VerdictReason.RETRIED,
            VerdictReason.RETRIED,
            VerdictReason.BUDGET,
        ):
            recorder.judged(why)
        for pause in (
            RetryDelay(0.02, "backoff"),
            RetryDelay(0.02, "backoff"),
            RetryDelay(2.0, "hint"),
        ):
            recorder.waited(pause)

        snapshot = summary(metrics.snapshot())

        assert json.loads(json.dumps(snapshot)) == snapshot
        charges = status_of(snapshot, "routes", "charges")
        assert charges["retries"] == 3
        assert charges["recovered"] == 1
        assert charges["verdicts"] == {"recovered": 1, "retried": 3, "budget": 1}
        assert charges["wait_ms"] == {"mean": 680.0, "p50": 40.0, "p95": 2275.0, "p99": 2455.0}

    def test_before_the_first_request_there_is_nothing_to_tell(self) -> None:
        metrics = metrics_of()
        metrics.route("charges", ["payments"], retries=True)
        charges = status_of(summary(metrics.snapshot()), "routes", "charges")
        assert charges["retries"] == 0
        assert charges["recovered"] == 0
        assert charges["verdicts"] == {}
        assert charges["wait_ms"] is None

    def test_a_route_that_does_not_retry_says_nothing_of_retries(self) -> None:
        metrics = metrics_of()
        metrics.route("search", ["search"], retries=False)
        search = status_of(summary(metrics.snapshot()), "routes", "search")
        assert not {"retries", "recovered", "verdicts", "wait_ms"} & search.keys()


@pytest.mark.parametrize(
    ("state", "word"),
    [
        pytest.param(0, "closed", id="its best address is in use"),
        pytest.param(1, "half_open", id="its best address is being tried"),
        pytest.param(2, "open", id="all its addresses are left alone"),
    ],
)
def test_an_upstream_tells_its_budget_and_its_breaker(state: int, word: str) -> None:
    metrics = metrics_of(budgets={"payments": 10.2 / 3}, breakers={"payments": state})
    metrics.route("charges", ["payments"], retries=True)
    payments = status_of(summary(metrics.snapshot()), "upstreams", "payments")
    assert payments["budget_remaining"] == 3.4
    assert payments["breaker"] == word


def test_an_upstream_without_budget_or_breaker_has_neither() -> None:
    metrics = metrics_of(budgets={"other": 1.0}, breakers={"other": 2})
    metrics.route("charges", ["payments"], retries=True)
    payments = status_of(summary(metrics.snapshot()), "upstreams", "payments")
    assert not {"budget_remaining", "breaker"} & payments.keys()


class TestThrottles:
    def test_one_tells_what_it_decided_and_what_goes_on(self) -> None:
        state = ThrottleState(waiting=2, under_way=3, buckets=40, paused=1, paused_for=1.23456)
        metrics = metrics_of(throttles={("route", "charges"): state})
        metrics.route("charges", ["payments"], retries=False)
        throttle = metrics.throttle("route", "charges")
        for _ in range(5):
            throttle.admitted()
        throttle.delayed(0.3)
        throttle.refused()

        snapshot = summary(metrics.snapshot())

        assert json.loads(json.dumps(snapshot)) == snapshot
        assert status_of(snapshot, "routes", "charges")["throttle"] == {
            "passed": 5,
            "delayed": 1,
            "refused": 1,
            "wait_ms": {"mean": 300.0, "p50": 375.0, "p95": 487.5, "p99": 497.5},
            "waiting": 2,
            "under_way": 3,
            "buckets": 40,
            "paused": 1,
            "paused_for_seconds": 1.235,
        }

    def test_a_route_and_an_upstream_of_the_same_name_are_two(self) -> None:
        quiet = ThrottleState(0, 0, 1, 0, 0.0)
        metrics = metrics_of(throttles={("route", "search"): quiet, ("upstream", "search"): quiet})
        metrics.route("search", ["search"], retries=False)
        metrics.throttle("route", "search").refused()
        metrics.throttle("upstream", "search").admitted()
        snapshot = summary(metrics.snapshot())
        refused = {"passed": 0, "delayed": 0, "refused": 1, "wait_ms": None}
        passed = {"passed": 1, "delayed": 0, "refused": 0, "wait_ms": None}
        for part, expected in (("routes", refused), ("upstreams", passed)):
            throttle = status_of(snapshot, part, "search")["throttle"]
            assert isinstance(throttle, dict)
            assert expected.items() <= throttle.items()

    def test_without_one_there_is_nothing_to_tell(self) -> None:
        metrics = metrics_of()
        metrics.route("search", ["search"], retries=False)
        snapshot = summary(metrics.snapshot())
        assert "throttle" not in status_of(snapshot, "routes", "search")
        assert "throttle" not in status_of(snapshot, "upstreams", "search")


class TestStore:
    @pytest.mark.parametrize("state", ["up", "down"])
    def test_it_tells_whether_it_is_there_and_how_it_did(self, state: str) -> None:
        metrics = metrics_of(store_state=state)
        store = metrics.store(["take", "pause"])
        store.operated("take", 0.002)
        store.failed("take")

        snapshot = summary(metrics.snapshot())

        assert json.loads(json.dumps(snapshot)) == snapshot
        assert snapshot["store"] == {
            "state": state,
            "errors": {"take": 1, "pause": 0},
            "duration_ms": {
                "take": {"mean": 2.0, "p50": 1.75, "p95": 2.425, "p99": 2.485},
                "pause": None,
            },
        }

    def test_where_nothing_is_shared_nothing_is_told(self) -> None:
        assert "store" not in summary(metrics_of().snapshot())
