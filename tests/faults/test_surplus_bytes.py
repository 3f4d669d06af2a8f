"""Bytes that nobody asked for never become part of anybody's response."""

import pytest

from tests.support import (
    ScriptedUpstream,
    Visit,
    answer,
    both_loops,
    chunked,
    eventually,
    ok,
    one_route,
    running,
)
from tests.support.records import outcomes, told

SMUGGLED = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled"


@both_loops
@pytest.mark.parametrize(
    ("method", "pieces", "status", "body"),
    [
        pytest.param("GET", [ok(b"mine") + b"surplus"], 200, b"mine", id="more than its length"),
        pytest.param("GET", [ok(b"mi"), b"", b"surplus"], 200, b"mi", id="more in another read"),
        pytest.param(
            "GET",
            [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmi", b"nesurplus"],
            200,
            b"mine",
            id="more in the read that ends a counted body",
        ),
        pytest.param("GET", [ok(b"mine") + SMUGGLED], 200, b"mine", id="a second response"),
        pytest.param("GET", [chunked(b"mine") + SMUGGLED], 200, b"mine", id="one after chunks"),
        pytest.param(
            "GET", [b"HTTP/1.1 204 No\r\n\r\n" + SMUGGLED], 204, b"", id="one behind a 204"
        ),
        pytest.param(
            "GET", [b"HTTP/1.1 304 No\r\n\r\n", SMUGGLED], 304, b"", id="one behind a 304"
        ),
        pytest.param(
            "GET",
            [b"HTTP/1.1 304 No\r\nContent-Length: 4\r\n\r\nbody"],
            304,
            b"",
            id="a 304 with the body of its length",
        ),
        pytest.param("HEAD", [ok(b"a body all the same")], 200, b"", id="HEAD with a body"),
        pytest.param("HEAD", [chunked(b"chunks"), SMUGGLED], 200, b"", id="HEAD with chunks"),
    ],
)
async def test_surplus_is_dropped_and_the_next_client_is_unharmed(
    method: str, pieces: list[bytes], status: int, body: bytes
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(*pieces))
        async with proxy.client() as client:
            response = await client.request(method, "/")
            assert (response.status, response.body) == (status, body)
            assert response.complete
            assert client.is_silent
            await eventually(lambda: proxy.open_upstream_connections == 0)
            assert (await client.get()).body == b"ok"
        assert upstream.requests[1].connection != upstream.requests[0].connection
        await told(proxy, 2)


async def test_bytes_on_an_idle_connection_close_it() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        assert (await proxy.get()).body == b"ok"
        assert proxy.idle_upstream_connections == 1
        upstream.connections[0].wire.write(SMUGGLED)
        await eventually(lambda: proxy.open_upstream_connections == 0)
        assert (await proxy.get()).body == b"ok"
        assert outcomes(await told(proxy, 2)) == ["2xx"]


@pytest.mark.parametrize(
    ("method", "status_line"),
    [
        pytest.param("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", id="HEAD"),
        pytest.param("GET", b"HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", id="304"),
        pytest.param("GET", b"HTTP/1.1 204 No\r\n\r\n", id="204"),
    ],
)
async def test_a_length_without_body_leaves_the_connection_usable(
    method: str, status_line: bytes
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(status_line))
        async with proxy.client() as client:
            response = await client.request(method, "/")
            assert response.get("Content-Length") == (None if b"204" in status_line else "5")
            assert (await client.get()).body == b"ok"
        assert len(upstream.connections) == 1
        await told(proxy, 2)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"Content-Length: 4\r\n\r\nbody", id="a body"),
        pytest.param(b"Content-Length: 4\r\n\r\nbo", id="half of one, and nothing more"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n", id="a coding, and nothing more"),
        pytest.param(b"\r\n", id="no length, and no end"),
    ],
)
async def test_a_205_has_no_content_whatever_the_upstream_sends(sent: bytes) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(b"HTTP/1.1 205 Reset\r\n" + sent))
        async with proxy.client() as client:
            response = await client.get()
            assert (response.status, response.body, response.complete) == (205, b"", True)
            assert (await client.get()).body == b"ok"
        await told(proxy, 2)


async def test_a_response_that_nobody_asked_for_is_not_given_to_the_next_request() -> None:
    async def speak_first(visit: Visit) -> None:
        await visit.read_body()
        # In one read with the answer, so that it is there before the next request is.
        await visit.send(ok(b"first") + ok(b"unasked"))

    async with ScriptedUpstream(speak_first) as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            bodies = [(await client.get()).body for _ in range(5)]
        assert bodies == [b"first"] * 5
        assert len(upstream.connections) == 5
