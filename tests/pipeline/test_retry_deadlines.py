"""Time: the whole exchange has a limit, each attempt may have one, the client's own time is free.

In virtual time: nothing but timers takes any.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support import (
    Behaviour,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    hang,
    now,
    ok,
    one_route,
    request,
    response,
    running,
    virtual_time,
)
from tests.support.leftovers import nothing_left
from tests.support.ports import black_hole
from tests.support.proxies import LogRecord
from tests.support.records import last_logged, outcomes

pytestmark = virtual_time

LONG = 5.0
"""Seconds that nobody in here waits for."""
GRAIN = 1
"""Milliseconds by which an attempt may seem shorter than its limit: its record begins a
moment after its limit does, and the loop's own timers count whole milliseconds."""
NOT_WORTH_IT = 12
"""Milliseconds that are too few for another attempt, and the wait before it."""

unavailable = answer(response(503, b"not now"))


def reasons(record: LogRecord) -> list[str]:
    return [attempt["why"] for attempt in record["attempts"]]


def retrying(route: str = "", **settings: object) -> str:
    """A route that waits 1 ms between attempts, unless *settings* say otherwise."""
    usual = {"backoff": "{strategy: constant, base: 1ms, jitter: none}"}
    inside = ", ".join(f"{key}: {value}" for key, value in (usual | settings).items())
    return f"retry: {{{inside}}}\n{route}"


@asynccontextmanager
async def stage(
    usual: Behaviour, route: str, options: str = ""
) -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    """An upstream and a proxy; at the end nothing is left of any request."""
    async with (
        ScriptedUpstream(usual) as upstream,
        running(one_route(upstream, route, options=options)) as proxy,
    ):
        yield upstream, proxy
        await nothing_left(proxy)


# The whole exchange.


async def test_the_timeout_bounds_all_attempts_together() -> None:
    async with stage(hang, retrying("timeout: 600ms", attempts=50, attempt_timeout="160ms")) as (
        upstream,
        proxy,
    ):
        given = await proxy.get()
        assert given.reason_word == "timeout"
        record = await last_logged(proxy)
        # 160 ms each: the fourth is cut short, or on a slow machine an earlier one.
        assert 2 <= len(upstream.requests) <= 4
        assert set(outcomes(record)) == {"timeout"}
        assert reasons(record)[-1] == "deadline"
        assert 600 - NOT_WORTH_IT <= record["duration_ms"] < LONG * 1000
        assert given.get("Holdfast-Attempts") == str(len(record["attempts"]))


async def test_the_timeout_bounds_attempts_and_waits_together() -> None:
    backoff = "{strategy: constant, base: 240ms, jitter: none}"
    async with stage(unavailable, retrying("timeout: 800ms", attempts=50, backoff=backoff)) as (
        upstream,
        proxy,
    ):
        given = await proxy.get()
        # A wait that would not leave time for an attempt is not begun.
        assert (given.status, given.body) == (503, b"not now")
        record = await last_logged(proxy)
        assert 2 <= len(upstream.requests) <= 4
        assert reasons(record)[-1] == "deadline"
        assert record["duration_ms"] >= (len(upstream.requests) - 1) * 240


async def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    backoff = f"{{strategy: constant, base: {LONG:g}s, max: 1m, jitter: none}}"
    async with stage(unavailable, retrying("timeout: 4s", backoff=backoff)) as (_, proxy):
        began = now()
        assert (await proxy.get()).body == b"not now"
        assert now() - began < 1
        assert reasons(await last_logged(proxy)) == ["deadline"]


async def test_told_to_come_back_after_the_deadline_the_client_hears_of_it_at_once() -> None:
    limited = answer(response(429, b"slow down", "Retry-After: 30"))
    async with stage(limited, retrying("timeout: 2s")) as (upstream, proxy):
        given = await proxy.get()
        assert (given.status, given.body, given.get("Retry-After")) == (429, b"slow down", "30")
        assert given.get("Holdfast-Attempts") is None
        record = await last_logged(proxy)
        assert record["duration_ms"] < 1000
        assert reasons(record) == ["deadline"]
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("configured", "asked", "expected_ms"),
    [
        pytest.param("10s", "60ms", 60, id="shorter than the route's it counts"),
        pytest.param("60ms", "10s", 60, id="longer than the route's it does not"),
        pytest.param("none", "60ms", 60, id="where the route has none it counts"),
    ],
)
async def test_a_client_can_only_shorten_the_time(
    configured: str, asked: str, expected_ms: int
) -> None:
    route = retrying(f"timeout: {configured}", attempts=50, attempt_timeout="45ms")
    async with stage(hang, route) as (upstream, proxy):
        given = await proxy.get("/", f"Holdfast-Timeout: {asked}")
        assert given.reason_word == "timeout"
        record = await last_logged(proxy)
        assert expected_ms - NOT_WORTH_IT <= record["duration_ms"] < LONG * 1000
        assert reasons(record)[-1] == "deadline"
        assert 1 <= len(upstream.requests) <= 2


