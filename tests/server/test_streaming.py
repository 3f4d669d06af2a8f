"""The vectors of ``streaming`` that need no policy: long, early, switched, broken off."""

import asyncio
import os
import time
from collections.abc import Callable

import pytest

from tests.support import (
    PATIENCE,
    End,
    RawClient,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_hang,
    answer_early,
    both_loops,
    chunked,
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
from tests.support.records import last_logged, outcomes
from tests.support.witness import soon

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
MEBIBYTE = 1024 * 1024


# Event streams.


@both_loops
async def test_st_01_each_event_reaches_the_client_at_once() -> None:
    received = asyncio.Event()

    async def one_by_one(visit: Visit) -> None:
        await visit.send(EVENTS)
        for number in range(5):
            await asyncio.wait_for(received.wait(), PATIENCE)
            received.clear()
            sent.append(time.monotonic())
            await visit.send(b"9\r\ndata: %d\n\n\r\n" % number)
        await visit.send(b"0\r\n\r\n")

    sent: list[float] = []
    took: list[float] = []
    async with (
        ScriptedUpstream(one_by_one) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("GET", "/events"))
        head = await client.wire.read_until(b"\r\n\r\n")
        assert b"text/event-stream" in head
        for number in range(5):
            received.set()
            event = await client.wire.read_until(b"\n\n\r\n")
            assert event == b"9\r\ndata: %d\n\n\r\n" % number
            took.append(time.monotonic() - sent[-1])
        assert await client.wire.read_exactly(5) == b"0\r\n\r\n"
        # None is sent before the one before it was received. A proxy that collects events for a
        # while delays each of them; a machine that has other things to do does not.
        assert min(took) < 0.05


@virtual_time
async def test_st_01_an_event_stream_outlives_the_timeout() -> None:
    async def slow(visit: Visit) -> None:
        await visit.send(EVENTS, b"5\r\nfirst\r\n")
        await asyncio.sleep(0.15)
        await visit.send(b"4\r\nlast\r\n", b"0\r\n\r\n")

    async with (
        ScriptedUpstream(slow) as upstream,
        running(one_route(upstream, "timeout: 50ms")) as proxy,
    ):
        assert (await proxy.get()).body == b"firstlast"


async def test_st_02_a_client_that_leaves_an_event_stream_frees_the_upstream() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer_and_hang(EVENTS, b"5\r\nfirst\r\n"))
        async with proxy.client() as client:
            await client.send(request("GET", "/events"))
            await client.wire.read_until(b"first\r\n")
        await soon(eventually(lambda: not upstream.open_connections, what="closing it"), 1.0)
        record = (await proxy.logged())[0]
        assert (record["code"], record["attempts"][0]["outcome"]) == (499, "cancelled")
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_client_disconnects_total", phase="response") == 1


# WebSocket.


async def echo(visit: Visit) -> None:
    """Agree to switch, then send back whatever comes."""
    await visit.send(SWITCHING)
    while data := await visit.wire.read():
        visit.wire.write(data)
        await visit.wire.drain()


