"""The attempts for one request: made, judged, waited between and settled.

After a response the verdict is reached inside the socket's callback, when the head
is complete and nothing of it has gone to the client: a no lets it pass through as
if nobody had asked, a yes sets it aside. Everything that could say no is asked
before the response in hand is given up.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from proxy.core.exchange import Exchange
from proxy.core.ports import KeyLost, Refused
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import ResponseHead
from proxy.pipeline.fallback import FallbackStage
from proxy.policy.attempt import FIRST_FAILURE, FIRST_SERVER_ERROR, Attempt, FailureKind, RetryDelay
from proxy.policy.failure_answers import DRAINING, TOO_LATE, answer_for
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import RepeatPermission
from proxy.policy.retry.hints import NO_HINT, RetryHint, read_hint
from proxy.policy.retry.verdict import (
    MISDIRECTED,
    TOO_EARLY,
    AttemptResult,
    RequestFacts,
    Situation,
    Verdict,
    decide,
)

if TYPE_CHECKING:
    from proxy.pipeline.retry import Retry

_NOT_LET_THROUGH = {
    RefusalReason.BREAKER_OPEN: VerdictReason.BREAKER_OPEN,
    RefusalReason.THROTTLED: VerdictReason.THROTTLED,
    RefusalReason.STORE: VerdictReason.THROTTLED,
    RefusalReason.DRAINING: VerdictReason.SHUTDOWN,
}
"""Refusals that come before an attempt, and what they mean for those that came before it."""

_GOOD = VerdictReason.SUCCESS  # speed: as in policy/idempotency/record.py
_SUCCESS = Verdict(_GOOD)
_RECOVERED = Verdict(VerdictReason.RECOVERED)


class RetrySession:
    """All that is known of one request while it is being tried."""

    __slots__ = (
        "_exchange",
        "_falls_back",
        "_judged_at",
        "_known",
        "_leaves_letter",
        "_made",
        "_pause",
        "_settled",
        "_spent",
        "_stage",
        "_taken_at",
        "_verdict",
    )

    def __init__(self, stage: "Retry", exchange: Exchange) -> None:
        self._stage = stage
        self._exchange = exchange
        self._made = 1
        """Attempts that count, the one under way among them: one that only found a stale
        connection does not."""
        self._known = 0
        """Attempts on record when the present one was to begin."""
        self._settled = 0
        """Attempts whose record says why they were the last, or were not."""
        self._verdict: Verdict | None = None
        """On the attempt under way, once its head was judged."""
        self._judged_at = 0.0
        self._falls_back = False
        self._leaves_letter = False
        """Whether it is kept before its fallback answers."""
        self._pause: RetryDelay | None = None
        """Before the attempt under way."""
        self._taken_at: float | None = None
        """When the budget was charged for a retry that has not begun."""
        self._spent: float | None = None
        """When it was charged for the one under way."""

    async def until_over(self) -> Refusal | None:
        """Make attempts until none may follow; the client has its response, or gets a refusal."""
        exchange, forward = self._exchange, self._stage.forward
        ticket = forward.start_clock(exchange)
        if exchange.expired:
            return TOO_LATE
        try:
            try:
                attempt = await forward.attempt(exchange, judge=self._judge_head)
                if attempt.kind is None and attempt.status < FIRST_FAILURE:
                    # Nearly always: what follows below comes to this.
                    attempt.verdict = _GOOD
                    exchange.route.recorder.judged(_GOOD)
                    return None
                return await self._go_on_after(attempt)
            except Refused as refused:
                return await self._not_let_through(refused)
        except asyncio.CancelledError:
            self._settle_cancelled()
            raise
        finally:
            if self._taken_at is not None:
                self._give_back_budget(self._taken_at)
            forward.stop_clock(ticket)

    async def _go_on_after(self, attempt: Attempt) -> Refusal | None:
        """The first *attempt* was not good: see what comes next, as often as need be."""
        exchange, stage = self._exchange, self._stage
        while True:
            if attempt.kind is not None:
                attempt = await stage.forward.unless_stale(exchange, attempt, self._judge_head)
            verdict = self._verdict_on(attempt)
            if exchange.client_is_gone and (verdict.delay is not None or self._falls_back):
                raise asyncio.CancelledError  # it left while the response was set aside
            if verdict.delay is None:
                self._settle(verdict.reason)
                if self._falls_back and stage.fallback is not None:
                    if self._leaves_letter and stage.letters is not None:
                        await stage.letters.before_fallback(exchange, stage.fallback.settings)
                    return await self._fall_back(stage.fallback)
                return (
                    None if attempt.kind is None else answer_for(attempt, expired=exchange.expired)
                )
            begin_by = self._judged_at + verdict.permission.within
            refusal = await self._wait(verdict.delay)
            if refusal is not None:
                return refusal
            attempt = await self._next_attempt(verdict.permission.url, begin_by)

    # One attempt.

    def _next_attempt(self, url: str, begin_by: float) -> Awaitable[Attempt]:
        """Make one more attempt, at *url* if one is given, which must have begun by *begin_by*."""
        exchange, forward = self._exchange, self._stage.forward
        key = exchange.owned_key
        if key is not None and key.owned_until <= self._stage.clock.monotonic():
            raise KeyLost  # it would be noticed before it is sent, but on a connection made for it
        self._made += 1
        earlier = exchange.attempts
        self._known = len(earlier)
        self._verdict = None
        self._spent, self._taken_at = self._taken_at, None
        return forward.attempt(
            exchange,
            # A stale connection is replaced outside the count, so one such find is enough.
            fresh=earlier[-1].status == MISDIRECTED or any(a.found_stale for a in earlier),
            judge=self._judge_head,
            avoid=[attempt.address for attempt in earlier],
            pause=self._pause,
            url=url,
            begin_by=begin_by,
        )

    async def _wait(self, pause: RetryDelay) -> Refusal | None:
        """Wait between two attempts; the answer if none is to follow after all."""
        exchange, clock = self._exchange, self._stage.clock
        self._pause = pause
        exchange.begin_wait("backoff")
        try:
            # From the verdict on: meanwhile the rest of the response was read.
            left = self._judged_at + pause.seconds - clock.monotonic()
            goes_on = await self._stage.retry_waits.wait(max(left, 0.0))
        finally:
            waited = RetryDelay(clock.monotonic() - self._judged_at, pause.source)
            exchange.route.recorder.waited(waited)
        exchange.end_wait()
        if not goes_on:
            self._settle(VerdictReason.SHUTDOWN)
            return DRAINING
        if exchange.expired or self._stage.forward.time_left(exchange, clock.monotonic()) <= 0:
            self._settle(VerdictReason.DEADLINE)
            return TOO_LATE
        return None

    # Deciding.

    def _judge_head(self, attempt: Attempt, head: ResponseHead) -> bool:
        """Whether this response, which tells of a failure, shall not reach the client."""
        stage = self._stage
        advice = read_hint(
            head.status,
            head.fields(),
            stage.clock.wall(),
            wants_wait=head.status in stage.listens_to,
        )
        verdict = self._verdict = self._judge(attempt, advice)
        if verdict.delay is None:
            attempt.verdict = (
                verdict.reason
            )  # a dead letter, written before the response ends, tells it
        return verdict.delay is not None or self._falls_back

    def _verdict_on(self, attempt: Attempt) -> Verdict:
        """The verdict on an attempt that is over."""
        if attempt.kind is None:
            if attempt.status < FIRST_FAILURE:
                return _SUCCESS if attempt.number == 1 else _RECOVERED
            if self._verdict is not None:
                return self._verdict
        return self._judge(attempt, NO_HINT)

    def _judge(self, attempt: Attempt, advice: RetryHint) -> Verdict:
        stage, exchange = self._stage, self._exchange
        now = self._judged_at = stage.clock.monotonic()
        leave = stage.forward.repeats.permission(
            exchange, exchange.attempts, now, exchange.earlier_attempts
        )
        early_data = attempt.status == TOO_EARLY and _came_early(exchange)
        request = RequestFacts(leave, early_data=early_data)
        result = AttemptResult(
            attempt.kind, attempt.status, attempt.sent, advice, is_first=attempt.number == 1
        )
        at, within = (leave.url, leave.within) if isinstance(leave, RepeatPermission) else ("", 0.0)
        verdict = decide(
            stage.rules,
            request,
            result,
            lambda: self._situation(now),
            breaker_admits=lambda wait: stage.forward.upstream.endpoints.admits(now + wait, at),
            throttle_admits=lambda wait: self._would_be_let_in(now, wait, within),
            take_budget=lambda: self._take_budget(now),
        )
        fallback = stage.fallback
        if verdict.delay is None and fallback is not None and not exchange.client_is_gone:
            self._falls_back = fallback.covers(result) and fallback.is_possible(exchange, now)
            letters = stage.letters
            self._leaves_letter = letters is not None and letters.wants(exchange, result)
        if exchange.body is not None and (verdict.delay is not None or self._falls_back):
            exchange.body.keep()
        return verdict

    def _situation(self, now: float) -> Situation:
        stage, exchange = self._stage, self._exchange
        return Situation(
            made=self._made,
            time_left=stage.forward.time_left(exchange, now),
            roll=stage.clock.roll(),
            previous=0.0 if self._pause is None else self._pause.seconds,
            was_misdirected=any(e.status == MISDIRECTED for e in exchange.attempts[:-1]),
            body_lost=None if exchange.body is None else exchange.body.lost,
            expired=exchange.expired,
            shutting_down=stage.retry_waits.is_over,
            client_gone=exchange.client_is_gone,
        )

    def _would_be_let_in(self, now: float, wait: float, within: float) -> bool:
        forward, exchange = self._stage.forward, self._exchange
        if forward.throttle_chain is None:
            return True
        left = min(forward.time_left(exchange, now), within)
        return forward.throttle_chain.would_admit(exchange, now, wait, left)

    def _take_budget(self, now: float) -> bool:
        budget = self._stage.budget
        if budget is None:
            return True
        if not budget.take(now):
            return False
        self._taken_at = now
        return True

    def _give_back_budget(self, taken_at: float) -> None:
        """Return what a retry was charged that never began."""
        if self._stage.budget is not None:
            self._stage.budget.give_back(taken_at, self._stage.clock.monotonic())

    # Ending.

    def _settle(self, why: VerdictReason) -> None:
        """No attempt follows the last one, and this is why."""
        recorder = self._exchange.route.recorder
        attempts = self._exchange.attempts[self._settled :]
        if not attempts and self._settled:
            return  # said already: it was cancelled before its fallback began
        for attempt in attempts[:-1]:
            attempt.verdict = VerdictReason.RETRIED
            recorder.judged(VerdictReason.RETRIED)
        for attempt in attempts[-1:]:
            attempt.verdict = why
        recorder.judged(why)
        self._settled += len(attempts)

    def _settle_cancelled(self) -> None:
        """The request was cancelled: its client left, our time is up, or we cut it off.

        The last is how a client learns that its response broke off. And it may happen
        in the very moment in which all of it had been handed over.
        """
        exchange = self._exchange
        last = exchange.attempts[-1] if exchange.attempts else None
        if last is not None and exchange.code and last.kind in (None, FailureKind.TRUNCATED):
            self._settle(_end_of(last) if self._falls_back else self._verdict_on(last).reason)
            return
        in_line = len(exchange.attempts) == self._known
        begun = last is not None and not in_line and (last.sent or self._falls_back)
        if not begun and self._taken_at is None:
            self._taken_at = self._spent  # nothing of the retry under way was sent
        self._settle(
            VerdictReason.SHUTDOWN if exchange.was_cut_by_drain else VerdictReason.CLIENT_GONE
        )

    async def _not_let_through(self, refused: Refused) -> Refusal | None:
        """The next attempt is not let through; or the client's own body is bad: raised again."""
        stage, exchange, refusal = self._stage, self._exchange, refused.refusal
        is_lost = isinstance(refused, KeyLost)
        why = VerdictReason.NOT_REPEATABLE if is_lost else _NOT_LET_THROUGH.get(refusal.reason)
        if why is None:
            self._settle(VerdictReason.NOT_RETRYABLE_KIND)
            raise refused
        if len(exchange.attempts) == self._known:
            self._taken_at = self._spent  # no attempt came of it
        self._settle(why)
        if is_lost:
            raise refused
        fallback = stage.fallback
        if (
            why is not VerdictReason.BREAKER_OPEN
            or fallback is None
            or not fallback.covers_open_breaker
        ):
            return refusal
        if not fallback.is_possible(exchange, stage.clock.monotonic()):
            return refusal
        self._falls_back = True
        if stage.letters is not None:
            await stage.letters.after(exchange, refusal, fallback.settings)
        try:
            return await self._fall_back(fallback)
        except Refused:
            self._settle(VerdictReason.NOT_RETRYABLE_KIND)
            raise

    async def _fall_back(self, fallback: FallbackStage) -> Refusal | None:
        """Give the fixed answer, or make one more attempt, at another upstream."""
        exchange = self._exchange
        if fallback.forward is None:
            exchange.answer_fallback(fallback.settings)
            return None
        other = fallback.forward
        has_answered = False
        exchange.fallback = True
        try:
            attempt = await other.attempt(exchange)
            attempt = await other.unless_stale(exchange, attempt)
            has_answered = attempt.kind in (None, FailureKind.TRUNCATED)
        except Refused as refused:
            if isinstance(refused, KeyLost) or refused.refusal.reason not in _NOT_LET_THROUGH:
                raise
            return refused.refusal
        finally:
            exchange.fallback = has_answered or exchange.code != 0
        self._settle(_end_of(attempt))
        return answer_for(attempt, expired=exchange.expired)


def _end_of(fallback: Attempt) -> VerdictReason:
    """Why the attempt at the other upstream was the last: it always is."""
    if fallback.kind is FailureKind.TRUNCATED:
        return VerdictReason.RESPONSE_STARTED
    if fallback.kind is None and fallback.status < FIRST_SERVER_ERROR:
        return VerdictReason.RECOVERED
    return VerdictReason.ATTEMPTS_EXHAUSTED


def _came_early(exchange: Exchange) -> bool:
    return any(name.lower() == b"early-data" for name, _ in exchange.raw_headers)
