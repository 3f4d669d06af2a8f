"""What operators and clients may see and do of deliveries: look, retry, cancel."""

import logging
from collections.abc import Awaitable, Callable

from proxy.core.clock import Clock
from proxy.core.recorders import Meter
from proxy.delivery.dispatcher import FindRoutes
from proxy.delivery.request import facts_of
from proxy.policy.delivery.history import attempts_of_delivery
from proxy.policy.delivery.state import Delivery, TransitionRefusal
from proxy.policy.delivery.words import DeliveryState
from proxy.policy.repeatable import RepeatPermission
from proxy.stores.deliveries.ports import DeliveryPage, DeliveryStore, Gone, ShownDelivery

_log = logging.getLogger("holdfast")

_TIMES = 5
"""How often a retry is decided anew because the delivery changed meanwhile."""


class DeliveryService:
    """Deliveries, as those see them that did not send them. All methods raise StoreError."""

    def __init__(
        self,
        store: DeliveryStore,
        clock: Clock,
        meter: Meter,
        find_routes: FindRoutes,
        forget_key: Callable[[str], Awaitable[object]],
    ) -> None:
        """*forget_key* drops the record of the key of a delivery that was cancelled."""
        self._store = store
        self._clock = clock
        self._meter = meter
        self._find_routes = find_routes
        self._forget_key = forget_key

    async def find(self, delivery_id: str) -> ShownDelivery | Gone:
        """Return all of a delivery but its body."""
        return await self._store.find(delivery_id)

    async def page(
        self,
        *,
        route: str | None,
        state: DeliveryState | None,
        reason: str | None,
        after: str,
        limit: int,
    ) -> DeliveryPage:
        """Return some deliveries, in the order of their acceptance."""
        return await self._store.page(
            route=route, state=state, reason=reason, after=after, limit=limit
        )

    async def retry(self, delivery_id: str, *, force: bool) -> Delivery | TransitionRefusal:
        """Send a delivery now: one that waits, or one that failed, which begins anew.

        What may have run and is not repeatable wants *force*, which only an operator may give.
        """
        for _ in range(_TIMES):
            shown = await self._store.find(delivery_id)
            if isinstance(shown, Gone):
                return TransitionRefusal.UNKNOWN
            delivery = shown.delivery
            repeatable = self._is_repeatable(shown)
            again = await self._store.retry(delivery, repeatable=repeatable, force=force)
            if again is not TransitionRefusal.CHANGED:
                if isinstance(again, Delivery):
                    _log.info("delivery %s is sent now, by hand", delivery_id)
                return again
        return TransitionRefusal.CHANGED

    def _is_repeatable(self, shown: ShownDelivery) -> bool:
        _, routes = self._find_routes()
        to = routes.get(shown.delivery.route)
        if to is None:
            return False
        attempts = attempts_of_delivery(shown.delivery, shown.runs)
        facts = facts_of(shown.delivery, attempts, to, self._clock.wall())
        return isinstance(to.rules.may_follow(facts), RepeatPermission)

    async def cancel(self, delivery_id: str) -> Delivery | TransitionRefusal:
        """End a delivery that is not being sent."""
        cancelled = await self._store.cancel(delivery_id)
        if isinstance(cancelled, Delivery):
            _log.info("delivery %s was cancelled by hand", delivery_id)
            self._meter.count(
                "holdfast_deliveries_ended_total", cancelled.route, cancelled.state.value
            )
            if cancelled.record:
                await self._forget_key(cancelled.record)
        return cancelled
