"""An upstream that answers before it has read the request's body."""

import pytest

from tests.support import (
    End,
    ScriptedUpstream,
    answer_early,
    both_loops,
    ok,
    one_route,
    response,
    running,
    stall,
)
from tests.support.records import outcomes, told

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
        assert outcomes(await told(proxy)) == [f"{status // 100}xx"]
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
        assert outcomes(await told(proxy)) == ["2xx"]


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
