"""The stage that makes attempts until one is good enough, or none may follow.

Whether another attempt follows is decided by ``policy/verdict.py``, in one call.
After a response that call comes from inside the socket's callback, when the head
is complete and nothing of it has gone to the client: a no lets it pass through as
if this stage did not exist, a yes sets it aside. Everything that could say no is
asked before the response in hand is given up.
"""

import asyncio
from collections.abc import Awaitable

from proxy.core import Clock, Exchange, Refused
from proxy.pipeline.answers import DRAINING, TOO_LATE, answer_for
from proxy.pipeline.deadlines import Deadlines
from proxy.pipeline.fallback import Fallback
from proxy.pipeline.forward import Forward
from proxy.pipeline.pauses import Pauses
from proxy.policy.budget import Budget
from proxy.policy.hints import NO_ADVICE, Advice, read_advice
from proxy.policy.outcome import Attempt, Kind, Pause
from proxy.policy.reasons import Why
from proxy.policy.refusal import Reason, Refusal
from proxy.policy.repeating import carries
from proxy.policy.response_head import ResponseHead
from proxy.policy.verdict import (
    Request,
    Result,
    RetryRules,
    Situation,
    Verdict,
    decide,
)

_FIRST_FAILURE = 400
_FIRST_SERVER_ERROR = 500
_MISDIRECTED = 421


class Retry:
    """A route that may send a request more than once."""

    __slots__ = ("attempt_deadlines", "budget", "clock", "fallback", "forward", "pauses", "rules")

    def __init__(
        self,
        forward: Forward,
        rules: RetryRules,
        *,
        budget: Budget | None,
        attempt_deadlines: Deadlines | None,
        pauses: Pauses,
        clock: Clock,
        fallback: Fallback | None,
    ) -> None:
        self.forward = forward
        self.rules = rules
        self.budget = budget
        self.attempt_deadlines = attempt_deadlines
        self.pauses = pauses
        self.clock = clock
        self.fallback = fallback

    async def handle(self, exchange: Exchange) -> Refusal | None:
        """Relay a response, the first good one or the last, or say why there is none."""
        if exchange.upgrade:
            return await self.forward.handle(exchange)  # a tunnel gets one attempt
        ticket = self.forward.start_clock(exchange)
        if exchange.expired:
            return TOO_LATE
        if self.budget is not None:
            self.budget.first(exchange.started)
        run = _Run(self, exchange)
        try:
            return await run.until_settled()
        except asyncio.CancelledError:
            run.settle_cancelled()
            raise
        except Refused:
            run.settle(Why.NOT_RETRYABLE_KIND)  # the client's own body is bad
            raise
        finally:
            run.give_back_budget()
            self.forward.stop_clock(ticket)