@both_loops
async def test_st_05_bytes_go_both_ways_after_the_switch() -> None:
    async with (
        ScriptedUpstream(echo) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        switched = await client.get("/ws", *WEBSOCKET)
        assert (switched.status, switched.get("Upgrade")) == (101, "websocket")
        assert switched.get("Sec-WebSocket-Accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        for frame in (b"\x81\x85\x00\x00\x00\x00hello", b"\x00", b"HTTP/1.1 200 OK\r\n\r\n"):
            await client.send(frame)
            assert await client.wire.read_exactly(len(frame)) == frame
        (seen,) = upstream.requests
        assert (seen.get("Upgrade"), seen.get("Connection")) == ("websocket", "Upgrade")
        assert seen.get("Sec-WebSocket-Key") == "dGhlIHNhbXBsZSBub25jZQ=="


@virtual_time
async def test_the_time_for_one_attempt_ends_with_the_switch() -> None:
    route = "retry: {attempt_timeout: 50ms}"
    async with (
        ScriptedUpstream(echo) as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(hang)
        late = await proxy.get("/ws", *WEBSOCKET)
        assert (late.status, late.reason_word) == (504, "timeout")
        assert (await client.get("/ws", *WEBSOCKET)).status == 101
        began = now()
        while now() < began + 0.1:
            await client.send(b"hello")
            assert await client.wire.read_exactly(5) == b"hello"
            await asyncio.sleep(0.01)


async def test_st_05_bytes_sent_before_the_switch_are_not_lost() -> None:
    async with (
        ScriptedUpstream(echo) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        early = b"\x81\x85\x00\x00\x00\x00early"
        await client.send(request("GET", "/ws", *WEBSOCKET) + early)
        assert (await client.response()).status == 101
        assert await client.wire.read_exactly(len(early)) == early


async def test_st_05_bytes_behind_the_switch_in_the_same_segment_are_not_lost() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer_and_hang(SWITCHING + b"\x81\x02hi"))
        async with proxy.client() as client:
            assert (await client.get("/ws", *WEBSOCKET)).status == 101
            assert await client.wire.read_exactly(4) == b"\x81\x02hi"


# Not on asyncio's own loop: in Python 3.12.0 to 3.13.1 its writelines() knows no pace.
async def test_st_05_large_amounts_pass_in_both_directions_at_the_pace_of_the_reader() -> None:
    down, up = os.urandom(MEBIBYTE) * 32, os.urandom(MEBIBYTE) * 32
    arrived = bytearray()
    go_on = asyncio.Event()

    async def both_ways(visit: Visit) -> None:
        await visit.send(SWITCHING)
        visit.wire.stall()
        visit.wire.write(down)
        await go_on.wait()
        visit.wire.go_on()
        while len(arrived) < len(up):
            arrived.extend(await visit.wire.read())
        await visit.wire.drain()

    async with (
        ScriptedUpstream(both_ways, receive_buffer=65536) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client(receive_buffer=65536) as client,
    ):
        assert (await client.get("/ws", *WEBSOCKET)).status == 101
        client.wire.stall()
        client.wire.write(up)
        # The client does not read: a proxy with back-pressure takes in little more than buffers.
        await settled(client.wire.transport.get_write_buffer_size)
        assert client.wire.transport.get_write_buffer_size() > len(up) // 4
        theirs = upstream.connections[0].wire.transport
        assert theirs.get_write_buffer_size() > len(down) // 4
        go_on.set()
        client.wire.go_on()
        assert await client.wire.read_exactly(len(down)) == down
        await eventually(lambda: len(arrived) == len(up), what="the upload")
        assert arrived == up


async def settled(value: Callable[[], int]) -> None:
    """Wait until *value* has stopped changing for 50 ms."""
    before, since = value(), time.monotonic()
    while time.monotonic() - since < 0.05:
        await asyncio.sleep(0.002)
        if value() != before:
            before, since = value(), time.monotonic()


@pytest.mark.parametrize("who", ["client", "upstream"])
async def test_st_05_the_end_of_one_side_ends_the_other(who: str) -> None:
    async with ScriptedUpstream(echo) as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            assert (await client.get("/ws", *WEBSOCKET)).status == 101
            if who == "upstream":
                upstream.connections[0].wire.close()
                assert await client.ended() is End.CLOSED
        await eventually(lambda: not upstream.open_connections, what="closing the upstream")
        record = (await proxy.logged())[0]
        assert (record["code"], len(record["attempts"])) == (101, 1)


@virtual_time
async def test_a_tunnel_that_is_silent_is_closed() -> None:
    async with (
        ScriptedUpstream(echo) as upstream,
        running(one_route(upstream, "idle_timeout: 50ms")) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get("/ws", *WEBSOCKET)).status == 101
        await client.ended(within=1.0)
        await eventually(lambda: not upstream.open_connections, what="closing the upstream")


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        pytest.param("upgrades: []", WEBSOCKET, id="st-06 on a route that allows no switch"),
        pytest.param(
            "",
            ("Connection: notupgrade", *WEBSOCKET[1:]),
            id="st-07 with a Connection that only looks like it",
        ),
        pytest.param("", WEBSOCKET[1:], id="without Connection"),
    ],
)
async def test_switch_that_is_not_wanted_becomes_a_plain_request(
    route: str, fields: tuple[str, ...]
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get("/ws", *fields)).body == b"ok"
        assert not {"upgrade", "connection"} & upstream.requests[0].names


async def test_switch_that_the_upstream_declines_is_an_ordinary_answer() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer(response(403, b"no")))
        async with proxy.client() as client:
            declined = await client.get("/ws", *WEBSOCKET)
            assert (declined.status, declined.body) == (403, b"no")


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(b"Upgrade: h2c\r\n", id="to something else"),
        pytest.param(b"", id="to nothing"),
        pytest.param(b"X-Upgrade: websocket\r\n", id="in a field that only looks like it"),
        pytest.param(b"Upgrade: websocket2\r\n", id="to something that begins like it"),
    ],
)
async def test_switch_that_nobody_asked_for_is_a_broken_answer(field: bytes) -> None:
    switch = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\n" + field + b"\r\n"
    async with (
        ScriptedUpstream(answer_and_hang(switch)) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        broken = await client.get("/ws", *WEBSOCKET)
        assert (broken.status, broken.reason_word) == (502, "protocol")
        assert outcomes(await last_logged(proxy)) == ["protocol"]
        assert proxy.open_upstream_connections == 0


@pytest.mark.parametrize(
    "field", [b"upgrade: WebSocket", b"UPGRADE:websocket", b"Upgrade: \t WEBSOCKET \t"]
)
async def test_switch_may_be_spelled_in_any_case(field: bytes) -> None:
    switch = b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\n" + field + b"\r\n\r\n"
    async with (
        ScriptedUpstream(answer_and_hang(switch + b"hi")) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        switched = await client.get("/ws", *WEBSOCKET)
        assert (switched.status, switched.get("Upgrade")) == (101, "websocket")
        assert await client.wire.read_exactly(2) == b"hi"


# Expect: 100-continue.


async def test_st_09_an_admitted_body_is_asked_for() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("POST", "/", "Expect: 100-continue", "Content-Length: 5"))
        assert (await client.interim()).status == 100
        await client.send(b"hello")
        assert (await client.response()).status == 200
        assert (await client.get()).status == 200, "and the connection goes on"
        assert upstream.requests[0].body == b"hello"
        assert "expect" not in upstream.requests[0].names


async def test_st_09_a_body_that_is_here_already_is_not_asked_for() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        answered = await client.request("POST", "/", "Expect: 100-continue", body=b"hello")
        assert (answered.status, answered.interim) == (200, [])
        assert upstream.requests[0].body == b"hello"


@pytest.mark.parametrize(
    ("target", "length", "status"),
    [
        pytest.param("/elsewhere", 5, 404, id="no route"),
        pytest.param("/api", 5000, 413, id="a body that is too large"),
    ],
)
async def test_refused_body_is_not_asked_for_and_the_connection_closed(
    target: str, length: int, status: int
) -> None:
    async with ScriptedUpstream() as upstream:
        text = one_route(upstream, "max_body: 1KiB").replace("match: /**", "match: /api")
        async with running(text) as proxy, proxy.client() as client:
            fields = ("Expect: 100-continue", f"Content-Length: {length}")
            await client.send(request("POST", target, *fields))
            refused = await client.response("POST")
            assert (refused.status, refused.interim) == (status, [])
            assert refused.get("Connection") == "close"
            assert await soon(client.ended(), 0.5) is End.CLOSED
        assert upstream.received == 0


async def test_refused_body_is_not_asked_for_where_the_upstream_is_down() -> None:
    async with ScriptedUpstream() as upstream:
        text = one_route(upstream)
    async with running(text) as proxy, proxy.client() as client:
        fields = ("Expect: 100-continue", "Content-Length: 5")
        await client.send(request("POST", "/", *fields))
        refused = await client.response("POST")
        assert (refused.status, refused.interim) == (502, [])
        assert await soon(client.ended(), 0.5) is End.CLOSED


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        pytest.param("*", (), id="OPTIONS *"),
        pytest.param("/x", ("Max-Forwards: 0",), id="OPTIONS that ends here"),
    ],
)
async def test_body_of_options_that_we_answer_is_not_asked_for(
    target: str, fields: tuple[str, ...]
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        fields = ("Expect: 100-continue", "Content-Length: 5", *fields)
        await client.send(request("OPTIONS", target, *fields))
        answered = await client.response("OPTIONS")
        assert (answered.status, answered.interim) == (204, [])
        assert answered.get("Connection") == "close"
        # What comes instead of the body is neither that nor another request.
        await client.send(request("GET", "/next"))
        assert await soon(client.ended(), 0.5)
        assert not client.wire.unread
        assert upstream.received == 0
        assert (await last_logged(proxy))["code"] == 204


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        pytest.param("*", (), id="OPTIONS *"),
        pytest.param("/x", ("Max-Forwards: 0",), id="OPTIONS that ends here"),
    ],
)
@pytest.mark.parametrize("expect", [(), ("Expect: 100-continue",)], ids=["", "with Expect"])
async def test_client_that_leaves_behind_our_answer_has_got_it(
    target: str, fields: tuple[str, ...], expect: tuple[str, ...]
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            await client.send(request("OPTIONS", target, "Content-Length: 5", *fields, *expect))
            assert (await client.response("OPTIONS")).status == 204
            client.wire.reset()
        await eventually(lambda: proxy.client_connections == 0)
        assert (await last_logged(proxy))["code"] == 204
        assert (await proxy.metrics()).total("holdfast_client_disconnects_total") == 0
        assert upstream.received == 0


async def test_st_10_unknown_expectation() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        refused = await proxy.get("/", "Expect: something-else")
        assert (refused.status, refused.reason_word) == (417, "expectation")
        assert upstream.received == 0


async def test_st_11_an_expectation_in_http_1_0_is_ignored() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        head = b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        await client.send(head)
        await asyncio.sleep(0.02)  # long enough for a 100 that must not come
        assert client.is_silent
        await client.send(b"hello")
        answered = await client.response("POST")
        assert (answered.status, answered.interim) == (200, [])
        assert upstream.requests[0].body == b"hello"


# Bodies.


async def test_st_12_a_large_body_streams_through() -> None:
    body = os.urandom(3 * MEBIBYTE)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.request("PUT", "/", body=body)).status == 200
        assert upstream.requests[0].body == body
        assert upstream.requests[0].framing == "length"


