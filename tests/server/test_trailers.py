"""Trailers of one request never become fields of the next.

aiohttp's parser reports the last trailer of a chunked request as the first field of the request
behind it: one caller's Authorization or key in the request of another, where both share a
connection behind a load balancer.
"""

import pytest

from proxy.server.aiohttp_adapter.server import LARGEST_READ
from proxy.server.connection import ClientConnection
from tests.support import (
    End,
    ScriptedUpstream,
    answer,
    answer_early,
    eventually,
    ok,
    one_route,
    request,
    response,
    running,
    stall,
)

CHUNKED = request("POST", "/first", "Transfer-Encoding: chunked")
PLAIN = CHUNKED + b"1\r\nx\r\n0\r\n\r\n"
NEXT = request("GET", "/next")
TRAILERS = [
    pytest.param(b"Authorization: Basic ZXZpbA==\r\n", id="credentials"),
    pytest.param(b"X-T: 1\r\nIdempotency-Key: k\r\n", id="a key"),
    pytest.param(b"X-T:\r\n", id="an empty one"),
    pytest.param(b"Host: a.example\r\n", id="one that the next request has too"),
    pytest.param(b"X-T:x y HTTP/1.1\r\nHost: a.example\r\n", id="behind a line like a request's"),
]


def targets(upstream: ScriptedUpstream) -> list[str]:
    return [request.target for request in upstream.requests]


def own_fields(upstream: ScriptedUpstream) -> list[set[str]]:
    """Names of the fields of each request that are not the proxy's own, Host apart."""
    ours = {"host", "via", "forwarded", "x-request-id", "content-length", "transfer-encoding"}
    return [
        {name for name in request.names if name not in ours and "x-forwarded" not in name}
        for request in upstream.requests
    ]


@pytest.mark.parametrize("trailers", TRAILERS)
async def test_a_request_with_trailers_is_the_last_of_its_connection(trailers: bytes) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        body = b"1\r\nx\r\n0\r\n" + trailers + b"\r\n"
        for cut in range(len(body)):
            async with proxy.client() as client:
                await client.send(CHUNKED + body[:cut], body[cut:])
                seen = await client.response("POST")
                assert (seen.status, seen.get("Connection")) == (200, "close")
                assert await client.ended() is End.CLOSED
        assert targets(upstream) == ["/first"] * len(body)
        assert own_fields(upstream) == [set()] * len(body)


@pytest.mark.parametrize("trailers", TRAILERS)
async def test_a_request_right_behind_trailers_is_refused(trailers: bytes) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        whole = CHUNKED + b"1\r\nx\r\n0\r\n" + trailers + b"\r\n" + NEXT
        for cut in range(len(CHUNKED), len(whole), 3):
            async with proxy.client() as client:
                await client.send(whole[:cut], whole[cut:])
                first = await client.response("POST")
                assert first.status == 200
                if first.get("Connection") is None:
                    second = await client.response("GET")
                    assert (second.status, second.get("Connection")) == (400, "close")
                await client.ended()
        assert set(targets(upstream)) == {"/first"}


async def test_requests_behind_chunks_without_trailers_are_served() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        pipeline = [PLAIN, NEXT, PLAIN, PLAIN, request("POST", "/next", body=b"b" * 99), NEXT]
        whole = b"".join(pipeline)
        methods = ["POST", "GET", "POST", "POST", "POST", "GET"]
        for cut in range(1, len(whole), 7):
            async with proxy.client() as client:
                await client.send(whole[:cut], whole[cut:])
                given = await client.responses(methods)
                assert [each.status for each in given] == [200] * len(methods)
                # The connection goes on.
                assert (await client.get()).status == 200
        assert own_fields(upstream) == [set()] * len(upstream.requests)


async def test_a_large_body_behind_chunks_is_served() -> None:
    """The parser stops in the middle of it, and holds what came behind."""
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        large = request("POST", "/next", body=b"b" * 700_000)
        async with proxy.client() as client:
            await client.send(large + PLAIN + large + PLAIN + NEXT)
            given = await client.responses(["POST", "POST", "POST", "POST", "GET"])
            assert [each.status for each in given] == [200] * 5
        assert own_fields(upstream) == [set()] * 5


async def test_trailers_behind_a_large_body_are_noticed() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        large = request("POST", "/large", body=b"b" * 700_000)
        async with proxy.client() as client:
            await client.send(large + PLAIN[:-2] + b"X-T: 1\r\n\r\n" + NEXT)
            given = await client.responses(["POST", "POST", "GET"])
            assert [each.status for each in given] == [200, 200, 400]
        assert targets(upstream) == ["/large", "/first"]


async def test_trailers_of_an_upgrade_that_is_not_made_are_noticed() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upgrade = ("Connection: upgrade", "Upgrade: websocket", "Transfer-Encoding: chunked")
        async with proxy.client() as client:
            await client.send(
                request("POST", "/first", *upgrade) + b"0\r\nAuthorization: x\r\n\r\n" + NEXT
            )
            await client.ended()
        assert "/next" not in targets(upstream)


async def test_trailers_that_come_after_the_answer_are_noticed() -> None:
    early = answer_early(response(413, b"too much"))
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(early, answer(ok()))
        async with proxy.client() as client:
            await client.send(CHUNKED + b"1\r\nx\r\n")
            assert (await client.response("POST")).status == 413
            await client.send(b"0\r\nAuthorization: Basic x\r\n\r\n")
            await client.send(NEXT)
            await client.ended()
        assert "/next" not in targets(upstream)


async def test_an_upload_that_waits_for_its_upstream_is_not_remembered() -> None:
    """Its bytes are in memory once, as they would be without any trailers in the world."""
    async with (
        ScriptedUpstream(stall, receive_buffer=65536) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        client.wire.write(request("POST", "/", body=bytes(20_000_000)))
        (connection,) = await eventually(lambda: list(proxy.app._listener.server.connections))
        await eventually(lambda: connection._reading_paused)
        assert isinstance(connection, ClientConnection)
        assert connection._received is None


async def test_a_chunk_that_is_one_long_word_costs_neither_memory_nor_the_connection() -> None:
    """It might be the name of a trailer, as far as its letters go."""
    size = 2 * 1024 * 1024
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(CHUNKED + b"%x\r\n" % size)
        for _ in range(size // 65536):
            await client.send(b"x" * 65536)
        (connection,) = proxy.app._listener.server.connections
        assert isinstance(connection, ClientConnection)
        assert len(connection._received or b"") <= 2 * LARGEST_READ
        await client.send(b"\r\n0\r\n\r\n" + NEXT)
        assert (await client.response("POST")).get("Connection") is None
        assert (await client.response()).status == 200
        assert targets(upstream) == ["/first", "/next"]
