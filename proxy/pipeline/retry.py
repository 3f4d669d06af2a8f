"""The retry stage: sends a request more than once if need be, or falls back."""

from collections.abc import Awaitable

from proxy.core.exchange import Exchange
from proxy.http.refusal import Refusal
from proxy.pipeline.retry_session import RetrySession, RetryStage
from proxy.policy.failure_answers import TOO_LATE, answer_for


class Retry(RetryStage):
    """The retry stage of a route: makes attempts until one is good, or none may follow."""

    __slots__ = ()

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