class _Run:
    """The attempts for one request."""

    __slots__ = (
        "_exchange",
        "_falls_back",
        "_made",
        "_pause",
        "_settled",
        "_spent",
        "_stage",
        "_taken_at",
        "_verdict",
    )

    def __init__(self, stage: Retry, exchange: Exchange) -> None:
        self._stage = stage
        self._exchange = exchange
        self._made = 0
        """Attempts that count: one that only found a stale connection does not."""
        self._settled = 0
        """Attempts whose record says why they were the last, or were not."""
        self._verdict: Verdict | None = None
        """On the attempt under way, once its head was judged."""
        self._falls_back = False
        self._pause: Pause | None = None
        """Before the attempt under way."""
        self._taken_at: float | None = None
        """When the budget was charged for a retry that has not begun."""
        self._spent: float | None = None
        """When it was charged for the one under way."""

    async def until_settled(self) -> Refusal | None:
        """Make attempts until none may follow; the client has its response, or gets a refusal."""
        exchange, stage = self._exchange, self._stage
        while True:
            deadlines = stage.attempt_deadlines
            ticket = None if deadlines is None else deadlines.start_attempt(exchange)
            try:
                attempt = await self._next_attempt()
                if attempt.kind is not None:
                    attempt = await stage.forward.unless_stale(exchange, attempt, self._judge_head)
            except Refused as refused:
                if refused.refusal.reason is not Reason.BREAKER_OPEN:
                    raise
                return await self._left_alone(refused.refusal)
            finally:
                if deadlines is not None and ticket is not None:
                    deadlines.finish(ticket)
            if attempt.number == 1 and attempt.kind is None and attempt.status < _FIRST_FAILURE:
                attempt.why = Why.SUCCESS
                exchange.route.recorder.judged(Why.SUCCESS)
                return None  # nearly every request
            verdict = self._verdict or self._judge_end(attempt)
            pause = self._pause = verdict.pause
            if pause is None:
                self.settle(verdict.why)
                if self._falls_back and stage.fallback is not None:
                    return await self._fall_back(stage.fallback)
                return answer_for(exchange, attempt)
            if not await self._wait(pause):
                self.settle(Why.SHUTDOWN)
                return DRAINING

    def _next_attempt(self) -> Awaitable[Attempt]:
        stage, exchange = self._stage, self._exchange
        upstream, give_up = stage.forward.upstream, stage.forward.give_up(exchange)
        self._made += 1
        if self._made == 1:
            return upstream.attempt(exchange, give_up, judge=self._judge_head)
        self._verdict = None
        self._spent, self._taken_at = self._taken_at, None
        return upstream.attempt(
            exchange,
            give_up,
            fresh=exchange.attempts[-1].status == _MISDIRECTED,
            judge=self._judge_head,
            avoid=[earlier.address for earlier in exchange.attempts],
            pause=self._pause,
        )

    async def _wait(self, pause: Pause) -> bool:
        """Wait between two attempts; False if no further one is to be made."""
        exchange, clock = self._exchange, self._stage.clock
        exchange.pausing = True
        began = clock.monotonic()
        try:
            goes_on = await self._stage.pauses.wait(pause.seconds)
        finally:
            waited = Pause(clock.monotonic() - began, pause.source)
            exchange.route.recorder.waited(waited)
        exchange.pausing = False
        return goes_on

    # Deciding.

    def _judge_head(self, attempt: Attempt, head: ResponseHead) -> bool:
        """Whether this response, which tells of a failure, shall not reach the client."""
        advice = read_advice(head.status, head.lines[1:], self._stage.clock.wall())
        verdict = self._verdict = self._judge(attempt, advice)
        return verdict.pause is not None or self._falls_back

    def _judge_end(self, attempt: Attempt) -> Verdict:
        """The verdict on an attempt whose response was good, or that had none."""
        if attempt.kind is None and attempt.status < _FIRST_FAILURE:
            return _RECOVERED
        return self._judge(attempt, NO_ADVICE)

    def _judge(self, attempt: Attempt, advice: Advice) -> Verdict:
        stage, exchange = self._stage, self._exchange
        headers = exchange.raw_headers
        request = Request(
            exchange.method,
            has_key=carries(headers, stage.rules.key_header),
            early_data=any(name.lower() == b"early-data" for name, _ in headers),
        )
        result = Result(attempt.kind, attempt.status, attempt.sent, advice)
        now = stage.clock.monotonic()
        situation = Situation(
            made=self._made,
            replaced=attempt.number - self._made,
            time_left=stage.forward.time_left(exchange, now),
            roll=stage.clock.roll(),
            previous=0.0 if self._pause is None else self._pause.seconds,
            was_misdirected=any(e.status == _MISDIRECTED for e in exchange.attempts[:-1]),
            body_lost=None if exchange.body is None else exchange.body.lost,
            expired=exchange.expired,
            shutting_down=stage.pauses.is_over,
        )
        verdict = decide(
            stage.rules,
            request,
            result,
            situation,
            breaker_admits=lambda wait: stage.forward.upstream.admits(now + wait),
            take_budget=lambda: self._take_budget(now),
        )
        if verdict.pause is None and stage.fallback is not None:
            self._falls_back = stage.fallback.covers(result) and stage.fallback.is_possible(
                exchange, now
            )
        if exchange.body is not None and (verdict.pause is not None or self._falls_back):
            exchange.body.hold()
        return verdict

    def _take_budget(self, now: float) -> bool:
        budget = self._stage.budget
        if budget is None:
            return True
        if not budget.take(now):
            return False
        self._taken_at = now
        return True

    def give_back_budget(self) -> None:
        """Return what a retry was charged that never began."""
        budget, taken_at = self._stage.budget, self._taken_at
        if budget is not None and taken_at is not None:
            self._taken_at = None
            budget.give_back(taken_at, self._stage.clock.monotonic())

    # Ending.

    def settle(self, why: Why) -> None:
        """No attempt follows the last one, and this is why."""
        recorder = self._exchange.route.recorder
        attempts = self._exchange.attempts[self._settled :]
        if not attempts and self._settled:
            return  # said already: it was cancelled before its fallback began
        for attempt in attempts[:-1]:
            attempt.why = Why.RETRIED
            recorder.judged(Why.RETRIED)
        for attempt in attempts[-1:]:
            attempt.why = why
        recorder.judged(why)
        self._settled += len(attempts)

    def settle_cancelled(self) -> None:
        """It was ended from outside: by its client, by a drain, or because we cut the client off.

        That is how a client learns that its response broke off.
        """
        exchange = self._exchange
        last = exchange.attempts[-1] if exchange.attempts else None
        if last is not None and last.kind is Kind.TRUNCATED:
            self.settle(Why.RESPONSE_STARTED)
        elif last is not None and last.kind is None and exchange.code:
            self._settle_answered(last)  # all of it was handed over in that very moment
        else:
            self.settle(Why.SHUTDOWN if exchange.was_cut else Why.CLIENT_GONE)

    def _settle_answered(self, attempt: Attempt) -> None:
        """The whole response of *attempt* has gone to the client."""
        if self._exchange.fallback:
            good = attempt.status < _FIRST_SERVER_ERROR
            self.settle(Why.RECOVERED if good else Why.ATTEMPTS_EXHAUSTED)
        elif self._verdict is not None:
            self.settle(self._verdict.why)
        else:
            self.settle(Why.SUCCESS if attempt.number == 1 else Why.RECOVERED)

    async def _left_alone(self, refusal: Refusal) -> Refusal | None:
        """The breakers of all addresses are open: nobody to ask for now."""
        self._taken_at = self._spent
        self.settle(Why.BREAKER_OPEN)
        stage, exchange = self._stage, self._exchange
        fallback = stage.fallback
        if fallback is None or not fallback.covers_open_breaker:
            return refusal
        if not fallback.is_possible(exchange, stage.clock.monotonic()):
            return refusal
        return await self._fall_back(fallback)

    async def _fall_back(self, fallback: Fallback) -> Refusal | None:
        attempt = await fallback.answer(self._exchange)
        if attempt is None:
            return None
        if attempt.kind is None:
            self._settle_answered(attempt)
        elif attempt.kind is Kind.TRUNCATED:
            self.settle(Why.RESPONSE_STARTED)
        else:
            self.settle(Why.ATTEMPTS_EXHAUSTED)
        return answer_for(self._exchange, attempt)


_RECOVERED = Verdict(Why.RECOVERED)
