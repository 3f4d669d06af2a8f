"""What a breaker must not hold against an address: the faults of others."""

import asyncio
import socket
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from tests.support import (
    PATIENCE,
    ScriptedUpstream,
    Visit,
    answer_and_close,
    eventually,
    ok,
    one_route,
    running,
    subprocess_proxy,
)

FEW = 4
BREAKER = f"breaker: {{min_requests: {FEW}, failure_ratio: 0.5}}"


async def test_clients_that_stop_in_the_middle_of_their_bodies() -> None:
    async def impatient(visit: Visit) -> None:
        if visit.request.get("Content-Length") is None:
            await visit.send(ok())
            return
        await eventually(lambda: bytes(visit.wire.unread) == b"half")
        visit.wire.reset()

    async with (
        ScriptedUpstream(impatient) as upstream,
        running(one_route(upstream, "retry: true", options=BREAKER)) as proxy,
    ):
        for _ in range(FEW):
            async with proxy.client() as client:
                await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
                assert (await client.response("POST")).reason_word == "reset"
        assert (await proxy.get()).status == 200
        assert (await proxy.metrics()).total("holdfast_breaker_state") == 0
        upstream.violations.clear()  # half a body is what this is about


async def test_a_place_that_came_too_late_to_dial() -> None:
    """All that is left of ``connect_timeout`` then is too short, for any address."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        listener.setblocking(False)  # noqa: FBT003 - the socket module's signature
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        options = "max_connections: 1\nconnect_timeout: 300ms\nbreaker: {min_requests: 1}"
        config = one_route(url, "retry: {attempts: 1}", options=options)
        async with running(config) as proxy, AsyncExitStack() as crowd:
            first = asyncio.create_task(proxy.get())
            served, _ = await loop.sock_accept(listener)
            crowd.enter_context(served)
            # From here on nobody else gets through to it.
            for _ in range(4):
                sock = crowd.enter_context(socket.socket())
                sock.setblocking(False)  # noqa: FBT003 - as above
                sock.connect_ex(listener.getsockname())
            second = asyncio.create_task(proxy.get())
            await asyncio.sleep(0.1)
            await loop.sock_recv(served, 65536)
            await loop.sock_sendall(served, ok(b"ok", "Connection: close"))
            assert (await first).status == 200
            late = await second
            assert (late.status, late.reason_word) == (503, "busy")
            assert (await proxy.metrics()).total("holdfast_breaker_state") == 0


LIMIT = 40


def has_all(pid: int) -> bool:
    """Whether a process has every descriptor that the limit allows."""
    return {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}.issuperset(range(LIMIT))


async def test_our_own_lack_of_descriptors() -> None:
    options = "breaker: {min_requests: 3, open_for: 1h}"
    async with (
        # Each attempt needs a connection of its own.
        ScriptedUpstream(answer_and_close(ok(b"ok", "Connection: close"))) as upstream,
        subprocess_proxy(
            one_route(upstream, "retry: {attempts: 1}", options=options), first=f"ulimit -n {LIMIT}"
        ) as proxy,
        proxy.client() as early,
    ):
        assert (await early.get()).status == 200
        async with AsyncExitStack() as stack:
            for _ in range(60):
                with suppress(OSError):
                    await stack.enter_async_context(proxy.client())
            # Not before it has accepted as many of them as it can: libuv turns the others away, and
            # what a call had meanwhile would stay free.
            await eventually(lambda: has_all(proxy.process.pid))
            assert [(await early.get()).status for _ in range(4)] == [502] * 4
        async with asyncio.timeout(PATIENCE):
            while (await early.get()).status != 200:
                pass
