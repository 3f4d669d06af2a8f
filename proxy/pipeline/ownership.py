"""A request that owns its key: run, settle, and let the client have the end of its response."""

import asyncio
from typing import Any

from proxy.core import Exchange, Handler, Refused
from proxy.pipeline.flights import Flight, Flights, Turn
from proxy.pipeline.keeper import Keeper
from proxy.policy.keeping import Fate, fate_of, head_to_keep, is_stream_of_events, state_after
from proxy.policy.reasons import KeyResult
from proxy.policy.records import Ending, State, make
from proxy.policy.refusal import Reason, Refusal
from proxy.policy.response_head import ResponseHead
from proxy.policy.results import Fallback, NotKept, Result, in_hand, pack
from proxy.policy.settings import IdempotencySettings

_SOON_READ = 16 * 1024
"""Bytes that no client is behind with."""
_FAILED = Refusal(Reason.UNKNOWN, "The request could not be served.")


class Ownership(Keeper):
    """One request while it owns its key."""

    __slots__ = (
        "_alone",
        "_early",
        "_flight",
        "_flights",
        "_is_settled",
        "_refused",
        "_settings",
    )

    def __init__(
        self,
        exchange: Exchange,
        flight: Flight,
        flights: Flights,
        settings: IdempotencySettings,
        refused: frozenset[int],
    ) -> None:
        """*refused*: statuses by which the upstream says that it did not do the work."""
        Keeper.__init__(self, exchange, settings.max_response)  # super() takes longer
        self._flight = flight
        self._flights = flights
        self._settings = settings
        self._refused = refused
        self._early: asyncio.Task[None] | None = None
        """Tells the store of a response that turned out to be too large, while it goes on."""
        self._is_settled = False
        """Whether the store has it already."""
        self._alone: asyncio.Task[Any] | None = None
        """What goes on without its client."""

    async def run(self, inner: Handler) -> Refusal | None:
        """Run it to its end, tell the store, and then let the client have the last of it."""
        exchange = self.exchange
        exchange.keeper = self
        refusal: Refusal | None
        try:
            try:
                refusal = await inner(exchange)
            except Refused as refused:
                refusal = refused.refusal
            except asyncio.CancelledError:
                self._give_up()
                raise
            except Exception:
                if not self._is_settled:
                    await self._settle(self._fate(0), _FAILED)
                raise
            if not self._is_settled:
                await self._conclude(refusal)
        finally:
            exchange.keeper = None  # it knows the exchange, and a cycle would have to be found
        if exchange.client_is_gone:
            raise asyncio.CancelledError  # as it would have been but for its key
        if exchange.bytes_sent > _SOON_READ and exchange.is_behind:
            await exchange.caught_up()  # it was read ahead of its client
        return refusal

    async def _conclude(self, refusal: Refusal | None) -> None:
        """It has ended: tell the store how, unless it knows."""
        if self._early is not None:
            await asyncio.wait((self._early,))
        else:
            fate = self._fate(self.status if refusal is None else 0)
            response = self.response(lasts=fate is Fate.KEPT)
            if fate is Fate.KEPT and response is None:
                fate = Fate.UNSTORED
            await self._settle(fate, refusal or response or self._without_response())
        self.deliver()

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """The head; if it is all, and the store does not keep us waiting, it is settled at once.

        The client then has its response before this turn of the loop is over, as it would
        without a key: that saves two more turns, and a tenth of what a key costs.
        """
        at_once, exchange, settings = self._flights.at_once, self.exchange, self._settings
        body = b"".join(pieces) if complete and at_once is not None else b""
        # As the fate of a key is decided, for an attempt that has ended well.
        if (
            not complete
            or at_once is None
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
        ending = make(Ending, (State.DONE, settings.ttl, response))
        is_kept = self._flights.settle_at_once(at_once, self._flight, ending)
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
        self._alone = self._flights.adopt()
        return True

    def overflowed(self) -> None:
        """The response is too large to keep: nobody needs to wait for its end to know that."""
        if self.status in self._settings.keep and not self.exchange.fallback:
            self._early = self._flights.run(self._settle(Fate.UNSTORED, NotKept()))
        if self._alone is not None:
            self._alone.cancel()  # nobody would get the rest of it

    def _fate(self, status: int) -> Fate:
        exchange = self.exchange
        return fate_of(
            self._settings, status, exchange.attempts, self._refused, fell_back=exchange.fallback
        )

    def _without_response(self) -> Result:
        """What those get who waited, where there is no response to give them."""
        return Fallback() if self.exchange.fallback and not self.status else NotKept()

    async def _settle(self, fate: Fate, result: Result) -> None:
        """Tell the store, and those who wait in this process."""
        state = state_after(fate, self._settings)
        packed = b"" if state is State.UNSTORED else pack(self._flight.claim.name, result)
        ending = Ending(state, self._settings.ttl, packed)
        if not await self._flights.settle(self._flight, ending, result):
            self.exchange.route.recorder.keyed(KeyResult.LEASE_LOST)

    def _give_up(self) -> None:
        """No attempt is under way, and none is to follow: let somebody else have the key.

        The store is told behind our back: who gives up has no time to wait.
        """
        if self._early is not None or self._is_settled:
            return
        fate = self._fate(self.status)
        if fate is Fate.KEPT:
            fate = Fate.UNSTORED  # cut off in the middle of it
        state = state_after(fate, self._settings)
        if state is None and not self.exchange.was_cut and self._flight.hand_over():
            return
        ending = Ending(state, self._settings.ttl)
        self._flights.see_to(self._flights.settle(self._flight, ending, Turn.AGAIN))
