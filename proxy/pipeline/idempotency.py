"""The outermost stage: a request with an idempotency key runs once, and duplicates get its result.

::

    key? ──no──► the rest of the chain
     │
     ▼             ┌ new ───────► own it: run, keep the result, tell those who wait
    whole body ──► │ in flight ─► wait for its owner, or 409
    and claim      │ done ──────► replay
                   └ another request, unknown outcome, result not kept ─► 422, 409

Who owns a key goes on even if its client leaves, once its request was sent, so that its
result is kept. Whoever waits holds nothing that somebody else could wait for.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress

from proxy.core import Clock, Exchange, Handler, new_token
from proxy.pipeline.flights import Flight, Flights, Turn
from proxy.pipeline.ownership import Ownership
from proxy.policy.idempotency_key import (
    KeyFields,
    KeyReader,
    fingerprint,
    read_key,
    record_name,
)
from proxy.policy.reasons import KeyResult
from proxy.policy.records import Answer, Claim, Claimed, make
from proxy.policy.refusal import Reason, Refusal
from proxy.policy.results import (
    BadResult,
    Fallback,
    KeptResponse,
    NotKept,
    Result,
    unpack,
)
from proxy.policy.settings import RouteSettings
from proxy.stores import Claims, StoreError

_ASK_AGAIN = 1.0
"""Seconds after which a store is asked at the latest, should its news have been missed."""
_GRAIN = 0.01
"""Seconds to be sure that a lease has ended."""
_LONGEST_ADVICE = 5
"""Seconds after which a duplicate is told to come back at the latest."""

_MISMATCH = "This key belongs to another request. Repeat that one as it was, or send a new key."
_IN_FLIGHT = "The first request with this key is still running. Send it again later, as it is."
_UNKNOWN = (
    "The first request with this key may have run, and how it ended is not known. Find out "
    "before you send it with another key."
)
_NOT_STORED = (
    "The first request with this key has run, but its response was not kept. Look up what it did."
)
_NO_STORE = Refusal(
    Reason.STORE, "Whether this key was used before cannot be told now. Send it again later."
)
_FULL = Refusal(Reason.STORE, "There is no room for another key. Send it again later.", wait=1)

_WITH_RESULT = frozenset({Answer.DONE, Answer.LEFT})
_BUSY = Claimed(Answer.BUSY, lease_left=1.0)
_UNSTORED = Claimed(Answer.UNSTORED)


class Idempotency:
    """Sees to it that what carries the same key runs once."""

    def __init__(
        self,
        settings: RouteSettings,
        inner: Handler,
        flights: Flights,
        *,
        refused: frozenset[int],
        time_left: Callable[[Exchange, float], float],
        clock: Clock,
    ) -> None:
        """*inner* is the rest of the chain.

        *refused* are the statuses by which its upstream says that it did not do the work,
        *time_left* tells how long an exchange may still take.
        """
        assert settings.idempotency is not None  # noqa: S101 - for the type checker
        self._settings = keys = settings.idempotency
        self._route = settings.name
        self._fallback = settings.fallback
        self._inner = inner
        self._flights = flights
        self._claims: Claims = flights.claims
        self._refused = refused
        self._time_left = time_left
        self._clock = clock
        self._reader = KeyReader(keys.header.encode(), [name.encode() for name in keys.scope])
        self._methods = keys.methods
        self._takes_over = keys.on_ambiguous == "release"
        self._waits = keys.in_flight == "wait"
        name = "-".join(word.capitalize() for word in keys.header.split("-"))
        self._missing = Refusal(
            Reason.KEY_MISSING,
            f"Send {name}: a new value for each operation, such as a UUID, and the same one when "
            f"you repeat it.",
        )
        self._invalid = Refusal(
            Reason.KEY_INVALID,
            f"Send one {name} of 1 to 255 visible ASCII characters without blanks, such as a UUID.",
        )
        self._no_caller = Refusal(
            Reason.BAD_REQUEST, f"Say who you are: send {' or '.join(keys.scope)}."
        )

    def handle(self, exchange: Exchange) -> Awaitable[Refusal | None]:
        """Send on what has no key; let what has one run once."""
        if exchange.method not in self._methods or exchange.upgrade:
            return self._inner(exchange)
        fields = self._reader.read(exchange.raw_headers)
        if not fields.keys and not self._settings.required:
            return self._inner(exchange)
        return self._keyed(exchange, fields)

    async def _keyed(self, exchange: Exchange, fields: KeyFields) -> Refusal | None:
        key = read_key(fields.keys)
        if key is None:
            return self._without_key(exchange, fields)
        settings, known = self._settings, exchange.known_record
        if settings.scope_required and not fields.caller and not known:
            return self._refuse(exchange, self._no_caller, KeyResult.MISSING)
        body, whole = exchange.body, b""
        if body is not None:
            whole = body.whole() or await body.read_whole()
        name = exchange.record = known or record_name(self._route, fields.caller, key)
        same = fingerprint(exchange.method, exchange.target, fields.content, whole)
        terms = (self._route, settings.lease, settings.ttl, self._takes_over)
        claim = make(Claim, (name, new_token(), same, *terms, ""))
        flight = self._flights.get(name)
        if flight is not None:
            return await self._beside(exchange, claim, flight)
        at_once = self._flights.at_once
        claimed = await self._ask(claim) if at_once is None else at_once.claim_at_once(claim)
        if claimed is not None and claimed.answer is Answer.NEW:
            return await self._own(exchange, self._flights.begin(claim))
        if claimed is not None and claimed.answer is Answer.BUSY and self._waits:
            return await self._behind(exchange, claim, claimed.owner)
        return await self._follow(exchange, claim, claimed, KeyResult.REPLAYED)

    def _without_key(self, exchange: Exchange, fields: KeyFields) -> Refusal:
        if fields.keys:
            return self._refuse(exchange, self._invalid, KeyResult.INVALID)
        return self._refuse(exchange, self._missing, KeyResult.MISSING)

    async def _ask(self, claim: Claim) -> Claimed | None:
        """Ask the store for the key; None if it does not say."""
        try:
            return await self._claims.claim(claim)
        except StoreError:
            return None

    async def _follow(
        self, exchange: Exchange, claim: Claim, claimed: Claimed | None, word: KeyResult
    ) -> Refusal | None:
        """Do what the store's answer means; *word* says what it is to get a result."""
        if claimed is None:
            return await self._without_store(exchange)
        if claimed.answer not in _WITH_RESULT:
            return self._turn_away(exchange, claimed)
        try:
            result = unpack(claim.name, claimed.result)
        except BadResult as error:
            self._flights.cannot_read(claim.name, error)
            return await self._without_store(exchange)
        return await self._give(exchange, result, word)

    # Waiting for somebody else's result.

    async def _beside(self, exchange: Exchange, claim: Claim, flight: Flight) -> Refusal | None:
        """The owner is in this process."""
        if flight.claim.fingerprint != claim.fingerprint:
            return self._turn_away(exchange, Claimed(Answer.MISMATCH))
        if not self._waits:
            return self._turn_away(exchange, _BUSY)
        result = await self._join(exchange, flight)
        if result is None:
            return self._turn_away(exchange, _BUSY)
        if result is Turn.YOURS:
            return await self._take_over(exchange, flight)
        if result is Turn.AGAIN:
            return await self._behind(exchange, claim)
        return await self._give(exchange, result, KeyResult.JOINED)

    async def _join(self, exchange: Exchange, flight: Flight) -> Result | Turn | None:
        """What comes of *flight*; None if there is no more time to wait for it."""
        left = self._time_left(exchange, self._clock.monotonic())
        turn = flight.join()
        result: Result | Turn | None = None
        self._flights.waiting += 1
        exchange.begin_wait("queue")
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(left, 0.0)):
                    result = await turn
        finally:
            self._flights.waiting -= 1
            if result is None:
                self._leave(flight, turn)
        exchange.end_wait()
        return result

    def _leave(self, flight: Flight, turn: "asyncio.Future[Result | Turn]") -> None:
        """Wait no longer."""
        if turn.done() and not turn.cancelled() and turn.result() is Turn.YOURS:
            # It has come in the very moment in which we stopped waiting for it.
            self._flights.pass_on(flight)
        flight.leave(turn)

    async def _behind(self, exchange: Exchange, claim: Claim, owner: str = "") -> Refusal | None:
        """The owner is in another process, or was: ask the store until it is settled."""
        self._flights.waiting += 1
        exchange.begin_wait("queue")
        try:
            claim, claimed = await self._until_settled(exchange, claim, owner)
        finally:
            self._flights.waiting -= 1
        exchange.end_wait()
        flight = self._flights.get(claim.name)
        if flight is not None and (claimed is None or claimed.answer is Answer.BUSY):
            return await self._beside(exchange, claim, flight)
        if claimed is not None and claimed.answer is Answer.NEW:
            return await self._take_over(exchange, self._flights.begin(claim))
        return await self._follow(exchange, claim, claimed, KeyResult.JOINED)

    async def _until_settled(
        self, exchange: Exchange, claim: Claim, owner: str
    ) -> tuple[Claim, Claimed | None]:
        """The last claim and its answer, which may still be busy if there is no more time."""
        awake = asyncio.Event()
        stop = self._claims.watch(claim.name, awake.set)
        busy_until = 0.0
        try:
            while True:
                awake.clear()
                claim = claim._replace(owner=new_token(), waited_for=owner)
                claimed = await self._ask(claim)
                now = self._clock.monotonic()
                left = self._time_left(exchange, now)
                if claimed is None and now < busy_until:
                    # The store does not answer, but what it said last still holds.
                    claimed = Claimed(Answer.BUSY, owner, busy_until - now)
                if claimed is None or claimed.answer is not Answer.BUSY or left <= 0:
                    return claim, claimed
                if self._flights.get(claim.name) is not None:
                    return claim, claimed
                owner, busy_until = claimed.owner, now + claimed.lease_left
                await _until(awake, min(left, _ASK_AGAIN, claimed.lease_left + _GRAIN))
        finally:
            stop()

    # Running it.

    async def _take_over(self, exchange: Exchange, flight: Flight) -> Refusal | None:
        """The key is ours after a wait, which may have used up all the time there was."""
        if self._time_left(exchange, self._clock.monotonic()) <= 0:
            self._flights.pass_on(flight)  # it would be sent only to be given up
            return self._turn_away(exchange, _BUSY)
        return await self._own(exchange, flight)

    def _own(self, exchange: Exchange, flight: Flight) -> Awaitable[Refusal | None]:
        """The key is ours: run, whatever becomes of the client."""
        exchange.key_result = KeyResult.NEW
        exchange.route.recorder.keyed(KeyResult.NEW)
        ownership = Ownership(exchange, flight, self._flights, self._settings, self._refused)
        return ownership.run(self._inner)

    async def _without_store(self, exchange: Exchange) -> Refusal | None:
        """Nobody can tell whether it ran before."""
        if self._settings.on_store_error == "closed":
            return _NO_STORE
        self._count(exchange, KeyResult.BYPASSED)
        return await self._inner(exchange)

    # Answers.

    async def _give(self, exchange: Exchange, result: Result, word: KeyResult) -> Refusal | None:
        """Let a duplicate have what the first one got."""
        match result:
            case NotKept():
                return self._turn_away(exchange, _UNSTORED)
            case KeptResponse():
                exchange.answer_kept(result)
            case Fallback() if self._fallback is not None:
                exchange.answer_fallback(self._fallback)
            case Fallback():
                return self._turn_away(exchange, _UNSTORED)  # a reload took it away
        self._count(exchange, word)
        if isinstance(result, Refusal):
            return result
        if exchange.is_behind:
            await exchange.caught_up()  # all of it was written at once
        return None

    def _turn_away(self, exchange: Exchange, claimed: Claimed) -> Refusal:
        """Tell a duplicate why it gets no result."""
        record = exchange.record
        match claimed.answer:
            case Answer.MISMATCH:
                status = self._settings.mismatch_status
                refusal = Refusal(Reason.KEY_MISMATCH, _MISMATCH, other_status=status)
                word = KeyResult.MISMATCH
            case Answer.BUSY:
                wait = max(1, min(math.ceil(claimed.lease_left), _LONGEST_ADVICE))
                refusal = Refusal(Reason.KEY_IN_FLIGHT, _IN_FLIGHT, wait=wait, record=record)
                word = KeyResult.IN_FLIGHT
            case Answer.HELD:
                refusal = Refusal(Reason.OUTCOME_UNKNOWN, _UNKNOWN, record=record)
                word = KeyResult.HELD
            case Answer.UNSTORED:
                refusal = Refusal(Reason.RESULT_NOT_STORED, _NOT_STORED, record=record)
                word = KeyResult.UNSTORED
            case _:
                return _FULL
        return self._refuse(exchange, refusal, word)

    def _refuse(self, exchange: Exchange, refusal: Refusal, word: KeyResult) -> Refusal:
        self._count(exchange, word)
        return refusal

    @staticmethod
    def _count(exchange: Exchange, word: KeyResult) -> None:
        exchange.key_result = word
        exchange.route.recorder.keyed(word)


async def _until(event: asyncio.Event, seconds: float) -> None:
    """Wait for it, but not for longer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
