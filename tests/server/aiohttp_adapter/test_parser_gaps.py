"""What aiohttp's request parser lets through, and we do not; and what it does to others.

Measured on aiohttp 3.14.5. A new version that behaves otherwise shows up here.
"""

import asyncio

import pytest

from tests.support import (
    End,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    ok,
    one_route,
    request,
    running,
    virtual_time,
)

HOST = b"Host: a.example\r\n"

REFUSED = [
    pytest.param(raw, status, close, id=sentence)
    for sentence, raw, status, close in [
        (
            "an empty Transfer-Encoding",
            b"POST / HTTP/1.1\r\n"
            + HOST
            + b"Transfer-Encoding:\r\n\r\nGET /x HTTP/1.1\r\n"
            + HOST
            + b"\r\n",
            400,
            True,
        ),
        (
            "Transfer-Encoding: gzip, chunked",
            b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            501,
            True,
        ),
        (
            "Transfer-Encoding in HTTP/1.0",
            b"POST / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            True,
        ),
        ("HTTP/0.9 with a version", b"GET / HTTP/0.9\r\n" + HOST + b"\r\n", 505, True),
        ("HTTP/2.0", b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 505, True),
        ("HTTP/0.9 without one", b"GET /\r\n", 400, True),
        ("a blank in Host", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, False),
        ("a slash in Host", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, False),
        ("two names in Host", b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400, False),
        ("a user in Host", b"GET / HTTP/1.1\r\nHost: user@a\r\n\r\n", 400, False),
        (
            "two credentials",
            b"GET / HTTP/1.1\r\n" + HOST + b"Authorization: a\r\nAuthorization: b\r\n\r\n",
            400,
            False,
        ),
        ("a fragment", b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n", 400, False),
        ("a backslash", b"GET /a\\b HTTP/1.1\r\n" + HOST + b"\r\n", 400, False),
        ("CONNECT", b"CONNECT a:80 HTTP/1.1\r\n" + HOST + b"\r\n", 405, True),
        ("TRACE", b"TRACE / HTTP/1.1\r\n" + HOST + b"\r\n", 405, True),
        ("two blanks in the request line", b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n", 400, True),
        ("an unknown method", b"FOO / HTTP/1.1\r\n" + HOST + b"\r\n", 400, True),
        (
            "300 header fields",
            b"GET / HTTP/1.1\r\n" + HOST + b"X-A: a\r\n" * 300 + b"\r\n",
            431,
            True,
        ),
        (
            "many fields, each small, that are too much together",
            b"GET / HTTP/1.1\r\n" + HOST + (b"X-A: " + b"a" * 1000 + b"\r\n") * 100 + b"\r\n",
            431,
            True,
        ),
        (
            "a length that no number holds",
            b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999\r\n\r\n",
            413,
            True,
        ),
    ]
]


@pytest.mark.parametrize(("raw", "status", "close"), REFUSED)
async def test_refused(raw: bytes, status: int, *, close: bool) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(raw)
        response = await client.response()
        assert response.problem["status"] == response.status == status
        if close:
            assert response.get("Connection") == "close"
            assert await client.ended() is End.CLOSED
            assert not client.wire.unread, "one answer and no more"
        else:
            assert (await client.get()).status == 200
        assert len(upstream.requests) == (not close)


async def test_small_fields_that_are_too_much_together_are_refused_behind_another_request() -> None:
    large = request("GET", "/large", *(f"X-A: {'a' * 1000}" for _ in range(100)))
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("GET", "/") + large)
        assert [r.status for r in await client.responses(["GET", "GET"])] == [200, 431]
        assert [r.target for r in upstream.requests] == ["/"]


async def test_endless_head_behind_a_request_is_not_taken_in() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "timeout: 20s")) as proxy,
        proxy.client() as client,
    ):
        released = upstream_waits(upstream)
        await client.send(request("GET", "/"))
        await upstream.seen()
        await client.send(request("GET", "/next")[:-2])
        field = b"X-A: " + b"a" * 60_000 + b"\r\n"
        for _ in range(20):
            await client.send(field)
        released.set()
        assert (await client.response()).status == 200
        await client.ended()
        assert [r.target for r in upstream.requests] == ["/"]


def upstream_waits(upstream: ScriptedUpstream) -> asyncio.Event:
    """The upstream answers once the event is set."""
    event = asyncio.Event()

    async def behave(visit: Visit) -> None:
        await event.wait()
        await answer(ok())(visit)

    upstream.script(behave)
    return event


