"""What the routes of one configuration share, handed to each pipeline when it is built."""

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
from proxy.stores.deliveries.ports import DeliverySink
from proxy.upstream.upstream import Upstream


@dataclass(frozen=True, slots=True)
class RouteServices:
    """Everything that the routes of one configuration share."""

    upstreams: Mapping[str, Upstream]
    budgets: Mapping[str, Budget]
    """Retry budgets by upstream; upstreams without a budget are left out."""
    deadlines: Callable[[float], Deadlines]
    """Returns the deadlines of everything that may last that many seconds."""
    throttles: Mapping[tuple[str, str], Throttle]
    """Throttles by scope (``route`` or ``upstream``) and name."""
    keyed: Collection[tuple[str, str]]
    """Scope and name of the throttles that have one rate limit per caller."""
    in_flight: InFlightKeys
    """Idempotency keys whose owners run in this process."""
    dead_letters: DeadLetterSink
    """Keeps requests that failed for good."""
    deliveries: DeliverySink
    """Keeps requests that are handed off."""
    delivery_status: str | None
    """The path at which clients ask for their deliveries; None: there is none."""
    retry_waits: RetryWaits
    clock: Clock

    def throttle_chain(self, route: str, upstream: Upstream) -> ThrottleChain | None:
        """Return the throttles between *route* and *upstream*, in order; None if there are none."""
        labels = (("route", route), ("upstream", upstream.settings.name))
        throttles = [self.throttles[label] for label in labels if label in self.throttles]
        if not throttles:
            return None
        keyed = any(label in self.keyed for label in labels)
        return ThrottleChain(throttles, upstream, self.retry_waits, self.clock, keyed=keyed)
