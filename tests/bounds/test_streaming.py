"""However large a body and however slow its reader: memory stays where it was."""

import asyncio

import pytest

from tests.bounds.weighing import MIB, peak_of, report
from tests.support import (
    ScriptedUpstream,
    Visit,
    Wire,
    one_route,
    request,
    subprocess_proxy,
)
from tests.support.depth import DEEP

SIZE = 1024 * MIB if DEEP else 256 * MIB
STALL = 5.0 if DEEP else 1.0
MOST = 30 * MIB
PIECE = bytes(256 * 1024)


async def _send_pieces(wire: Wire) -> None:
    for _ in range(SIZE // len(PIECE)):
        wire.write(PIECE)
        await wire.drain()


async def _throw_away(wire: Wire, size: int) -> None:
    while size:
        data = await wire.read(MIB)
        assert data, f"{size} bytes are missing"
        size -= len(data)


@pytest.mark.timeout(120)
async def test_a_large_answer_past_a_client_that_stalls() -> None:
    async def send_all(visit: Visit) -> None:
        visit.wire.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
        await _send_pieces(visit.wire)

    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.get("/to-warm-up")
        upstream.script(send_all)
        async with peak_of(proxy) as peak:
            await client.send(request("GET", "/"))
            await client.wire.read_until(b"\r\n\r\n")
            client.wire.stall()
            read = len(client.wire.unread)
            await asyncio.sleep(STALL)
            assert len(client.wire.unread) == read
            client.wire.go_on()
            await _throw_away(client.wire, SIZE)
        above = peak.look()
        report("a large answer, above idle", above)
        assert above < MOST, f"{above / MIB:.1f} MiB above idle"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("framing", ["Content-Length", "chunked"])
async def test_a_large_upload_past_an_upstream_that_stalls(framing: str) -> None:
    async def stall_then_read(visit: Visit) -> None:
        visit.wire.stall()
        await asyncio.sleep(STALL)
        visit.wire.go_on()
        if framing == "Content-Length":
            await _throw_away(visit.wire, SIZE)
        else:
            # The frames are the proxy's own: only the end is of interest here.
            tail = b""
            while not tail.endswith(b"\r\n0\r\n\r\n"):
                data = await visit.wire.read(MIB)
                assert data
                tail = (tail + data)[-7:]
        visit.request.complete = True
        visit.wire.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await client.get("/to-warm-up")
        upstream.script(stall_then_read)
        async with peak_of(proxy) as peak:
            if framing == "Content-Length":
                await client.send(request("POST", "/", f"Content-Length: {SIZE}"))
                await _send_pieces(client.wire)
            else:
                await client.send(request("POST", "/", "Transfer-Encoding: chunked"))
                for _ in range(SIZE // len(PIECE)):
                    client.wire.write(b"%x\r\n%b\r\n" % (len(PIECE), PIECE))
                    await client.wire.drain()
                client.wire.write(b"0\r\n\r\n")
            response = await client.response()
        assert response.status == 200
        above = peak.look()
        report(f"a large upload ({framing}), above idle", above)
        assert above < MOST, f"{above / MIB:.1f} MiB above idle"
