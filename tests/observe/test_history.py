"""The last minute: which sample it begins with, and what is told of it."""

import asyncio
import time
from typing import Any

import pytest

from proxy.observe.history import SAMPLE_EVERY, History, keep_sampling
from proxy.observe.status import last_minute
from proxy.policy.reasons import VerdictReason
from tests.observe.conftest import AppMetrics, MakeAttempt, MakeExchange, keep_only, metrics_of
from tests.support import (
    ScriptedUpstream,
    answer,
    now,
    ok,
    one_route,
    response,
    running,
    virtual_time,
)


def serve(metrics: AppMetrics, exchange: MakeExchange, number: int, *, route: str = "a") -> None:
    recorder = metrics.route(route, ["payments"])
    for _ in range(number):
        recorder.started()
        recorder.finished(exchange())


def told(history: History, metrics: AppMetrics, at: float) -> dict[str, Any]:
    window = history.last_minute(at, metrics.snapshot())
    return last_minute(window, {})


def test_before_the_first_sample_nothing_is_known(exchange: MakeExchange) -> None:
    metrics = metrics_of()
    serve(metrics, exchange, 3)
    assert told(History(), metrics, 100.0) == {
        "seconds": 0.0,
        "routes": {},
        "upstreams": {},
        "store_errors": {},
    }


@pytest.mark.parametrize(
    ("age", "seconds", "counted"),
    [
        pytest.param(0.0, 0.0, 0, id="just started"),
        pytest.param(12.0, 12.0, 12, id="younger than a minute"),
        pytest.param(60.0, 60.0, 60, id="a minute old"),
        pytest.param(62.0, 62.0, 62, id="nearer to the older sample"),
        pytest.param(63.0, 58.0, 58, id="nearer to the younger sample"),
        pytest.param(300.0, 60.0, 60, id="five minutes old"),
    ],
)
def test_the_window_begins_with_the_sample_nearest_to_a_minute_ago(
    exchange: MakeExchange, age: float, seconds: float, counted: int
) -> None:
    metrics, history = metrics_of(), History()
    history.sample(1000.0, metrics.counted())
    for second in range(1, int(age) + 1):
        serve(metrics, exchange, 1)
        if second % SAMPLE_EVERY == 0:
            history.sample(1000.0 + second, metrics.counted())
    shown = told(history, metrics, 1000.0 + age)
    assert shown["seconds"] == seconds
    assert sum(shown["routes"].get("a", {}).get("requests", {}).values()) == counted
    if counted:
        assert shown["routes"]["a"]["requests_per_second"] == 1.0


def test_routes_come_and_go_with_reloads(exchange: MakeExchange) -> None:
    metrics, history = metrics_of(), History()
    serve(metrics, exchange, 5, route="old")
    serve(metrics, exchange, 5, route="kept")
    history.sample(0.0, metrics.counted())
    serve(metrics, exchange, 2, route="old")
    serve(metrics, exchange, 3, route="kept")
    configured = {"retrying": (), "upstreams": ["payments"], "throttles": ()}
    keep_only(metrics, routes=["kept"], **configured)  # type: ignore[arg-type]  # by name
    serve(metrics, exchange, 4, route="new")
    shown = told(history, metrics, 10.0)["routes"]
    counts = {name: sum(route["requests"].values()) for name, route in shown.items()}
    assert counts == {"kept": 3, "new": 4}
    # It comes back, and begins anew.
    serve(metrics, exchange, 1, route="old")
    assert told(history, metrics, 10.0)["routes"]["old"]["requests"] == {"2xx": 1}


