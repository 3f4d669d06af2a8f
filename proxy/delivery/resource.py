"""The status resource: where clients ask for their deliveries, on the listeners.

::

    GET  PATH/ID             its state, for whoever knows the id
    GET  PATH/ID/response    the upstream's answer, for the caller that sent the request
    POST PATH/ID/retry       send it now, for the same caller

A wrong id and another caller get the same answer, so that nothing can be learned by trying.
"""

import json
from collections.abc import Iterable

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.delivery.dispatcher import FindRoutes
from proxy.delivery.service import DeliveryService
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import own_head
from proxy.pipeline.hand_off.answers import NOT_DURABLE, ask_again_after, timestamp
from proxy.policy.delivery.state import Delivery, TransitionRefusal
from proxy.policy.delivery.words import DeliveryState
from proxy.policy.idempotency.key import KeyReader, scope_digest
from proxy.policy.settings import IdempotencySettings
from proxy.stores import StoreError
from proxy.stores.deliveries.ports import Gone, ShownDelivery

_NOT_FOUND = Refusal(RefusalReason.NO_ROUTE, "There is no such delivery, or it is not yours.")
_NOT_YET = Refusal(RefusalReason.NO_ROUTE, "The delivery has no answer of the upstream yet.")
_METHOD = Refusal(RefusalReason.METHOD, "Send GET for a delivery, and POST for its retry.")
_MAY_HAVE_RUN = Refusal(
    RefusalReason.MAY_HAVE_RUN,
    "It may have run, and may not run twice. Find out first; an operator can send it all the same.",
)
_OVER = Refusal(RefusalReason.OVER, "It was delivered, or cancelled: it is not sent again.")
_UNDER_WAY = Refusal(RefusalReason.UNDER_WAY, "It is being sent now. Ask for its state later.")
_REFUSALS = {
    TransitionRefusal.UNKNOWN: _NOT_FOUND,
    TransitionRefusal.MAY_HAVE_RUN: _MAY_HAVE_RUN,
    TransitionRefusal.ENDED: _OVER,
}
_OK, _ACCEPTED, _GONE = 200, 202, 410


class DeliveryResource:
    """Answers clients that ask for their deliveries."""

    def __init__(
        self, path: str, service: DeliveryService, find_routes: FindRoutes, clock: Clock
    ) -> None:
        self._path = path
        self._service = service
        self._find_routes = find_routes
        self._clock = clock

    async def handle(self, exchange: Exchange) -> Refusal | None:
        """Answer a request whose path is the resource's."""
        path = exchange.target.partition("?")[0].removeprefix(self._path).strip("/")
        delivery_id, _, part = path.partition("/")
        is_read = exchange.method in {"GET", "HEAD"}
        if is_read is (part == "retry") or (not is_read and exchange.method != "POST"):
            return _METHOD
        try:
            shown = await self._service.find(delivery_id) if delivery_id else Gone.UNKNOWN
            if isinstance(shown, Gone):
                if shown is Gone.UNKNOWN:
                    return _NOT_FOUND
                _gone(exchange)
                return None
            return await self._answer(exchange, shown, part)
        except StoreError:
            return NOT_DURABLE

    async def _answer(self, exchange: Exchange, shown: ShownDelivery, part: str) -> Refusal | None:
        """Answer for a delivery that there is; *part* of it is asked for."""
        if not part:
            self._show(exchange, shown.delivery)
            return None
        if part not in {"response", "retry"} or not self._is_callers(exchange, shown.delivery):
            return _NOT_FOUND
        if part == "response":
            return _relay_response(exchange, shown)
        return await self._retry(exchange, shown.delivery.id)

    def _show(self, exchange: Exchange, delivery: Delivery) -> None:
        fields = [b"Content-Type: application/json", b"Cache-Control: no-store"]
        if delivery.is_open:
            fields.append(b"Retry-After: %d" % ask_again_after(delivery, self._clock.wall()))
        _relay(exchange, _OK, fields, json.dumps(delivery_json(delivery)).encode())

    async def _retry(self, exchange: Exchange, delivery_id: str) -> Refusal | None:
        asker = f"the client {exchange.peer}"
        again = await self._service.retry(delivery_id, force=False, by=asker)
        if isinstance(again, TransitionRefusal):
            return _REFUSALS.get(again, _UNDER_WAY)
        fields = [b"Content-Type: application/json", b"Cache-Control: no-store", b"Retry-After: 1"]
        _relay(exchange, _ACCEPTED, fields, json.dumps(delivery_json(again)).encode())
        return None

    def _is_callers(self, exchange: Exchange, delivery: Delivery) -> bool:
        """Whether the request has the scope that the delivery's request had."""
        _, routes = self._find_routes()
        to = routes.get(delivery.route)
        keys = (None if to is None else to.route.settings.idempotency) or IdempotencySettings()
        reader = KeyReader(keys.header.encode(), [name.encode() for name in keys.scope])
        fields = reader.read(exchange.raw_headers)
        if fields.repeated:
            return False
        scope = scope_digest(fields.caller) if fields.caller else ""
        return scope == delivery.scope


def delivery_json(delivery: Delivery) -> dict[str, object]:
    """Return what a client may know of a delivery: nothing of the request itself."""
    reported: dict[str, object] = {
        "delivery": delivery.id,
        "state": delivery.state.value,
        "accepted": timestamp(delivery.accepted),
        "attempts": delivery.attempts,
    }
    if delivery.is_open:
        reported["gives_up"] = timestamp(delivery.gives_up)
        if delivery.state is not DeliveryState.SENDING:
            reported["next_attempt"] = timestamp(delivery.due)
    else:
        reported["ended"] = timestamp(delivery.ended)
    if delivery.reason:
        reported["why"] = delivery.reason
    if delivery.deferred is not None:
        reported["deferred"] = delivery.deferred.value
    if delivery.state is DeliveryState.FAILED:
        reported["may_have_run"] = "maybe" if delivery.may_have_run else "no"
    if delivery.response_status:
        reported["response"] = {"status": delivery.response_status}
    return reported


def _gone(exchange: Exchange) -> None:
    """Say that a delivery is forgotten: its time is over."""
    fields = [b"Content-Type: application/json", b"Cache-Control: no-store"]
    _relay(exchange, _GONE, fields, b'{"state": "forgotten"}')


def _relay_response(exchange: Exchange, shown: ShownDelivery) -> Refusal | None:
    """Relay what is kept of the upstream's answer."""
    response = shown.response
    if response is None:
        return _NOT_YET
    fields = [name + b": " + value for name, value in response.headers]
    if response.body is None:
        fields.append(b"Holdfast-Body: not_kept")
    _relay(exchange, response.status, fields, response.body or b"")
    return None


def _relay(exchange: Exchange, status: int, fields: Iterable[bytes], body: bytes) -> None:
    fields = list(fields)
    head = own_head(exchange.method, status, fields, len(body))
    head.has_date = any(field.lower().startswith(b"date:") for field in fields)
    exchange.relay_head(head, [body] if head.has_body else [], complete=True)