async def test_chunks_reach_the_upstream_before_the_body_is_complete() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        first_piece = asyncio.Event()

        async def behave(visit: Visit) -> None:
            await visit.wire.something()
            first_piece.set()
            await answer(ok())(visit)

        upstream.script(behave)
        await client.send(request("POST", "/", "Transfer-Encoding: chunked"), b"3\r\nabc\r\n")
        await asyncio.wait_for(first_piece.wait(), PATIENCE)
        await client.send(b"3\r\ndef\r\n0\r\n\r\n")
        assert (await client.response("POST")).status == 200
        assert upstream.requests[0].body == b"abcdef"
        assert upstream.requests[0].framing == "chunked"


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        pytest.param(chunked(b"one", b"two"), b"onetwo", id="chunked"),
        pytest.param(ok(b"counted"), b"counted", id="with a length"),
    ],
)
async def test_st_13_http_1_0_client_gets_what_it_understands(raw: bytes, body: bytes) -> None:
    async with (
        ScriptedUpstream(answer(raw)) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        answered = await client.response()
        assert (answered.status, answered.body) == (200, body)
        assert "transfer-encoding" not in answered.names
        assert answered.get("Connection") == "close"
        assert await client.ended() is End.CLOSED
        assert upstream.requests[0].get("Via") == "1.0 holdfast"


@both_loops
async def test_st_14_an_early_answer_is_relayed_and_the_rest_not_sent() -> None:
    body = os.urandom(MEBIBYTE) * 16
    async with (
        ScriptedUpstream(receive_buffer=65536) as upstream,
        running(one_route(upstream)) as proxy,
    ):
        stuck = asyncio.Event()

        async def early(visit: Visit) -> None:
            visit.wire.stall()
            await stuck.wait()
            await visit.send(response(413, b"too much"))
            await asyncio.Event().wait()

        upstream.script(early)
        async with proxy.client() as client:
            client.wire.write(request("POST", "/", f"Content-Length: {len(body)}") + body)
            await settled(client.wire.transport.get_write_buffer_size)
            stuck.set()
            answered = await client.response("POST")
            assert (answered.status, answered.body, answered.complete) == (413, b"too much", True)
        assert upstream.connections[0].wire.received < len(body) // 2
        await eventually(lambda: proxy.open_upstream_connections == 0, what="closing it")


async def test_st_14_one_answer_and_no_more_while_the_rest_of_the_body_comes() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer_early(response(413, b"too much")))
        async with proxy.client() as client:
            await client.send(request("POST", "/", "Content-Length: 300000"), b"x" * 1000)
            assert (await client.response("POST")).status == 413
            for _ in range(299):
                await client.send(b"GET / HT\n" + b"y" * 991)
            # The rest was read and dropped; the connection is in order, or closed.
            assert client.wire.unread == b""
            await client.send(request("GET", "/next"))
            if client.wire.end is None:
                assert (await client.response()).body == b"ok"


