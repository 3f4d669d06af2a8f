"""Bytes that nobody asked for never become part of anybody's response."""

import asyncio

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
from tests.support.records import last_logged, outcomes

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
        await last_logged(proxy, 2)


async def test_bytes_on_an_idle_connection_close_it() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        assert (await proxy.get()).body == b"ok"
        assert proxy.idle_upstream_connections == 1
        upstream.connections[0].wire.write(SMUGGLED)
        await eventually(lambda: proxy.open_upstream_connections == 0)
        assert (await proxy.get()).body == b"ok"
        assert outcomes(await last_logged(proxy, 2)) == ["2xx"]


ANNOUNCED = [
    pytest.param("GET", "204 No", "Content-Length: 42", id="204"),
    pytest.param("GET", "204 No", "Transfer-Encoding: chunked", id="204, in chunks"),
    pytest.param("POST", "204 No", "Content-Length: 42", id="204 to a POST"),
    pytest.param("GET", "205 Reset", "Content-Length: 42", id="205"),
    pytest.param("GET", "205 Reset", "Transfer-Encoding: chunked", id="205, in chunks"),
    pytest.param("GET", "205 Reset", "", id="205 without a length"),
    pytest.param("GET", "304 No", "Content-Length: 42", id="304"),
    pytest.param("GET", "304 No", "Transfer-Encoding: chunked", id="304, in chunks"),
    pytest.param("HEAD", "200 OK", "Content-Length: 42", id="HEAD"),
    pytest.param("HEAD", "200 OK", "Transfer-Encoding: chunked", id="HEAD, in chunks"),
    pytest.param("HEAD", "200 OK", "", id="HEAD without a length"),
    pytest.param("HEAD", "404 No", "Content-Length: 42", id="HEAD of what is not there"),
]


@both_loops
@pytest.mark.parametrize(("method", "status", "field"), ANNOUNCED)
async def test_a_body_that_comes_late_where_none_may_come_is_nobodys_response(
    method: str, status: str, field: str
) -> None:
    """It comes when the next request is under way: that one must not be on this connection."""

    async def answer_and_go_on(visit: Visit) -> None:
        await visit.read_body()
        fields = f"{field}\r\n" if field else ""
        await visit.send(f"HTTP/1.1 {status}\r\n{fields}\r\n".encode())
        await asyncio.sleep(0.05)
        visit.wire.write(SMUGGLED)

    async with (
        ScriptedUpstream(answer(ok(b"mine"))) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as attacker,
        proxy.client() as victim,
    ):
        upstream.script(answer_and_go_on)
        body = b"" if method == "POST" else None
        assert (await attacker.request(method, "/", body=body)).status == int(status[:3])
        assert [(await victim.get()).body, (await victim.get()).body] == [b"mine"] * 2
        assert upstream.requests[1].connection != upstream.requests[0].connection


@pytest.mark.parametrize(
    ("method", "head"),
    [
        pytest.param("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", id="HEAD of nothing"),
        pytest.param("GET", b"HTTP/1.1 304 No\r\n\r\n", id="304"),
        pytest.param("GET", b"HTTP/1.1 304 No\r\nContent-Length: 0\r\n\r\n", id="304, of nothing"),
        pytest.param("GET", b"HTTP/1.1 204 No\r\n\r\n", id="204"),
        pytest.param("GET", b"HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n", id="204 and a zero"),
        pytest.param("HEAD", b"HTTP/1.1 204 No\r\n\r\n", id="HEAD and 204"),
        pytest.param("GET", b"HTTP/1.1 205 No\r\nContent-Length: 0\r\n\r\n", id="205"),
    ],
)
async def test_a_response_that_announces_no_body_leaves_the_connection_usable(
    method: str, head: bytes
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(head))
        async with proxy.client() as client:
            await client.request(method, "/")
            assert (await client.get()).body == b"ok"
        assert len(upstream.connections) == 1
        await last_logged(proxy, 2)


@pytest.mark.parametrize(
    ("method", "status", "length"),
    [
        pytest.param("HEAD", 200, "5", id="HEAD"),
        pytest.param("GET", 304, "5", id="304"),
        pytest.param("GET", 204, None, id="204"),
        pytest.param("GET", 205, "0", id="205"),
    ],
)
async def test_the_client_learns_of_a_length_where_that_means_something(
    method: str, status: int, length: str | None
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(f"HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n".encode()))
        async with proxy.client() as client:
            assert (await client.request(method, "/")).get("Content-Length") == length
            assert (await client.get()).body == b"ok"


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
        await last_logged(proxy, 2)


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
