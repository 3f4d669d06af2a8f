"""Idempotency keys in flight: owned by requests of this process, with their local waiters.

A flight outlives the client that began it, so it belongs to the process: a drain waits for
it, and a reload does not touch it. While it lasts, a heartbeat renews its lease in the store. It
knows until when its key is certainly its own (``owned_until``), which is asked before every send.

If the store cannot be reached when a flight ends, the end is reported again until the store
accepts it. Until then the flight stays, with its result and its lease: duplicates in this process
get the result, and those elsewhere wait.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from proxy.core.clock import Clock
from proxy.core.recorders import StoreRecorder
from proxy.core.route import Recorder
from proxy.policy.idempotency.record import Claim, Ending, RecordState
from proxy.policy.idempotency.stored_response import BadResult, Result, unpack
from proxy.policy.reasons import KeyResult
from proxy.stores import IdempotencyStore, ImmediateIdempotencyStore, StoreError, StoreRefusal

_log = logging.getLogger("holdfast")

T = TypeVar("T")

_RENEWALS = 3
"""Heartbeats per lease: how often a lease is renewed within its own length."""
_REPORT_AGAIN = 0.25
_REPORT_AT_LEAST_EVERY = 2.0
"""Seconds between two reports of an end to the store, the first and the longest."""
_MOST_UNREPORTED = 1000
"""Ends that the store has not accepted, beyond which no key is claimed."""
_NAMED = 10
"""Records that are named in the log where many were never reported."""

_FOR_EVER = math.inf
"""``owned_until`` of a key that no other request can get."""
_NOT_MINE = -math.inf
"""``owned_until`` of a key whose owner may send nothing any more."""

_KNOWN_SCOPES = 10_000
"""Callers that are remembered as known; the others are told apart by their addresses."""


class Promotion(Enum):
    """What a waiter gets from a flight that brought no result."""

    YOURS = "yours"
    """The owner gave up before anything was sent: the waiter becomes the owner."""
    AGAIN = "again"
    """The key is not in flight any more: the waiter claims it again."""


class ResultMemory(Protocol):
    """The memory for kept bodies and results, which all requests share."""

    def take(self, size: int) -> bool:
        """Count *size* more bytes as kept; False if there is no memory for them."""

    def give_back(self, size: int) -> None:
        """Count *size* bytes as kept no longer."""


class OwnerToken(Protocol):
    """The running request that owns a key, as far as the flight needs to know it."""

    def end_early(self) -> "asyncio.Future[Any]":
        """Let the request go on without its key; the future is done once the store was told."""


@dataclass(slots=True, eq=False, repr=False)
class InFlightKey:
    """One key that a request of this process owns, and the requests that wait for it."""

    claim: Claim
    began: float
    """Monotonic seconds at which the store was asked for the key."""
    owned_until: float
    """Monotonic seconds up to which no other request can have the key (core.ports.OwnedKey)."""
    is_lost: bool = False
    """Whether the store said that the key is another request's."""
    owner: OwnerToken | None = None
    """Told if the ttl is over before the request has ended; None while no request runs."""
    recorder: Recorder | None = None
    """Told if the key was another request's when the store was told of the end."""
    ending: Ending | None = None
    """How the request ended, while the store has not accepted that."""
    waiting: "deque[asyncio.Future[Result | Promotion]] | None" = None
    """Futures of the waiters, oldest first; made for the first, since mostly none waits."""

    def __repr__(self) -> str:
        unreported = "" if self.ending is None else ", ended unreported"
        return f"<flight {self.claim.name}, {len(self.waiting or ())} waiting{unreported}>"

    def forbid_to_send(self) -> None:
        """Forbid the owner to send any further attempt."""
        self.owned_until = _NOT_MINE

    def join(self) -> "asyncio.Future[Result | Promotion]":
        """Add a waiter behind all others; the future gets the result or a promotion."""
        waiter: asyncio.Future[Result | Promotion] = asyncio.get_running_loop().create_future()
        if self.waiting is None:
            self.waiting = deque()
        self.waiting.append(waiter)
        return waiter

    def leave(self, waiter: "asyncio.Future[Result | Promotion]") -> None:
        """Remove *waiter* from the queue."""
        if self.waiting is not None and waiter in self.waiting:
            self.waiting.remove(waiter)
        waiter.cancel()

    def promote_next(self) -> bool:
        """Promote the oldest waiter to owner; return False if none waits."""
        while self.waiting:
            waiter = self.waiting.popleft()
            if not waiter.done():
                waiter.set_result(Promotion.YOURS)
                return True
        return False

    def resolve_waiters(self, result: Result | Promotion) -> None:
        """Give *result* to all waiters."""
        waiting, self.waiting = self.waiting, None
        for waiter in waiting or ():
            if not waiter.done():
                waiter.set_result(result)


