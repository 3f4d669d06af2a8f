"""Deadlines of exchanges and attempts: one timer for all of the same length.

A timer of the loop's own for every request costs more than the rest of a
request's bookkeeping. Requests with the same timeout fall due in the order in
which they began, so a queue and a timer for its head are enough.

A request that began before the one ahead of it in the queue, since it waited for something
else in between, gets a timer of its own: in the queue it would expire too late.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange

_TIDY_ABOVE = 1024


@dataclass(slots=True, eq=False)
class Ticket:
    """The deadline of one exchange or attempt: in the queue, or with a timer of its own."""

    exchange: Exchange | None
    """None once the deadline is off: the ticket may stay in the queue for long, but must not keep
    the exchange alive."""
    began: float
    timeout: float
    uncounted: float = 0.0
    """Seconds for which the client had kept the proxy waiting when the deadline began."""
    is_attempt: bool = False
    """Whether only the attempt under way ends at the deadline, and not the exchange."""
    timer: asyncio.TimerHandle | None = None
    """The ticket's own timer, if it is not in the queue."""

    def left(self, exchange: Exchange, now: float) -> float:
        """Return the seconds until the deadline, the time granted to the client included."""
        return self.began + self.timeout + exchange.waited_for_client(now) - self.uncounted - now


class Deadlines:
    """Ends exchanges, or attempts, *timeout* seconds after they began.

    Time in which the proxy waited for the client's own bytes is added on top.
    """

    def __init__(self, timeout: float, clock: Clock) -> None:
        self.timeout = timeout
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Ticket] = deque()
        self._finished = 0
        """Tickets in the queue whose deadlines are off."""
        self._own: set[Ticket] = set()
        """Tickets with a timer of their own."""
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<deadlines of {self.timeout} s, {self.watched} watched>"

    @property
    def watched(self) -> int:
        """How many exchanges and attempts may still expire."""
        return len(self._queue) - self._finished + len(self._own)

    def start(self, exchange: Exchange) -> Ticket:
        """Start the deadline of *exchange*, counted from its beginning, until :meth:`finish`."""
        queue, began = self._queue, exchange.started
        if queue and queue[-1].began > began:
            return self.start_sooner(exchange, self.timeout)  # it was delayed before it came here
        ticket = Ticket(exchange, began, self.timeout)
        queue.append(ticket)
        if self._timer is None:
            self._set_timer(ticket)
        return ticket

    def start_sooner(self, exchange: Exchange, timeout: float) -> Ticket:
        """Start a deadline that is due before the others; otherwise like :meth:`start`."""
        ticket = Ticket(exchange, exchange.started, timeout)
        self._give_own_timer(ticket, ticket.left(exchange, self._clock.monotonic()))
        return ticket

    def start_attempt(self, exchange: Exchange) -> Ticket:
        """Start the deadline of the attempt that begins now, until :meth:`finish`."""
        now = self._clock.monotonic()
        ticket = Ticket(
            exchange, now, self.timeout, exchange.waited_for_client(now), is_attempt=True
        )
        self._queue.append(ticket)
        if self._timer is None:
            self._set_timer(ticket)
        return ticket

    def _set_timer(self, first: Ticket) -> None:
        due = first.began + self.timeout - self._clock.monotonic()
        self._timer = self._loop.call_later(due, self._due)

    def _give_own_timer(self, ticket: Ticket, due: float) -> None:
        # This happens seldom enough for a timer each.
        ticket.timer = self._loop.call_later(due, self._expire, ticket)
        self._own.add(ticket)

    def finish(self, ticket: Ticket) -> None:
        """Take off the deadline of an exchange or attempt that got its response, or ended."""
        if ticket.exchange is None:
            return
        ticket.exchange = None
        if ticket.timer is not None:
            ticket.timer.cancel()
            self._own.discard(ticket)
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
            ticket = queue[0]
            if ticket.exchange is None:
                queue.popleft()
                self._finished -= 1
                continue
            left = ticket.began + self.timeout - now
            if left > 0:
                self._timer = self._loop.call_later(left, self._due)
                return
            self._expire(queue.popleft())

    def _expire(self, ticket: Ticket) -> None:
        """End the exchange or attempt, or grant it the time that its client kept us waiting."""
        exchange = ticket.exchange
        if exchange is None:
            return
        left = ticket.left(exchange, self._clock.monotonic())
        if left > 0:
            self._give_own_timer(ticket, left)
        else:
            ticket.exchange = None
            self._own.discard(ticket)
            if ticket.is_attempt:
                exchange.expire_attempt()
            else:
                exchange.expire()

    def close(self) -> None:
        """Take off all deadlines: nothing expires any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for ticket in self._queue:
            ticket.exchange = None
        self._queue.clear()
        self._finished = 0
        for ticket in tuple(self._own):
            self.finish(ticket)
