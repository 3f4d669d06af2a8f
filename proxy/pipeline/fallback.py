"""The fallback: what a client gets instead of a failure, fixed or from another upstream."""

from proxy.core.exchange import Exchange
from proxy.pipeline.retry_waits import RetryWaits
from proxy.pipeline.single_attempt import SingleAttempt
from proxy.policy.retry.verdict import LEAST_ATTEMPT, AttemptResult, is_listed
from proxy.policy.settings import FallbackSettings


class FallbackStage:
    """The fallback of a route: a fixed answer, or one attempt at another upstream."""

    def __init__(
        self,
        settings: FallbackSettings,
        failed: SingleAttempt,
        single_attempt: SingleAttempt | None,
        retry_waits: RetryWaits,
    ) -> None:
        """*failed* leads to the upstream that failed, *single_attempt* to the other, if any."""
        self.settings = settings
        self._failed = failed
        self.single_attempt = single_attempt
        self._retry_waits = retry_waits
        self.covers_open_breaker = "breaker_open" in settings.on.names

    def covers(self, result: AttemptResult) -> bool:
        """Say whether the fallback is configured for this outcome."""
        return is_listed(self.settings.on, result, self._failed.upstream.settings.refused)

    def is_possible(self, exchange: Exchange, now: float) -> bool:
        """Say whether the fallback can answer now.

        A fixed answer always can; another upstream takes an attempt.
        """
        other = self.single_attempt
        if other is None:
            return True
        time_left = other.time_left(exchange, now)
        if exchange.expired or self._retry_waits.is_over or time_left < LEAST_ATTEMPT:
            return False
        if not self._may_be_sent(exchange):
            return False
        if other.breaker is not None and not other.breaker.admits(now):
            return False
        throttle_chain = other.throttle_chain
        return throttle_chain is None or throttle_chain.would_admit(exchange, now, 0.0, time_left)

    def _may_be_sent(self, exchange: Exchange) -> bool:
        attempts = exchange.attempts
        is_lost = exchange.body is not None and exchange.body.lost is not None
        if is_lost and any(attempt.sent for attempt in attempts):
            return False
        return self._failed.repeats.may_go_elsewhere(
            exchange, (*exchange.earlier_attempts, *attempts)
        )
