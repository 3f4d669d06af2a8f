"""A kept connection that ended while nobody looked: replaced once, if that can do no harm."""

import asyncio
import os
import socket

import pytest

from tests.support import (
    Behaviour,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_close,
    answer_and_reset,
    both_loops,
    eventually,
    hang_up,
    ok,
    one_route,
    request,
    reset,
    running,
)
from tests.support.clock import FakeClock
from tests.support.records import last_logged, outcomes

OVER_A_SECOND = 1.5


@both_loops
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
@pytest.mark.parametrize("fault", [reset, hang_up])
async def test_a_repeatable_request_never_notices(method: str, fault: Behaviour) -> None:
    body = b"payload" if method == "PUT" else None
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer(ok()), fault, answer(ok(b"")))
        await client.get()
        response = await client.request(method, "/again", body=body)
        assert response.status == 200
        record = await last_logged(proxy, 2)
        assert outcomes(record) == ["reset", "2xx"]
        assert [(a["n"], a["reused"], a["received"]) for a in record["attempts"]] == [
            (1, True, False),
            (2, False, True),
        ]
        _, first, second = upstream.requests
        assert (first.connection, second.connection) == (1, 2)
        assert (first.raw_head, first.body) == (second.raw_head, second.body)
        assert second.body == (body or b"")
        assert proxy.open_upstream_connections == 1


@pytest.mark.parametrize("method", ["POST", "PATCH", "PURGE"])
@pytest.mark.parametrize("fault", [reset, hang_up])
async def test_an_unrepeatable_request_is_never_sent_twice(method: str, fault: Behaviour) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer(ok()), fault)
        await client.get()
        response = await client.request(method, "/", body=b"payload")
        assert (response.status, response.reason_word) == (502, "reset")
        assert outcomes(await last_logged(proxy, 2)) == ["reset"]
        assert [r.method for r in upstream.requests] == ["GET", method]


async def test_it_is_replaced_once_and_not_again() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer(ok()), reset, reset)
        await client.get()
        response = await client.get()
        assert (response.status, response.reason_word) == (502, "reset")
        assert response.problem["attempts"] == 2
        assert outcomes(await last_logged(proxy, 2)) == ["reset", "reset"]
        assert len(upstream.requests) == 3


async def test_many_stale_ones_are_not_tried_one_after_the_other() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        arrived = asyncio.Event()

        async def together(visit: Visit) -> None:
            if visit.number == 5:
                arrived.set()
            await arrived.wait()
            await visit.send(ok())

        upstream.usual = together
        await asyncio.gather(*(proxy.get() for _ in range(5)))
        assert proxy.idle_upstream_connections == 5
        upstream.usual = answer(ok())
        upstream.script(reset)
        assert (await proxy.get()).status == 200
        assert outcomes(await last_logged(proxy, 6)) == ["reset", "2xx"]
        # The second attempt went over a connection made for it.
        assert upstream.requests[-1].connection == 6


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(answer_and_reset(b"HTTP/1.1 200"), id="a piece of the head came"),
        pytest.param(answer_and_close(b"HTTP/1.1 103 Hints\r\n\r\n"), id="an interim response"),
    ],
)
async def test_a_connection_that_answered_at_all_was_not_stale(fault: Behaviour) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer(ok()), fault)
        await client.get()
        assert (await client.get()).status == 502
        assert outcomes(await last_logged(proxy, 2)) == ["reset"]


async def test_a_streamed_upload_is_not_repeated() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer(ok()), reset)
        await client.get()
        await client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\npa")
        await eventually(lambda: len(upstream.requests) == 2)
        await client.send(b"rt")
        assert (await client.response("PUT")).status == 502
        assert len(upstream.requests) == 2