async def test_early_answer_of_our_own_is_not_followed_by_another() -> None:
    async with ScriptedUpstream() as upstream:
        text = one_route(upstream).replace("match: /**", "match: /api")
        async with running(text) as proxy, proxy.client() as client:
            await client.send(request("POST", "/none", "Content-Length: 100000"), b"x" * 1000)
            assert (await client.response("POST")).status == 404
            for _ in range(99):
                await client.send(b"y" * 1000)
            assert (await client.get("/api")).body == b"ok"


async def test_rest_of_a_refused_body_may_be_malformed_without_a_word_in_the_log() -> None:
    async with ScriptedUpstream() as upstream:
        text = one_route(upstream).replace("match: /**", "match: /api")
        async with running(text) as proxy, proxy.client() as client:
            await client.send(request("POST", "/none", "Transfer-Encoding: chunked"), b"1\r\nx")
            assert (await client.response("POST")).status == 404
            await client.send(b"nonsense\r\n")
            await client.ended()
            assert not client.wire.unread
            # `running` fails if an error was logged: any client could fill the disk with it.


async def test_body_over_the_limit_is_refused_though_it_never_said_so() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "max_body: 1KiB")) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("POST", "/", "Transfer-Encoding: chunked"))
        for _ in range(5):
            await client.send(b"12c\r\n" + b"x" * 300 + b"\r\n")
        refused = await client.response("POST")
        assert (refused.status, refused.reason_word) == (413, "body_too_large")
        assert await client.ended() is End.CLOSED
        await client.send(b"nonsense in place of a chunk\r\n")
        await eventually(lambda: not upstream.open_connections, what="cutting the upstream")
        assert not upstream.requests[0].complete


