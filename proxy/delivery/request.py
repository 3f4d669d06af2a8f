"""A delivery as the rules about repeats see it: its method, and which fields the upstream gets."""

from dataclasses import dataclass

from proxy.core.route import Route
from proxy.http.refusal import Refusal
from proxy.http.request_head import read_request_head
from proxy.pipeline.hand_off.attempt import DeliveryRoute
from proxy.policy.attempt import Attempt, FailureKind
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
    """Whether a delivery may be sent again after a try that may have run, at *now*.

    *attempts* are those on record; *now* and their times are seconds since the epoch.
    """
    tried = Attempt(0, delivery.upstream, now)
    urls = sorted({attempt.url for attempt in attempts if attempt.sent and attempt.url})
    tried.url = urls[0] if urls else to.rules.urls[0]
    tried.kind, tried.sent = FailureKind.RESET, True
    request = StoredRequest(delivery, to.route)
    permission = to.rules.repeat.permission(request, (*attempts, tried), now)
    return isinstance(permission, RepeatPermission)
