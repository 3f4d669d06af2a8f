"""D5: steps that are retried mechanically, by the category of the error alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.policy.attempt import FailureKind
from proxy.policy.repeatable import ANYWHERE
from proxy.policy.retry.verdict import AttemptResult, RequestFacts
from tests.designs.design import Design, verdicts, waited
from tests.support import (
    Behaviour,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_close,
    eventually,
    hang,
    hang_up,
    ok,
    request,
    reset,
    response,
)
from tests.support.ports import refusing_port
from tests.support.records import last_logged, outcomes

DESIGN = Design("execution-runner.yaml")

STEP = "/steps/7"
UPLOAD = "/uploads/7"
PAYOUT = "/payouts/7"
UNAVAILABLE = answer(response(503, b"try later"))

UNENDING = "1h"
"""An interval that no test sees the end of."""


def overlay(url: str, *, interval: str = "1ms", attempt_timeout: str = "20s") -> str:
    """Leads to *url*; steps wait for *interval*, those at ``/uploads`` for 2 ms of their own."""
    return f"""
        upstreams: {{executor: {{urls: ["{url}"]}}}}
        defaults:
          timeout: 2h
          retry:
            attempt_timeout: {attempt_timeout}
            backoff: {{base: {interval}, max: {UNENDING}}}
        policies: {{stubborn: {{retry: {{backoff: {{base: 2ms}}}}}}}}
    """


@asynccontextmanager
async def stage(
    *, interval: str = "1ms", attempt_timeout: str = "20s"
) -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    async with (
        ScriptedUpstream() as executor,
        DESIGN.running(
            overlay(executor.url, interval=interval, attempt_timeout=attempt_timeout)
        ) as proxy,
    ):
        yield executor, proxy


# The category alone.


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(reset, id="IO error: reset"),
        pytest.param(hang_up, id="IO error: closed"),
        pytest.param(hang, id="timeout"),
        pytest.param(answer(response(500)), id="external service error: 500"),
        pytest.param(answer(response(502)), id="external service error: 502"),
        pytest.param(answer(response(503)), id="external service error: 503"),
        pytest.param(answer(response(504)), id="external service error: 504"),
    ],
)
async def test_category_that_is_retried(failure: Behaviour) -> None:
    async with stage(attempt_timeout="200ms") as (executor, proxy):
        executor.script(failure)
        assert (await proxy.get(STEP)).status == 200
        assert len(executor.requests) == 2
        assert verdicts(await last_logged(proxy)) == ["retried", "recovered"]


async def test_category_io_error_no_connection_is_retried() -> None:
    with refusing_port() as port:
        async with DESIGN.running(overlay(f"http://127.0.0.1:{port}")) as proxy:
            assert (await proxy.get(STEP)).reason_word == "connect"
            assert outcomes(await last_logged(proxy)) == 3 * ["connect"]


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        pytest.param(answer(response(404)), 404, id="not found: 404"),
        pytest.param(answer(response(410)), 410, id="not found: 410"),
        pytest.param(answer(response(401)), 401, id="permission denied: 401"),
        pytest.param(answer(response(403)), 403, id="permission denied: 403"),
        pytest.param(answer(response(400)), 400, id="contract violation: 400"),
        pytest.param(answer(response(422)), 422, id="contract violation: 422"),
        pytest.param(
            answer_and_close(b"this is no HTTP\r\n\r\n"), 502, id="contract violation: no HTTP"
        ),
        pytest.param(answer(response(418)), 418, id="unknown: 418"),
        pytest.param(answer(response(501)), 501, id="unknown: 501"),
        pytest.param(answer(response(429)), 429, id="unknown: 429"),
    ],
)
async def test_category_that_is_not_retried(failure: Behaviour, status: int) -> None:
    async with stage() as (executor, proxy):
        executor.usual = failure
        assert (await proxy.get(STEP)).status == status
        assert len(executor.requests) == 1
        assert len((await last_logged(proxy))["attempts"]) == 1


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_of_failure_has_its_answer(kind: FailureKind) -> None:
    verdict = DESIGN.rules("/**").by_outcome(RequestFacts(ANYWHERE), AttemptResult(kind))
    assert (verdict is ANYWHERE) == (
        kind in {FailureKind.CONNECT, FailureKind.RESET, FailureKind.TIMEOUT}
    )


@pytest.mark.parametrize(
    ("failure", "attempts"),
    [
        pytest.param(response(404, b"timeout, please retry"), 1, id="a 404 that begs for it"),
        pytest.param(response(503, b"permanent, do not retry"), 3, id="a 503 that forbids it"),
        pytest.param(response(503, b"", "Retry-After: 3600"), 3, id="a 503 that wants an hour"),
    ],
)
async def test_the_text_of_an_error_decides_nothing(failure: bytes, attempts: int) -> None:
    async with stage() as (executor, proxy):
        executor.usual = answer(failure)
        await proxy.get(STEP)
        assert len(executor.requests) == attempts


async def test_in_doubt_a_step_is_not_retried() -> None:
    """A POST that was answered with 503 may have run."""
    async with stage() as (executor, proxy), proxy.client() as client:
        executor.usual = UNAVAILABLE
        assert (await client.request("POST", STEP, body=b"run")).status == 503
        assert len(executor.requests) == 1
        assert verdicts(await last_logged(proxy)) == ["not_repeatable"]


# The fixed form, and who has the last word.


def test_the_interval_is_1_s_and_stays_so() -> None:
    assert DESIGN.retry("/**").attempts == 3
    assert DESIGN.waits("/**", 3) == [1, 1, 1]


async def test_a_step_that_is_not_enabled_gets_one_attempt() -> None:
    async with stage() as (executor, proxy):
        executor.usual = UNAVAILABLE
        assert (await proxy.get(PAYOUT)).status == 503
        assert len(executor.requests) == 1


async def test_the_policy_of_a_step_beats_the_default() -> None:
    assert DESIGN.retry("/uploads/**").attempts == 4
    assert DESIGN.waits("/uploads/**", 3) == [5, 5, 5]
    async with stage() as (executor, proxy):
        executor.usual = UNAVAILABLE
        assert (await proxy.get(UPLOAD)).status == 503
        assert len(executor.requests) == 4
        assert waited(await last_logged(proxy)) == [2, 2, 2]


# The executor does not know.


async def test_the_upstream_receives_byte_identical_attempts() -> None:
    body = bytes(range(256)) * 64
    async with stage() as (executor, proxy), proxy.client() as client:
        executor.script(UNAVAILABLE, reset, answer(ok()))
        fields = ("Idempotency-Key: k-1", "X-Order: 1", "x-order: 2")
        assert (await client.request("PUT", f"{STEP}?a=%7e", *fields, body=body)).status == 200
        assert len(executor.requests) == 3
        assert len({request.raw_head for request in executor.requests}) == 1
        assert {request.body for request in executor.requests} == {body}


# A record for each attempt.


async def test_three_attempts_are_three_records() -> None:
    async with stage() as (executor, proxy):
        executor.script(reset, UNAVAILABLE, answer(response(500)))
        assert (await proxy.get(STEP)).status == 500
        attempts = (await last_logged(proxy))["attempts"]
        assert [(a["n"], a["outcome"], a["status"], a["why"]) for a in attempts] == [
            (1, "reset", None, "retried"),
            (2, "5xx", 503, "retried"),
            (3, "5xx", 500, "attempts_exhausted"),
        ]
        assert [a.get("wait_ms") for a in attempts] == [None, 1, 1]
        limits = [ms for a in attempts for ms in (a["start_ms"], a["start_ms"] + a["ms"])]
        assert limits == sorted(limits)


# Cancelled is not failed.


async def test_a_client_that_leaves_during_the_wait_gets_no_further_attempt() -> None:
    async with stage(interval=UNENDING) as (executor, proxy):
        executor.usual = UNAVAILABLE
        async with proxy.client() as client:
            await client.send(request("GET", STEP))
            await eventually(lambda: proxy.waiting_requests)
        await eventually(lambda: not proxy.waiting_requests, what="the end of the wait")
        record = await last_logged(proxy)
        assert (record["code"], verdicts(record)) == (499, ["client_gone"])
        assert len(executor.requests) == 1
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_client_disconnects_total", phase="backoff") == 1


async def test_a_shutdown_during_the_wait_ends_it_without_a_further_attempt() -> None:
    async with stage(interval=UNENDING) as (executor, proxy), proxy.client() as client:
        executor.usual = UNAVAILABLE
        await client.send(request("GET", STEP))
        await eventually(lambda: proxy.waiting_requests)
        await proxy.app.drain()
        client_got = await client.response()
        assert (client_got.status, client_got.reason_word) == (503, "draining")
        [record] = await proxy.logged()
        assert verdicts(record) == ["shutdown"]
        assert len(executor.requests) == 1


async def test_a_timeout_from_outside_is_not_retried() -> None:
    async with stage() as (executor, proxy):
        executor.usual = hang
        client_got = await proxy.get(STEP, "Holdfast-Timeout: 50ms")
        assert (client_got.status, client_got.reason_word) == (504, "timeout")
        assert len(executor.requests) == 1
        assert verdicts(await last_logged(proxy)) == ["deadline"]


async def test_of_two_steps_at_once_the_one_that_is_cancelled_ends_and_the_other_goes_on() -> None:
    first_is_gone = asyncio.Event()

    async def fail_after_that(visit: Visit) -> None:
        await first_is_gone.wait()
        await UNAVAILABLE(visit)

    async with stage(interval=UNENDING) as (executor, proxy), proxy.client() as second:
        executor.script(UNAVAILABLE, fail_after_that, answer(ok()))
        async with proxy.client() as first:
            await first.send(request("GET", STEP))
            await eventually(lambda: proxy.waiting_requests)
            await second.send(request("GET", UPLOAD))
            await executor.seen(2)
        await proxy.logged()
        first_is_gone.set()
        assert (await second.response()).status == 200
        assert [request.target for request in executor.requests] == [STEP, UPLOAD, UPLOAD]
        log = {record["path"]: verdicts(record) for record in await proxy.logged(2)}
        assert log == {STEP: ["client_gone"], UPLOAD: ["retried", "recovered"]}
