"""WebSocket and server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tests.examples.example import Example
from tests.support import RunningProxy, ScriptedUpstream, Visit, hang_up, request, virtual_time
from tests.support.records import last_logged

pytestmark = virtual_time


EXAMPLE = Example("chat.yaml")

ALICE, BOB = "Authorization: Bearer alice", "Authorization: Bearer bob"
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
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def echo(visit: Visit) -> None:
    """A chat in which nobody says anything new."""
    await visit.send(SWITCHING)
    while data := await visit.wire.read():
        await visit.send(data)


@asynccontextmanager
async def stage() -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    async with ScriptedUpstream() as chat:
        overlay = f"drain_delay: 0s\nupstreams: {{chat: {chat.url}}}"
        async with EXAMPLE.running(overlay) as proxy:
            yield chat, proxy


async def test_what_is_said_comes_back_at_once() -> None:
    async with stage() as (chat, proxy), proxy.client() as client:
        chat.script(echo)
        assert (await client.get("/ws/room", *WEBSOCKET, ALICE)).status == 101
        for frame in (b"\x81\x85\x00\x00\x00\x00hello", b"\x81\x83\x00\x00\x00\x00bye"):
            await client.send(frame)
            assert await client.wire.read_exactly(len(frame)) == frame


async def test_a_user_has_five_connections_and_the_sixth_is_told_so() -> None:
    async with stage() as (chat, proxy), AsyncExitStack() as stack:
        chat.usual = echo
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(7)]
        for client in clients[:5]:
            assert (await client.get("/ws/room", *WEBSOCKET, ALICE)).status == 101
        refused = await clients[5].get("/ws/room", *WEBSOCKET, ALICE)
        assert (refused.status, refused.reason_word) == (429, "throttled")
        assert (await clients[6].get("/ws/room", *WEBSOCKET, BOB)).status == 101


async def test_nobody_switches_elsewhere() -> None:
    async with stage() as (chat, proxy):
        assert (await proxy.get("/rooms", *WEBSOCKET)).status == 200
        assert chat.requests[0].get("Upgrade") is None


async def test_an_event_stream_is_asked_for_again_until_it_begins() -> None:
    said = asyncio.Event()

    async def events(visit: Visit) -> None:
        await visit.send(EVENTS + b"9\r\ndata: 1\n\n\r\n")
        await said.wait()
        await visit.send(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")

    async with stage() as (chat, proxy), proxy.client() as client:
        chat.script(hang_up, events)
        await client.send(request("GET", "/events/room", "Last-Event-ID: 0", ALICE))
        await client.wire.read_until(b"data: 1\n\n\r\n")
        said.set()
        assert await client.wire.read_until(b"0\r\n\r\n") == b"9\r\ndata: 2\n\n\r\n0\r\n\r\n"
        assert [seen.get("Last-Event-ID") for seen in chat.requests] == ["0", "0"]
        assert [a["why"] for a in (await last_logged(proxy))["attempts"]] == [
            "retried",
            "recovered",
        ]
