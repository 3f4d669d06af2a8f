"""A connection is dead when nothing moves on it, and not because a reply takes long."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from proxy.policy.settings.store import RedisSettings
from proxy.stores.redis.connect import RedisConnector
from proxy.stores.redis.connection import RedisConnection, Reply
from tests.stores.running_stores import CLOCK
from tests.support import both_loops
from tests.support.waiting import PATIENCE, eventually
from tests.support.witness import Stopwatch

TIMEOUT = 0.2
DRIP = 0.05
MIB = 1024 * 1024

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Talk:
    """A connection to a server that behaves as it is told, and what came of it."""

    def __init__(self) -> None:
        self.connection: RedisConnection
        self.replies: list[Reply] = []
        self.late = 0
        self.lost: list[str] = []

    def call(self, *command: str | bytes) -> None:
        """Send a command, and note its reply, or that it is late."""
        self.connection.call(command, lambda reply, _: self.replies.append(reply), self._be_late)

    def _be_late(self) -> None:
        self.late += 1


@asynccontextmanager
async def talking(behaviour: Behaviour) -> AsyncIterator[Talk]:
    talk = Talk()
    serving: set[asyncio.Task[None]] = set()

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await behaviour(reader, writer)
            await asyncio.Event().wait()
        finally:
            writer.transport.abort()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(behave(reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=MIB)
    port = server.sockets[0].getsockname()[1]
    settings = RedisSettings("127.0.0.1", port, timeout=TIMEOUT)
    talk.connection = await RedisConnector(settings, CLOCK).connect(talk.lost.append)
    try:
        yield talk
    finally:
        talk.connection.close()
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.wait(serving)


@both_loops
async def test_a_reply_that_streams_in_slowly_is_late_and_does_no_harm() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"$10\r\n")
        for _ in range(10):
            await asyncio.sleep(DRIP)
            writer.write(b"x")
        writer.write(b"\r\n+next\r\n")

    async with talking(drip) as talk:
        talk.call("FIRST")
        talk.call("SECOND")
        await eventually(lambda: len(talk.replies) == 2 or talk.lost)
        assert talk.lost == []
        assert talk.late == 2, "each of them was told once"
        assert talk.replies == [b"x" * 10, b"next"]


@both_loops
async def test_silence_is_the_end_of_it() -> None:
    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        await asyncio.sleep(DRIP)
        writer.write(b"+one\r\n")

    async with talking(answer_once) as talk:
        began, watch = CLOCK.monotonic(), Stopwatch()
        talk.call("FIRST")
        talk.call("SECOND")
        await eventually(lambda: talk.lost)
        assert talk.lost == ["no answer within 200 ms"]
        assert CLOCK.monotonic() - began >= TIMEOUT
        assert watch.seconds < 3 * TIMEOUT
        assert talk.replies == [b"one"]


@both_loops
@pytest.mark.parametrize("busy", [1.1, 1.3], ids=["hardly too long", "too long"])
async def test_what_came_while_we_were_busy_is_no_silence(busy: float) -> None:
    """As after a long step in which other data was read: uvloop fires its timers first then."""
    loop = asyncio.get_running_loop()
    ours, other = socket.socketpair()

    def answer_and_be_busy(answering: int) -> None:
        loop.remove_reader(ours)
        os.write(answering, b"+one\r\n")  # at once: a transport would do it after this step
        time.sleep(busy * TIMEOUT)

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        answering = writer.get_extra_info("socket").fileno()
        loop.add_reader(ours, answer_and_be_busy, answering)
        other.send(b"x")

    with ours, other:
        async with talking(answer_once) as talk:
            talk.call("FIRST")
            await eventually(lambda: talk.replies or talk.lost)
            assert (talk.replies, talk.lost, talk.late) == ([b"one"], [], 0)


async def test_a_reply_is_not_waited_for_without_end() -> None:
    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"$1000000\r\n")
        while True:
            await asyncio.sleep(DRIP)
            writer.write(b"x")

    async with talking(chatter) as talk:
        talk.connection.longest = 2 * TIMEOUT
        began = CLOCK.monotonic()
        talk.call("FIRST")
        await eventually(lambda: talk.lost)
        assert CLOCK.monotonic() - began >= 2 * TIMEOUT
        assert talk.late == 1


@pytest.mark.parametrize("stops", [False, True], ids=["to its end", "until the server stops"])
async def test_what_goes_out_slowly_is_a_sign_of_life(*, stops: bool) -> None:
    """Larger than all buffers on the way, to a server that says nothing until it has it."""
    size, began = 64 * MIB, CLOCK.monotonic()

    async def sip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = 0
        while got < size:
            slow = CLOCK.monotonic() < began + 3 * TIMEOUT
            got += len(await reader.read(MIB))
            await asyncio.sleep(DRIP / 2 if slow else 0)
            if stops and not slow:
                return
        writer.write(b"+all\r\n")

    async with talking(sip) as talk:
        talk.connection.longest = PATIENCE  # so much takes a busy machine long, and moves
        talk.call("SET", bytes(size))
        await eventually(lambda: talk.replies or talk.lost)
        assert CLOCK.monotonic() - began > 3 * TIMEOUT
        assert talk.replies == ([] if stops else [b"all"])
        assert talk.lost == (["no answer within 200 ms"] if stops else [])
