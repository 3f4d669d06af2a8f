"""A request that owns its key: run, settle, and let the client have the end of its response."""

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
"""Bytes that no client is behind with."""
_DONE = RecordState.DONE  # speed: as in policy/idempotency/record.py
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
        """Tells the store of the end of a key whose request goes on: its response turned out to
        be too large, or its time is over."""
        self._is_settled = False
        """Whether the store has it already, or is being told."""
        self._detached: asyncio.Task[Any] | None = None
        """What goes on without its client."""

    async def run(self, inner: Handler) -> Refusal | None:
        """Run it to its end, tell the store, and then let the client have the last of it."""
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
            # It knows the exchange, and a cycle would have to be found.
            exchange.capture = exchange.owned_key = None
            # Whoever took the flight over has its own.
            if flight.owner is self:
                flight.owner = None
        if exchange.client_is_gone:
            raise asyncio.CancelledError  # as it would have been but for its key
        if exchange.bytes_sent > _SOON_READ and exchange.is_behind:
            await exchange.caught_up()  # it was read ahead of its client
        return refusal

    async def _conclude(self, refusal: Refusal | None) -> None:
        """It has ended: tell the store how, unless it knows."""
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
        """The head; if it is all, and the store does not keep us waiting, it is settled at once.

        The client then has its response before this turn of the loop is over, as it would
        without a key: that saves two more turns, and a tenth of what a key costs.
        """
        immediate, exchange, settings = self._in_flight.immediate, self.exchange, self._settings
        body = b"".join(pieces) if complete and immediate is not None else b""
        # As the fate of a key is decided, for an attempt that has ended well.
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
            exchange.stamp(head)
        response = in_hand(head_to_keep(head.text, lasts=True), body)
        scope = self._flight.claim.scope
        if scope:
            scope = self._proved_scope(head.status)
        ending = make(Ending, (_DONE, settings.ttl, response, scope))
        is_kept = self._in_flight.settle_immediately(immediate, self._flight, ending)
        self._is_settled = True
        if not is_kept:
            exchange.route.recorder.keyed(KeyResult.LEASE_LOST)
        if not exchange.client_is_gone:
            exchange.relay_head(head, pieces, complete=True)

    def outlive_client(self) -> bool:
        """The client has left after its request was sent: its result is worth having.

        Unless nothing will be kept of it, or our own time is up as well.
        """
        exchange = self.exchange
        if exchange.client_is_gone or exchange.was_cut or not self.reads_ahead:
            return False
        exchange.go_on_alone()
        self._detached = self._in_flight.adopt_current_task()
        return True

    def overflowed(self) -> None:
        """The response is too large to keep: nobody needs to wait for its end to know that."""
        if self.status in self._settings.keep and not self.exchange.fallback:
            self._early_settle = self._in_flight.spawn(self._settle(KeyOutcome.UNSTORED, NotKept()))
        self._end_detached()

    def _end_detached(self) -> None:
        """Nothing is kept of it: if its client has left, nobody would get the rest of it."""
        if self._detached is not None:
            self._detached.cancel()

    def end_early(self) -> "asyncio.Future[Any]":
        """Let it go on without its key: no attempt follows, and what comes is its client's alone.

        The result is done once the store was told, of what is known so far. With a head it has
        run, and its response is not to be had again; an attempt without one may have run.
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
        """The key may be another's: the answer if it turns out not to be, else *lost* is raised."""
        if self._early_settle is not None:
            await asyncio.wait((self._early_settle,))
            raise lost
        self._is_settled = True
        if await self._settle_without_result(self._outcome(0)):
            return lost.refusal
        raise lost

    def _proved_scope(self, status: int) -> str:
        """The scope that the record belongs to from now on; empty if that is not known yet.

        Who was given a good response is more than a made-up name.
        """
        scope = self._flight.claim.scope
        if not scope or status >= FIRST_FAILURE:
            return ""
        self._in_flight.remember_scope(scope)
        return scope

    def _outcome(self, status: int) -> KeyOutcome:
        exchange = self.exchange
        return outcome_of_key(
            self._settings, status, exchange.attempts, self._refused, fell_back=exchange.fallback
        )

    def _without_response(self) -> Result:
        """What those get who waited, where there is no response to give them."""
        return StoredFallback() if self.exchange.fallback and not self.status else NotKept()

    async def _settle(self, outcome: KeyOutcome, result: Result) -> None:
        """Tell the store, and those who wait in this process."""
        flight = self._flight
        flight.recorder = self.exchange.route.recorder
        state = state_after(outcome, self._settings)
        packed = b"" if state is RecordState.UNSTORED else pack(flight.claim.name, result)
        scope = self._proved_scope(self.status) if outcome is KeyOutcome.KEPT else ""
        ending = Ending(state, self._settings.ttl, packed, scope)
        await self._in_flight.settle(flight, ending, result)

    async def _settle_without_result(self, outcome: KeyOutcome) -> bool:
        """Tell the store, without a result: who waits asks it; False if the key was lost."""
        flight = self._flight
        flight.recorder = self.exchange.route.recorder
        ending = Ending(state_after(outcome, self._settings), self._settings.ttl)
        return await self._in_flight.settle(flight, ending, Promotion.AGAIN)

    def _give_up(self) -> None:
        """No attempt is under way, and none is to follow: let somebody else have the key.

        The store is told behind our back: who gives up has no time to wait.
        """
        if self._early_settle is not None or self._is_settled:
            return
        outcome = self._outcome(self.status)
        if outcome is KeyOutcome.KEPT:
            outcome = KeyOutcome.UNSTORED  # cut off in the middle of it
        state = state_after(outcome, self._settings)
        if state is None and not self.exchange.was_cut and self._flight.promote_next():
            return
        ending = Ending(state, self._settings.ttl)
        self._in_flight.run_detached(self._in_flight.settle(self._flight, ending, Promotion.AGAIN))
