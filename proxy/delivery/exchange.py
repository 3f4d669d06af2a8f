"""The exchange of a delivery that is sent, without a client."""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.client_identity import ClientIdentity
from proxy.core.clientless import ClientlessExchange, CompleteBody
from proxy.core.clock import Clock
from proxy.core.route import Route
from proxy.http.fields import RawHeaders
from proxy.http.refusal import Refusal
from proxy.http.request_head import RequestHead, read_request_head
from proxy.http.response_head import ResponseHead
from proxy.policy.attempt import Attempt
from proxy.policy.caller_fields import hop_for
from proxy.policy.delivery.state import DeliveredResponse
from proxy.policy.retry.hints import NO_HINT, read_hint
from proxy.policy.settings import Settings
from proxy.stores.deliveries.ports import Taken

_NOT_KEPT = frozenset({b"set-cookie"})


def read_delivery(
    taken: Taken, earlier: Sequence[Attempt], route: Route, settings: Settings, clock: Clock
) -> "DeliveryExchange | Refusal":
    """Make the exchange of the delivery *taken* on *route*, after the *earlier* attempts."""
    head = read_request_head(taken.delivery.headers, http_1_0=False, hop=hop_for(settings))
    if isinstance(head, Refusal):
        return head
    return DeliveryExchange(taken, head, route, clock, earlier=earlier, settings=settings)


@dataclass(slots=True)
class _Sent:
    """Names the delivery of which this is a try (core.ports.HandOffTicket)."""

    delivery_id: str
    comes_first: bool = True
    result_lasts: float = 0.0


class DeliveryExchange(ClientlessExchange):
    """One try of one delivery: keeps the upstream's answer, up to a limit."""

    __slots__ = (
        "_kept",
        "_limit",
        "_size",
        "delivery",
        "earlier_attempts",
        "hint",
        "response_head",
    )

    def __init__(
        self,
        taken: Taken,
        head: RequestHead,
        route: Route,
        clock: Clock,
        *,
        earlier: Sequence[Attempt],
        settings: Settings,
    ) -> None:
        delivery, body = taken.delivery, taken.body
        super().__init__(
            delivery.method,
            delivery.target,
            head,
            route,
            clock,
            settings=settings,
            request_id=delivery.request_id,
            identity=ClientIdentity(delivery.peer, delivery.scheme),
            body=CompleteBody(body) if body else None,
        )
        self.delivery = delivery
        self.hand_off = _Sent(delivery.id)
        self.earlier_attempts = earlier
        hand_off = route.settings.hand_off
        self._limit = 0 if hand_off is None else hand_off.keep_response
        self._kept: list[bytes] = []
        self._size = 0
        self.response_head: ResponseHead | None = None
        """The head of the upstream's answer; None as long as there is none."""
        self.hint = NO_HINT
        """What the answer asks for: how long to wait, whether to try again."""

    def __repr__(self) -> str:
        return f"<try of {self.delivery.id} {self.code or 'open'}>"

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Keep the head, and what has come of the body."""
        super().relay_head(head, [], complete=complete)
        self.response_head = head
        self.hint = read_hint(head.status, head.fields(), self._clock.wall())
        self.relay_data(pieces, complete=complete)

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """Keep more of the body, while it is not too large."""
        super().relay_data(pieces, complete=complete)
        self._size += sum(map(len, pieces))
        if self._size <= self._limit:
            self._kept += pieces
        else:
            self._kept.clear()

    def finish(self) -> None:
        """Log the try: no client was answered, so that it counts as no request."""
        self.duration = self._clock.monotonic() - self.started
        self.route.recorder.logged(self)

    def kept_response(self) -> DeliveredResponse | None:
        """Return what is kept of the upstream's answer; None if there is none."""
        head = self.response_head
        if head is None:
            return None
        fields = (line.partition(b":") for line in head.fields())
        headers: RawHeaders = tuple(
            (name, value.strip(b" \t"))
            for name, _, value in fields
            if name.lower() not in _NOT_KEPT
        )
        is_whole = self._size <= self._limit and not self.was_truncated
        return DeliveredResponse(head.status, headers, b"".join(self._kept) if is_whole else None)