def test_what_is_told_of_a_route(exchange: MakeExchange, attempt: MakeAttempt) -> None:
    metrics, history = metrics_of(), History()
    recorder = metrics.route("a", ["payments"], retries=True, keys=True, dead_letters=True)
    polite = metrics.throttle("route", "a")
    quiet = metrics.route("b", ["payments"], retries=True)
    del quiet
    recorder.judged(VerdictReason.NOT_REPEATABLE)
    history.sample(0.0, metrics.counted())
    for _ in range(5):
        recorder.started()
        recorder.attempted(attempt(status=503))
        recorder.judged(VerdictReason.NOT_REPEATABLE)
        recorder.finished(exchange(code=503, duration=0.04))
    recorder.count("holdfast_dead_letters_dropped_total", "lost")
    polite.delayed(1.0)
    polite.refused()
    shown = told(history, metrics, 10.0)
    assert shown["routes"].keys() == {"a"}, "what was idle is left out"
    assert shown["routes"]["a"] == {
        "requests_per_second": 0.5,
        "requests": {"5xx": 5},
        "errors": 5,
        "refused": {},
        "disconnects": {"body": 0, "queue": 0, "backoff": 0, "upstream": 0, "response": 0},
        "attempts": {"5xx": 5},
        "duration_ms": {"mean": 40.0, "p50": 37.5, "p95": 48.75, "p99": 49.75},
        "failures": {"transient": {}, "permanent": {"503": 5}},
        "retries": 0,
        "recovered": 0,
        "verdicts": {"not_repeatable": 5},
        "wait_ms": None,
        "throttle": {
            "passed": 0,
            "delayed": 1,
            "refused": 1,
            "wait_ms": {"mean": 1000.0, "p50": 750.0, "p95": 975.0, "p99": 995.0},
        },
        "dead_letters": {"kept": 0, "lost": 1, "expired": 0},
    }
    assert shown["upstreams"]["payments"]["attempts_per_second"] == 0.5


@virtual_time
async def test_the_sampler_keeps_the_window_at_a_minute() -> None:
    """Ten minutes of one request a second, one of them in a minute of failures."""
    async with ScriptedUpstream(answer(ok())) as upstream, running(one_route(upstream)) as proxy:
        sampling = asyncio.create_task(keep_sampling(proxy.app.sample))
        began = now()
        for second in range(600):
            if second == 480:
                upstream.usual = answer(response(500))
            if second == 540:
                upstream.usual = answer(ok())
            await proxy.get("/")
            await asyncio.sleep(began + second + 1 - now())
            status = await proxy.app.operations.status()
            lately: Any = status["last_minute"]
            seconds = lately["seconds"]
            assert seconds == pytest.approx(min(second + 1, 60), abs=SAMPLE_EVERY / 2)
            route = lately["routes"]["all"]
            assert sum(route["requests"].values()) == pytest.approx(seconds, abs=1)
            assert route["requests_per_second"] == pytest.approx(1.0, abs=0.02)
            failing = [one["reason"] for one in status["trouble"]]  # type: ignore[attr-defined]  # JSON
            if second < 480 or second > 540 + 60 - 3:
                assert (route["errors"], failing) == (0, [])
            elif 490 < second < 590:
                assert failing == ["errors"]
        assert status["routes"]["all"]["errors"] == 60  # type: ignore[index]  # JSON
        sampling.cancel()


def test_a_sample_of_two_hundred_busy_routes_is_cheap(
    exchange: MakeExchange, attempt: MakeAttempt
) -> None:
    metrics, history = metrics_of(), History()
    recorders = []
    for number in range(200):
        name = f"route-{number}"
        metrics.throttle("route", name)
        recorders.append(
            metrics.route(name, ["payments"], retries=True, keys=True, dead_letters=True)
        )
    taken = []
    for round_number in range(10):
        for recorder in recorders:
            recorder.started()
            recorder.attempted(attempt())
            recorder.judged(VerdictReason.SUCCESS)
            recorder.finished(exchange())
        began = time.process_time()
        history.sample(5.0 * round_number, metrics.counted())
        taken.append(time.process_time() - began)
    # CPU time of the quickest: the others are slowed down by whatever else runs here.
    assert min(taken) < 0.002
