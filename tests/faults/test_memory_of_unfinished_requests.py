"""Heads and bodies that are still coming: each is bounded, and so are all of them together."""

from contextlib import AsyncExitStack

import pytest

from proxy.server.body.memory_budget import COPIES, UNREAD_BODY
from tests.support import (
    RawClient,
    RunningProxy,
    ScriptedUpstream,
    eventually,
    one_route,
    request,
    running,
)

STRANGER = "127.0.0.2"
MEMORY = 4 * UNREAD_BODY
SIZE = 1_000_000
LARGE = request("POST", "/", f"Content-Length: {SIZE}")
REST = bytes(SIZE - len(b"part"))
PART_OF_A_HEAD = b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 30_000


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("body.streaming", "connection"):
        monkeypatch.setattr(f"proxy.server.{module}.MEMORY_LIMIT", MEMORY)


def counted(proxy: RunningProxy) -> int:
    return proxy.app._listener.server.incoming_memory.used


async def test_bodies_that_are_still_coming_are_refused_beyond_the_room_for_them() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(5)]
        for client in clients:
            await client.send(LARGE, b"part")
        refused = await clients[4].response("POST")
        assert (refused.status, refused.reason_word) == (503, "overload")
        assert refused.get("Retry-After") is not None
        assert refused.get("Connection") == "close"
        # What is small and complete is served all the same.
        async with proxy.client() as other:
            assert (await other.request("POST", "/", body=b"small")).status == 200
            assert (await other.get()).status == 200
        for client in clients[:4]:
            await client.send(REST)
            assert (await client.response("POST")).status == 200
        assert counted(proxy) == 0


@pytest.mark.parametrize("end", [b"\r\n\r\n", b""], ids=["complete later", "never complete"])
async def test_large_heads_are_refused_beyond_the_room_for_them(end: bytes) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        AsyncExitStack() as stack,
    ):
        clients: list[RawClient] = []
        most = MEMORY // (len(PART_OF_A_HEAD) * COPIES)
        for _ in range(most + 1):
            clients.append(await stack.enter_async_context(proxy.client()))
            await clients[-1].send(PART_OF_A_HEAD)
        refused = await clients[-1].response()
        assert (refused.status, refused.reason_word) == (503, "overload")
        assert (await proxy.get()).status == 200
        for client in clients[:-1]:
            await client.send(end)
            if end:
                assert (await client.response()).status == 200
            else:
                client.wire.reset()
        await eventually(lambda: counted(proxy) == 0)


async def test_a_caller_that_has_taken_all_makes_room_for_the_next() -> None:
    upload = LARGE + b"part"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        AsyncExitStack() as stack,
        proxy.client() as victim,
    ):
        strangers = [
            await stack.enter_async_context(proxy.client(source=STRANGER)) for _ in range(4)
        ]
        for number, client in enumerate(strangers):
            await client.send(upload)
            await eventually(lambda: len(upstream.requests) == number + 1)  # noqa: B023 - awaited
        await victim.send(upload)
        assert (await strangers[0].response("POST")).status == 503
        await victim.send(REST)
        assert (await victim.response("POST")).status == 200
        assert all(client.is_silent for client in strangers[1:])


async def test_heads_that_never_end_make_room_for_another_caller() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        AsyncExitStack() as stack,
        proxy.client() as victim,
    ):
        strangers: list[RawClient] = []
        for _ in range(MEMORY // (len(PART_OF_A_HEAD) * COPIES)):
            strangers.append(await stack.enter_async_context(proxy.client(source=STRANGER)))
            await strangers[-1].send(PART_OF_A_HEAD)
        await eventually(lambda: counted(proxy) > MEMORY - len(PART_OF_A_HEAD) * COPIES)
        await victim.send(LARGE, b"part")
        assert (await strangers[0].response()).status == 503
        await victim.send(REST)
        assert (await victim.response("POST")).status == 200
        # One that is complete is needed, and so is all that its caller could not be asked for.
        await strangers[-1].send(b"\r\n\r\n")
        assert (await strangers[-1].response()).status == 200
        for client in strangers:
            client.wire.reset()
        await eventually(lambda: counted(proxy) == 0)
        assert proxy.app._listener.server.incoming_memory._uploads == {}


async def test_beside_another_a_caller_gets_half() -> None:
    upload = LARGE + b"part"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        AsyncExitStack() as stack,
        proxy.client() as victim,
    ):
        await victim.send(upload)
        await eventually(lambda: counted(proxy) == UNREAD_BODY)
        strangers = [
            await stack.enter_async_context(proxy.client(source=STRANGER)) for _ in range(3)
        ]
        for client in strangers:
            await client.send(upload)
        assert (await strangers[2].response("POST")).status == 503
        assert counted(proxy) == 3 * UNREAD_BODY
        async with proxy.client() as second:
            await second.send(upload)
            await eventually(lambda: counted(proxy) == 4 * UNREAD_BODY)
            await second.send(REST)
            assert (await second.response("POST")).status == 200
        await victim.send(REST)
        assert (await victim.response("POST")).status == 200


async def test_a_body_counts_until_it_is_complete() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idempotency: true")) as proxy,
        proxy.client() as client,
    ):
        for key in ("", "Idempotency-Key: k"):
            fields = (key,) if key else ()
            await client.send(request("POST", "/", *fields, f"Content-Length: {SIZE}"), b"part")
            await eventually(lambda: counted(proxy) == UNREAD_BODY)
            await client.send(REST)
            assert (await client.response("POST")).status == 200
            assert counted(proxy) == 0


async def test_a_small_body_counts_as_what_it_is() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(20)]
        for client in clients:
            await client.send(request("POST", "/", "Content-Length: 9"), b"part")
        await eventually(lambda: counted(proxy) == 20 * 9)
        for client in clients:
            await client.send(b"whole")
            assert (await client.response("POST")).status == 200
        assert counted(proxy) == 0
