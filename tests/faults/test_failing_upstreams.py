"""An upstream that fails, on a route that retries: enough attempts, never too many.

Faults of the upstream that may pass (503, 429), one that does not, and clients that do
not stay to see.
"""

import asyncio
from email.utils import formatdate
from itertools import pairwise

import pytest

from tests.support import (
    Behaviour,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_early,
    eventually,
    hang_up,
    now,
    ok,
    one_route,
    request,
    reset,
    response,
    running,
    virtual_time,
)
from tests.support.proxies import LogRecord
from tests.support.records import last_logged, outcomes

pytestmark = virtual_time


QUICK = "backoff: {strategy: constant, base: 1ms, jitter: none}"
RETRY = f"retry: {{{QUICK}}}"
LONG_WAIT = "retry: {backoff: {strategy: constant, base: 20s, jitter: none}}"
DOWN = answer(response(503, b"down"))
BUDGET_LEFT = "holdfast_retry_budget_remaining"


def whys(record: LogRecord) -> list[str]:
    return [attempt["why"] for attempt in record["attempts"]]


# It fails a few times, or tells us to wait.


@pytest.mark.parametrize("fault", [DOWN, reset, hang_up])
@pytest.mark.parametrize(
    ("failures", "status", "whys_logged"),
    [
        pytest.param(0, 200, ["success"], id="never"),
        pytest.param(1, 200, ["retried", "recovered"], id="once"),
        pytest.param(2, 200, ["retried", "retried", "recovered"], id="twice"),
        pytest.param(3, None, ["retried", "retried", "attempts_exhausted"], id="three times"),
    ],
)
async def test_it_fails_so_often(
    fault: Behaviour, failures: int, status: int | None, whys_logged: list[str]
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, RETRY)) as proxy:
        upstream.script(*[fault] * failures)
        got = await proxy.get()
        assert got.status == (status or (503 if fault is DOWN else 502))
        assert whys(await last_logged(proxy)) == whys_logged
        assert len(upstream.requests) == len(whys_logged)


NASTY_HINTS = [
    "0",
    "0.001",
    "-1",
    "1.5.2",
    "1_0",
    "+1",
    "0x10",
    "1e400",
    "nan",
    "inf",
    "9" * 5000,
    "soon",
    "",
    "   ",
    "\t0\t",
    '"1"',
    "1, 2",
    "1;2",
    "\xb2",
    "\xd9\xa3",
    formatdate(0, usegmt=True),
    formatdate(-1e9, usegmt=True),
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "Sun Nov  6 08:49:37 1994",
    "Fri, 31 Dec 9999 23:59:60 GMT",
    "Thu, 32 Jan 2026 25:61:61 XYZ",
    "Mon, 01 Jan 0000 00:00:00 GMT",
]


async def test_nothing_in_retry_after_is_more_than_it_can_take() -> None:
    async with (
        ScriptedUpstream(answer(ok(b"fine"))) as upstream,
        running(one_route(upstream, RETRY, options="budget: false")) as proxy,
        proxy.client() as client,
    ):
        for value in NASTY_HINTS:
            upstream.script(answer(response(503, b"later", f"Retry-After: {value}")))
            got = await client.get()
            assert (got.status, got.body) in {(200, b"fine"), (503, b"later")}, value
        await last_logged(proxy, len(NASTY_HINTS))
        attempts = [len(record["attempts"]) for record in proxy.log]
        assert max(attempts) == 2
        assert sum(attempts) == len(upstream.requests)


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_429_is_obeyed_and_counted(count: int) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, RETRY)) as proxy:
        upstream.script(*[answer(response(429, b"slow down", "Retry-After: 0.03"))] * count)
        async with proxy.client() as client:
            got = await client.request("POST", "/", body=b"refused, so it has not run")
        assert got.status == (200 if count < 3 else 429)
        assert got.get("Retry-After") == (None if count < 3 else "0.03")
        assert got.get("Holdfast-Attempts") == str(min(count + 1, 3))
        times = [arrived.at for arrived in upstream.requests]
        assert len(times) == min(count + 1, 3)
        assert all(later - earlier >= 0.03 for earlier, later in pairwise(times))


async def test_an_answer_that_came_before_the_body_was_read_does_not_cost_the_body() -> None:
    body = bytes(range(256)) * 2000
    route = f"buffer: 1MiB\n{RETRY}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        upstream.script(answer_early(response(503, b"no")))
        async with proxy.client() as client:
            got = await client.request("PUT", "/", body=body)
        assert (got.status, got.get("Holdfast-Attempts")) == (200, "2")
        assert upstream.requests[1].body == body
        assert outcomes(await last_logged(proxy)) == ["5xx", "2xx"]


