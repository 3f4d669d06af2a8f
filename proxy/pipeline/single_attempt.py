"""The innermost stage: one attempt at one upstream, within the time of the exchange."""

import math
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.ports import Refused
from proxy.http.refusal import Refusal, RefusalReason
from proxy.pipeline.deadlines import Deadlines, Ticket
from proxy.pipeline.throttle.chain import ChainPermit, ThrottleChain
from proxy.policy.attempt import Attempt, RetryDelay
from proxy.policy.failure_answers import TOO_LATE, answer_for
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import RepeatPermission, RepeatRules
from proxy.policy.retry.budget import Budget
from proxy.upstream.call import Judge
from proxy.upstream.load_balancing import Endpoints
from proxy.upstream.upstream import Upstream

NO_LIMIT = math.inf
"""The timeout of a route that has none."""

_CONNECT_GRACE = 0.005
"""Seconds by which connecting outlives the deadline, so that the deadline names the reason."""


class SingleAttempt:
    """Sends a request to its upstream once and relays the response as it comes."""

    def __init__(
        self,
        upstream: Upstream,
        deadlines: Deadlines,
        repeats: RepeatRules,
        clock: Clock,
        *,
        breaker: Endpoints | None = None,
        throttle_chain: ThrottleChain | None = None,
        attempt_deadlines: Deadlines | None = None,
        budget: Budget | None = None,
    ) -> None:
        """Attempts wait at *throttle_chain*, end by *attempt_deadlines*, and add to *budget*.

        *breaker* is the upstream's: None if it has none.
        """
        self.upstream = upstream
        self.breaker = breaker
        self.repeats = repeats
        self._clock = clock
        self.throttle_chain = throttle_chain
        self._deadlines = deadlines
        self._attempt_deadlines = attempt_deadlines
        self._budget = budget
        self._timeout = deadlines.timeout
        self._has_limit = deadlines.timeout != NO_LIMIT

    async def handle(self, exchange: Exchange) -> Refusal | None:
        """Make one attempt: relay the upstream's response, or return the refusal in its place."""
        # speed: same as make_one() where no retry follows, held by
        # tests/pipeline/test_single_attempt.py; saves 4 calls, 2,800 of 197,000 instructions.
        deadlines, throttle_chain = self._deadlines, self.throttle_chain
        if self._has_limit and exchange.client_timeout is None:
            ticket: Ticket | None = deadlines.start(exchange)
            connect_by = exchange.started + self._timeout + _CONNECT_GRACE
        else:
            ticket = self.start_clock(exchange)
            if exchange.expired:
                return TOO_LATE
            connect_by = self.connect_by(exchange)
        try:
            if throttle_chain is None:
                url = self._first_url(exchange) if exchange.earlier_attempts else ""
                attempt = await self.upstream.attempt(exchange, connect_by, url=url)
            else:
                permit = throttle_chain.try_acquire(exchange)
                if permit is None:
                    deadline = connect_by - _CONNECT_GRACE
                    permit = await throttle_chain.acquire(exchange, deadline, is_retry=False)
                url = self._first_url(exchange) if exchange.earlier_attempts else ""
                attempt = await self.upstream.attempt(
                    exchange, connect_by, judge=permit.judge, permit=permit, url=url
                )
            if attempt.kind is not None:
                attempt = await self.replace_if_stale(exchange, attempt)
        finally:
            if ticket is not None:
                deadlines.finish(ticket)
        return None if attempt.kind is None else answer_for(attempt, expired=exchange.expired)

    async def make_one(self, exchange: Exchange) -> Refusal | None:
        """Make one attempt from the parts below: relay the response, or return the refusal."""
        ticket = self.start_clock(exchange)
        if exchange.expired:
            return TOO_LATE
        try:
            attempt = await self.attempt(exchange)
            attempt = await self.replace_if_stale(exchange, attempt)
        finally:
            self.stop_clock(ticket)
        return None if attempt.kind is None else answer_for(attempt, expired=exchange.expired)

    # The parts, for stages that make more than one attempt.

    def start_clock(self, exchange: Exchange) -> Ticket | None:
        """Start the deadline of the whole exchange; None if it has no limit, or no time left."""
        asked = exchange.client_timeout
        if asked is None or asked >= self._timeout:
            return self._deadlines.start(exchange) if self._has_limit else None
        if asked == 0:
            exchange.expire()
            return None
        return self._deadlines.start_sooner(exchange, asked)

    def stop_clock(self, ticket: Ticket | None) -> None:
        """Stop the deadline of an exchange that got its response, or ended."""
        if ticket is not None:
            self._deadlines.finish(ticket)

    def time_left(self, exchange: Exchange, now: float) -> float:
        """Return the seconds until the time for the whole exchange is over, as of *now*."""
        return exchange.started + self._limit(exchange) + exchange.waited_for_client(now) - now

    def _limit(self, exchange: Exchange) -> float:
        asked = exchange.client_timeout
        return self._timeout if asked is None else min(self._timeout, asked)

    def connect_by(self, exchange: Exchange) -> float:
        """Return the moment by which an attempt that begins now must have its connection."""
        limit = self._timeout if exchange.client_timeout is None else self._limit(exchange)
        # The proxy does not wait for the client at this point, so no other time is uncounted.
        return exchange.started + limit + exchange.client_wait + _CONNECT_GRACE

    def attempt(
        self,
        exchange: Exchange,
        *,
        fresh: bool = False,
        judge: Judge | None = None,
        avoid: Collection[str] = (),
        delay: RetryDelay | None = None,
        permit: ChainPermit | None = None,
        url: str = "",
        begin_by: float = math.inf,
    ) -> Awaitable[Attempt]:
        """Make one attempt once the throttles admit it: at once if it has its *permit* already.

        The attempt waits in no queue beyond *begin_by*. The other parameters are those of
        :meth:`Upstream.attempt`.
        """
        throttle_chain, upstream, budget = self.throttle_chain, self.upstream, self._budget
        if exchange.earlier_attempts and not exchange.attempts:
            url = self._first_url(exchange)
        if throttle_chain is not None:
            permit = permit or throttle_chain.try_acquire(exchange)
            if permit is None:
                deadline = min(self.connect_by(exchange) - _CONNECT_GRACE, begin_by)
                again = partial(
                    self.attempt,
                    exchange,
                    fresh=fresh,
                    judge=judge,
                    avoid=avoid,
                    delay=delay,
                    url=url,
                )
                return self._attempt_when_admitted(throttle_chain, exchange, deadline, again)
            permit.next_judge, judge = judge, permit.judge
        if budget is not None and not exchange.attempts:
            started = exchange.started
            if self.breaker is None or self.breaker.admits(started):
                budget.first(started)
        connect_by = self.connect_by(exchange)
        attempt = upstream.attempt(
            exchange,
            connect_by,
            fresh=fresh,
            judge=judge,
            avoid=avoid,
            delay=delay,
            permit=permit,
            url=url,
        )
        deadlines = self._attempt_deadlines
        return attempt if deadlines is None else _within(deadlines, exchange, attempt)

    async def _attempt_when_admitted(
        self,
        throttle_chain: ThrottleChain,
        exchange: Exchange,
        deadline: float,
        attempt: Callable[..., Awaitable[Attempt]],
    ) -> Attempt:
        """Wait for a permit, until *deadline* at the latest, and make the *attempt*."""
        is_retry = bool(exchange.attempts)
        permit = await throttle_chain.acquire(exchange, deadline, is_retry=is_retry)
        return await attempt(permit=permit)

    async def replace_if_stale(
        self, exchange: Exchange, attempt: Attempt, judge: Judge | None = None
    ) -> Attempt:
        """Return a failed *attempt*, or the one that replaces it at once.

        An attempt is replaced if it only found a stale connection: one that had ended while it
        was idle, which showed when the request was sent, or just before.
        """
        if not attempt.found_stale or exchange.client_is_gone:
            return attempt
        leave = self.leave(exchange)
        if isinstance(leave, VerdictReason) or (attempt.sent and _is_lost(exchange)):
            return attempt
        begin_by = self._clock.monotonic() + leave.within
        try:
            return await self.attempt(
                exchange, fresh=True, judge=judge, url=leave.url, begin_by=begin_by
            )
        except Refused as refused:
            if (
                refused.refusal.reason is RefusalReason.THROTTLED
                and exchange.attempts[-1] is attempt
            ):
                return attempt
            raise

    def leave(self, exchange: Exchange) -> RepeatPermission | VerdictReason:
        """Return the leave for another attempt here, or why the earlier ones forbid it."""
        now = self._clock.monotonic()
        return self.repeats.permission(exchange, exchange.attempts, now, exchange.earlier_attempts)

    def _first_url(self, exchange: Exchange) -> str:
        """Return the URL at which a replayed dead letter must begin; empty if any will do.

        A dead letter that may have run under a key which one URL still remembers begins there.
        """
        leave = self.leave(exchange)
        return leave.url if isinstance(leave, RepeatPermission) else ""


def _is_lost(exchange: Exchange) -> bool:
    """Say whether what was sent cannot be sent again."""
    return exchange.upgrade or (exchange.body is not None and exchange.body.lost is not None)


async def _within(deadlines: Deadlines, exchange: Exchange, attempt: Awaitable[Attempt]) -> Attempt:
    """Make the attempt within the ``attempt_timeout``.

    The time runs from here on, since it is the upstream's and does not include the wait in a
    throttle's queue.
    """
    ticket = deadlines.start_attempt(exchange)
    try:
        return await attempt
    finally:
        deadlines.finish(ticket)
        exchange.attempt_expired = False