@both_loops
@pytest.mark.parametrize("turns", range(12))
async def test_an_upload_that_comes_as_its_connection_proves_stale_is_never_framed_wrongly(
    turns: int,
) -> None:
    """The head has told the upstream to expect chunks; the body is here before any was read."""
    loop = asyncio.get_running_loop()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        client_socket = client.wire.transport.get_extra_info("socket").fileno()

        def send_body_after(turns: int) -> None:
            # Past the loop's own buffers: the moment of writing is the point.
            if turns == 0 and client.wire.is_open:
                os.write(client_socket, b"5\r\nhello\r\n0\r\n\r\n")
            elif turns:
                loop.call_soon(send_body_after, turns - 1)

        async def prove_stale(visit: Visit) -> None:
            ours = visit.wire.transport.get_extra_info("socket")
            with socket.socket(fileno=os.dup(ours.fileno())) as same:
                same.shutdown(socket.SHUT_RDWR)
            send_body_after(turns)
            await visit.wire.ended()
            visit.wire.unread.clear()

        upstream.script(answer(ok()), prove_stale)
        await client.get("/warm")
        await client.send(request("PUT", "/", "Transfer-Encoding: chunked"))
        response = await client.response("PUT")
        first, *repeated = upstream.requests[1:]
        assert first.connection == 1
        if response.status == 200:
            # A repetition is read to its end by whoever follows the rules.
            assert [(r.body, r.complete) for r in repeated] == [(b"hello", True)]
        else:
            assert (response.status, response.reason_word) == (502, "reset")
            assert repeated == []


async def test_an_idle_connection_that_the_upstream_closed_is_noticed_before_it_is_used() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        for round_number in range(1, 4):
            assert (await client.get()).status == 200
            upstream.connections[-1].wire.close()
            await eventually(lambda: proxy.open_upstream_connections == 0)
            # Even a POST is safe: it gets a connection that is known to be alive.
            assert (await client.request("POST", "/", body=b"x")).status == 200
            upstream.connections[-1].wire.reset()
            await eventually(lambda: proxy.open_upstream_connections == 0)
            assert outcomes(await last_logged(proxy, 2 * round_number)) == ["2xx"]


async def test_closing_right_behind_the_answer_is_invisible_to_the_next_get() -> None:
    async def answer_then_close(visit: Visit) -> None:
        await visit.send(ok())
        # Without "Connection: close": the proxy cannot know.
        visit.wire.close()

    async with ScriptedUpstream(answer_then_close) as upstream, running(one_route(upstream)) as p:
        async with p.client() as client:
            statuses = [(await client.get()).status for _ in range(50)]
        assert statuses == [200] * 50
        record = await p.logged(50)
        assert all(outcomes(line)[-1] == "2xx" for line in record)


async def test_pipelined_gets_survive_a_close_after_each_answer() -> None:
    async with (
        ScriptedUpstream(answer_and_close(ok())) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("GET", "/") * 20)
        responses = await client.responses(["GET"] * 20)
        assert [response.status for response in responses] == [200] * 20


@pytest.mark.parametrize(
    ("method", "idle", "connection"),
    [
        pytest.param("POST", 0.2, 1, id="POST takes one that was used just now"),
        pytest.param("POST", OVER_A_SECOND, 2, id="POST takes none that was idle for a second"),
        pytest.param("PATCH", OVER_A_SECOND, 2, id="PATCH neither"),
        pytest.param("GET", OVER_A_SECOND, 1, id="GET takes it"),
        pytest.param("PUT", 29, 1, id="PUT takes it up to keepalive"),
        pytest.param("GET", 31, 2, id="nobody takes one beyond keepalive"),
    ],
)
async def test_which_idle_connection_a_request_may_take(
    method: str, idle: float, connection: int
) -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream), clock=clock) as proxy,
        proxy.client() as client,
    ):
        await client.get()
        clock.advance(idle)
        body = None if method == "GET" else b"x"
        assert (await client.request(method, "/", body=body)).status == 200
        assert upstream.requests[-1].connection == connection
        record = await last_logged(proxy, 2)
        assert record["attempts"][0]["reused"] == (connection == 1)


@pytest.mark.parametrize(
    ("field", "idle", "connection"),
    [
        pytest.param("Keep-Alive: timeout=1", 0.5, 1, id="within the upstream's own limit"),
        pytest.param("Keep-Alive: timeout=1", OVER_A_SECOND, 2, id="beyond it"),
        pytest.param("Keep-Alive: timeout=600", 31, 2, id="ours still holds"),
        pytest.param("Keep-Alive: max=5, timeout=2", 2.5, 2, id="among other parameters"),
    ],
)
async def test_the_upstream_s_keep_alive_is_honoured(
    field: str, idle: float, connection: int
) -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream(answer(ok(b"", field))) as upstream,
        running(one_route(upstream), clock=clock) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).get("Keep-Alive") is None
        clock.advance(idle)
        await client.get()
        assert upstream.requests[-1].connection == connection
