"""The retry stage: sends a request more than once if need be, or falls back."""

from collections.abc import Awaitable

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.http.refusal import Refusal
from proxy.pipeline.dead_letters import DeadLetterWriter
from proxy.pipeline.fallback import FallbackStage
from proxy.pipeline.retry_session import RetrySession
from proxy.pipeline.retry_waits import RetryWaits
from proxy.pipeline.single_attempt import SingleAttempt
from proxy.policy.failure_answers import TOO_LATE, answer_for
from proxy.policy.retry.budget import Budget
from proxy.policy.retry.verdict import RetryRules


class Retry:
    """The retry stage of a route: makes attempts until one is good, or none may follow."""

    __slots__ = (
        "budget",
        "clock",
        "dead_letters",
        "fallback",
        "heeded_statuses",
        "retry_waits",
        "rules",
        "single_attempt",
    )

    def __init__(
        self,
        single_attempt: SingleAttempt,
        rules: RetryRules,
        *,
        budget: Budget | None,
        retry_waits: RetryWaits,
        clock: Clock,
        fallback: FallbackStage | None,
        dead_letters: DeadLetterWriter | None = None,
    ) -> None:
        """*dead_letters* keeps what failed for good, before a *fallback* hides that it did."""
        self.single_attempt = single_attempt
        self.rules = rules
        self.budget = budget
        self.retry_waits = retry_waits
        self.clock = clock
        self.fallback = fallback
        self.dead_letters = dead_letters
        covered = frozenset() if fallback is None else fallback.settings.on.hinted
        self.heeded_statuses = rules.statuses | covered
        """Statuses after which it matters how long the upstream asks us to wait."""

    def handle(self, exchange: Exchange) -> Awaitable[Refusal | None]:
        """Relay a response, the first good one or the last, or return the refusal in its place."""
        return (
            self._tunnel(exchange)
            if exchange.upgrade
            else RetrySession(self, exchange).make_attempts()
        )

    async def _tunnel(self, exchange: Exchange) -> Refusal | None:
        """Make one attempt without a verdict: what went through a tunnel cannot be sent again."""
        single_attempt = self.single_attempt
        ticket = single_attempt.start_clock(exchange)
        if exchange.expired:
            return TOO_LATE
        try:
            attempt = await single_attempt.attempt(exchange)
            attempt = await single_attempt.replace_if_stale(exchange, attempt)
        finally:
            single_attempt.stop_clock(ticket)
        return None if attempt.kind is None else answer_for(attempt, expired=exchange.expired)
