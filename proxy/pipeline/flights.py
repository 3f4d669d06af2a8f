"""Requests with a key that are under way in this process, and those who wait for them.

A flight outlives the client that began it, so it belongs to the process: a drain waits for
it, and a reload does not touch it. While it lasts its lease is renewed, and when its store
does not answer at the end, it is told again and again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

from proxy.core import Clock, StoreRecorder
from proxy.policy.records import Claim, Ending
from proxy.policy.results import BadResult, Result, unpack
from proxy.stores import Claims, ClaimsAtOnce, StoreError

_log = logging.getLogger("holdfast")

T = TypeVar("T")

_RENEWALS = 3
"""How often a lease is renewed in its own time."""
_TELL_AGAIN = 0.25
_TELL_SELDOM = 2.0
"""Seconds between two attempts to tell a store how a request ended, the first and the longest."""
_TELL_FOR = 60.0
"""Seconds for which a store is told at least; a longer lease makes it longer."""


class Turn(Enum):
    """What somebody hears who waited for a flight that brought no result."""

    YOURS = "yours"
    """Its owner gave up before anything was sent: take its place."""
    AGAIN = "again"
    """The key is not in flight any more: ask for it again."""


class Flight:
    """One request that owns its key."""

    __slots__ = ("claim", "waiting")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.waiting: deque[asyncio.Future[Result | Turn]] | None = None
        """Made for the first who waits, for mostly nobody does."""

    def __repr__(self) -> str:
        return f"<flight {self.claim.name}, {len(self.waiting or ())} waiting>"

    def join(self) -> "asyncio.Future[Result | Turn]":
        """Wait for it, behind all who do so already."""
        turn: asyncio.Future[Result | Turn] = asyncio.get_running_loop().create_future()
        if self.waiting is None:
            self.waiting = deque()
        self.waiting.append(turn)
        return turn

    def leave(self, turn: "asyncio.Future[Result | Turn]") -> None:
        """Wait no longer."""
        if self.waiting is not None and turn in self.waiting:
            self.waiting.remove(turn)
        turn.cancel()

    def hand_over(self) -> bool:
        """Let whoever has waited longest take the owner's place; False if nobody waits."""
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(Turn.YOURS)
                return True
        return False

    def conclude(self, result: Result | Turn) -> None:
        """Tell all who wait."""
        waiting, self.waiting = self.waiting, None
        for turn in waiting or ():
            if not turn.done():
                turn.set_result(result)


