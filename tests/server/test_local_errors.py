"""The vectors of ``local_errors`` that need no policy: each cause, and the answer it gets."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import pytest

from tests.support import (
    End,
    Response,
    RunningProxy,
    ScriptedUpstream,
    answer,
    answer_and_hang,
    eventually,
    hang,
    hang_up,
    one_route,
    request,
    reset,
    running,
    subprocess_proxy,
    virtual_time,
)
from tests.support.witness import soon
from tests.vectors.load import group

Provoke = Callable[[ScriptedUpstream, RunningProxy], Awaitable[Response]]

ROUTE = "timeout: 100ms\nmax_body: 1KiB"
STATUSES = {case["id"]: case["status"] for case in group("local_errors")["cases"]}


def file(upstream: ScriptedUpstream) -> str:
    return one_route(upstream, ROUTE).replace("match: /**", "match: /api/**")


def send(raw: bytes) -> Provoke:
    async def provoke(_: ScriptedUpstream, proxy: RunningProxy) -> Response:
        async with proxy.client() as client:
            await client.send(raw)
            return await client.response()

    return provoke


async def unreachable(upstream: ScriptedUpstream, proxy: RunningProxy) -> Response:
    await upstream.stop()
    return await proxy.get("/api")


async def too_slow(upstream: ScriptedUpstream, proxy: RunningProxy) -> Response:
    upstream.script(hang)
    return await proxy.get("/api")


async def closes(upstream: ScriptedUpstream, proxy: RunningProxy) -> Response:
    upstream.script(hang_up)
    return await proxy.get("/api")


async def resets(upstream: ScriptedUpstream, proxy: RunningProxy) -> Response:
    upstream.script(reset)
    return await proxy.get("/api")


async def sends_garbage(upstream: ScriptedUpstream, proxy: RunningProxy) -> Response:
    upstream.script(answer(b"garbage\r\n\r\n"))
    return await proxy.get("/api")


LARGE = request("POST", "/api", body=b"x" * 2000)
LONG_FIELD = request("GET", "/api", "X-A: " + "a" * 70_000)
LOOPING = request("GET", "/api", "Via: 1.0 someone, 1.1 holdfast")

CAUSES: list[tuple[str, Provoke, str, str]] = [
    ("le-01", send(request("GET", "/nowhere")), "no_route", "destination_not_found"),
    ("le-03", send(b"garbage\r\n\r\n"), "bad_request", "http_request_error"),
    ("le-04", send(LARGE), "body_too_large", "http_request_error"),
    ("le-05", send(LONG_FIELD), "headers_too_large", "http_request_error"),
    ("le-08", unreachable, "connect", "destination_unavailable"),
    ("le-08", closes, "reset", "connection_terminated"),
    ("le-08", resets, "reset", "connection_terminated"),
    ("le-09", too_slow, "timeout", "http_response_timeout"),
    ("le-10", sends_garbage, "protocol", "http_protocol_error"),
    ("le-17", send(LOOPING), "loop", "proxy_loop_detected"),
]


@pytest.mark.parametrize(
    ("vector", "provoke", "reason", "error"),
    [pytest.param(*row, id=f"{row[0]} {row[2]} {row[1].__name__}") for row in CAUSES],
)
async def test_cause(vector: str, provoke: Provoke, reason: str, error: str) -> None:
    async with ScriptedUpstream() as upstream, running(file(upstream)) as proxy:
        response = await provoke(upstream, proxy)
        assert response.status == STATUSES[vector]
        assert response.reason_word == reason
        assert response.get("Proxy-Status") == f"holdfast; error={error}"
        assert response.get("Date")
        # No word about where the upstream is.
        assert str(upstream.port).encode() not in response.raw_head + response.body
        assert b"127.0.0.1" not in response.raw_head + response.body
        record = (await proxy.logged())[0]
        assert (record["code"], record["refusal"]) == (response.status, reason)
        code = str(response.status)
        assert (await proxy.metrics()).total("holdfast_requests_total", code=code) == 1


async def test_attempts_are_counted_in_the_answer() -> None:
    async with ScriptedUpstream(hang_up) as upstream, running(file(upstream)) as proxy:
        assert (await proxy.get("/api")).problem["attempts"] == 1
        assert "attempts" not in (await proxy.get("/nowhere")).problem


async def test_head_gets_the_head_of_the_answer_alone() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(file(upstream)) as proxy,
        proxy.client() as client,
    ):
        response = await client.request("HEAD", "/nowhere")
        assert (response.status, response.body) == (404, b"")
        assert int(response.get("Content-Length") or 0) > 0
        assert (await client.get("/api")).body == b"ok", "nothing came behind it"


async def test_le_07_too_many_connections() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top="limits: {connections: 1}")) as proxy,
        proxy.client() as first,
    ):
        assert (await first.get()).status == 200
        async with proxy.client() as second:
            response = await second.response()
            assert (response.status, response.reason_word) == (503, "overload")
            assert int(response.get("Retry-After") or 0) >= 1
            assert await second.ended() is End.CLOSED
        await eventually(lambda: proxy.client_connections == 1, what="closing the connection")
        assert (await first.get()).status == 200


async def test_le_07_draining() -> None:
    async with ScriptedUpstream(hang) as upstream:
        text = one_route(upstream, top="drain_timeout: 100ms")
        async with subprocess_proxy(text) as proxy, proxy.client() as client:
            await client.send(request("GET", "/"))
            await upstream.seen()
            proxy.signal(signal.SIGTERM)
            response = await client.response()
            assert (response.status, response.reason_word) == (503, "draining")
            assert int(response.get("Retry-After") or 0) >= 1
            assert await client.ended() is End.CLOSED
            assert await proxy.exit_status() == 0


async def test_le_19_a_client_that_left_is_told_nothing_and_counted() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer_and_hang())
        async with proxy.client() as client:
            await client.send(request("GET", "/"))
            await upstream.seen()
        record = (await proxy.logged())[0]
        assert (record["code"], record["attempts"][0]["outcome"]) == (499, "cancelled")
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_requests_total", code="499") == 1
        assert metrics.total("holdfast_client_disconnects_total", phase="upstream") == 1
        await soon(eventually(lambda: not upstream.open_connections, what="giving it up"), 1.0)


# Clients that are slow, which no vector asks for.


@virtual_time
async def test_slow_head() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top="limits: {header_timeout: 100ms}")) as proxy,
        proxy.client() as client,
    ):
        await client.send(b"GET / HTTP/1.1\r\n")
        response = await client.response()
        assert (response.status, response.reason_word) == (408, "slow_client")
        assert await client.ended() is End.CLOSED


@virtual_time
async def test_head_that_trickles_does_not_win_time() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top="limits: {header_timeout: 100ms}")) as proxy,
        proxy.client() as client,
    ):
        await client.send(b"GET / HTTP/1.1\r\n")
        for _ in range(30):
            await client.send(b"X-A: a\r\n")
            await asyncio.sleep(0.01)
        assert (await client.response()).status == 408


@virtual_time
async def test_slow_body() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idle_timeout: 100ms")) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("POST", "/", "Content-Length: 10"), b"some")
        response = await client.response("POST")
        assert (response.status, response.reason_word) == (408, "slow_client")
        assert await client.ended() is End.CLOSED
        assert not upstream.requests[0].complete