class InFlightKeys:
    """All keys in flight of the process."""

    def __init__(
        self,
        store: IdempotencyStore,
        clock: Clock,
        memory: ResultMemory,
        recorder: StoreRecorder | None = None,
    ) -> None:
        """*memory* counts the results that the store has not accepted yet.

        *recorder* is that of the store, if the store is outside this process.
        """
        self.store = store
        self.immediate = store.at_once
        self._memory = memory
        self._recorder = recorder
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._by_name: dict[str, InFlightKey] = {}
        self.get = self._by_name.get
        """Called with the name of a record; returns the flight that owns its key, or None."""
        self.known_scopes: dict[str, None] = {}
        """Digests of callers for whom a good response was kept: each has a share of its own of the
        space for keys. A caller that is not among them uses the share of its address."""
        self._fetches: dict[tuple[str, str], asyncio.Task[Result | Exception | None]] = {}
        """Large results that are being fetched from the store, by record and owner."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timers: dict[tuple[float, float], asyncio.TimerHandle] = {}
        """Heartbeat timers by lease and ttl, as long as there are flights with these."""
        self._is_over = False
        """Whether the drain has run out of time."""
        self.unreported = 0
        """Flights that have ended, and whose end the store has not accepted."""
        self._is_store_failing = False
        """Whether the log says that the store accepts no report."""
        self._never_reported: list[str] = []
        """Names of records whose end the store never accepted."""
        self.waiting = 0
        """Requests that wait for the result of an owner, in this process or elsewhere."""

    def __repr__(self) -> str:
        return f"<{len(self._by_name)} flights, {len(self._tasks)} tasks>"

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def may_claim(self) -> bool:
        """Whether another key may be claimed: not while too many ends are unreported."""
        return self.unreported < _MOST_UNREPORTED

    def begin(self, claim: Claim, asked: float) -> InFlightKey:
        """Add the flight of a key that was claimed; the store was *asked* at that moment."""
        # In this process no other request gets a key with a flight, whatever became of its lease.
        owned_until = asked + claim.lease if self.immediate is None else _FOR_EVER
        flight = self._by_name[claim.name] = InFlightKey(claim, asked, owned_until)
        lease_terms = (claim.lease, claim.ttl)
        if lease_terms not in self._timers:
            self._schedule_renewal(lease_terms, _next_renewal(*lease_terms))
        return flight

    def remember_scope(self, scope: str) -> None:
        """Remember *scope* as known: a response below 400 was kept, so it is no made-up name."""
        known = self.known_scopes
        known.pop(scope, None)
        known[scope] = None  # the latest is the last
        if len(known) > _KNOWN_SCOPES:
            del known[next(iter(known))]

    def settle_immediately(
        self, store: ImmediateIdempotencyStore, flight: InFlightKey, ending: Ending
    ) -> bool:
        """Settle as :meth:`settle` does, in a store that answers without a wait."""
        claim = flight.claim
        is_kept = store.settle_at_once(claim.name, claim.owner, ending)
        self._end(flight, ending.result)
        return is_kept

    async def settle(self, flight: InFlightKey, ending: Ending, result: Result | Promotion) -> bool:
        """Report the end to the store, then to the waiters; False if the key was lost meanwhile.

        If the store cannot be reached, the waiters still get the *result*, and the flight stays
        until the store accepts the report.
        """
        try:
            is_kept = await self._report(flight.claim, ending)
        except (StoreError, asyncio.CancelledError) as error:
            self._keep_unreported(flight, ending)
            flight.resolve_waiters(result)
            if isinstance(error, StoreError):
                return True
            raise
        except BaseException:
            self._end(flight, result)
            raise
        self._end(flight, result)
        if not is_kept:
            self._count_lost(flight)
        return is_kept

    def _count_lost(self, flight: InFlightKey) -> None:
        if flight.recorder is not None:
            flight.recorder.keyed(KeyResult.LEASE_LOST)

    def _end(self, flight: InFlightKey, result: Result | Promotion | bytes) -> None:
        name = flight.claim.name
        # After a lost lease another flight may have the same name.
        if self._by_name.get(name) is flight:
            del self._by_name[name]
        if flight.waiting is not None:
            flight.resolve_waiters(unpack(name, result) if isinstance(result, bytes) else result)

    # Work that outlives its client.

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start *work* in a task of its own, which a drain waits for."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def adopt_current_task(self) -> "asyncio.Task[Any]":
        """Let the current task go on though it was cancelled; a drain waits for it, too."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        task.uncancel()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def run_detached(self, work: Coroutine[Any, Any, object]) -> None:
        """Start *work* whose result is not needed; a drain waits for it."""
        self._tasks.add(self.spawn(work))

    def hand_over(self, flight: InFlightKey) -> None:
        """Promote a waiter, or release the key: the owner gave up before anything was sent."""
        if not flight.promote_next():
            self.run_detached(self.settle(flight, Ending(None, 0.0), Promotion.AGAIN))

    # Ends that the store has not accepted.

    async def _report(self, claim: Claim, ending: Ending) -> bool:
        """Report the end to the store; without the result, if the store has no space for that."""
        try:
            return await self.store.settle(claim.name, claim.owner, ending)
        except StoreRefusal:
            if not ending.result:
                raise
        return await self.store.settle(claim.name, claim.owner, _without_result(ending))

    def _keep_unreported(self, flight: InFlightKey, ending: Ending) -> None:
        """Keep an *ending* that the store did not accept, and report it until the store does.

        The result is dropped if there is no memory for it; that the request ran is not.
        """
        size = len(ending.result)
        if size and not self._memory.take(size):
            ending, size = _without_result(ending), 0
        flight.ending = ending
        self.unreported += 1
        self.run_detached(self._report_until_accepted(flight, size))

    async def _report_until_accepted(self, flight: InFlightKey, size: int) -> None:
        is_accepted = False
        try:
            is_accepted = await self._is_accepted(flight)
        finally:
            self.unreported -= 1
            self._memory.give_back(size)
            self._end(flight, Promotion.AGAIN)
            if not is_accepted:
                self._never_reported.append(flight.claim.name)
            if self._is_store_failing and not self.unreported:
                self._is_store_failing = False
                self._log_never_reported()

    async def _is_accepted(self, flight: InFlightKey) -> bool:
        """Report the end until the store accepts it; False if there is no more time for that."""
        claim, ending = flight.claim, flight.ending
        report_until = self._clock.monotonic() + claim.ttl
        delay = _REPORT_AGAIN
        is_last = False
        while ending is not None:
            try:
                with suppress(StoreError):
                    if not await self._report(claim, ending) and await self._is_lost(claim, ending):
                        self._count_lost(flight)
                    return True
                self._warn_once(claim)
                if self._is_over or self._clock.monotonic() > report_until:
                    return False
                await asyncio.sleep(delay * (0.75 + self._clock.roll() / 2))
            except asyncio.CancelledError:
                if is_last or not self._is_over:
                    raise
                is_last = True  # the drain has no more time: report once more, and then stop
            delay = min(delay * 2, _REPORT_AT_LEAST_EVERY)
            ending = flight.ending  # an operator may have revoked the key
        return True

    async def _is_lost(self, claim: Claim, ending: Ending) -> bool:
        """Say whether a key that is not the flight's any more went to another request.

        If not, the store accepted the first report, and only its answer was lost.
        """
        if ending.state is None:
            return False  # there was nothing to keep
        shown = await self.store.show(claim.name)
        return shown is None or shown.state not in {ending.state, _without_result(ending).state}

    def _warn_once(self, claim: Claim) -> None:
        if not self._is_store_failing:
            self._is_store_failing = True
            _log.warning(
                "the outcome of the request with the key %s cannot be written to the store: it is "
                "tried again until the store answers, and so are those that follow",
                claim.name,
            )

    def _log_never_reported(self) -> None:
        left, self._never_reported = self._never_reported, []
        if not left:
            _log.info("the outcomes of all requests with keys are in the store")
            return
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        _log.warning(
            "the outcomes of %d requests with keys could not be written to the store, find out "
            "whether they ran: %s%s",
            len(left),
            ", ".join(left[:_NAMED]),
            more,
        )

    # Results that did not come with the answer to a claim.

    async def fetch(self, name: str, owner: str = "") -> Result | None:
        """Fetch the result of a key; with *owner*, what that owner left behind; None if it is gone.

        Requests that ask for it at the same time share one fetch. Raises StoreError and BadResult.
        """
        fetching = self._fetches.get((name, owner))
        if fetching is None:
            fetching = self._fetches[name, owner] = self.spawn(self._fetch(name, owner))
        # A cancelled request must not cancel the fetch of the others.
        result = await asyncio.shield(fetching)
        if isinstance(result, Exception):
            raise result
        return result

    async def _fetch(self, name: str, owner: str) -> Result | Exception | None:
        try:
            data = await self.store.fetch(name, owner)
            return None if data is None else unpack(name, data)
        except (StoreError, BadResult) as error:
            return error  # returned, since every request that would get it may be gone
        finally:
            del self._fetches[name, owner]

    # The heartbeat: leases are renewed. One timer for all flights of the same lease and ttl, which
    # takes those that are there when it fires: most flights never see it, and cost it nothing.

    def _schedule_renewal(self, lease_terms: tuple[float, float], seconds: float) -> None:
        self._timers[lease_terms] = self._loop.call_later(seconds, self._renew_leases, lease_terms)

    def _renew_leases(self, lease_terms: tuple[float, float]) -> None:
        """Renew the leases of all flights on these *lease_terms* (heartbeat); end expired ones."""
        del self._timers[lease_terms]
        lease, ttl = lease_terms
        now, next_look = self._clock.monotonic(), _next_renewal(lease, ttl)
        in_flight = [
            flight
            for flight in self._by_name.values()
            if flight.claim.lease == lease and flight.claim.ttl == ttl
        ]
        for flight in in_flight:
            left = flight.began + ttl - now
            if left > 0:
                next_look = min(next_look, left)
            elif flight.ending is None and flight.owner is not None:
                _ = flight.owner.end_early()
            if not flight.is_lost:
                self.run_detached(self._renew(flight))
        if in_flight:
            self._schedule_renewal(lease_terms, next_look)

    async def _renew(self, flight: InFlightKey) -> None:
        claim, asked = flight.claim, self._clock.monotonic()
        try:
            is_mine = await self.store.renew(claim.name, claim.owner, claim.lease, claim.ttl)
        except StoreError:
            return  # the next heartbeat tries again
        if not is_mine:
            flight.is_lost = True
            flight.forbid_to_send()
        elif flight.owned_until != _NOT_MINE:
            flight.owned_until = max(flight.owned_until, asked + claim.lease)

    async def end(self, flight: InFlightKey) -> None:
        """Take a key from its owner for an operator: no attempt follows, no result is kept."""
        if flight.ending is not None:
            flight.ending = _without_result(flight.ending)
        elif flight.owner is not None:
            await asyncio.wait([flight.owner.end_early()])

    def count_unreadable(self, name: str, error: BadResult) -> None:
        """Log and count a stored result that cannot be read, as if the store had not answered."""
        _log.warning("the result of the key %s cannot be read (%s)", name, error)
        if self._recorder is not None:
            self._recorder.failed("claim")

    async def drain(self, grace: float) -> None:
        """Wait until all flights have ended; after *grace* seconds, cancel them."""
        deadline = self._clock.monotonic() + grace
        while self._tasks and not self._is_over:
            left = deadline - self._clock.monotonic()
            await asyncio.wait(self._tasks, timeout=max(left, 0.0))
            self._is_over = left <= 0
        self._is_over = True
        await asyncio.sleep(0)  # a task that has not begun would not run its handlers
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            # Each task reports its end to the store once more at most, within the store's own
            # time limit.
            await asyncio.wait(self._tasks)
        self.close()

    def close(self) -> None:
        """Stop the heartbeat: renew no lease any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


def _next_renewal(lease: float, ttl: float) -> float:
    """Return the seconds until the next heartbeat, for flights that are yet to begin, too."""
    return min(lease / _RENEWALS, ttl)


def _without_result(ending: Ending) -> Ending:
    """Return *ending* without its result: the request ran, but its result is not stored."""
    state = RecordState.UNSTORED if ending.state is RecordState.DONE else ending.state
    return Ending(state, ending.ttl)