class Flights:
    """All flights of the process."""

    def __init__(self, claims: Claims, clock: Clock, recorder: StoreRecorder | None = None) -> None:
        """*recorder* is that of the store, where there is one outside this process."""
        self.claims = claims
        self.at_once = claims.at_once
        self._recorder = recorder
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._by_name: dict[str, Flight] = {}
        self.get = self._by_name.get
        """Called with the name of a record: the flight that owns its key, or None."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._renewals: dict[float, asyncio.TimerHandle] = {}
        """When leases of each length are renewed next, as long as there are any."""
        self._is_over = False
        """Whether the drain has run out of time."""
        self.waiting = 0
        """Requests that wait for another one's result, here or elsewhere."""

    def __repr__(self) -> str:
        return f"<{len(self._by_name)} flights, {len(self._tasks)} tasks>"

    def __len__(self) -> int:
        return len(self._by_name)

    def begin(self, claim: Claim) -> Flight:
        """The key was claimed."""
        flight = self._by_name[claim.name] = Flight(claim)
        if claim.lease not in self._renewals:
            self._renew_later(claim.lease)
        return flight

    def settle_at_once(self, claims: ClaimsAtOnce, flight: Flight, ending: Ending) -> bool:
        """As :meth:`settle`, where the store does not keep us waiting."""
        claim = flight.claim
        is_kept = claims.settle_at_once(claim.name, claim.owner, ending)
        self._end(flight, ending.result)
        return is_kept

    async def settle(self, flight: Flight, ending: Ending, result: Result | Turn) -> bool:
        """Tell the store how it ended, then those who wait; False if the key was lost meanwhile."""
        claim = flight.claim
        try:
            return await self.claims.settle(claim.name, claim.owner, ending)
        except StoreError:
            self._tell_later(claim, ending)
            return True
        except asyncio.CancelledError:
            self._tell_later(claim, ending)  # perhaps once more, which does no harm
            raise
        finally:
            self._end(flight, result)

    def _end(self, flight: Flight, result: Result | Turn | bytes) -> None:
        name = flight.claim.name
        # A lost lease may have brought another one of the same name.
        if self._by_name.get(name) is flight:
            del self._by_name[name]
        if flight.waiting is not None:
            flight.conclude(unpack(name, result) if isinstance(result, bytes) else result)

    # What goes on whoever leaves.

    def run(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Do *work* in a task of its own, which a drain waits for."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def adopt(self) -> "asyncio.Task[Any]":
        """The present task, which goes on though it was cancelled; a drain waits for it, too."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        task.uncancel()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def see_to(self, work: Coroutine[Any, Any, object]) -> None:
        """The same for what nobody waits for."""
        self._tasks.add(self.run(work))

    def pass_on(self, flight: Flight) -> None:
        """The owner gave up before anything was sent: let another one have the key."""
        if not flight.hand_over():
            self.see_to(self.settle(flight, Ending(None, 0.0), Turn.AGAIN))

    def _tell_later(self, claim: Claim, ending: Ending) -> None:
        """The store did not answer: tell it again until it does."""
        self.see_to(self._tell(claim, ending))

    async def _tell(self, claim: Claim, ending: Ending) -> None:
        give_up = self._clock.monotonic() + max(claim.lease, _TELL_FOR)
        pause = _TELL_AGAIN
        while True:
            with suppress(StoreError):
                await self.claims.settle(claim.name, claim.owner, ending)
                return
            if self._is_over or self._clock.monotonic() > give_up:
                return
            await asyncio.sleep(pause * (0.75 + self._clock.roll() / 2))
            pause = min(pause * 2, _TELL_SELDOM)

    # Leases. One timer for all of one length, which looks at whatever is there when it fires:
    # most flights never see it, and cost it nothing.

    def _renew_later(self, lease: float) -> None:
        timer = self._loop.call_later(lease / _RENEWALS, self._renew_all, lease)
        self._renewals[lease] = timer

    def _renew_all(self, lease: float) -> None:
        del self._renewals[lease]
        due = [flight.claim for flight in self._by_name.values() if flight.claim.lease == lease]
        for claim in due:
            self.see_to(self._renew(claim))
        if due:
            self._renew_later(lease)

    async def _renew(self, claim: Claim) -> None:
        # If the key is somebody else's by now, the end will tell; if the store does not answer,
        # there will be another time.
        with suppress(StoreError):
            await self.claims.renew(claim.name, claim.owner, claim.lease)

    def cannot_read(self, name: str, error: BadResult) -> None:
        """What the store has is no result of ours: as good as no answer."""
        _log.warning("the result of the key %s cannot be read (%s)", name, error)
        if self._recorder is not None:
            self._recorder.failed("claim")

    async def drain(self, patience: float) -> None:
        """Let all of them end; after *patience* seconds, end them."""
        deadline = self._clock.monotonic() + patience
        while self._tasks and not self._is_over:
            left = deadline - self._clock.monotonic()
            await asyncio.wait(self._tasks, timeout=max(left, 0.0))
            self._is_over = left <= 0
        self._is_over = True
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            # Each of them tells the store how it ended, once more at most, and that has its own
            # time limit.
            await asyncio.wait(self._tasks)
        self.close()

    def close(self) -> None:
        """Renew nothing any more."""
        for timer in self._renewals.values():
            timer.cancel()
        self._renewals.clear()
