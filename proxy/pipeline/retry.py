"""The retry stage: sends a request more than once if need be, or falls back."""

from collections.abc import Awaitable

from proxy.core.exchange import Exchange
from proxy.http.refusal import Refusal
from proxy.pipeline.retry_session import RetrySession, RetryStage


class Retry(RetryStage):
    """The retry stage of a route: makes attempts until one is good, or none may follow."""

    __slots__ = ()

    def handle(self, exchange: Exchange) -> Awaitable[Refusal | None]:
        """Relay a response, the first good one or the last, or return the refusal in its place."""
        if exchange.upgrade:
            # Without a verdict: what went through a tunnel cannot be sent again.
            return self.single_attempt.make_one(exchange)
        return RetrySession(self, exchange).make_attempts()