# It fails for good, and everybody wants something of it.


async def test_a_permanent_failure_under_load_is_bounded_by_attempts_and_budget() -> None:
    callers, ratio, reserve = 300, 0.2, 10
    async with (
        ScriptedUpstream(DOWN) as upstream,
        running(one_route(upstream, RETRY)) as proxy,
    ):
        at_once = asyncio.Semaphore(50)

        async def call() -> None:
            async with at_once:
                got = await proxy.get()
            assert (got.status, got.body) == (503, b"down")

        await asyncio.gather(*(call() for _ in range(callers)))
        log = await proxy.logged(callers)
        attempts = [len(record["attempts"]) for record in log]
        assert max(attempts) <= 3
        assert sum(attempts) == len(upstream.requests)
        retries = len(upstream.requests) - callers
        assert reserve <= retries <= ratio * callers + reserve
        metrics = await proxy.metrics()
        verdicts = "holdfast_retry_verdicts_total"
        assert metrics.total(verdicts, reason="retried") == retries
        refused = metrics.total(verdicts, reason="budget")
        assert refused + metrics.total(verdicts, reason="attempts_exhausted") == callers
        assert refused > 0
        # It recovers without a restart.
        upstream.usual = answer(ok())
        assert (await proxy.get()).status == 200


# Its client does not stay.


async def assert_given_up(proxy: RunningProxy, upstream: ScriptedUpstream, phase: str) -> None:
    """The request is over long before its wait would be, and nothing of it is left."""
    record = await last_logged(proxy)
    assert record["code"] == 499
    assert whys(record) == ["client_gone"]
    assert record["duration_ms"] < 10_000
    assert len(upstream.requests) == len(record["attempts"]) == 1
    metrics = await proxy.metrics()
    assert metrics.total("holdfast_client_disconnects_total", phase=phase) == 1
    assert metrics.total("holdfast_retry_verdicts_total", reason="client_gone") == 1
    assert metrics.total("holdfast_retry_verdicts_total") == 1


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("way", ["reset", "close"])
async def test_a_client_that_leaves_during_the_wait_ends_it(method: str, way: str) -> None:
    route = f"timeout: 60s\n{LONG_WAIT}"
    async with ScriptedUpstream(DOWN) as upstream, running(one_route(upstream, route)) as proxy:
        async with proxy.client() as client:
            await client.send(request(method, "/", body=b"payload" if method == "PUT" else None))
            await upstream.seen()
            # Promised to this request, until it leaves: the reserve, and a fifth of it.
            await until_left(proxy, 10.2 - 1)
            if way == "reset":
                client.wire.reset()
            else:
                client.wire.close()
            await assert_given_up(proxy, upstream, "backoff")
        await until_left(proxy, 10.2)


async def until_left(proxy: RunningProxy, retries: float) -> None:
    """Wait until the budget has that many *retries* left."""
    async with asyncio.timeout(5):
        while (await proxy.metrics()).total(BUDGET_LEFT) != pytest.approx(retries):
            pass


async def test_within_50_ms_of_a_client_s_leaving_its_wait_is_over() -> None:
    elapsed = []
    async with ScriptedUpstream(DOWN) as upstream, running(one_route(upstream, LONG_WAIT)) as proxy:
        for n in range(1, 4):
            async with proxy.client() as client:
                await client.send(request("GET", "/"))
                await upstream.seen(n)
                await until_left(proxy, 10 + 0.2 * n - 1)
                client.wire.reset()
                began = now()
                await eventually(lambda: in_flight(proxy) == 0)
                elapsed.append(now() - began)
        assert len(upstream.requests) == 3
    # The best of three, because this machine may have other things to do.
    assert min(elapsed) < 0.05


def in_flight(proxy: RunningProxy) -> int:
    routes: dict[str, dict[str, int]] = proxy.status()["routes"]  # type: ignore[assignment]  # JSON
    return routes["all"]["in_flight"]


@pytest.mark.parametrize("ending", [reset, DOWN])
async def test_a_client_that_leaves_while_the_upstream_works_gets_no_retry(
    ending: Behaviour,
) -> None:
    left = asyncio.Event()

    async def end_when_it_has_left(visit: Visit) -> None:
        await left.wait()
        await ending(visit)

    async with (
        ScriptedUpstream(end_when_it_has_left) as upstream,
        running(one_route(upstream, RETRY)) as proxy,
    ):
        async with proxy.client() as client:
            await client.send(request("GET", "/"))
            await upstream.seen()
            client.wire.reset()
            await assert_given_up(proxy, upstream, "upstream")
        left.set()
        await eventually(lambda: not upstream.open_connections)
        assert len(upstream.requests) == 1
