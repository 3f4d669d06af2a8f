"""What a client gets instead of a failure: a fixed answer, or another upstream's."""

from proxy.core import Exchange
from proxy.pipeline.forward import Forward
from proxy.pipeline.pauses import Pauses
from proxy.policy.outcome import Attempt
from proxy.policy.settings import FallbackSettings
from proxy.policy.verdict import LEAST_ATTEMPT, Result, is_listed
from proxy.upstream.upstream import Upstream


class Fallback:
    """The last resort of a route."""

    __slots__ = ("_forward", "_pauses", "_settings", "_upstream", "covers_open_breaker")

    def __init__(
        self,
        settings: FallbackSettings,
        upstream: Upstream,
        forward: Forward | None,
        pauses: Pauses,
    ) -> None:
        """*upstream* is the one that failed; *forward* leads to the other, if there is one."""
        self._settings = settings
        self._upstream = upstream
        self._forward = forward
        self._pauses = pauses
        self.covers_open_breaker = "breaker_open" in settings.on.words

    def covers(self, result: Result) -> bool:
        """Whether it stands in for this outcome."""
        return is_listed(self._settings.on, result, self._upstream.settings.refused)

    def is_possible(self, exchange: Exchange, now: float) -> bool:
        """Whether it can be had. A fixed answer always can; another upstream is an attempt."""
        if self._forward is None:
            return True
        in_time = self._forward.time_left(exchange, now) >= LEAST_ATTEMPT
        if exchange.expired or self._pauses.is_over or not in_time:
            return False
        return self._may_be_sent(exchange) and self._forward.upstream.admits(now)

    def _may_be_sent(self, exchange: Exchange) -> bool:
        sent = [attempt for attempt in exchange.attempts if attempt.sent]
        if sent and exchange.body is not None and exchange.body.lost is not None:
            return False
        if self._forward is None or not any(self._may_have_run(attempt) for attempt in sent):
            return True
        # Both, because what the one upstream remembers of a key the other may not know.
        upstreams = (self._upstream, self._forward.upstream)
        return all(upstream.may_repeat(exchange) for upstream in upstreams)

    def _may_have_run(self, attempt: Attempt) -> bool:
        if attempt.kind is None:
            return attempt.status not in self._upstream.settings.refused
        return attempt.kind.may_have_run

    async def answer(self, exchange: Exchange) -> Attempt | None:
        """Give the fixed answer, or make the attempt at the other upstream."""
        exchange.fallback = True
        if self._forward is None:
            exchange.answer_fallback(self._settings)
            return None
        other = self._forward
        attempt = await other.upstream.attempt(exchange, other.give_up(exchange))
        return await other.unless_stale(exchange, attempt)
