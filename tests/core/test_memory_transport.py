"""Connections in memory behave as those of real loops do: the same tests on all three."""

import asyncio
import errno
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop", "asyncio", "virtual"])

ALL_OF_IT = b"x" * 20_000_000
"""More than any buffer on the way takes."""


class End(asyncio.Protocol):
    """One end, which records what the loop tells it."""

    def __init__(self, *, keeps_open: bool = False) -> None:
        self.calls: list[str] = []
        self.received = bytearray()
        self.error: Exception | None = None
        self._keeps_open = keeps_open
        self._transport: asyncio.Transport | None = None

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.calls[-1] != "data":
            self.calls.append("data")

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return self._keeps_open

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.error = exc


@asynccontextmanager
async def connected(*, keeps_open: bool = False) -> AsyncIterator[tuple[End, End]]:
    """The client's and the server's end; at the end each was lost once, and heard no more."""
    loop = asyncio.get_running_loop()
    far = End(keeps_open=keeps_open)
    server = await loop.create_server(lambda: far, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    _, near = await loop.create_connection(lambda: End(keeps_open=keeps_open), host, port)
    await eventually(lambda: far.calls)
    yield near, far
    server.close()
    for end in (near, far):
        if end.calls[-1] != "lost":
            end.transport.abort()
        await lost(end)
    await settled()
    for end in (near, far):
        assert (end.calls[0], end.calls[-1], end.calls.count("lost")) == ("made", "lost", 1)


async def lost(end: End) -> Exception | None:
    await eventually(lambda: end.calls[-1] == "lost")
    return end.error


async def settled() -> None:
    """Let arrive what is under way, and a little more."""
    await asyncio.sleep(0.02)


async def test_bytes_arrive_in_order_and_in_a_later_turn() -> None:
    async with connected() as (near, far):
        near.transport.write(b"one ")
        near.transport.writelines([b"two ", bytearray(b"three "), memoryview(b"four")])
        assert far.calls == ["made"]
        await eventually(lambda: far.received == b"one two three four")
        far.transport.write(b"and back")
        await eventually(lambda: near.received == b"and back")


async def test_addresses_of_both_ends() -> None:
    async with connected() as (near, far):
        for end, other in ((near, far), (far, near)):
            own = end.transport.get_extra_info("sockname")
            assert own == other.transport.get_extra_info("peername")
            sock = end.transport.get_extra_info("socket")
            assert (sock.getsockname(), sock.family) == (own, socket.AF_INET)
            assert end.transport.get_extra_info("sslcontext") is None


async def test_a_close_comes_behind_what_was_written() -> None:
    async with connected() as (near, far):
        near.transport.write(b"last words")
        near.transport.close()
        assert near.transport.is_closing()
        assert near.calls == ["made"], "never from within the call"
        assert await lost(near) is None
        assert await lost(far) is None
        assert far.calls == ["made", "data", "eof", "lost"]
        assert far.received == b"last words"


async def test_half_a_close_leaves_the_other_direction_open() -> None:
    async with connected(keeps_open=True) as (near, far):
        assert near.transport.can_write_eof()
        near.transport.write(b"question")
        near.transport.write_eof()
        with pytest.raises(RuntimeError):
            near.transport.write(b"more")
        await eventually(lambda: far.calls[-1] == "eof")
        far.transport.write(b"answer")
        await eventually(lambda: near.received == b"answer")
        far.transport.close()
        assert await lost(far) is None
        await eventually(lambda: near.calls[-1] == "eof")
        near.transport.close()
        assert await lost(near) is None


async def test_an_abort_is_seen_as_an_end() -> None:
    async with connected() as (near, far):
        near.transport.abort()
        assert near.calls == ["made"], "never from within the call"
        assert await lost(near) is None
        assert await lost(far) is None


async def test_a_reset_is_seen_as_one_behind_what_was_read_before() -> None:
    async with connected() as (near, far):
        near.transport.write(b"before")
        await eventually(lambda: far.received)
        sock = near.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        near.transport.abort()
        assert isinstance(await lost(far), ConnectionResetError)
        assert "eof" not in far.calls


async def test_who_closes_without_reading_resets() -> None:
    async with connected() as (near, far):
        far.transport.pause_reading()
        near.transport.write(b"unread")
        await settled()
        far.transport.close()
        assert isinstance(await lost(near), ConnectionResetError)


async def test_who_writes_to_a_closed_end_is_reset() -> None:
    async with connected(keeps_open=True) as (near, far):
        far.transport.close()
        await eventually(lambda: near.calls[-1] == "eof")
        near.transport.write(b"anybody there?")
        await settled()
        if near.calls[-1] != "lost":
            near.transport.write(b"hello?")
        assert isinstance(await lost(near), ConnectionError)


async def test_nothing_is_delivered_while_reading_is_paused() -> None:
    async with connected() as (near, far):
        assert far.transport.is_reading()
        far.transport.pause_reading()
        assert not far.transport.is_reading()
        near.transport.write(b"first")
        near.transport.close()
        await settled()
        assert far.calls == ["made"]
        far.transport.resume_reading()
        await lost(far)
        assert far.received == b"first"


async def test_a_reader_that_stops_stops_its_writer_and_loses_nothing() -> None:
    async with connected() as (near, far):
        far.transport.pause_reading()
        near.transport.write(ALL_OF_IT)
        await eventually(lambda: near.calls == ["made", "pause"])
        await settled()
        assert near.transport.get_write_buffer_size() > 64 * 1024
        far.transport.resume_reading()
        await eventually(lambda: near.calls[-1] == "resume", within=20)
        await eventually(lambda: len(far.received) == len(ALL_OF_IT), within=20)
        assert near.calls == ["made", "pause", "resume"]
        assert near.transport.get_write_buffer_size() == 0


async def test_limits_of_the_write_buffer_can_be_set() -> None:
    async with connected() as (near, _):
        near.transport.set_write_buffer_limits(high=10, low=5)
        with pytest.raises(ValueError, match="must be"):
            near.transport.set_write_buffer_limits(high=1, low=5)


async def test_a_writer_whose_reader_goes_away_is_told() -> None:
    async with connected() as (near, far):
        far.transport.pause_reading()
        near.transport.write(ALL_OF_IT)
        await settled()
        far.transport.abort()
        assert isinstance(await lost(near), ConnectionError)


async def test_a_close_that_cannot_flush_ends_when_the_reader_goes_away() -> None:
    async with connected() as (near, far):
        far.transport.pause_reading()
        near.transport.write(ALL_OF_IT)
        near.transport.close()
        await settled()
        assert "lost" not in near.calls
        far.transport.abort()
        await lost(near)


async def test_another_protocol_can_take_over() -> None:
    async with connected() as (near, far):
        successor = End()
        successor.calls.append("made")
        far.transport.set_protocol(successor)
        assert far.transport.get_protocol() is successor
        near.transport.write(b"for the successor")
        await eventually(lambda: successor.received == b"for the successor")
        far.transport.set_protocol(far)


async def test_where_nobody_listens_a_connect_is_refused() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(End, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(End, host, port)


async def test_an_address_that_is_in_use_is_refused() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(End, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    assert server.sockets
    with pytest.raises(OSError, match="in use") as refused:
        await loop.create_server(End, host, port)
    assert refused.value.errno == errno.EADDRINUSE
    server.close()
    await server.wait_closed()
    assert not server.sockets


async def test_streams_work() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("localhost", port)
    writer.write(b"to and fro")
    writer.write_eof()
    assert await reader.read() == b"to and fro"
    writer.close()
    await writer.wait_closed()
    server.close()


async def test_a_protocol_that_fails_ends_its_connection_and_is_reported() -> None:
    class Failing(End):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError(data)

    reported: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    async with connected() as (near, far):
        failing = Failing()
        far.transport.set_protocol(failing)
        near.transport.write(b"0")
        await eventually(lambda: failing.calls == ["lost"])
        assert isinstance(reported[0]["exception"], ZeroDivisionError)
        await lost(near)
        far.calls.append("lost")
