"""The line of each upstream that deliveries go to, told of live requests as well."""

from collections.abc import Callable

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.delivery.exchange import DeliveryExchange
from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.delivery.line import Line, LineSignal, line_signal
from proxy.policy.retry.verdict import AttemptResult
from proxy.upstream.upstream import Upstream

_LIVE_PER_DELIVERY = 9
"""Live requests that are sent to a contended upstream for each delivery."""


class UpstreamLine(Line):
    """The line of one upstream, with how many of its deliveries are under way."""

    def __init__(self, clock: Clock, awake: Callable[[], None]) -> None:
        """*awake* is called when a live request opens the line."""
        super().__init__()
        self._clock = clock
        self._awake = awake
        self._live = 0
        """Live attempts since the last delivery that was sent."""
        self.under_way = 0
        """Deliveries that are being sent."""

    def attempted(self, exchange: Exchange, attempt: Attempt) -> None:
        """Take note of an attempt at the upstream that has ended."""
        if isinstance(exchange, DeliveryExchange):
            return  # whoever sent it tells more
        self._live += 1
        is_up = line_signal(AttemptResult(attempt.kind, attempt.status)) is LineSignal.UP
        if is_up and self.succeeded(self._clock.monotonic()):
            self._awake()

    @property
    def has_its_turn(self) -> bool:
        """Whether so many live requests were sent that a delivery may wait among them."""
        return self._live >= _LIVE_PER_DELIVERY

    def sent(self) -> None:
        """Take note of a delivery that was sent: live requests come first again."""
        self._live = 0


def is_unreachable(upstream: Upstream, attempt: Attempt, now: float) -> bool:
    """Whether every address of *upstream* refuses connections, *attempt*'s the last of them."""
    pools = upstream.endpoints.pools
    return attempt.kind is FailureKind.CONNECT and all(pool.just_failed(now) for pool in pools)
