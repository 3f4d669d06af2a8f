"""What a client gets instead of a failure: a fixed answer, or another upstream's."""

from proxy.core.exchange import Exchange
from proxy.pipeline.retry_waits import RetryWaits
from proxy.pipeline.single_attempt import SingleAttempt
from proxy.policy.retry.verdict import LEAST_ATTEMPT, AttemptResult, is_listed
from proxy.policy.settings import FallbackSettings


class FallbackStage:
    """The last resort of a route."""

    __slots__ = ("_failed", "_pauses", "covers_open_breaker", "forward", "settings")

    def __init__(
        self,
        settings: FallbackSettings,
        failed: SingleAttempt,
        forward: SingleAttempt | None,
        retry_waits: RetryWaits,
    ) -> None:
        """*failed* leads to the upstream that did; *forward* to the other, if there is one."""
        self.settings = settings
        self._failed = failed
        self.forward = forward
        self._pauses = retry_waits
        self.covers_open_breaker = "breaker_open" in settings.on.names

    def covers(self, result: AttemptResult) -> bool:
        """Whether it stands in for this outcome."""
        return is_listed(self.settings.on, result, self._failed.upstream.settings.refused)

    def is_possible(self, exchange: Exchange, now: float) -> bool:
        """Whether it can be had. A fixed answer always can; another upstream is an attempt."""
        if self.forward is None:
            return True
        in_time = self.forward.time_left(exchange, now) >= LEAST_ATTEMPT
        if exchange.expired or self._pauses.is_over or not in_time:
            return False
        if not self._may_be_sent(exchange) or not self.forward.upstream.endpoints.admits(now):
            return False
        throttle_chain, left = self.forward.throttle_chain, self.forward.time_left(exchange, now)
        return throttle_chain is None or throttle_chain.would_admit(exchange, now, 0.0, left)

    def _may_be_sent(self, exchange: Exchange) -> bool:
        attempts = exchange.attempts
        is_lost = exchange.body is not None and exchange.body.lost is not None
        if is_lost and any(attempt.sent for attempt in attempts):
            return False
        return self._failed.repeats.may_go_elsewhere(
            exchange, (*exchange.earlier_attempts, *attempts)
        )
