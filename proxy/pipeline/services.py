"""What the routes of one configuration share, handed to each chain when it is built."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from proxy.core.clock import Clock
from proxy.core.ports import DeadLetterSink
from proxy.pipeline.deadlines import Deadlines
from proxy.pipeline.idempotency.in_flight import InFlightKeys
from proxy.pipeline.retry_waits import RetryWaits
from proxy.pipeline.throttle.chain import ThrottleChain
from proxy.pipeline.throttle.throttle import Throttle
from proxy.policy.retry.budget import Budget
from proxy.upstream.upstream import Upstream


@dataclass(frozen=True, slots=True)
class RouteServices:
    """What the routes share."""

    upstreams: Mapping[str, Upstream]
    budgets: Mapping[str, Budget]
    """By upstream; those without a budget are left out."""
    deadlines: Callable[[float], Deadlines]
    """The watch over all that last at most that many seconds."""
    throttles: Mapping[tuple[str, str], Throttle]
    """By scope and name."""
    keyed: Collection[tuple[str, str]]
    """Those of them that tell callers apart."""
    in_flight: InFlightKeys
    """Requests that own their idempotency keys."""
    dead_letters: DeadLetterSink
    """Where what failed for good is kept."""
    retry_waits: RetryWaits
    clock: Clock

    def throttle_chain(self, route: str, upstream: Upstream) -> ThrottleChain | None:
        """What an attempt of *route* has to pass on its way to *upstream*; None if nothing."""
        labels = (("route", route), ("upstream", upstream.settings.name))
        throttles = [self.throttles[label] for label in labels if label in self.throttles]
        if not throttles:
            return None
        keyed = any(label in self.keyed for label in labels)
        return ThrottleChain(throttles, upstream, self.retry_waits, self.clock, keyed=keyed)
