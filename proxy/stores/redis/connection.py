"""One connection to a Redis server: commands go out, replies come back in their order.

hiredis packs and parses. There is no queue and no lock: a command is written when it is
called for, and whoever called is told when its reply comes, in that very callback. So
thousands of buckets share one connection, and a call costs a tenth of what it costs by
way of streams and futures.

A connection is as good as dead when nothing moves on it for as long as a reply may take:
nothing comes, and nothing of what waits to be sent goes out. A reply that is late while
others arrive concerns its own call alone.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import cast

from hiredis import ProtocolError, Reader, ReplyError, pack_command

from proxy.core.clock import Clock
from proxy.net.unacked import unacked_bytes

Reply = object
"""What a server says: bytes, an int, None, a list of such, or a ReplyError."""

Command = tuple[str | bytes | int, ...]

Answered = Callable[[Reply, float], None]
"""Told the reply, and when its command was sent."""

_LONGEST = 5
"""Timeouts after which a reply is overdue for good, whatever else comes meanwhile."""


class StoreFailure(Exception):
    """The store is of no use; the text says why, and holds no secret."""


@dataclass(slots=True)
class _Pending:
    answered: Answered
    sent: float
    late: Callable[[], None] | None
    """Called once the reply has taken too long; it may come after that."""


class RedisConnection(asyncio.Protocol):
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
        self.longest = _LONGEST * timeout
        """Seconds after which a reply is overdue though others come."""
        self._late = 0
        """How many of those that are due first were told that they are late."""
        self._written = 0
        """Bytes handed to the transport so far."""
        self._taken = 0
        self._had_unsent = False
        """How many of them had arrived at the last look, and whether others had not."""
        self._moved = self.heard
        """When something was last seen to go out."""

    def __repr__(self) -> str:
        state = "closed" if self._lost is None else "open"
        return f"<connection, {state}, {len(self._pending)} replies due>"

    def call(
        self, command: Command, answered: Answered, late: Callable[[], None] | None = None
    ) -> None:
        """Send *command*; *answered* gets the reply, if one comes.

        *late* is called if it takes longer than it may.
        """
        now = self._clock.monotonic()
        self._pending.append(_Pending(answered, now, late))
        if self._timer is None:
            self._watch(self._timeout)
        self.write(command)

    def write(self, command: Command) -> None:
        """Send *command*. Its reply, if there is one, is a push."""
        if self._transport is not None:
            data = pack_command(command)  # type: ignore[arg-type]  # any length
            self._written += len(data)
            self._transport.write(data)

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
        self._late = 0
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
                    if self._late:
                        self._late -= 1
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
        """Does anything move? And who has waited for too long? One timer is enough for all."""
        self._timer = None
        if not self._pending:
            self._had_unsent = False
            return
        now = self._clock.monotonic()
        if now - due > self._timeout / 2:
            # It was us who slept: what has come meanwhile is yet to be read.
            self._watch(self._timeout / 4)
            return
        oldest = self._pending[0].sent
        if self._goes_out():
            self._moved = now
        silent_from = max(oldest, self.heard, self._moved)
        if now >= silent_from + self._timeout or now >= oldest + self.longest:
            self.fail(self._overdue)
            return
        self._tell_late(now)
        if self._lost is not None:
            self._watch_next(now, silent_from)

    def _watch_next(self, now: float, silent_from: float) -> None:
        """Look again when the connection may be dead, or the next reply late."""
        following = next(islice(self._pending, self._late, None), None)
        since = silent_from if following is None else min(silent_from, following.sent)
        self._watch(max(since + self._timeout - now, 0.0))

    def _tell_late(self, now: float) -> None:
        """Tell those whose replies are late; they come in order, so the first are the latest."""
        for pending in list(islice(self._pending, self._late, None)):
            if now < pending.sent + self._timeout:
                break
            self._late += 1
            if pending.late is not None:
                pending.late()

    def _goes_out(self) -> bool:
        """Whether the server has taken some of what had to wait at the last look, or waits now."""
        unsent = unacked_bytes(self._transport)
        before, self._taken = self._taken, self._written - unsent
        waited, self._had_unsent = self._had_unsent, unsent > 0
        return self._taken > before and (waited or self._had_unsent)

    @property
    def _overdue(self) -> str:
        return f"no answer within {self._timeout * 1000:.0f} ms"
