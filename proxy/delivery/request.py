"""A delivery as the rules about repeats see it: its method, and which fields the upstream gets."""

from dataclasses import dataclass

from proxy.core.route import Route
from proxy.http.refusal import Refusal
from proxy.http.request_head import read_request_head
from proxy.pipeline.hand_off.attempt import DeliveryRoute
from proxy.policy.attempt import Attempt
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


def is_repeatable(
    delivery: Delivery, attempts: tuple[Attempt, ...], to: DeliveryRoute, now: float
) -> bool:
    """Whether a delivery may be sent again if a try at *now* may have run.

    *attempts* are those on record; all times are seconds since the epoch.
    """
    permission = to.rules.if_in_doubt(facts_of(delivery, attempts, to, now))
    return isinstance(permission, RepeatPermission)


def facts_of(
    delivery: Delivery, attempts: tuple[Attempt, ...], to: DeliveryRoute, now: float, made: int = 0
) -> DeliveryFacts:
    """Return what is known of a delivery at *now*; *made*: attempts that count so far."""
    request = StoredRequest(delivery, to.route)
    # A person's retry begins its time anew.
    accepted = delivery.gives_up - to.hand_off.give_up_after
    return DeliveryFacts(request, accepted, made, attempts, now)
