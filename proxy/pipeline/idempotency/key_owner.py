"""The request that owns a key: runs, settles, and relays the end of its response last."""

import asyncio
from collections.abc import Mapping
from typing import Any

from proxy.core.exchange import Exchange
from proxy.core.ports import KeyLost, Refused
from proxy.core.route import Handler
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import ResponseHead
from proxy.pipeline.idempotency.capture import ResponseCapture
from proxy.pipeline.idempotency.in_flight import InFlightKey, InFlightKeys, Promotion
from proxy.policy.attempt import FIRST_FAILURE
from proxy.policy.idempotency.record import Ending, RecordState, make
from proxy.policy.idempotency.retention import (
    KeyOutcome,
    head_to_keep,
    is_stream_of_events,
    outcome_of_key,
    state_after,
)
from proxy.policy.idempotency.stored_response import NotKept, Result, StoredFallback, in_hand, pack
from proxy.policy.reasons import KeyResult
from proxy.policy.settings import IdempotencySettings

_SOON_READ = 16 * 1024
"""Bytes sent up to which no client is taken to be behind."""
_DONE = RecordState.DONE  # speed: looked up once, as in policy/idempotency/record.py
_FAILED = Refusal(RefusalReason.UNKNOWN, "The request could not be served.")


class KeyOwner(ResponseCapture):
    """One request while it owns its key."""

    __slots__ = (
        "_detached",
        "_early_settle",
        "_flight",
        "_in_flight",
        "_is_settled",
        "_refused",
        "_settings",
    )

    def __init__(
        self,
        exchange: Exchange,
        flight: InFlightKey,
        in_flight: InFlightKeys,
        settings: IdempotencySettings,
        refused: Mapping[str, frozenset[int]],
    ) -> None:
        """*refused*: by upstream the statuses by which it says that it did not do the work."""
        ResponseCapture.__init__(self, exchange, settings.max_response)  # super() takes longer
        self._flight = flight
        self._in_flight = in_flight
        self._settings = settings
        self._refused = refused
        self._early_settle: asyncio.Task[Any] | None = None
        """Settles a key whose request goes on: its response turned out to be too large, or its
        ttl is over."""
        self._is_settled = False
        """Whether the end was reported to the store, or is being reported."""
        self._detached: asyncio.Task[Any] | None = None
        """The task of the request once it goes on without its client."""

    async def run(self, inner: Handler) -> Refusal | None:
        """Run the request, settle its key, and then relay the end of the response."""
        exchange, flight = self.exchange, self._flight
        exchange.capture = self
        exchange.owned_key = flight
        flight.owner = self
        refusal: Refusal | None
        try:
            try:
                refusal = await inner(exchange)
            except KeyLost as lost:
                refusal = await self._settle_lost(lost)
            except Refused as refused:
                refusal = refused.refusal
            except asyncio.CancelledError:
                self._give_up()
                raise
            except Exception:
                if not self._is_settled and self._early_settle is None:
                    await self._settle(self._outcome(0), _FAILED)
                raise
            if not self._is_settled:
                await self._conclude(refusal)
        finally:
            # Each refers to the other, and the cycle would be left to the garbage collector.
            exchange.capture = exchange.owned_key = None
            # A promoted waiter is the owner by now.
            if flight.owner is self:
                flight.owner = None
        if exchange.client_is_gone:
            raise asyncio.CancelledError  # as without a key
        if exchange.bytes_sent > _SOON_READ and exchange.is_behind:
            await exchange.caught_up()  # the response was read ahead of its client
        return refusal

    async def _conclude(self, refusal: Refusal | None) -> None:
        """Settle the key of a request that has ended, unless that is done."""
        if self._early_settle is not None:
            await asyncio.wait((self._early_settle,))
        else:
            self._is_settled = True
            outcome = self._outcome(self.status if refusal is None else 0)
            response = self.response(lasts=outcome is KeyOutcome.KEPT)
            if outcome is KeyOutcome.KEPT and response is None:
                outcome = KeyOutcome.UNSTORED
            await self._settle(outcome, refusal or response or self._without_response())
        self.deliver()

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Relay the head; settle at once if it is complete and the store answers without a wait.

        The client then has its response within this iteration of the event loop, as it would
        without a key: that saves two more iterations, and a tenth of what a key costs.
        """
        immediate, exchange, settings = self._in_flight.immediate, self.exchange, self._settings
        body = b"".join(pieces) if complete and immediate is not None else b""
        # speed: status and fallback are the same as outcome_of_key() for a whole response, held by
        # tests/policy/idempotency/test_retention.py; saves 9,900 of 367,000 instructions per key.
        if (
            not complete
            or immediate is None
            or self._early_settle is not None
            or head.status not in settings.keep
            or exchange.fallback
            or len(body) > settings.max_response
            or is_stream_of_events(head.text)
        ):
            super().relay_head(head, pieces, complete=complete)
            return
        if not head.has_date:
            exchange.add_date(head)
        response = in_hand(head_to_keep(head.text, lasts=True), body)
        scope = self._flight.claim.scope
        if scope:
            scope = self._proved_scope(head.status)
        ttl = settings.ttl
        if exchange.hand_off is not None:
            ttl += exchange.hand_off.result_lasts
        ending = make(Ending, (_DONE, ttl, response, scope))
        is_kept = self._in_flight.settle_immediately(immediate, self._flight, ending)
        self._is_settled = True
        if not is_kept:
            exchange.route.recorder.keyed(KeyResult.LEASE_LOST)
        if not exchange.client_is_gone:
            exchange.relay_head(head, pieces, complete=True)

    def outlive_client(self) -> bool:
        """Let the request go on after its client left, since its result is worth having.

        False if nothing of it will be kept, or if the drain is out of time as well.
        """
        exchange = self.exchange
        if exchange.client_is_gone or exchange.was_cut_by_drain or not self.reads_ahead:
            return False
        exchange.detach_client()
        self._detached = self._in_flight.adopt_current_task()
        return True

    def overflowed(self) -> None:
        """Settle a key whose response is too large to keep, before the response ends."""
        if self.status in self._settings.keep and not self.exchange.fallback:
            self._early_settle = self._in_flight.spawn(self._settle(KeyOutcome.UNSTORED, NotKept()))
        self._end_detached()

    def _end_detached(self) -> None:
        """Cancel a request without a client of which nothing is kept."""
        if self._detached is not None:
            self._detached.cancel()

    def end_early(self) -> "asyncio.Future[Any]":
        """Let the request go on without its key: no attempt follows, only its client is answered.

        The future is done once the store was told what is known so far. With a head the request
        has run, and its response is not stored; an attempt without a head may have run.
        """
        if self._early_settle is None and not self._is_settled:
            self._flight.forbid_to_send()
            outcome = self._outcome(self.status)
            if outcome is KeyOutcome.KEPT:
                outcome = KeyOutcome.UNSTORED
            elif not self.status and self.exchange.stream is not None:
                outcome = KeyOutcome.AMBIGUOUS
            self.stop_keeping()
            self._early_settle = self._in_flight.spawn(self._settle_without_result(outcome))
            self._end_detached()
        if self._early_settle is not None:
            return self._early_settle
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def _settle_lost(self, lost: KeyLost) -> Refusal:
        """Settle a key that may be lost; return the refusal if it is not, else raise *lost*."""
        if self._early_settle is not None:
            await asyncio.wait((self._early_settle,))
            raise lost
        self._is_settled = True
        if await self._settle_without_result(self._outcome(0)):
            return lost.refusal
        raise lost

    def _proved_scope(self, status: int) -> str:
        """Return the scope that the record belongs to from now on; empty if that is not known.

        A caller that got a response below 400 is more than a made-up name.
        """
        scope = self._flight.claim.scope
        # A 202 of our own proves nothing.
        if not scope or status >= FIRST_FAILURE or self.exchange.hand_off is not None:
            return ""
        self._in_flight.remember_scope(scope)
        return scope

    def _outcome(self, status: int) -> KeyOutcome:
        exchange, hand_off = self.exchange, self.exchange.hand_off
        # What a delivery has sent is judged by the file: attempts before it do not end the key.
        is_delivery = hand_off is not None and bool(hand_off.delivery_id)
        attempts = () if is_delivery else exchange.attempts
        return outcome_of_key(
            self._settings, status, attempts, self._refused, fell_back=exchange.fallback
        )

    def _without_response(self) -> Result:
        """Return the result for waiters where there is no response to give them."""
        return StoredFallback() if self.exchange.fallback and not self.status else NotKept()

    async def _settle(self, outcome: KeyOutcome, result: Result) -> None:
        """Settle the key with *result*, in the store and for the waiters of this process."""
        flight = self._flight
        flight.recorder = self.exchange.route.recorder
        state = state_after(outcome, self._settings)
        packed = b"" if state is RecordState.UNSTORED else pack(flight.claim.name, result)
        scope = self._proved_scope(self.status) if outcome is KeyOutcome.KEPT else ""
        ttl, hand_off = self._settings.ttl, self.exchange.hand_off
        if hand_off is not None:
            ttl += hand_off.result_lasts
        await self._in_flight.settle(flight, Ending(state, ttl, packed, scope), result)

    async def _settle_without_result(self, outcome: KeyOutcome) -> bool:
        """Settle the key without a result, so that waiters ask the store; False if it was lost."""
        flight = self._flight
        flight.recorder = self.exchange.route.recorder
        ending = Ending(state_after(outcome, self._settings), self._settings.ttl)
        return await self._in_flight.settle(flight, ending, Promotion.AGAIN)

    def _give_up(self) -> None:
        """Let another request have the key: no attempt is under way, and none is to follow.

        The store is told in the background, since a cancelled request has no time to wait.
        """
        if self._early_settle is not None or self._is_settled:
            return
        outcome = self._outcome(self.status)
        if outcome is KeyOutcome.KEPT:
            outcome = KeyOutcome.UNSTORED  # cut off in the middle of it
        state = state_after(outcome, self._settings)
        if state is None and not self.exchange.was_cut_by_drain and self._flight.promote_next():
            return
        ending = Ending(state, self._settings.ttl)
        self._in_flight.run_detached(self._in_flight.settle(self._flight, ending, Promotion.AGAIN))
