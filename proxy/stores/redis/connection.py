"""One connection to a Redis server: commands go out, replies come back in their order.

hiredis packs and parses. There is no queue and no lock: a command is written when it is
called for, and whoever called is told when its reply comes, in that very callback. So
thousands of buckets share one connection, and a call costs a tenth of what it costs by
way of streams and futures.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from hiredis import ProtocolError, Reader, ReplyError, pack_command

from proxy.core import Clock

Reply = object
"""What a server says: bytes, an int, None, a list of such, or a ReplyError."""

Command = tuple[str | bytes | int, ...]

Answered = Callable[[Reply, float], None]
"""Told the reply, and when its command was sent."""


class StoreFailure(Exception):
    """The store is of no use; the text says why, and holds no secret."""


@dataclass(slots=True)
class _Pending:
    answered: Answered
    sent: float


class Connection(asyncio.Protocol):
    """Commands and replies. Ends at the first thing that is wrong, and says so once."""

    def __init__(self, clock: Clock, timeout: float, lost: Callable[[str], None]) -> None:
        """*lost* is told why it ended, unless it was closed on purpose."""
        self._clock = clock
        self._timeout = timeout
        self._lost: Callable[[str], None] | None = lost
        self._reader = Reader()
        self._pending: deque[_Pending] = deque()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._requested: asyncio.Future[Reply] | None = None
        self.pushed: Callable[[Reply], None] | None = None
        """Told what comes without having been asked for: messages of a channel."""
        self.heard = clock.monotonic()
        """When anything came last."""

    def __repr__(self) -> str:
        state = "closed" if self._lost is None else "open"
        return f"<connection, {state}, {len(self._pending)} replies due>"

    def call(self, command: Command, answered: Answered) -> None:
        """Send *command*; *answered* gets the reply, if one comes."""
        now = self._clock.monotonic()
        self._pending.append(_Pending(answered, now))
        if self._timer is None:
            self._watch(self._timeout)
        self.write(command)

    def write(self, command: Command) -> None:
        """Send *command*. Its reply, if there is one, is a push."""
        if self._transport is not None:
            self._transport.write(pack_command(command))  # type: ignore[arg-type]  # any length

    async def request(self, *command: str | int) -> Reply:
        """The reply to *command*. Raises StoreFailure if that is an error, or if none comes.

        One at a time.
        """
        if self._lost is None:
            raise StoreFailure("the connection is closed")
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._requested = future

        def answered(reply: Reply, sent: float) -> None:  # noqa: ARG001 - only the reply counts
            if not future.done():
                future.set_result(reply)

        self.call(command, answered)
        reply = await future
        if isinstance(reply, ReplyError):
            raise StoreFailure(str(reply))
        return reply

    def close(self) -> None:
        """End it. Nobody is told anything any more."""
        self._end("the connection is closed")

    def fail(self, why: str) -> None:
        """It is of no use any more."""
        lost = self._lost
        self._end(why)
        if lost is not None:
            lost(why)

    def _end(self, why: str) -> None:
        self._lost = None
        self._pending.clear()
        if self._requested is not None and not self._requested.done():
            self._requested.set_exception(StoreFailure(why))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    # What the loop tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        if self._lost is None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Replies, whole or in pieces."""
        self.heard = self._clock.monotonic()
        try:
            self._reader.feed(data)
            # False stands for "no more", and is no reply that a server can make.
            while (reply := self._reader.gets()) is not False:
                if self._pending:
                    pending = self._pending.popleft()
                    pending.answered(reply, pending.sent)
                elif self.pushed is not None:
                    self.pushed(reply)
                if self._lost is None:
                    return
        except ProtocolError:
            self.fail("it does not speak Redis's protocol")

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by whomever."""
        self._transport = None
        self.fail(str(exc) if exc is not None else "it closed the connection")

    # Silence.

    def _watch(self, seconds: float) -> None:
        due = self._clock.monotonic() + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look, due)

    def _look(self, due: float) -> None:
        """Is the oldest reply overdue? Replies come in order, so one timer is enough."""
        self._timer = None
        if not self._pending:
            return
        now = self._clock.monotonic()
        left = self._pending[0].sent + self._timeout - now
        if left > 0:
            self._watch(left)
        elif now - due > self._timeout / 2:
            # It was us who slept: what has come meanwhile is yet to be read.
            self._watch(self._timeout / 4)
        else:
            self.fail(f"no answer within {self._timeout * 1000:.0f} ms")