async def test_a_client_that_grants_no_time_gets_no_attempt() -> None:
    async with stage(answer(ok()), retrying()) as (upstream, proxy):
        assert (await proxy.get("/", "Holdfast-Timeout: 0s")).reason_word == "timeout"
        assert upstream.requests == []
        assert (await proxy.get("/", "Holdfast-Timeout: 10s")).status == 200


async def test_time_that_a_client_grants_bounds_its_retries() -> None:
    backoff = "{strategy: constant, base: 2s, max: 1m, jitter: none}"
    async with stage(unavailable, retrying(backoff=backoff)) as (upstream, proxy):
        given = await proxy.get("/", "Holdfast-Timeout: 1s")
        assert given.body == b"not now"
        assert reasons(await last_logged(proxy)) == ["deadline"]
        assert len(upstream.requests) == 1


async def test_a_response_under_way_is_beyond_the_deadline() -> None:
    async def slowly(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
        await asyncio.sleep(0.5)
        await visit.send(b"half")

    route = retrying("timeout: 300ms", attempt_timeout="250ms")
    async with stage(slowly, route) as (_, proxy):
        given = await proxy.get()
        assert (given.status, given.body) == (200, b"halfhalf")
        assert reasons(await last_logged(proxy)) == ["success"]


# The client's own time.

HEAD = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n"


async def upload_slowly(proxy: RunningProxy, upstream: ScriptedUpstream, pause: float) -> LogRecord:
    """Send a body in two halves, *pause* seconds apart; it must succeed."""
    async with proxy.client() as client:
        await client.send(HEAD + b"half")
        await eventually(lambda: upstream.requests)
        await asyncio.sleep(pause)
        await client.send(b"half")
        given = await client.response("PUT")
    assert given.status == 200
    assert {r.body for r in upstream.requests if r.complete} == {b"halfhalf"}
    return await last_logged(proxy)


async def test_the_clients_upload_does_not_count_against_the_retry() -> None:
    async with stage(answer(ok()), retrying("timeout: 300ms")) as (upstream, proxy):
        upstream.script(unavailable)
        record = await upload_slowly(proxy, upstream, 0.5)
        assert reasons(record) == ["retried", "recovered"]
        assert record["duration_ms"] >= 500


async def test_nor_against_the_attempt() -> None:
    async with stage(answer(ok()), retrying(attempt_timeout="250ms")) as (upstream, proxy):
        record = await upload_slowly(proxy, upstream, 0.5)
        assert reasons(record) == ["success"]


async def test_nor_while_an_early_answer_is_judged() -> None:
    go_on = asyncio.Event()

    async def answer_inside_the_upload(visit: Visit) -> None:
        await go_on.wait()
        await visit.send(response(503, b"not now"))
        await visit.until_the_peer_leaves()

    async with (
        stage(answer(ok()), retrying("timeout: 250ms")) as (upstream, proxy),
        proxy.client() as client,
    ):
        upstream.script(answer_inside_the_upload)
        await client.send(HEAD + b"half")
        await eventually(lambda: upstream.requests)
        await asyncio.sleep(0.4)
        go_on.set()
        # The second attempt begins while half of the body is still to come.
        await eventually(lambda: len(upstream.requests) == 2)
        await client.send(b"half")
        assert (await client.response("PUT")).status == 200
        assert upstream.requests[1].body == b"halfhalf"
        assert reasons(await last_logged(proxy)) == ["retried", "recovered"]


async def test_an_attempt_after_the_upload_has_its_own_time_and_no_more() -> None:
    route = retrying("timeout: 10s", attempts=2, attempt_timeout="80ms")
    async with stage(hang, route) as (upstream, proxy), proxy.client() as client:
        await client.send(HEAD + b"half")
        await eventually(lambda: upstream.requests)
        await asyncio.sleep(0.3)
        await client.send(b"half")
        assert (await client.response("PUT")).reason_word == "timeout"
        record = await last_logged(proxy)
        assert outcomes(record) == ["timeout", "timeout"]
        first, second = record["attempts"]
        # What was granted for the upload is not granted a second time.
        assert first["ms"] >= 370 > second["ms"] >= 80 - GRAIN
        assert {r.body for r in upstream.requests} == {b"halfhalf"}


# One attempt.


async def test_an_attempt_that_takes_too_long_is_closed_and_repeated() -> None:
    async with stage(answer(ok()), retrying(attempt_timeout="50ms")) as (upstream, proxy):
        upstream.script(hang)
        given = await proxy.get()
        assert (given.status, given.get("Holdfast-Attempts")) == (200, "2")
        record = await last_logged(proxy)
        assert outcomes(record) == ["timeout", "2xx"]
        assert reasons(record) == ["retried", "recovered"]
        assert 50 - GRAIN <= record["attempts"][0]["ms"] < LONG * 1000
        # Its connection might still bring its answer, so it is not used again.
        assert [connection.requests for connection in upstream.open_connections] == [
            [upstream.requests[1]]
        ]


async def test_a_post_that_took_too_long_is_not_repeated() -> None:
    async with stage(hang, retrying(attempt_timeout="50ms")) as (upstream, proxy):
        async with proxy.client() as client:
            given = await client.request("POST", "/", body=b"order")
        assert (given.status, given.reason_word) == (504, "timeout")
        record = await last_logged(proxy)
        assert (outcomes(record), reasons(record)) == (["timeout"], ["not_repeatable"])
        assert len(upstream.requests) == 1


async def test_each_attempt_gets_the_whole_time() -> None:
    route = retrying(attempts=3, attempt_timeout="60ms")
    async with stage(hang, route) as (_, proxy):
        assert (await proxy.get()).reason_word == "timeout"
        record = await last_logged(proxy)
        assert outcomes(record) == ["timeout"] * 3
        assert all(attempt["ms"] >= 60 - GRAIN for attempt in record["attempts"])
        assert reasons(record) == ["retried", "retried", "attempts_exhausted"]


async def test_the_wait_between_attempts_does_not_count_against_them() -> None:
    backoff = "{strategy: constant, base: 150ms, jitter: none}"
    route = retrying(attempt_timeout="100ms", backoff=backoff)
    async with stage(answer(ok()), route) as (upstream, proxy):
        upstream.script(unavailable)
        assert (await proxy.get()).status == 200
        assert reasons(await last_logged(proxy)) == ["retried", "recovered"]


async def test_a_dial_that_takes_too_long_is_a_connect_failure_of_its_address() -> None:
    route = retrying(attempts=2, attempt_timeout="60ms")
    with black_hole() as port:
        async with running(one_route(f"http://127.0.0.1:{port}", route)) as proxy:
            async with proxy.client() as client:
                # Nothing was sent, so even this is repeated.
                given = await client.request("POST", "/", body=b"order")
            assert given.reason_word == "connect"
            record = await last_logged(proxy)
            assert outcomes(record) == ["connect", "connect"]
            assert all(attempt["ms"] >= 60 - GRAIN for attempt in record["attempts"])
            [address] = proxy.status()["addresses"]["scripted"]  # type: ignore[index]  # JSON
            assert address["failing"]
            await nothing_left(proxy)


async def test_an_attempt_whose_time_ran_out_while_it_waited_for_a_place_is_not_sent() -> None:
    """A stale connection's place goes to another request, and comes back too late.

    The attempt that takes the stale one's place has its own time.
    """
    goes_stale, answered = asyncio.Event(), asyncio.Event()

    async def end_when_told(visit: Visit) -> None:
        await goes_stale.wait()
        visit.wire.reset()

    async def answer_when_told(visit: Visit) -> None:
        await answered.wait()
        await visit.send(ok(b"from the other"))

    route = retrying(attempts=2, attempt_timeout="600ms")
    patient = "routes:\n  - {name: patient, match: /patient, upstream: scripted}\n"
    async with ScriptedUpstream() as upstream:
        config = one_route(upstream, route, options="max_connections: 1")
        config = config.replace("routes:\n", patient)
        async with running(config) as proxy, proxy.client() as client, proxy.client() as other:
            await client.get("/opens-the-connection")
            upstream.script(end_when_told, answer_when_told)
            began = now()
            await client.send(request("GET", "/"))
            await upstream.seen(2)
            await other.send(request("GET", "/patient"))
            await asyncio.sleep(0.2)
            goes_stale.set()
            await upstream.seen(3)
            assert (await client.response()).status == 503
            assert now() - began >= 0.8
            answered.set()
            assert (await other.response()).body == b"from the other"
            record = (await proxy.logged(3))[-2]
            assert outcomes(record) == ["reset", "busy"]
            assert [attempt["sent"] for attempt in record["attempts"]] == [True, False]
            assert reasons(record) == ["retried", "not_retryable_kind"]
            await nothing_left(proxy)
