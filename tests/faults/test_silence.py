"""An upstream that says nothing, or says it very slowly."""

import asyncio

import pytest

from tests.support import (
    Behaviour,
    End,
    ScriptedUpstream,
    Visit,
    answer_and_hang,
    both_loops,
    chunked,
    hang,
    now,
    ok,
    one_route,
    real_time,
    request,
    running,
    stall,
    virtual_time,
)
from tests.support.records import last_logged, outcomes

pytestmark = virtual_time


LARGE = 64 * 1024 * 1024


@both_loops
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(hang, id="not a byte"),
        pytest.param(answer_and_hang(b"HTTP/1.1 200 OK\r\nContent-"), id="half a head"),
        pytest.param(answer_and_hang(b"HTTP/1.1 103 Hints\r\n\r\n"), id="an interim response"),
    ],
)
async def test_no_head_by_the_route_s_timeout_is_504(method: str, fault: Behaviour) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "timeout: 60ms")) as proxy,
        proxy.client() as client,
    ):
        upstream.script(fault)
        began = now()
        response = await client.request(method, "/", body=b"x" if method == "POST" else None)
        assert 0.045 <= now() - began < 2
        assert (response.status, response.reason_word) == (504, "timeout")
        record = await last_logged(proxy)
        assert outcomes(record) == ["timeout"]
        assert 45 <= record["attempts"][0]["ms"] < 2000
        assert len(upstream.requests) == 1
        assert proxy.open_upstream_connections == 0
        assert await upstream.connections[0].wire.ended() in End
        # The client's own connection is as good as before.
        assert (await client.get()).status == 200


async def test_time_spent_waiting_for_the_client_s_own_body_does_not_count() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "timeout: 80ms")) as proxy,
        proxy.client() as client,
    ):
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
        for byte in (b"1", b"2", b"3"):
            await asyncio.sleep(0.05)
            await client.send(byte)
        assert (await client.response("POST")).status == 200
        assert outcomes(await last_logged(proxy)) == ["2xx"]


async def test_the_timeout_counts_again_once_the_client_has_sent_everything() -> None:
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, "timeout: 60ms")) as proxy,
        proxy.client() as client,
    ):
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1")
        await asyncio.sleep(0.1)
        await client.send(b"2")
        began = now()
        assert (await client.response("POST")).status == 504
        assert now() - began < 2
        assert outcomes(await last_logged(proxy)) == ["timeout"]


@both_loops
@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", id="counted body"),
        pytest.param(chunked(b"part", last=False), id="chunked body"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\npart", id="body that ends with its connection"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", id="body not begun"),
    ],
)
async def test_a_body_that_falls_silent_is_cut(beginning: bytes) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idle_timeout: 60ms")) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer_and_hang(beginning))
        began = now()
        response = await client.get()
        assert 0.045 <= now() - began < 2
        assert (response.status, response.complete) == (200, False)
        assert await client.ended() is End.RESET
        assert outcomes(await last_logged(proxy)) == ["truncated"]
        assert proxy.open_upstream_connections == 0


async def test_the_route_s_timeout_ends_with_the_head() -> None:
    async def slow_body(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
        await asyncio.sleep(0.1)
        await visit.send(b"late")

    async with (
        ScriptedUpstream(slow_body) as upstream,
        running(one_route(upstream, "timeout: 50ms")) as proxy,
    ):
        assert (await proxy.get()).body == b"late"
        assert outcomes(await last_logged(proxy)) == ["2xx"]


@real_time  # of sockets, with the buffers of a kernel
@pytest.mark.alone
async def test_a_trickle_is_passed_on_byte_by_byte_and_holds_up_nobody() -> None:
    written = b"0123456789"

    async def trickle(visit: Visit) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + written:
            visit.wire.write(bytes([byte]))
            await asyncio.sleep(0.004)

    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idle_timeout: 60ms")) as proxy,
        proxy.client() as client,
    ):
        upstream.script(trickle)
        await client.send(request("GET", "/slow"))
        await upstream.seen()
        slowest = 0.0
        while b"0" not in client.wire.unread:
            began = now()
            assert (await proxy.get("/other")).status == 200
            slowest = max(slowest, now() - began)
        # The first byte of the body is here, the last has not even been sent.
        assert b"9" not in client.wire.unread[-5:]
        assert slowest < 1
        response = await client.response()
        assert (response.body, response.complete) == (written, True)


@real_time  # of sockets, with the buffers of a kernel
@pytest.mark.alone
async def test_an_upstream_that_reads_nothing_is_504_and_slows_the_client_down() -> None:
    size = 64 * 1024 * 1024
    sent = 0

    async def send_all() -> None:
        nonlocal sent
        while sent < size:
            await client.send(bytes(65536))
            await asyncio.sleep(0.001)
            sent += 65536

    async with (
        ScriptedUpstream(stall, receive_buffer=4096) as upstream,
        running(one_route(upstream, "timeout: 300ms")) as proxy,
        proxy.client() as client,
    ):
        await client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
        sending = asyncio.create_task(send_all())
        response = await client.response("PUT")
        sending.cancel()
        assert (response.status, response.reason_word) == (504, "timeout")
        # What the kernel's buffers and ours hold, and no more.
        assert sent < size / 4
        assert outcomes(await last_logged(proxy)) == ["timeout"]
        assert proxy.open_upstream_connections == 0
        await upstream.stop()


async def test_what_is_no_body_does_not_count_as_one() -> None:
    async def endless_chunk_extension(visit: Visit) -> None:
        await visit.send(chunked(b"part", last=False) + b"1;x=")
        while visit.wire.is_open:
            await visit.send(b"a" * 65536)
            await asyncio.sleep(0.005)

    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idle_timeout: 60ms")) as proxy,
    ):
        upstream.script(endless_chunk_extension)
        response = await proxy.get()
        assert (response.body, response.complete) == (b"part", False)
        assert outcomes(await last_logged(proxy)) == ["truncated"]


@pytest.mark.alone
@both_loops
async def test_an_upstream_that_stops_reading_is_504_where_only_silence_is_bounded() -> None:
    async with (
        ScriptedUpstream(stall, receive_buffer=4096) as upstream,
        running(one_route(upstream, "timeout: none\nidle_timeout: 150ms")) as proxy,
        proxy.client() as client,
    ):
        began = now()
        client.wire.write(request("POST", "/", f"Content-Length: {LARGE}") + bytes(LARGE // 2))
        response = await client.response("POST")
        assert 0.14 <= now() - began < 2
        assert (response.status, response.reason_word) == (504, "timeout")
        assert outcomes(await last_logged(proxy)) == ["timeout"]
        assert proxy.open_upstream_connections == 0
        await upstream.stop()


@real_time  # of sockets, with the buffers of a kernel
@pytest.mark.alone
async def test_an_upstream_that_reads_slowly_but_steadily_gets_everything() -> None:
    async def read_slowly(visit: Visit) -> None:
        began = now()
        while now() - began < 0.7:
            visit.wire.stall()
            await asyncio.sleep(0.03)
            visit.wire.go_on()
            await asyncio.sleep(0.001)
        assert visit.wire.received < LARGE
        await visit.read_body()
        await visit.send(ok())

    async with (
        ScriptedUpstream(read_slowly, receive_buffer=65536) as upstream,
        running(one_route(upstream, "timeout: none\nidle_timeout: 200ms")) as proxy,
        proxy.client() as client,
    ):
        client.wire.write(request("POST", "/", body=bytes(LARGE)))
        assert (await client.response("POST")).status == 200
        assert len(upstream.requests[0].body) == LARGE
