"""One try of a delivery: breaker, throttles, upstream, as for any request.

Live requests come first: a delivery takes a permit that no request waits for, unless it is told
that it may wait in the queue as well.
"""

from dataclasses import dataclass

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.ports import Refused
from proxy.core.route import Route
from proxy.http.refusal import Refusal, RefusalReason
from proxy.pipeline.single_attempt import SingleAttempt
from proxy.policy.attempt import Attempt
from proxy.policy.delivery.outcome import DeliveryRules
from proxy.policy.delivery.words import DeferralReason
from proxy.policy.retry.budget import Budget
from proxy.policy.settings import HandOffSettings
from proxy.policy.throttle.wait_queue import ThrottleCause
from proxy.upstream.upstream import Upstream

_LEAST_WAIT = 0.01
_LONGEST_WAIT = 60.0
"""Seconds after which a limiter is asked again, whatever it said."""

_REASONS = {
    RefusalReason.BREAKER_OPEN: DeferralReason.BREAKER_OPEN,
    RefusalReason.BUSY: DeferralReason.BUSY,
    RefusalReason.DRAINING: DeferralReason.DRAINING,
}


@dataclass(frozen=True, slots=True)
class NotSent:
    """A delivery was not sent: no byte of it has gone out."""

    reason: DeferralReason | None
    """None: by a fault of our own."""
    wait: float
    """Seconds after which it may be sent."""


class DeliveryAttempt:
    """Sends deliveries of one route, each once."""

    def __init__(self, single_attempt: SingleAttempt, budget: Budget | None, clock: Clock) -> None:
        """First tries add to *budget*, as requests do; later ones are not charged to it."""
        self._single_attempt = single_attempt
        self._budget = budget
        self._clock = clock
        self.upstream = single_attempt.upstream

    @property
    def is_throttled(self) -> bool:
        """Whether a try needs a permit."""
        return self._single_attempt.throttle_chain is not None

    def wait(self) -> NotSent | None:
        """Return why a try would not get a permit now; None if it would, as far as is known."""
        chain = self._single_attempt.throttle_chain
        return None if chain is None else _deferral(chain.common_wait())

    async def send(
        self, exchange: Exchange, *, is_first: bool, may_wait: bool
    ) -> Attempt | NotSent:
        """Make one attempt: the record of it, or why nothing was sent.

        *may_wait*: whether it may wait in the queues of throttles.
        """
        single_attempt = self._single_attempt
        chain = single_attempt.throttle_chain
        ticket = single_attempt.start_clock(exchange)
        try:
            permit = None
            if chain is not None and not may_wait:
                permit = chain.try_acquire(exchange)
                if permit is None:
                    wait, is_paused = chain.wait_of(exchange)
                    return _deferral((wait, is_paused)) or NotSent(
                        DeferralReason.THROTTLED, _LEAST_WAIT
                    )
            if is_first and self._budget is not None:
                self._budget.first(self._clock.monotonic())
            attempt = await single_attempt.attempt(exchange, permit=permit)
            return await single_attempt.replace_if_stale(exchange, attempt)
        except Refused as refused:
            return last_sent(exchange) or _not_sent(refused.refusal)
        finally:
            single_attempt.stop_clock(ticket)


def last_sent(exchange: Exchange) -> Attempt | None:
    """Return the last attempt of which a byte has gone out; None if none has.

    The one that replaces a stale connection may not have got that far.
    """
    return next((attempt for attempt in reversed(exchange.attempts) if attempt.sent), None)


def _deferral(wait: tuple[float, bool]) -> NotSent | None:
    seconds, is_paused = wait
    if seconds <= 0:
        return None
    reason = DeferralReason.PAUSED if is_paused else DeferralReason.THROTTLED
    return NotSent(reason, min(max(seconds, _LEAST_WAIT), _LONGEST_WAIT))


def _not_sent(refusal: Refusal) -> NotSent:
    reason = _REASONS.get(refusal.reason, DeferralReason.THROTTLED)
    if refusal.cause == ThrottleCause.PAUSED:
        reason = DeferralReason.PAUSED
    return NotSent(reason, float(refusal.retry_after or 1))


@dataclass(frozen=True, slots=True)
class DeliveryRoute:
    """A route that hands off, as those see it that deliver."""

    route: Route
    hand_off: HandOffSettings
    attempt: DeliveryAttempt
    rules: DeliveryRules

    @property
    def name(self) -> str:
        """The name of the route."""
        return self.route.settings.name

    @property
    def upstream(self) -> Upstream:
        """The upstream that deliveries go to."""
        return self.attempt.upstream
