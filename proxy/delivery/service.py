"""What operators and clients may see and do of deliveries: look, retry, cancel."""

import logging

from proxy.core.clock import Clock
from proxy.core.ids import new_owner_token
from proxy.core.recorders import Meter
from proxy.delivery.dispatcher import FindRoutes
from proxy.delivery.request import facts_of
from proxy.pipeline.hand_off.answers import accepted_as
from proxy.policy.delivery.history import attempts_of_delivery
from proxy.policy.delivery.state import Delivery, TransitionRefusal, retry
from proxy.policy.delivery.words import DeliveryState
from proxy.policy.idempotency.record import ENQUEUES, Claim, ClaimAnswer, Ending
from proxy.policy.repeatable import RepeatPermission
from proxy.stores import StoreError
from proxy.stores.deliveries.ports import DeliveryPage, DeliveryStore, Gone, ShownDelivery
from proxy.stores.ports import IdempotencyStore

_log = logging.getLogger("holdfast")

_TIMES = 5
"""How often a retry is decided anew because the delivery changed meanwhile."""
_CLAIM_LASTS = 30.0
"""Seconds for which a key is claimed while its delivery begins anew."""


class DeliveryService:
    """Deliveries, as those see them that did not send them. All methods raise StoreError."""

    def __init__(
        self,
        store: DeliveryStore,
        clock: Clock,
        meter: Meter,
        find_routes: FindRoutes,
        keys: IdempotencyStore,
    ) -> None:
        """*keys* has the records of the keys: what begins anew claims its own first."""
        self._store = store
        self._clock = clock
        self._meter = meter
        self._find_routes = find_routes
        self._keys = keys

    async def find(self, delivery_id: str) -> ShownDelivery | Gone:
        """Return all of a delivery but its body."""
        # Where no route hands off there is no file, and nothing in it.
        return await self._store.find(delivery_id) if self._store.is_open else Gone.UNKNOWN

    async def page(
        self,
        *,
        route: str | None,
        state: DeliveryState | None,
        reason: str | None,
        after: str,
        limit: int,
        newest: bool,
    ) -> DeliveryPage:
        """Return some deliveries, in the order of their acceptance, or the *newest* first."""
        if not self._store.is_open:
            return DeliveryPage((), "")
        return await self._store.page(
            route=route, state=state, reason=reason, after=after, limit=limit, newest=newest
        )

    async def retry_obstacle(self, delivery_id: str, *, force: bool) -> TransitionRefusal | None:
        """Say why :meth:`retry` would not send a delivery now; None if it would."""
        shown = await self.find(delivery_id)
        if isinstance(shown, Gone):
            return TransitionRefusal.UNKNOWN
        repeatable = self._is_repeatable(shown)
        again = retry(shown.delivery, self._clock.wall(), repeatable=repeatable, force=force)
        return again if isinstance(again, TransitionRefusal) else None

    async def retry(
        self, delivery_id: str, *, force: bool, by: str
    ) -> Delivery | TransitionRefusal:
        """Send a delivery now: one that waits, or one that failed, which begins anew.

        What may have run and is not repeatable wants *force*, which only an operator may give.
        *by* says in the log who asked.
        """
        for _ in range(_TIMES):
            shown = await self.find(delivery_id)
            if isinstance(shown, Gone):
                return TransitionRefusal.UNKNOWN
            again = await self._retry(shown, force=force)
            if again is not TransitionRefusal.CHANGED:
                if isinstance(again, Delivery):
                    forced = ", with force" if force else ""
                    _log.info("delivery %s is sent now, asked by %s%s", delivery_id, by, forced)
                return again
        return TransitionRefusal.CHANGED

    async def _retry(self, shown: ShownDelivery, *, force: bool) -> Delivery | TransitionRefusal:
        delivery = shown.delivery
        repeatable = self._is_repeatable(shown)
        if delivery.is_open or not delivery.record:
            return await self._store.retry(delivery, repeatable=repeatable, force=force)
        # Its key was free since it failed: another request may have it, or may have run with it.
        owner = ENQUEUES + new_owner_token()
        refusal = await self._claim_key(delivery, owner, force=force)
        if refusal is not None:
            return refusal
        try:
            return await self._store.retry(delivery, repeatable=repeatable, force=force)
        finally:
            # The delivery itself has the key from now on.
            await self._keys.settle(delivery.record, owner, Ending(None, _CLAIM_LASTS))

    async def _claim_key(
        self, delivery: Delivery, owner: str, *, force: bool
    ) -> TransitionRefusal | None:
        """Claim the key of a delivery that failed; return why it is not its own any more.

        With *force*, though another request with the key may have run: whether this one may be
        repeated says nothing of that.
        """
        claim = Claim(
            delivery.record,
            owner,
            delivery.fingerprint,
            delivery.route,
            _CLAIM_LASTS,
            _CLAIM_LASTS,
            takes_over=force,
            caller=delivery.caller,
        )
        for _ in range(_TIMES):
            claimed = await self._keys.claim(claim)
            match claimed.answer:
                case ClaimAnswer.NEW:
                    return None
                case ClaimAnswer.BUSY:
                    return TransitionRefusal.SENDING
                case ClaimAnswer.DONE if accepted_as(claim.name, claimed.result) == delivery.id:
                    await self._keys.drop(claim.name)  # the 202 of this one, which failed
                case ClaimAnswer.HELD if force:
                    await self._keys.drop(claim.name)
                case ClaimAnswer.HELD:
                    return TransitionRefusal.MAY_HAVE_RUN
                case ClaimAnswer.FULL:
                    raise StoreError("there is no room for its key")
                case _:
                    return TransitionRefusal.ENDED
        return TransitionRefusal.CHANGED

    def _is_repeatable(self, shown: ShownDelivery) -> bool:
        _, routes = self._find_routes()
        to = routes.get(shown.delivery.route)
        if to is None:
            return False
        history = attempts_of_delivery(shown.delivery, shown.runs)
        facts = facts_of(shown.delivery, history, to, self._clock.wall())
        return isinstance(to.rules.may_follow(facts), RepeatPermission)

    async def cancel(self, delivery_id: str, *, by: str) -> Delivery | TransitionRefusal:
        """End a delivery that is not being sent; *by* says in the log who asked."""
        if not self._store.is_open:
            return TransitionRefusal.UNKNOWN
        cancelled = await self._store.cancel(delivery_id)
        if isinstance(cancelled, Delivery):
            _log.info("delivery %s is cancelled, asked by %s", delivery_id, by)
            self._meter.count(
                "holdfast_deliveries_ended_total", cancelled.route, cancelled.state.value
            )
        return cancelled
