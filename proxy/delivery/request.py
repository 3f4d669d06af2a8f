"""A delivery as the rules about repeats see it: its method, and which fields the upstream gets."""

from dataclasses import dataclass

from proxy.core.route import Route
from proxy.http.refusal import Refusal
from proxy.http.request_head import read_request_head
from proxy.pipeline.hand_off.attempt import DeliveryRoute
from proxy.policy.delivery.history import DeliveryHistory, attempts_of_delivery
from proxy.policy.delivery.outcome import DeliveryFacts
from proxy.policy.delivery.state import Delivery
from proxy.policy.repeatable import RepeatPermission


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request that was handed off (policy.repeatable.Sendable)."""

    delivery: Delivery
    route: Route

    @property
    def method(self) -> str:
        """The request's method."""
        return self.delivery.method

    def sends_once(self, name: bytes) -> bool:
        """Whether the upstream gets the client's own field *name* (in lower case) once."""
        head = read_request_head(self.delivery.headers, http_1_0=False)
        if isinstance(head, Refusal):
            return False
        return head.sends_once(name, self.route.request_edits)


def is_repeatable(delivery: Delivery, to: DeliveryRoute, now: float) -> bool:
    """Whether a delivery may be sent again if a try at *now* may have run.

    What was sent before is judged by the URLs alone; *now* is in seconds since the epoch.
    """
    history = attempts_of_delivery(delivery, ())
    permission = to.rules.if_in_doubt(facts_of(delivery, history, to, now))
    return isinstance(permission, RepeatPermission)


def facts_of(
    delivery: Delivery, history: DeliveryHistory, to: DeliveryRoute, now: float
) -> DeliveryFacts:
    """Return what is known of a delivery at *now*."""
    request = StoredRequest(delivery, to.route)
    # A person's retry begins its time anew.
    accepted = delivery.gives_up - to.hand_off.give_up_after
    return DeliveryFacts(
        request, accepted, delivery.attempts, history.attempts, now, history.earlier
    )
