"""Cancelled is not failed: the client leaves, or we shut down, wherever the attempts are.

No further attempt is made, what was held is let go, and the numbers still add up.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.support import (
    PATIENCE,
    End,
    RawClient,
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_hang,
    answer_early,
    both_loops,
    eventually,
    hang,
    now,
    ok,
    one_route,
    real_time,
    request,
    response,
    running,
    subprocess_proxy,
    virtual_time,
)
from tests.support.leftovers import is_discarding, leftovers, nothing_left
from tests.support.ports import black_hole
from tests.support.proxies import LogRecord
from tests.support.records import last_logged, outcomes
from tests.support.witness import soon

pytestmark = virtual_time


AT_ONCE = 0.05
FULL_BUDGET = 10.2
"""What a budget of the usual size allows after one request."""

LONG_WAIT = "retry: {backoff: {strategy: constant, base: 20s, jitter: none}}"
NO_WAIT = "retry: {backoff: {strategy: constant, base: 1ms, jitter: none}}"

unavailable = answer(response(503, b"not now"))


def reasons(record: LogRecord) -> list[str]:
    return [attempt["why"] for attempt in record["attempts"]]


async def budget_left(proxy: RunningProxy) -> float:
    return (await proxy.metrics()).total("holdfast_retry_budget_remaining")


@asynccontextmanager
async def waiting(
    route: str = LONG_WAIT, *, method: str = "PUT"
) -> AsyncIterator[tuple[RunningProxy, ScriptedUpstream, RawClient]]:
    """A request whose first attempt failed, and that waits for the second."""
    async with (
        ScriptedUpstream(unavailable) as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        await client.send(request(method, "/", body=b"kept for the next attempt"))
        await eventually(lambda: len(proxy.app._retry_waits) == 1)
        yield proxy, upstream, client


# The client leaves.


async def draining_the_response(
    upstream: ScriptedUpstream,
    proxy: RunningProxy,  # noqa: ARG001 - of each stage
    client: RawClient,
) -> None:
    """The failed response is given up, and its rest is being read."""
    upstream.script(answer_and_hang(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\npart"))
    await client.send(request("PUT", "/", body=b"kept"))
    await eventually(is_discarding)


async def waiting_for_the_second(
    upstream: ScriptedUpstream, proxy: RunningProxy, client: RawClient
) -> None:
    upstream.script(unavailable)
    await client.send(request("PUT", "/", body=b"kept"))
    await eventually(lambda: proxy.waiting_requests == 1)


async def the_second_at_work(
    upstream: ScriptedUpstream,
    proxy: RunningProxy,  # noqa: ARG001 - of each stage
    client: RawClient,
) -> None:
    upstream.script(answer(response(503, b"", "Retry-After: 0")), hang)
    await client.send(request("PUT", "/", body=b"kept"))
    await upstream.seen(2)


Stage = Callable[[ScriptedUpstream, RunningProxy, RawClient], Awaitable[None]]


@both_loops
@pytest.mark.parametrize(
    ("stage", "route", "attempts", "phase", "retries_begun"),
    [
        pytest.param(
            *(draining_the_response, LONG_WAIT, ["5xx"], "upstream", 0),
            id="while the failed response is drained",
        ),
        pytest.param(
            *(waiting_for_the_second, LONG_WAIT, ["5xx"], "backoff", 0), id="during the wait"
        ),
        pytest.param(
            *(the_second_at_work, NO_WAIT, ["5xx", "cancelled"], "upstream", 1),
            id="while the second attempt works",
        ),
    ],
)
@pytest.mark.parametrize("leave", ["reset", "close"])
async def test_a_client_that_leaves_ends_everything(
    stage: Stage,
    route: str,
    *,
    attempts: list[str],
    phase: str,
    retries_begun: int,
    leave: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.upstream.call.DISCARD_TIME", PATIENCE)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        await stage(upstream, proxy, client)
        asked = len(upstream.requests)
        if leave == "reset":
            client.wire.reset()
        else:
            client.wire.close()
        await nothing_left(proxy, clients=0)
        record = await last_logged(proxy)
        assert (record["code"], outcomes(record)) == (499, attempts)
        assert reasons(record) == ["retried"] * retries_begun + ["client_gone"]
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_client_disconnects_total", phase=phase) == 1
        assert metrics.total("holdfast_client_disconnects_total") == 1
        assert metrics.total("holdfast_retry_verdicts_total", reason="client_gone") == 1
        assert metrics.total("holdfast_retry_verdicts_total") == len(attempts)
        assert await budget_left(proxy) == pytest.approx(FULL_BUDGET - retries_begun)
        assert len(upstream.requests) == asked


async def test_a_client_that_leaves_while_the_second_attempt_dials_ends_the_dial() -> None:
    with black_hole() as port:
        async with ScriptedUpstream(unavailable) as upstream:
            urls = f"{upstream.url}, http://127.0.0.1:{port}"
            async with running(one_route(urls, NO_WAIT, options="balance: first")) as proxy:
                async with proxy.client() as client:
                    await client.send(request("PUT", "/", body=b"kept"))
                    await eventually(lambda: leftovers(proxy).get("upstream connections in use"))
                    await eventually(
                        lambda: upstream.requests and proxy.open_upstream_connections == 2
                    )
                await nothing_left(proxy, clients=0)
                record = await last_logged(proxy)
                assert outcomes(record) == ["5xx", "cancelled"]
                assert reasons(record) == ["retried", "client_gone"]
                assert not record["attempts"][1]["sent"]
                # Nothing of it was sent, so it costs nothing.
                assert await budget_left(proxy) == pytest.approx(FULL_BUDGET)


async def test_within_50_ms_nothing_is_left_of_it() -> None:
    # The best of five, because the machine may be busy with other things.
    taken = []
    for _ in range(5):
        async with waiting() as (proxy, _, client):
            began = now()
            client.wire.reset()
            await nothing_left(proxy, clients=0)
            taken.append(now() - began)
    assert min(taken) < AT_ONCE


async def test_one_of_two_that_leaves_does_not_disturb_the_other() -> None:
    backoff = "{strategy: constant, base: 80ms, jitter: none}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"retry: {{backoff: {backoff}}}")) as proxy,
        proxy.client() as leaving,
        proxy.client() as staying,
    ):
        upstream.script(unavailable, unavailable)
        await leaving.send(request("PUT", "/leaving", body=b"one"))
        await staying.send(request("PUT", "/staying", body=b"other"))
        await eventually(lambda: len(proxy.app._retry_waits) == 2)
        leaving.wire.reset()
        await eventually(lambda: len(proxy.app._retry_waits) == 1)
        assert proxy.app._listener.server.replay_memory.used == len(b"other")
        assert (await staying.response("PUT")).status == 200
        assert [r.target for r in upstream.requests][2:] == ["/staying"]
        assert upstream.requests[2].body == b"other"
        log = {record["path"]: record for record in await proxy.logged(2)}
        assert reasons(log["/leaving"]) == ["client_gone"]
        assert reasons(log["/staying"]) == ["retried", "recovered"]
        await nothing_left(proxy)


async def test_a_client_that_only_stops_sending_is_waited_for() -> None:
    backoff = "{strategy: constant, base: 30ms, jitter: none}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"retry: {{backoff: {backoff}}}")) as proxy,
        proxy.client() as client,
    ):
        upstream.script(unavailable)
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await eventually(lambda: len(proxy.app._retry_waits) == 1)
        # Bytes of its next request do not end the wait either.
        await client.send(request("GET", "/next"))
        assert [r.status for r in await client.responses(["GET", "GET"])] == [200, 200]
        assert [r.target for r in upstream.requests] == ["/", "/", "/next"]


@both_loops
@pytest.mark.parametrize(
    ("status", "why"),
    [
        pytest.param(200, "success", id="a good answer"),
        pytest.param(500, "not_retryable_status", id="a failure that is not retried"),
        pytest.param(503, "not_repeatable", id="one that may not be"),
    ],
)
async def test_leaving_in_the_moment_of_the_last_byte_changes_no_verdict(
    status: int, why: str
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, NO_WAIT)) as proxy,
        proxy.client() as client,
    ):

        async def answer_as_the_client_leaves(visit: Visit) -> None:
            await visit.read_body()
            visit.wire.write(response(status))
            client.wire.reset()

        upstream.script(answer_as_the_client_leaves)
        await client.send(request("POST", "/", body=b"order"))
        await nothing_left(proxy, clients=0)
        record = await last_logged(proxy)
        # Whichever of the two the proxy hears of first.
        assert (record["code"], reasons(record)) in [(status, [why]), (499, ["client_gone"])]


# We shut down.


async def drain(proxy: RunningProxy) -> "asyncio.Task[None]":
    """Begin to drain, as SIGTERM does."""
    draining = asyncio.create_task(proxy.app.drain())
    await eventually(lambda: proxy.app._retry_waits.is_over)
    return draining


def assert_draining(given: Response) -> None:
    assert (given.status, given.reason_word) == (503, "draining")
    assert (given.get("Retry-After"), given.get("Connection")) == ("1", "close")
    assert given.problem["attempts"] == 1


async def test_a_drain_ends_the_wait_at_once() -> None:
    taken = []
    for _ in range(3):
        async with waiting() as (proxy, upstream, client):
            began = now()
            draining = await drain(proxy)
            assert_draining(await client.response("PUT"))
            taken.append(now() - began)
            assert await client.ended() is End.CLOSED
            await draining
            [record] = await proxy.logged()
            assert reasons(record) == ["shutdown"]
            assert (record["refusal"], record["code"]) == ("draining", 503)
            assert len(upstream.requests) == 1
            assert not leftovers(proxy)
    assert min(taken) < AT_ONCE


class Gate:
    """Answers once it is opened."""

    def __init__(self, given: bytes) -> None:
        self._given = given
        self.opened = asyncio.Event()

    async def __call__(self, visit: Visit) -> None:
        await visit.read_body()
        await self.opened.wait()
        await visit.send(self._given)


@pytest.mark.parametrize(
    ("given", "status", "body", "why"),
    [
        pytest.param(response(503, b"not now"), 503, b"not now", "shutdown", id="a failure"),
        pytest.param(ok(b"done"), 200, b"done", "success", id="a good answer"),
    ],
)
async def test_an_attempt_under_way_goes_on_and_its_answer_is_relayed(
    given: bytes, status: int, body: bytes, why: str
) -> None:
    gate = Gate(given)
    async with (
        ScriptedUpstream(gate) as upstream,
        running(one_route(upstream, NO_WAIT)) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("GET", "/"))
        await upstream.seen()
        draining = await drain(proxy)
        gate.opened.set()
        relayed = await client.response()
        assert (relayed.status, relayed.body) == (status, body)
        assert relayed.get("Connection") == "close"
        await draining
        [record] = await proxy.logged()
        assert reasons(record) == [why]
        assert len(upstream.requests) == 1


async def test_a_failure_without_a_response_is_told_as_what_it_is() -> None:
    go_on = asyncio.Event()

    async def hang_up_when_told(visit: Visit) -> None:
        await go_on.wait()
        visit.wire.reset()

    async with (
        ScriptedUpstream(hang_up_when_told) as upstream,
        running(one_route(upstream, NO_WAIT)) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("GET", "/"))
        await upstream.seen()
        draining = await drain(proxy)
        go_on.set()
        assert (await client.response()).reason_word == "reset"
        await draining
        [record] = await proxy.logged()
        assert reasons(record) == ["shutdown"]


async def test_a_second_attempt_under_way_goes_on() -> None:
    gate = Gate(ok(b"done"))
    async with (
        ScriptedUpstream(gate) as upstream,
        running(one_route(upstream, NO_WAIT)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(unavailable)
        await client.send(request("GET", "/"))
        await upstream.seen(2)
        draining = await drain(proxy)
        gate.opened.set()
        relayed = await client.response()
        assert (relayed.body, relayed.get("Holdfast-Attempts")) == (b"done", "2")
        await draining
        [record] = await proxy.logged()
        assert reasons(record) == ["retried", "recovered"]


async def test_while_readiness_fails_and_requests_still_come_waits_go_on() -> None:
    backoff = "{strategy: constant, base: 30ms, jitter: none}"
    config = ("drain_delay: 300ms", f"retry: {{backoff: {backoff}}}")
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, config[1], top=config[0])) as proxy,
        proxy.client() as client,
    ):
        draining = asyncio.create_task(proxy.app.drain())
        await eventually(lambda: proxy.app.operations.not_ready() == "draining")
        upstream.script(unavailable)
        assert (await client.get()).status == 200
        assert len(upstream.requests) == 2
        await draining


@pytest.mark.parametrize("stage", ["during the wait", "while the second attempt works"])
async def test_stopping_at_once_ends_it_too(stage: str) -> None:
    route = LONG_WAIT if stage == "during the wait" else NO_WAIT
    async with (
        ScriptedUpstream(unavailable) as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(unavailable, hang)
        await client.send(request("GET", "/"))
        if stage == "during the wait":
            await eventually(lambda: len(proxy.app._retry_waits) == 1)
        else:
            await upstream.seen(2)
        began = now()
        await proxy.app.stop_at_once()
        assert now() - began < 1
        assert (await client.response()).reason_word == "draining"
        [record] = await proxy.logged()
        assert reasons(record)[-1] == "shutdown"
        assert not leftovers(proxy)


@real_time  # a process of its own
async def test_a_second_signal_during_the_wait_ends_the_process() -> None:
    async with ScriptedUpstream(unavailable) as upstream:
        # The first signal lets everything go on for as long as drain_delay says.
        config = one_route(upstream, LONG_WAIT, top="drain_delay: 30s")
        async with subprocess_proxy(config) as proxy, proxy.client() as client:
            await client.send(request("GET", "/"))
            await upstream.seen()
            proxy.signal(signal.SIGTERM)
            await eventually(lambda: '"draining"' in proxy.errors)
            assert client.is_silent
            proxy.signal(signal.SIGTERM)
            assert (await client.response()).reason_word == "draining"
            assert await proxy.exit_status() == 1
            assert len(upstream.requests) == 1
            assert "Traceback" not in proxy.errors
            [record] = proxy.log
            assert reasons(record) == ["shutdown"]


@real_time  # a process of its own
async def test_the_first_signal_ends_the_wait_of_a_process() -> None:
    async with ScriptedUpstream(unavailable) as upstream:
        config = one_route(upstream, LONG_WAIT, top="drain_timeout: 30s")
        async with subprocess_proxy(config) as proxy, proxy.client() as client:
            await client.send(request("GET", "/"))
            await upstream.seen()
            began = now()
            proxy.signal(signal.SIGTERM)
            assert (await client.response()).status == 503
            assert await proxy.exit_status() == 0
            assert now() - began < 5
            assert len(upstream.requests) == 1


async def test_a_reload_during_the_wait_leaves_the_request_its_policy() -> None:
    backoff = "{strategy: constant, base: 150ms, jitter: none}"
    async with (
        ScriptedUpstream() as old,
        ScriptedUpstream() as new,
        running(one_route(old, f"retry: {{attempts: 3, backoff: {backoff}}}")) as proxy,
        proxy.client() as client,
    ):
        old.script(unavailable)
        await client.send(request("PUT", "/", body=b"kept"))
        await eventually(lambda: len(proxy.app._retry_waits) == 1)
        text = proxy.config.read_text().replace(old.url, new.url)
        proxy.config.write_text(text.replace("attempts: 3", "attempts: 1"))
        assert (await proxy.admin("POST", "/-/reload")).status == 200
        assert len(proxy.app._retry_waits) == 1, "a reload cancels nothing"
        given = await client.response("PUT")
        assert (given.status, given.get("Holdfast-Attempts")) == (200, "2")
        assert [r.body for r in old.requests] == [b"kept"] * 2
        assert new.requests == []
        # The connection of an upstream that is configured no longer is not kept.
        await eventually(lambda: old.open_connections == [])
        await nothing_left(proxy)
        assert (await client.get()).status == 200
        assert len(new.requests) == 1


# At every moment of a request's life.

STEPS = 50
MOST_SWEEPS = 10
SWEPT = """
buffer: 64KiB
retry: {attempt_timeout: 2s, backoff: {strategy: constant, base: 8ms, jitter: none}}
"""
SWEPT_BUDGET = "budget: {ratio: 0.5, min_per_second: 10, window: 60s}"


class InItsOwnTime:
    """Fails the first attempt of each target and answers the second, all in small steps."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()

    async def __call__(self, visit: Visit) -> None:
        target = visit.request.target
        self.attempts[target] += 1
        status = 503 if self.attempts[target] == 1 else 200
        await visit.read_body()
        await asyncio.sleep(0.005)
        await visit.send(f"HTTP/1.1 {status} So\r\nContent-Length: 8\r\n\r\nhalf".encode())
        await asyncio.sleep(0.005)
        await visit.send(b"half")


