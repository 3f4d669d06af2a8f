"""Many deadlines of one length, one timer.

A timer of the loop's own for every request costs more than the rest of a
request's bookkeeping. Requests with the same timeout fall due in the order in
which they began, so a queue and a timer for its head are enough.

Nothing breaks if they come in another order: none ever expires early, and one
that began before the request ahead of it waits for that one, so it is late by as
much as that one began later.
"""

import asyncio
from collections import deque

from proxy.core import Clock, Exchange

_TIDY_ABOVE = 1024


class Ticket:
    """One request that is watched: in the queue, or granted extra time."""

    __slots__ = ("exchange", "timer")

    def __init__(self, exchange: Exchange) -> None:
        self.exchange: Exchange | None = exchange
        """None once it is watched no longer."""
        self.timer: asyncio.TimerHandle | None = None
        """Its own, if it was granted extra time and has left the queue."""


class Deadlines:
    """Calls :meth:`Exchange.expire` *timeout* seconds after an exchange began.

    Time in which we waited for the client's own bytes is added on top.
    """

    __slots__ = ("_clock", "_finished", "_granted", "_loop", "_queue", "_timer", "timeout")

    def __init__(self, timeout: float, clock: Clock) -> None:
        self.timeout = timeout
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Ticket] = deque()
        self._finished = 0
        """How many in the queue are watched no longer."""
        self._granted: set[Ticket] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<deadlines of {self.timeout} s, {self.watched} watched>"

    @property
    def watched(self) -> int:
        """How many requests may still expire."""
        return len(self._queue) - self._finished + len(self._granted)

    def start(self, exchange: Exchange) -> Ticket:
        """Watch *exchange* until :meth:`finish`."""
        ticket = Ticket(exchange)
        self._queue.append(ticket)
        if self._timer is None:
            due = exchange.started + self.timeout - self._clock.monotonic()
            self._timer = self._loop.call_later(due, self._due)
        return ticket

    def finish(self, ticket: Ticket) -> None:
        """The exchange got its response, or ended."""
        if ticket.exchange is None:
            return
        ticket.exchange = None
        if ticket.timer is not None:
            ticket.timer.cancel()
            self._granted.discard(ticket)
            return
        self._finished += 1
        # One slow request at the head must not keep thousands of finished ones
        # in memory behind it.
        if self._finished > _TIDY_ABOVE and self._finished * 2 > len(self._queue):
            self._queue = deque(t for t in self._queue if t.exchange is not None)
            self._finished = 0

    def _due(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        queue = self._queue
        while queue:
            exchange = queue[0].exchange
            if exchange is None:
                queue.popleft()
                self._finished -= 1
                continue
            left = exchange.started + self.timeout - now
            if left > 0:
                self._timer = self._loop.call_later(left, self._due)
                return
            self._expire(queue.popleft())

    def _expire(self, ticket: Ticket) -> None:
        """End the exchange, or grant it the time for which its client kept us waiting."""
        exchange = ticket.exchange
        if exchange is None:
            return
        now = self._clock.monotonic()
        left = exchange.started + self.timeout + exchange.uncounted(now) - now
        if left > 0:
            # Seldom enough to deserve a timer of its own.
            ticket.timer = self._loop.call_later(left, self._expire, ticket)
            self._granted.add(ticket)
        else:
            ticket.exchange = None
            self._granted.discard(ticket)
            exchange.expire()

    def close(self) -> None:
        """Forget everything; nothing expires any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for ticket in self._queue:
            ticket.exchange = None
        self._queue.clear()
        self._finished = 0
        for ticket in tuple(self._granted):
            self.finish(ticket)