@pytest.mark.parametrize("split", range(1, 36, 5))
async def test_head_that_begins_behind_another_request_may_be_cut_anywhere(split: int) -> None:
    first, second = request("GET", "/first"), request("GET", "/second?a=b++c")
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(first + second[:split])
        assert (await client.response()).status == 200
        await client.send(second[split:])
        assert (await client.response()).status == 200
        assert [r.target for r in upstream.requests] == ["/first", "/second?a=b++c"]


async def test_head_may_begin_while_the_request_before_it_is_served() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        released = upstream_waits(upstream)
        await client.send(request("GET", "/first"))
        await upstream.seen()
        await client.send(b"GET /second HTTP/1.1\r\nX-A: two  blanks")
        released.set()
        assert (await client.response()).status == 200
        await client.send(b"  and two more\r\n" + HOST + b"\r\n")
        assert (await client.response()).status == 200
        assert upstream.requests[1].get("X-A") == "two  blanks  and two more"


async def test_good_request_with_bad_bytes_behind_it_is_not_run() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("POST", "/pay", body=b"x") + b"\x00\x01garbage\r\n\r\n")
        assert (await client.response()).status == 400
        assert await client.ended() is End.CLOSED
        assert not client.wire.unread
        assert upstream.received == 0
        assert (await proxy.logged())[0]["code"] == 400
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_requests_total", route="_unmatched", code="400") == 1


async def test_query_is_a_method_like_any_other() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.request("QUERY", "/", body=b"select")).status == 200
        assert (upstream.requests[0].method, upstream.requests[0].body) == ("QUERY", b"select")


async def test_long_chunk_extension_is_dropped() -> None:
    raw = request("POST", "/", "Transfer-Encoding: chunked")
    raw += b"5;x=" + b"x" * 100_000 + b"\r\nhello\r\n0\r\n\r\n"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(raw)
        assert (await client.response()).status == 200
        assert upstream.requests[0].body == b"hello"


async def test_trailers_of_a_request_are_dropped() -> None:
    raw = request("POST", "/", "Transfer-Encoding: chunked")
    raw += b"5\r\nhello\r\n0\r\nAuthorization: evil\r\n\r\n"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(raw)
        assert (await client.response()).status == 200
        assert "authorization" not in upstream.requests[0].names


async def test_request_behind_an_upgrade_that_is_not_taken_is_never_lost_in_silence() -> None:
    upgrade = request("GET", "/", "Connection: Upgrade", "Upgrade: h2c")
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(upgrade + request("GET", "/behind"))
        response = await client.response()
        assert response.status == 200
        # The parser may have lost what is behind: the client is told to ask again.
        assert response.get("Connection") == "close"
        assert await client.ended() is End.CLOSED
        assert not {"upgrade", "connection", "http2-settings"} & upstream.requests[0].names
        assert len(upstream.requests) == 1


@virtual_time
async def test_idle_connection_is_closed_in_silence() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top="limits: {keepalive: 50ms}")) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).status == 200
        assert await client.ended() is End.CLOSED
        assert not client.wire.unread
        await eventually(lambda: proxy.client_connections == 0)


@pytest.mark.parametrize(
    ("with_it", "later"),
    [
        pytest.param(b"\r\n", b"", id="behind a body"),
        pytest.param(b"", b"\r\n", id="behind the answer"),
        pytest.param(b"\r\n", b"\r\n\r\n", id="behind both"),
    ],
)
@virtual_time
async def test_empty_lines_between_requests_are_no_slow_head(with_it: bytes, later: bytes) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top="limits: {header_timeout: 60ms}")) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("POST", "/", body=b"x") + with_it)
        assert (await client.response()).status == 200
        await client.send(later)
        await asyncio.sleep(0.12)  # long enough for a 408 that must not come
        assert client.is_silent
        assert (await client.get("/next")).status == 200
        assert [r.target for r in upstream.requests] == ["/", "/next"]


async def test_version_that_we_do_not_speak_is_refused_with_a_request_id() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            await client.send(b"GET / HTTP/2.0\r\n" + HOST + b"\r\n")
            refused = await client.response()
            assert (refused.status, refused.reason_word) == (505, "version")
        assert refused.get("X-Request-Id")
        [record] = await proxy.logged()
        assert (record["code"], record["request_id"]) == (505, refused.get("X-Request-Id"))
        assert upstream.received == 0
