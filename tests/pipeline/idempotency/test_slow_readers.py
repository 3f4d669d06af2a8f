"""Duplicates that do not read their replay: they share one result, and get it piece by piece."""

import asyncio
import sys
from contextlib import AsyncExitStack
from random import Random
from typing import cast

import pytest

from proxy.policy.idempotency.stored_response import in_hand, pack, unpack
from proxy.server.connection import ClientConnection
from tests.support import (
    RawClient,
    RunningProxy,
    ScriptedUpstream,
    answer,
    both_loops,
    eventually,
    ok,
    one_route,
    request,
    running,
)

SIZE = 6 * 1024 * 1024
READERS = 10
BODY = Random(SIZE).randbytes(SIZE)
ROUTE = "idempotency: {max_response: 8MiB}"
POST = request("POST", "/", "Idempotency-Key: k", body=b"pay")


def waiting_bytes(proxy: RunningProxy) -> int:
    """What was written to clients and did not go out yet."""
    open_connections = proxy.app._listener.server._open
    transports = [connection.transport for connection in open_connections]
    return sum(t.get_write_buffer_size() for t in transports if t is not None)


NEVER_PAUSES = (3, 12) <= sys.version_info < (3, 12, 9) or (
    (3, 13) <= sys.version_info < (3, 13, 2)
)
"""Whether ``writelines()`` of asyncio's loop, on which only tests run, tells nobody to stop
(python/cpython#127655)."""


@both_loops
async def test_a_crowd_that_does_not_read_holds_little() -> None:
    if NEVER_PAUSES and isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop):
        pytest.skip("this Python's asyncio has no bound here; uvloop, which the proxy uses, has")
    async with (
        ScriptedUpstream(answer(ok(BODY))) as upstream,
        running(one_route(upstream, ROUTE)) as proxy,
        AsyncExitStack() as stack,
    ):
        async with proxy.client() as client:
            await client.send(POST)
            assert (await client.response("POST")).body == BODY
        readers: list[RawClient] = []
        for _ in range(READERS):
            readers.append(await stack.enter_async_context(proxy.client(receive_buffer=4096)))
            readers[-1].wire.stall()
            await readers[-1].send(POST)
        # Each of them waits for its reader, and none has written all of it.
        connections = cast("set[ClientConnection]", proxy.app._listener.server._open)
        await eventually(lambda: all(connection.writing_paused for connection in connections))
        assert waiting_bytes(proxy) < READERS * 256 * 1024
        for reader in readers:
            reader.wire.go_on()
        for reader in readers:
            response = await reader.response("POST")
            assert response.get("Idempotent-Replayed") == "true"
            assert response.body == BODY
            # And the connection is as good as before.
            assert (await reader.request("GET", "/")).body == BODY
        assert [r.method for r in upstream.requests] == ["POST"] + ["GET"] * READERS


async def test_a_reader_that_leaves_half_way_is_no_concern_of_the_others() -> None:
    async with (
        ScriptedUpstream(answer(ok(BODY))) as upstream,
        running(one_route(upstream, ROUTE)) as proxy,
        proxy.client() as client,
    ):
        await client.send(POST)
        await client.response("POST")
        async with proxy.client(receive_buffer=4096) as reader:
            reader.wire.stall()
            await reader.send(POST)
            await eventually(lambda: waiting_bytes(proxy) > 0)
        await eventually(lambda: proxy.client_connections == 1)
        assert [line["code"] for line in await proxy.logged(2)] == [200, 499]
        await client.send(POST)
        assert (await client.response("POST")).body == BODY


async def test_one_that_stops_reading_is_cut_off_after_idle_timeout() -> None:
    async with (
        ScriptedUpstream(answer(ok(BODY))) as upstream,
        running(one_route(upstream, f"{ROUTE}\nidle_timeout: 300ms")) as proxy,
        proxy.client(receive_buffer=4096) as reader,
    ):
        async with proxy.client() as client:
            await client.send(POST)
            await client.response("POST")
        reader.wire.stall()
        await reader.send(POST)
        await eventually(lambda: waiting_bytes(proxy) > 0)
        await eventually(lambda: proxy.client_connections == 0)


def test_what_is_unpacked_is_not_copied() -> None:
    kept = in_hand(b"HTTP/1.1 200 OK\r\nX: y", BODY)
    first, second = unpack("name", kept), unpack("name", kept)
    assert first == second
    packed = pack("name", first)
    third = unpack("name", packed)
    assert third == first
    assert [result.body.obj for result in (first, second, third)] == [kept, kept, packed]  # type: ignore[union-attr]  # views
