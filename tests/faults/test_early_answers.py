"""An upstream that answers before it has read the request's body."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support import (
    Behaviour,
    Certificates,
    End,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_early,
    both_loops,
    ok,
    one_route,
    request,
    response,
    running,
    stall,
)
from tests.support.records import last_logged, outcomes

HEAD = b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"


@both_loops
@pytest.mark.parametrize(
    ("early", "status"),
    [
        pytest.param(response(413, b"too much"), 413, id="it refuses"),
        pytest.param(ok(b"enough"), 200, id="it has seen enough"),
        pytest.param(response(401, b"who are you", "Connection: close"), 401, id="and closes"),
    ],
)
async def test_it_is_passed_on_without_waiting_for_the_body(early: bytes, status: int) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer_early(early))
        await client.send(HEAD + b"the beginning")
        assert (await client.response("POST")).status == status
        assert outcomes(await last_logged(proxy)) == [f"{status // 100}xx"]
        # It still waits for a body that will never come: not to be used again.
        assert proxy.open_upstream_connections == 0


async def test_nothing_of_the_rest_is_taken_for_a_request() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer_early(response(413, b"too much")))
        await client.send(HEAD)
        assert (await client.response("POST")).status == 413
        rest = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        await client.send(rest + bytes(1000000 - len(rest)))
        assert (await client.get("/next")).body == b"ok"
        assert [r.target for r in upstream.requests] == ["/upload", "/next"]


async def test_a_whole_body_that_was_not_read_does_no_harm() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer_early(ok(b"early")))
        response = await client.request("POST", "/", body=b"short")
        assert response.body == b"early"
        assert outcomes(await last_logged(proxy)) == ["2xx"]


# The body is on its way, or lies unread in the upstream's kernel: nothing else may follow it.

SIZES = [
    pytest.param(5_000, id="5 kB"),
    pytest.param(20_000, id="20 kB"),
    pytest.param(100_000, id="100 kB"),
    pytest.param(900_000, id="900 kB"),
]


def refuse_by_the_head(data: bytes) -> Behaviour:
    """Answer from the head alone, keep the connection, and read nothing more on it."""

    async def behave(visit: Visit) -> None:
        visit.wire.stall()
        visit.wire.write(data)
        await asyncio.Event().wait()

    return behave


Send = Callable[..., Awaitable[int]]


async def send_whole(proxy: RunningProxy, size: int, *fields: str) -> int:
    async with proxy.client() as client:
        return (await client.request("POST", "/", *fields, body=bytes(size))).status


async def send_in_pieces(proxy: RunningProxy, size: int, *fields: str) -> int:
    async with proxy.client() as client:
        half = size // 2
        head = request("POST", "/", *fields, f"Content-Length: {size}")
        await client.send(head, bytes(half), bytes(size - half))
        return (await client.response("POST")).status


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("send", [send_whole, send_in_pieces])
@pytest.mark.parametrize(
    ("route", "field"),
    [
        pytest.param("timeout: 2s", "X: {}", id="plain"),
        pytest.param("timeout: 2s\nidempotency: true", "Idempotency-Key: k{}", id="keyed"),
    ],
)
async def test_the_next_client_does_not_wait_behind_a_body_that_nobody_reads(
    size: int, send: Send, route: str, field: str
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        for number in range(3):
            upstream.script(refuse_by_the_head(response(413, b"too much")))
            assert await send(proxy, size, field.format(number)) == 413
            assert (await proxy.get()).status == 200


@pytest.mark.parametrize("size", SIZES)
async def test_nor_over_tls(size: int, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    options = f"tls: {{ca: {certificates.ca}}}"
    async with (
        ScriptedUpstream(tls=certificates.for_server()) as upstream,
        running(one_route(upstream, "timeout: 2s", options=options)) as proxy,
    ):
        upstream.script(refuse_by_the_head(response(413, b"too much")))
        assert await send_whole(proxy, size) == 413
        assert (await proxy.get()).status == 200
        for _ in range(20):
            assert await send_whole(proxy, size) == 200
        assert len(upstream.connections) == 2


async def test_nor_does_the_next_client_after_an_early_success_that_left_something_unsent() -> None:
    async with (
        ScriptedUpstream(receive_buffer=4096) as upstream,
        running(one_route(upstream, "timeout: 2s")) as proxy,
    ):
        upstream.script(refuse_by_the_head(ok(b"enough")))
        assert await send_whole(proxy, 900_000) == 200
        assert (await proxy.get()).body == b"ok"


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("size", SIZES)
async def test_nor_does_its_own_next_attempt(size: int, status: int) -> None:
    route = "timeout: 5s\nretry: {backoff: {base: 1ms, max: 1ms}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(refuse_by_the_head(response(status, b"not now", "retry-after-ms: 1")))
        assert (await client.request("PUT", "/", body=bytes(size))).status == 200
        assert len(upstream.connections) == 2


@pytest.mark.parametrize(
    ("size", "data"),
    [
        pytest.param(1_000, response(422, b"no"), id="a small body that is refused"),
        pytest.param(1_000, ok(), id="a small body"),
        pytest.param(20_000, ok(), id="20 kB"),
        pytest.param(900_000, ok(), id="900 kB"),
    ],
)
@pytest.mark.parametrize("send", [send_whole, send_in_pieces])
async def test_a_proper_answer_costs_no_connection(size: int, data: bytes, send: Send) -> None:
    async with ScriptedUpstream(answer(data)) as upstream, running(one_route(upstream)) as proxy:
        for _ in range(20):
            await send(proxy, size)
        assert len(upstream.connections) == 1


@both_loops
@pytest.mark.parametrize(
    ("version", "fields"),
    [
        pytest.param("1.1", "Connection: close\r\n", id="a client that asks for a close"),
        pytest.param("1.0", "", id="an old client"),
    ],
)
async def test_a_client_that_was_told_to_wait_may_send_the_rest_and_read_the_answer(
    version: str, fields: str
) -> None:
    body = b"x" * 20_000_000  # more than all buffers on the way can hold
    head = f"POST / HTTP/{version}\r\nHost: a\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
    async with (
        ScriptedUpstream(stall, receive_buffer=4096) as upstream,
        running(one_route(upstream, "idle_timeout: 200ms")) as proxy,
        proxy.client() as client,
    ):
        await client.send(head.encode())
        # Returns when the body is taken, or the connection lost.
        await client.send(body)
        assert client.wire.is_open
        assert (await client.response("POST")).status == 504
        assert await client.ended() is End.CLOSED
