"""A request that owns its key: run, settle, and let the client have the end of its response."""

import asyncio

from proxy.core import Exchange, Handler, Refused
from proxy.pipeline.flights import Flight, Flights, Turn
from proxy.pipeline.keeper import Keeper
from proxy.policy.keeping import Fate, fate_of, state_after
from proxy.policy.reasons import KeyResult
from proxy.policy.records import Ending, State
from proxy.policy.refusal import Reason, Refusal
from proxy.policy.results import Fallback, KeptResponse, NotKept, Result, pack
from proxy.policy.settings import IdempotencySettings

_FAILED = Refusal(Reason.UNKNOWN, "The request could not be served.")


class Ownership:
    """One request while it owns its key."""

    __slots__ = ("_early", "_exchange", "_flight", "_flights", "_keeper", "_refused", "_settings")

    def __init__(
        self,
        exchange: Exchange,
        flight: Flight,
        flights: Flights,
        settings: IdempotencySettings,
        refused: frozenset[int],
    ) -> None:
        """*refused*: statuses by which the upstream says that it did not do the work."""
        self._exchange = exchange
        self._flight = flight
        self._flights = flights
        self._settings = settings
        self._refused = refused
        self._early: asyncio.Task[None] | None = None
        """Tells the store of a response that turned out to be too large, while it goes on."""
        self._keeper = Keeper(exchange, settings.max_response, self._overflowed)
        exchange.keeper = self._keeper

    async def run(self, inner: Handler) -> Refusal | None:
        """Run it to its end, tell the store, and then let the client have the last of it."""
        exchange, keeper = self._exchange, self._keeper
        refusal: Refusal | None
        try:
            refusal = await inner(exchange)
        except Refused as refused:
            refusal = refused.refusal
        except asyncio.CancelledError:
            await self._give_up()
            raise
        except Exception:
            await self._settle(self._fate(0), _FAILED)
            raise
        keeper.is_over = True
        if self._early is not None:
            await asyncio.wait((self._early,))
        else:
            fate = self._fate(keeper.status if refusal is None else 0)
            response = keeper.response(lasts=fate is Fate.KEPT)
            if fate is Fate.KEPT and response is None:
                fate = Fate.UNSTORED
            await self._settle(fate, self._result(refusal, response))
        keeper.deliver()
        return refusal

    async def outlive_client(self, task: "asyncio.Task[Refusal | None]") -> None:
        """The client is gone: let the attempt under way end, if there is one, but nothing more."""
        if task.done():
            return
        exchange = self._exchange
        exchange.outlive_client()
        if exchange.was_cut or not self._keeper.is_worth_waiting_for:
            task.cancel()
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()  # if our own time is up as well

    def _fate(self, status: int) -> Fate:
        exchange = self._exchange
        return fate_of(
            self._settings,
            status,
            exchange.attempts,
            self._refused,
            fell_back=exchange.fallback,
        )

    def _result(self, refusal: Refusal | None, response: KeptResponse | None) -> Result:
        """What those get who waited."""
        if refusal is not None:
            return refusal
        if self._exchange.fallback and not self._keeper.status:
            return Fallback()
        return response or NotKept()

    def _overflowed(self, status: int) -> None:
        """The response is too large to keep: nobody needs to wait for its end to know that."""
        if status in self._settings.keep and not self._exchange.fallback:
            self._early = self._flights.run(self._settle(Fate.UNSTORED, NotKept()))

    async def _settle(self, fate: Fate, result: Result) -> None:
        """Tell the store, and those who wait in this process."""
        state = state_after(fate, self._settings)
        name = self._flight.claim.name
        packed = b"" if state is State.UNSTORED else pack(name, result)
        ending = Ending(state, self._settings.ttl, packed)
        if not await self._flights.settle(self._flight, ending, result):
            self._exchange.route.recorder.keyed(KeyResult.LEASE_LOST)

    async def _give_up(self) -> None:
        """No attempt is under way, and none is to follow."""
        if self._early is not None:
            await asyncio.wait((self._early,))
            return
        state = state_after(self._fate(0), self._settings)
        if state is None and not self._exchange.was_cut and self._flight.hand_over():
            return
        ending = Ending(state, self._settings.ttl)
        await self._flights.settle(self._flight, ending, Turn.AGAIN)