async def all_phases_met(proxy: RunningProxy) -> bool:
    """Whether a client has left during each of them."""
    metrics = await proxy.metrics()
    name = "holdfast_client_disconnects_total"
    phases = ("body", "upstream", "backoff", "response")
    return all(metrics.total(name, phase=phase) for phase in phases)


async def leave_after(milliseconds: int, client: RawClient, target: str) -> None:
    """Upload in two halves, and be gone after so long, whatever has come of it."""

    async def upload() -> None:
        await client.send(request("PUT", target, "Content-Length: 8", body=b"half"))
        await asyncio.sleep(0.005)
        await client.send(b"half")

    uploading = asyncio.create_task(upload())
    await asyncio.sleep(milliseconds / 1000)
    uploading.cancel()
    await asyncio.wait([uploading])
    if milliseconds % 2:
        client.wire.reset()
    else:
        client.wire.close()


@both_loops
async def test_leaving_at_any_millisecond_leaves_nothing_behind_and_the_numbers_right() -> None:
    behaviour = InItsOwnTime()
    async with (
        ScriptedUpstream(behaviour) as upstream,
        running(one_route(upstream, SWEPT, options=SWEPT_BUDGET)) as proxy,
    ):
        sweeps = 0
        while sweeps == 0 or not await all_phases_met(proxy):
            for milliseconds in range(STEPS):
                async with proxy.client() as client:
                    await leave_after(milliseconds, client, f"/{sweeps}/{milliseconds}")
                    await nothing_left(proxy, clients=0)
            sweeps += 1
            # A busy machine may pass over a phase of a few milliseconds, but not for ever.
            assert sweeps < MOST_SWEEPS, "the sweep has to go through all phases to prove something"
        async with proxy.client() as client:
            stayed = await client.request("PUT", "/stays", body=b"halfhalf")
            assert (stayed.status, stayed.get("Holdfast-Attempts")) == (200, "2")

        metrics = await proxy.metrics()
        log = await proxy.logged(int(metrics.total("holdfast_requests_total")))
        await last_logged(proxy, len(log))
        for record in log:
            whys = reasons(record)
            assert whys[:-1] == ["retried"] * (len(whys) - 1)
            assert (record["code"], whys[-1]) in {(200, "recovered"), (499, "client_gone")}
            assert len(whys) == len(record["attempts"]) <= 2
            # What reached the upstream is on record; the last may not have got so far.
            assert len(whys) - behaviour.attempts[record["path"]] in {0, 1}

        attempts = [attempt for record in log for attempt in record["attempts"]]
        retries = sum(attempt["n"] == 2 for attempt in attempts)
        assert metrics.total("holdfast_retry_verdicts_total") == len(attempts)
        left = sum(record["code"] == 499 for record in log)
        disconnects = "holdfast_client_disconnects_total"
        assert metrics.total(disconnects) == left
        in_wait = metrics.total(disconnects, phase="backoff")
        assert metrics.total("holdfast_retry_wait_seconds_count") == in_wait + retries
        # A client that left while its retry was still connecting gets the charge back.
        sent = sum(attempt["n"] == 2 and attempt["sent"] for attempt in attempts)
        assert await budget_left(proxy) == pytest.approx(600 + 0.5 * len(log) - sent)


@real_time  # asks the kernel whether the client has left
@pytest.mark.parametrize(
    ("first", "rest"),
    [
        pytest.param(
            b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n",
            b"x" * 300_000,
            id="in the middle of a large body",
        ),
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n" * 2000,
            id="with many requests to come",
        ),
    ],
)
async def test_a_client_that_leaves_is_noticed_though_nothing_is_read_from_it(
    first: bytes, rest: bytes
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "retry: true", options="budget: false")) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer_early(response(429, b"", "Retry-After: 3")))
        await client.send(first)
        await eventually(lambda: proxy.waiting_requests == 1, what="the wait")
        client.wire.write(rest)
        await asyncio.sleep(0.05)
        client.wire.reset()
        await soon(eventually(lambda: proxy.waiting_requests == 0, what="its end"), 1)
        assert len(upstream.requests) == 1
        upstream.violations.clear()  # a body that never came
