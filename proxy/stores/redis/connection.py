"""One connection to a Redis server: commands go out, replies come back in their order.

hiredis packs and parses. There is no queue and no lock: a command is written at once, and
its callback is called when its reply comes, while that is parsed. So thousands of buckets
share one connection, and a call costs a tenth of what it costs by way of streams and futures.

A connection counts as dead when nothing moves on it for as long as a reply may take:
nothing arrives, and nothing of what waits to be sent is acknowledged. A reply that is late
while others arrive concerns its own call alone.
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
"""A server's reply: bytes, an int, None, a list of such, or a ReplyError."""

Command = tuple[str | bytes | int, ...]

Answered = Callable[[Reply, float], None]
"""Called with the reply, and when its command was sent."""

_READING = 0.001
"""Seconds that the loop gets to read what has come, before an answer is found missing."""

_LONGEST = 5
"""Timeouts after which a reply is overdue for good, whatever else comes meanwhile."""


class StoreFailure(Exception):
    """The server cannot be used; the text gives the reason, without any secret."""


@dataclass(slots=True)
class _Pending:
    answered: Answered
    sent: float
    late: Callable[[], None] | None
    """Called once the reply has taken too long; it may come after that."""


class RedisConnection(asyncio.Protocol):
    """Sends commands and parses replies. Ends at the first error, and reports it once."""

    def __init__(self, clock: Clock, timeout: float, lost: Callable[[str], None]) -> None:
        """Call *lost* with the reason when it ends, unless it was closed on purpose."""
        self._clock = clock
        self._timeout = timeout
        self._lost: Callable[[str], None] | None = lost
        self._reader = Reader()
        self._pending: deque[_Pending] = deque()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked: set[asyncio.Future[Reply]] = set()
        """Futures of replies that are awaited."""
        self.pushed: Callable[[Reply], None] | None = None
        """Called with what comes without a request: messages of a channel."""
        self.heard = clock.monotonic()
        """When data arrived last."""
        self.longest = _LONGEST * timeout
        """Seconds after which a reply is overdue though others come."""
        self._late = 0
        """How many of the calls that are due first were notified that they are late."""
        self._written = 0
        """Bytes handed to the transport so far."""
        self._taken = 0
        self._had_unacked = False
        """How many of them were acknowledged at the last look, and whether others were not."""
        self._moved = self.heard
        """When bytes were last seen to go out."""

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

    def ask(self, command: Command) -> asyncio.Future[Reply]:
        """Send *command*; the reply's future fails with StoreFailure if the connection ends first.

        Raises StoreFailure if it has ended already.
        """
        if self._lost is None:
            raise StoreFailure("the connection is closed")
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked.add(future)
        future.add_done_callback(self._asked.discard)

        def answered(reply: Reply, sent: float) -> None:  # noqa: ARG001 - only the reply counts
            if not future.done():
                future.set_result(reply)

        self.call(command, answered)
        return future

    async def request(self, *command: str | int) -> Reply:
        """Return the reply to *command*. Raises StoreFailure if it is an error or none comes."""
        reply = await self.ask(command)
        if isinstance(reply, ReplyError):
            raise StoreFailure(str(reply))
        return reply

    def close(self, reason: str = "the connection is closed") -> None:
        """End the connection; no callback is called any more. Awaited replies fail for *reason*."""
        self._end(reason)

    def fail(self, reason: str) -> None:
        """End the connection because of *reason*, and report it."""
        lost = self._lost
        self._end(reason)
        if lost is not None:
            lost(reason)

    def _end(self, reason: str) -> None:
        self._lost = None
        self._pending.clear()
        self._late = 0
        for future in self._asked:
            if not future.done():
                future.set_exception(StoreFailure(reason))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport of the open connection."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        if self._lost is None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse replies, whole or in pieces, and deliver them."""
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
        """Report the end of the connection, whichever side closed it."""
        self._transport = None
        self.fail(str(exc) if exc is not None else "it closed the connection")

    # Timeouts.

    def _watch(self, seconds: float) -> None:
        due = self._clock.monotonic() + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look, due)

    def _look(self, due: float) -> None:
        """Judge whether the server answers, once all that has come is read.

        The loop may have been busy until now, and then timers are its first concern.
        """
        self._timer = None
        if not self._pending:
            self._had_unacked = False
        elif self._clock.monotonic() - due > self._timeout / 2:
            # This process was suspended: others have yet to get to run as well.
            self._watch(self._timeout / 4)
        else:
            self._timer = asyncio.get_running_loop().call_later(_READING, self._judge)

    def _judge(self) -> None:
        """Check whether anything moves, and which replies are late. One timer is enough for all."""
        self._timer = None
        if not self._pending:
            self._had_unacked = False
            return
        now = self._clock.monotonic()
        oldest = self._pending[0].sent
        if self._goes_out():
            self._moved = now
        idle_since = max(oldest, self.heard, self._moved)
        if now >= idle_since + self._timeout or now >= oldest + self.longest:
            self.fail(f"no answer within {self._timeout * 1000:.0f} ms")
            return
        self._notify_late(now)
        if self._lost is not None:
            self._watch_next(now, idle_since)

    def _watch_next(self, now: float, idle_since: float) -> None:
        """Look again when the connection may be dead, or the next reply late."""
        following = next(islice(self._pending, self._late, None), None)
        since = idle_since if following is None else min(idle_since, following.sent)
        self._watch(max(since + self._timeout - now, 0.0))

    def _notify_late(self, now: float) -> None:
        """Notify the calls whose replies are late; they come in order, the latest first."""
        for pending in list(islice(self._pending, self._late, None)):
            if now < pending.sent + self._timeout:
                break
            self._late += 1
            if pending.late is not None:
                pending.late()

    def _goes_out(self) -> bool:
        """Tell whether the server has acknowledged bytes that waited, or wait now."""
        unacked = unacked_bytes(self._transport)
        before, self._taken = self._taken, self._written - unacked
        waited, self._had_unacked = self._had_unacked, unacked > 0
        return self._taken > before and (waited or self._had_unacked)
