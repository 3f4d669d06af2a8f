"""The bare stage: one request to one upstream, within its time."""

import math
from collections.abc import Collection

from proxy.core import Exchange
from proxy.pipeline.answers import TOO_LATE, answer_for
from proxy.pipeline.deadlines import Deadlines, Ticket
from proxy.policy.outcome import Attempt, Pause
from proxy.policy.refusal import Refusal
from proxy.upstream.call import Judge
from proxy.upstream.upstream import Upstream

NO_LIMIT = math.inf
"""The timeout of a route that has none."""

_AFTERWARDS = 0.005
"""Seconds by which dialling outlives the deadline, so that the deadline names the reason."""


class Forward:
    """Sends a request on and relays its response as it comes."""

    __slots__ = ("_deadlines", "_timeout", "upstream")

    def __init__(self, upstream: Upstream, deadlines: Deadlines) -> None:
        self.upstream = upstream
        self._deadlines = deadlines
        self._timeout = deadlines.timeout

    async def handle(self, exchange: Exchange) -> Refusal | None:
        """Relay the upstream's response, or say why there is none."""
        ticket = self.start_clock(exchange)
        if exchange.expired:
            return TOO_LATE
        try:
            attempt = await self.send(exchange)
        finally:
            self.stop_clock(ticket)
        return None if attempt.kind is None else answer_for(exchange, attempt)

    # Parts, for stages that make more than one attempt.

    def start_clock(self, exchange: Exchange) -> Ticket | None:
        """Let the time for the whole exchange run; None if it is without limit, or used up."""
        asked = exchange.asked_timeout
        if asked is None or asked >= self._timeout:
            return None if self._timeout == NO_LIMIT else self._deadlines.start(exchange)
        if asked == 0:
            exchange.expire()
            return None
        return self._deadlines.start_sooner(exchange, asked)

    def stop_clock(self, ticket: Ticket | None) -> None:
        """The exchange got its response, or ended."""
        if ticket is not None:
            self._deadlines.finish(ticket)

    def deadline(self, exchange: Exchange) -> float:
        """When the time for the whole exchange is over, as things stand."""
        timeout = self._timeout
        if exchange.asked_timeout is not None:
            timeout = min(timeout, exchange.asked_timeout)
        return exchange.started + timeout + exchange.client_wait

    async def send(
        self,
        exchange: Exchange,
        *,
        judge: Judge | None = None,
        pause: Pause | None = None,
        avoid: Collection[str] = (),
        fresh: bool = False,
    ) -> Attempt:
        """One attempt, or two if the first only found that its connection had ended.

        It ended while it was idle, and we learned of it by sending, or just before.
        """
        upstream = self.upstream
        give_up = self.deadline(exchange) + _AFTERWARDS
        attempt = await upstream.attempt(
            exchange, give_up, fresh=fresh, judge=judge, avoid=avoid, pause=pause
        )
        if attempt.kind is not None and attempt.found_stale and self._may_replace(exchange):
            attempt = await upstream.attempt(exchange, give_up, fresh=True, judge=judge)
        return attempt

    def _may_replace(self, exchange: Exchange) -> bool:
        """Whether the same may be sent again at once, over a new connection."""
        if not exchange.attempts[-1].sent:
            return True
        if exchange.upgrade or not self.upstream.may_repeat(exchange):
            return False
        return exchange.body is None or exchange.body.lost is None