async def test_body_that_is_malformed_while_the_answer_comes_cuts_both() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(answer_early(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"))
        async with proxy.client() as client:
            await client.send(request("POST", "/", "Transfer-Encoding: chunked"), b"1\r\nx\r\n")
            await client.wire.read_until(b"half")
            await client.send(b"nonsense\r\n")
            assert await client.ended() is End.RESET
        await eventually(lambda: not upstream.open_connections, what="cutting the upstream")
        record = (await proxy.logged())[0]
        assert (record["code"], record["attempts"][0]["outcome"]) == (200, "cancelled")


@pytest.mark.parametrize("framing", ["Content-Length: 100", "Transfer-Encoding: chunked"])
async def test_client_that_leaves_inside_its_body_cuts_the_upstream(framing: str) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            await client.send(request("POST", "/", framing), b"5\r\nhello\r\n")
            await eventually(lambda: len(upstream.requests) == 1, what="the head")
        await eventually(lambda: not upstream.open_connections, what="cutting the upstream")
        assert not upstream.requests[0].complete
        assert (await proxy.logged())[0]["code"] == 499
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_client_disconnects_total", phase="body") == 1


async def test_pipelined_requests_wait_for_a_client_that_does_not_read() -> None:
    body = os.urandom(MEBIBYTE)
    async with (
        ScriptedUpstream(answer(ok(body))) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client(receive_buffer=65536) as client,
    ):
        client.wire.stall()
        await client.send(request("GET", "/") * 20)
        await settled(lambda: len(upstream.requests))
        assert len(upstream.requests) < 10
        client.wire.go_on()
        for _ in range(20):
            assert (await client.response()).body == body


async def test_many_clients_do_not_get_each_others_answers() -> None:
    async def say_back(visit: Visit) -> None:
        await answer(ok(visit.request.target.encode()))(visit)

    async def ask(client: RawClient, number: int) -> None:
        async with client:
            for index in range(5):
                target = f"/{number}/{index}"
                assert (await client.get(target)).body == target.encode()

    async with (
        ScriptedUpstream(say_back) as upstream,
        running(one_route(upstream)) as proxy,
        asyncio.TaskGroup() as group,
    ):
        for number in range(40):
            group.create_task(ask(proxy.client(), number))
