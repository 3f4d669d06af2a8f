"""Slow uploads that hold all connections to an upstream while others wait for one."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.support import (
    PATIENCE,
    RawClient,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    ok,
    one_route,
    request,
    running,
)
from tests.support.clock import FakeClock

MOST = 4
OPTIONS = f"max_connections: {MOST}\nconnect_timeout: 5s"
STRANGER = "127.0.0.2"


@asynccontextmanager
async def stage(
    clock: FakeClock, upstream: ScriptedUpstream, top: str = ""
) -> AsyncIterator[tuple[RunningProxy, list[RawClient]]]:
    """A proxy, and uploads of a stranger that hold every connection to the upstream."""
    config = one_route(upstream, "timeout: 9s", options=OPTIONS, top=top)
    async with running(config, clock=clock) as proxy, AsyncExitStack() as stack:
        uploads = [
            await stack.enter_async_context(proxy.client(source=STRANGER)) for _ in range(MOST)
        ]
        for number, client in enumerate(uploads):
            await client.send(request("POST", f"/{number}", "Content-Length: 9999"), b"a")
            await eventually(lambda: len(upstream.requests) == number + 1)  # noqa: B023 - awaited
        yield proxy, uploads


@pytest.mark.parametrize("source", ["127.0.0.1", STRANGER])
async def test_those_below_the_rate_make_way_one_for_each_who_waits(source: str) -> None:
    clock = FakeClock()
    async with ScriptedUpstream() as upstream, stage(clock, upstream) as (proxy, uploads):
        clock.advance(2)
        for _ in range(3):
            async with proxy.client(source=source) as victim:
                assert (await victim.get()).status == 200
        response = await uploads[0].response("POST")
        assert (response.status, response.reason_word) == (408, "slow_client")
        assert all(client.is_silent for client in uploads[1:])


async def test_they_make_way_while_others_wait_already() -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        stage(clock, upstream) as (proxy, uploads),
        proxy.client(source=STRANGER) as first,
        proxy.client(source=STRANGER) as second,
    ):
        victims = [asyncio.create_task(client.get()) for client in (first, second)]
        await asyncio.sleep(0.1)
        assert all(client.is_silent for client in uploads)  # they have only just begun
        clock.advance(2)
        assert [(await victim).status for victim in victims] == [200, 200]
        assert [client.is_silent for client in uploads] == [False, False, True, True]


async def test_beside_others_who_wait_one_callers_uploads_hold_half() -> None:
    clock, served = FakeClock(), asyncio.Event()

    async def wait(visit: Visit) -> None:
        await visit.read_body()
        await served.wait()
        await visit.send(ok())

    async with (
        ScriptedUpstream(answer(ok())) as upstream,
        stage(clock, upstream, "limits: {body_rate: none}") as (proxy, uploads),
    ):
        upstream.usual = wait
        victims = [asyncio.create_task(proxy.get()) for _ in range(3)]
        for client in uploads[:2]:
            assert (await client.response("POST")).status == 408
        await eventually(lambda: len(upstream.requests) == MOST + 2)
        await asyncio.sleep(0.3)
        assert all(client.is_silent for client in uploads[2:])
        served.set()
        assert [(await victim).status for victim in victims] == [200] * 3


async def test_ones_own_uploads_stay() -> None:
    clock = FakeClock()
    async with ScriptedUpstream() as upstream:
        options = OPTIONS.replace("5s", "300ms")
        config = one_route(upstream, options=options, top="limits: {body_rate: none}")
        async with running(config, clock=clock) as proxy, AsyncExitStack() as stack:
            for number in range(MOST):
                client = await stack.enter_async_context(proxy.client())
                await client.send(request("POST", "/", "Content-Length: 9"), b"a")
                await eventually(lambda: len(upstream.requests) == number + 1)  # noqa: B023 - awaited
            assert (await proxy.get()).status == 503


async def stuck(client: RawClient) -> None:
    """All buffers on the way are full: nothing of what the client sends is taken any more."""
    left, looks = -1, 0
    async with asyncio.timeout(PATIENCE):
        while looks < 5:
            await asyncio.sleep(0.02)
            before, left = left, client.wire.transport.get_write_buffer_size()
            looks = looks + 1 if left and left == before else 0


async def test_an_upload_that_waits_for_its_upstream_stays() -> None:
    clock, go_on = FakeClock(), asyncio.Event()

    async def read_later(visit: Visit) -> None:
        visit.wire.stall()
        await go_on.wait()
        visit.wire.go_on()
        await answer(ok())(visit)

    body = bytes(12_000_000)  # more than all buffers on the way can hold, which the system enlarges
    options = "max_connections: 1\nconnect_timeout: 500ms"
    async with (
        ScriptedUpstream(read_later, receive_buffer=4096) as upstream,
        running(one_route(upstream, "timeout: none", options=options), clock=clock) as proxy,
        proxy.client(source=STRANGER) as client,
    ):
        sock = client.wire.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        head = request("POST", "/", f"Content-Length: {len(body)}")
        sending = asyncio.create_task(client.send(head, body))
        await eventually(lambda: len(upstream.requests) == 1)
        await stuck(client)
        clock.advance(20)
        assert (await proxy.get()).status == 503
        go_on.set()
        await sending
        assert (await client.response("POST")).status == 200
