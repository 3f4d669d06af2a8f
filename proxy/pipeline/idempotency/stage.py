"""The idempotency stage: a request with a key runs once, and duplicates get its result.

::

    key? ──no──► the next stage
     │
     ▼             ┌ new ───────► own it: run, keep the result, tell the waiters
    whole body ──► │ in flight ─► wait for its owner, or 409
    and claim      │ done ──────► replay
                   └ another request, unknown outcome, result not kept ─► 422, 409

The owner of a key goes on even if its client leaves, once its request was sent, so that its
result is kept. A waiting request has reserved nothing that another request could wait for.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.ids import new_owner_token
from proxy.core.ports import KeyLost, Refused
from proxy.core.route import Handler
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import KeptResponse
from proxy.pipeline.idempotency.in_flight import InFlightKey, InFlightKeys, Promotion
from proxy.pipeline.idempotency.key_owner import KeyOwner
from proxy.policy.caller_fields import display_name, repeated_field
from proxy.policy.idempotency.key import (
    KeyFields,
    KeyReader,
    fingerprint,
    read_key,
    record_name,
    scope_digest,
)
from proxy.policy.idempotency.record import (
    ENQUEUES,
    Claim,
    ClaimAnswer,
    Claimed,
    Ending,
    make,
)
from proxy.policy.idempotency.retention import outcome_of_key, state_after
from proxy.policy.idempotency.stored_response import (
    BadResult,
    NotKept,
    Result,
    StoredFallback,
    unpack,
)
from proxy.policy.reasons import KeyResult
from proxy.policy.settings import AmbiguousKeys, InFlightDuplicates, KeysWithoutStore, RouteSettings
from proxy.stores import IdempotencyStore, StoreError

_CLAIM_AGAIN = 1.0
"""Seconds after which a waiter claims again at the latest, should a notice be missed."""
_LEASE_MARGIN = 0.01
"""Seconds added to a lease, to be sure that it has ended."""
_LONGEST_RETRY_AFTER = 5
"""The largest Retry-After for a duplicate, in seconds."""

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
    RefusalReason.STORE,
    "It cannot be checked now whether this key was used before. Send it again later.",
)
_RESULT_UNAVAILABLE = Refusal(
    RefusalReason.STORE,
    "The first request with this key has ended, but its result cannot be read now. Send it again "
    "later, as it is.",
    wait=1,
)
_FULL = Refusal(
    RefusalReason.STORE, "There is no room for another key. Send it again later.", wait=1
)

# speed: looked up once, as in policy/idempotency/record.py
_NEW, _RUNS = ClaimAnswer.NEW, KeyResult.NEW
_WITH_RESULT = frozenset({ClaimAnswer.DONE, ClaimAnswer.LEFT})
_BUSY = Claimed(ClaimAnswer.BUSY, lease_left=1.0)
_UNSTORED = Claimed(ClaimAnswer.UNSTORED)


class Idempotency:
    """The idempotency stage of a route: requests with the same key run once."""

    def __init__(
        self,
        settings: RouteSettings,
        inner: Handler,
        in_flight: InFlightKeys,
        *,
        refused: Mapping[str, frozenset[int]],
        covers_host: bool,
        time_left: Callable[[Exchange, float], float],
        clock: Clock,
        is_void: Callable[[Claim, KeptResponse], Awaitable[bool]] | None = None,
    ) -> None:
        """*inner* is the next stage.

        *is_void* says whether a stored result is none any more: it told of a delivery that has
        failed. None on a route that does not hand off.

        *refused*: by upstream the statuses by which it says that it did not do the work;
        *covers_host* if an upstream of the route gets the client's own Host, so that a request
        to another host is another request; *time_left* tells how long an exchange may still take.
        """
        assert settings.idempotency is not None  # noqa: S101 - for the type checker
        self._settings = keys = settings.idempotency
        self._route = settings.name
        self._fallback = settings.fallback
        self._inner = inner
        self._in_flight = in_flight
        self._store: IdempotencyStore = in_flight.store
        self._refused = refused
        self._covers_host = covers_host
        self._time_left = time_left
        self._clock = clock
        self._is_void = is_void
        self._reader = KeyReader(keys.header.encode(), [name.encode() for name in keys.scope])
        self._methods = keys.methods
        takes_over = keys.on_ambiguous is AmbiguousKeys.RELEASE
        self._lease_terms = (settings.name, keys.lease, keys.ttl, takes_over)
        """The parts of a claim that do not depend on the request."""
        self._waits = keys.in_flight is InFlightDuplicates.WAIT
        self._scope_required = keys.scope_required
        name = display_name(keys.header)
        self._missing = Refusal(
            RefusalReason.KEY_MISSING,
            f"Send {name}: a new value for each operation, such as a UUID, and the same one when "
            f"you repeat it.",
        )
        self._invalid = Refusal(
            RefusalReason.KEY_INVALID,
            f"Send one {name} of 1 to 255 visible ASCII characters without blanks, such as a UUID.",
        )
        self._no_caller = Refusal(
            RefusalReason.BAD_REQUEST,
            f"Say who you are: send {' or '.join(map(display_name, keys.scope))}.",
        )

    def handle(self, exchange: Exchange) -> Awaitable[Refusal | None]:
        """Pass on requests without a key; run requests with the same key once."""
        if exchange.method not in self._methods or exchange.upgrade:
            return self._inner(exchange)
        fields = self._reader.read(exchange.raw_headers)
        if not fields.keys and not self._settings.required:
            return self._inner(exchange)
        return self._keyed(exchange, fields)

    async def _keyed(self, exchange: Exchange, fields: KeyFields) -> Refusal | None:
        key = read_key(fields.keys)
        if key is None or (
            (fields.repeated or (self._scope_required and not fields.caller))
            and not exchange.known_record
        ):
            return self._malformed(exchange, fields, has_key=key is not None)
        body, whole = exchange.body, b""
        if body is not None:
            whole = body.whole() or await body.read_whole()
        claim = self._claim(exchange, fields, key, whole)
        flight, immediate = self._in_flight.get(claim.name), self._in_flight.immediate
        try:
            if flight is not None:
                return await self._follow_local(exchange, claim, flight)
            if immediate is None:
                return await self._claim_and_wait(exchange, claim)
            claimed = immediate.claim_at_once(claim)
            if claimed.answer is not _NEW:
                return await self._not_new(exchange, claim, claimed)
            asked = exchange.started + exchange.client_wait  # or a little later
            return await self._run_as_owner(exchange, self._in_flight.begin(claim, asked))
        except KeyLost as lost:
            return await self._after_loss(exchange, claim, lost.refusal)

    def _claim(self, exchange: Exchange, fields: KeyFields, key: bytes, body: bytes) -> Claim:
        """Return the claim that the store is asked for, by a request with *key* and *body*."""
        scope_fields, content = fields.caller, fields.content
        name = exchange.known_record or record_name(self._route, scope_fields, key)
        exchange.record = name
        if self._covers_host:
            content.extend((b"host", exchange.host.lower()))
        same = fingerprint(exchange.method, exchange.target, content, body)
        scope = caller = ""
        if scope_fields:
            scope = scope_digest(scope_fields)
            caller = scope if scope in self._in_flight.known_scopes else ""
        caller = caller or exchange.caller()
        route, lease, ttl, takes_over = self._lease_terms
        owner, hand_off = new_owner_token(), exchange.hand_off
        if hand_off is not None and hand_off.comes_first:
            owner = ENQUEUES + owner
        return make(Claim, (name, owner, same, route, lease, ttl, takes_over, "", caller, scope))

    async def has_known_key(self, exchange: Exchange) -> bool:
        """Say whether the key of *exchange* has a record, before its body is read."""
        fields = self._reader.read(exchange.raw_headers)
        key = read_key(fields.keys)
        if key is None:
            return False
        name = record_name(self._route, fields.caller, key)
        try:
            return self._in_flight.get(name) is not None or await self._store.show(name) is not None
        except StoreError:
            return False

    async def _claim_and_wait(self, exchange: Exchange, claim: Claim) -> Refusal | None:
        """Claim the key in a store whose answer takes time."""
        asked = self._clock.monotonic()
        claimed = await self._ask_store(claim)
        if claimed is None or claimed.answer is not ClaimAnswer.NEW:
            return await self._not_new(exchange, claim, claimed)
        return await self._run_as_owner(exchange, self._in_flight.begin(claim, asked))

    async def _not_new(
        self, exchange: Exchange, claim: Claim, claimed: Claimed | None
    ) -> Refusal | None:
        """Follow the owner of a key that is another request's; the store may not have answered."""
        if claimed is not None and claimed.answer is ClaimAnswer.BUSY and self._waits:
            return await self._follow_remote(exchange, claim, claimed.owner)
        return await self._act_on_answer(exchange, claim, claimed, KeyResult.REPLAYED)

    def _malformed(self, exchange: Exchange, fields: KeyFields, *, has_key: bool) -> Refusal:
        """Refuse a request without a key, or whose caller is missing or given twice."""
        if not has_key and fields.keys:
            return self._refuse(exchange, self._invalid, KeyResult.INVALID)
        if not has_key:
            return self._refuse(exchange, self._missing, KeyResult.MISSING)
        if fields.repeated:
            return self._refuse(exchange, repeated_field(fields.repeated), KeyResult.INVALID)
        return self._refuse(exchange, self._no_caller, KeyResult.MISSING)

    async def _ask_store(self, claim: Claim) -> Claimed | None:
        """Ask the store for the key; None if it fails, or if too many ends are unreported."""
        if not self._in_flight.may_claim:
            return None
        try:
            return await self._store.claim(claim)
        except StoreError:
            return None

    async def _act_on_answer(  # noqa: PLR0911 - one for each thing that an answer can mean
        self, exchange: Exchange, claim: Claim, claimed: Claimed | None, key_result: KeyResult
    ) -> Refusal | None:
        """Act on the store's answer; *key_result* is counted if the duplicate gets a result."""
        if claimed is None:
            return await self._without_store(exchange)
        if claimed.answer not in _WITH_RESULT:
            if claimed.answer is ClaimAnswer.MISMATCH and await self._is_void_for_others(claim):
                return await self._claim_again(exchange, claim)
            return self._refuse_duplicate(exchange, claimed)
        try:
            result = await self._read(exchange, claim, claimed)
        except Refused as refused:
            return refused.refusal
        if result is None:
            return await self._without_store(exchange)
        if isinstance(result, KeptResponse) and await self._is_void_result(claim, result):
            return await self._claim_again(exchange, claim)
        return await self._answer_with(exchange, result, key_result)

    async def _is_void_result(self, claim: Claim, result: KeptResponse) -> bool:
        return self._is_void is not None and await self._is_void(claim, result)

    async def _is_void_for_others(self, claim: Claim) -> bool:
        """Say whether the result of another request with the key of *claim* is void."""
        if self._is_void is None:
            return False
        try:
            result = unpack(claim.name, await self._store.fetch(claim.name) or b"")
        except (StoreError, BadResult):
            return False
        return isinstance(result, KeptResponse) and await self._is_void_result(claim, result)

    async def _claim_again(self, exchange: Exchange, claim: Claim) -> Refusal | None:
        """Claim a key whose result is void: its delivery has failed."""
        try:
            await self._store.drop(claim.name)
        except StoreError:
            return await self._without_store(exchange)
        return await self._follow_remote(exchange, claim)

    async def _read(self, exchange: Exchange, claim: Claim, claimed: Claimed) -> Result | None:
        """Return the result that belongs to the store's answer; None if it cannot be read.

        Raises Refused if the result cannot be fetched in time.
        """
        try:
            if claimed.result:
                return unpack(claim.name, claimed.result)
            return await self._fetch(exchange, claim, claimed.answer)
        except BadResult as error:
            self._in_flight.count_unreadable(claim.name, error)
            return None

    async def _fetch(self, exchange: Exchange, claim: Claim, answer: ClaimAnswer) -> Result:
        """Fetch a result that did not come with the store's answer, because it is large.

        Raises BadResult, and Refused if the result cannot be fetched in time. The first request is
        known to have ended, so whatever ``on_store_error`` says, it is not run again.
        """
        left = self._time_left(exchange, self._clock.monotonic())
        owner = claim.waited_for if answer is ClaimAnswer.LEFT else ""
        result: Result | None = None
        exchange.begin_wait("queue")
        try:
            async with asyncio.timeout(max(left, 0.0)):
                result = await self._in_flight.fetch(claim.name, owner)
        except (TimeoutError, StoreError):
            pass
        except BadResult:
            exchange.end_wait()
            raise
        exchange.end_wait()
        if result is None:
            raise Refused(_RESULT_UNAVAILABLE)
        return result

    # Waiting for the owner's result.

    @contextmanager
    def _waiting(self, exchange: Exchange) -> Iterator[None]:
        """Count *exchange* as waiting for an owner; a client that leaves ends the wait."""
        self._in_flight.waiting += 1
        exchange.begin_wait("queue")
        try:
            yield
        finally:
            self._in_flight.waiting -= 1
        exchange.end_wait()  # not after a cancellation: the log shall say what it waited for

    async def _follow_local(
        self, exchange: Exchange, claim: Claim, flight: InFlightKey
    ) -> Refusal | None:
        """Follow an owner that runs in this process."""
        if flight.claim.fingerprint != claim.fingerprint:
            return self._refuse_duplicate(exchange, Claimed(ClaimAnswer.MISMATCH))
        ending = flight.ending
        if ending is not None and ending.state is not None:
            # The answer that the store will give once it accepts the report.
            claimed = Claimed(ClaimAnswer(ending.state.value), result=ending.result)
            return await self._act_on_answer(exchange, claim, claimed, KeyResult.REPLAYED)
        result = await self._join(exchange, flight) if self._waits else None
        if result is None:
            return self._refuse_duplicate(exchange, _BUSY)
        if result is Promotion.YOURS and (_enqueues(claim) or not _enqueues(flight.claim)):
            return await self._take_over(exchange, flight)
        if isinstance(result, Promotion):
            if result is Promotion.YOURS:
                # The flight's claim promises that nothing is sent before a delivery is on disk.
                ending = Ending(None, self._settings.ttl)
                await self._in_flight.settle(flight, ending, Promotion.AGAIN)
            return await self._follow_remote(exchange, claim)
        return await self._answer_with(exchange, result, KeyResult.JOINED)

    async def _join(self, exchange: Exchange, flight: InFlightKey) -> Result | Promotion | None:
        """Wait for the result of *flight*; None if there is no more time."""
        left = self._time_left(exchange, self._clock.monotonic())
        waiter = flight.join()
        result: Result | Promotion | None = None
        with self._waiting(exchange):
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(left, 0.0)):
                        result = await waiter
            finally:
                if result is None:
                    self._leave(flight, waiter)
        return result

    def _leave(self, flight: InFlightKey, waiter: "asyncio.Future[Result | Promotion]") -> None:
        """Stop waiting, and hand over a promotion that came too late."""
        if waiter.done() and not waiter.cancelled() and waiter.result() is Promotion.YOURS:
            # The promotion came in the very moment in which the wait ended.
            self._in_flight.hand_over(flight)
        flight.leave(waiter)

    async def _follow_remote(
        self, exchange: Exchange, claim: Claim, owner: str = ""
    ) -> Refusal | None:
        """Follow an owner in another process: claim the key until the owner has settled it."""
        claim, claimed, asked = await self._claim_until_settled(exchange, claim, owner)
        flight = self._in_flight.get(claim.name)
        if flight is not None and (claimed is None or claimed.answer is ClaimAnswer.BUSY):
            return await self._follow_local(exchange, claim, flight)
        if claimed is not None and claimed.answer is ClaimAnswer.NEW:
            return await self._take_over(exchange, self._in_flight.begin(claim, asked))
        return await self._act_on_answer(exchange, claim, claimed, KeyResult.JOINED)

    async def _claim_until_settled(
        self, exchange: Exchange, claim: Claim, owner: str
    ) -> tuple[Claim, Claimed | None, float]:
        """Claim the key until it is settled; return the last claim, its answer and its time.

        The answer may still be busy if there is no more time to wait.
        """
        awake = asyncio.Event()
        stop = self._store.watch(claim.name, awake.set)
        busy_until = 0.0
        with self._waiting(exchange):
            try:
                while True:
                    awake.clear()
                    token = new_owner_token()
                    if _enqueues(claim):
                        token = ENQUEUES + token
                    claim = claim._replace(owner=token, waited_for=owner)
                    asked = self._clock.monotonic()
                    claimed = await self._ask_store(claim)
                    now = self._clock.monotonic()
                    left = self._time_left(exchange, now)
                    if claimed is None and now < busy_until:
                        # The store does not answer, but the lease it last told of still runs.
                        claimed = Claimed(ClaimAnswer.BUSY, owner, busy_until - now)
                    if claimed is None or claimed.answer is not ClaimAnswer.BUSY or left <= 0:
                        return claim, claimed, asked
                    if self._in_flight.get(claim.name) is not None:
                        return claim, claimed, asked
                    owner, busy_until = claimed.owner, now + claimed.lease_left
                    await _until(awake, min(left, _CLAIM_AGAIN, claimed.lease_left + _LEASE_MARGIN))
            finally:
                stop()

    async def _after_loss(
        self, exchange: Exchange, claim: Claim, refusal: Refusal
    ) -> Refusal | None:
        """Follow the request that took over the key of this one; *refusal* if it has no result.

        Nothing is sent any more, whichever request has the key by now.
        """
        claim, claimed, asked = await self._claim_until_settled(exchange, claim, "")
        if claimed is not None and claimed.answer is ClaimAnswer.NEW:
            # No request has the key, and the store may have lost it: what was sent still counts.
            begun, ending = self._in_flight.begin(claim, asked), self._ending_of(exchange)
            self._in_flight.run_detached(self._in_flight.settle(begun, ending, Promotion.AGAIN))
            return refusal
        flight = self._in_flight.get(claim.name)
        if flight is not None and (claimed is None or claimed.answer is ClaimAnswer.BUSY):
            result = await self._join(exchange, flight)
            if result is Promotion.YOURS:
                self._in_flight.hand_over(flight)
        elif claimed is None:
            result = None
        elif claimed.answer in _WITH_RESULT:
            try:
                result = await self._read(exchange, claim, claimed)
            except Refused as refused:
                return refused.refusal
        else:
            return self._refuse_duplicate(exchange, claimed)
        if result is None or isinstance(result, Promotion):
            return refusal
        return await self._answer_with(exchange, result, KeyResult.JOINED)

    def _ending_of(self, exchange: Exchange) -> Ending:
        """Return the ending of a key after attempts of which none brought a result."""
        outcome = outcome_of_key(
            self._settings, 0, exchange.attempts, self._refused, fell_back=exchange.fallback
        )
        return Ending(state_after(outcome, self._settings), self._settings.ttl)

    # Running as the owner.

    async def _take_over(self, exchange: Exchange, flight: InFlightKey) -> Refusal | None:
        """Run as the owner after a wait, unless that used up all the time there was."""
        if self._time_left(exchange, self._clock.monotonic()) <= 0:
            self._in_flight.hand_over(flight)  # a send would only be given up
            return self._refuse_duplicate(exchange, _BUSY)
        return await self._run_as_owner(exchange, flight)

    def _run_as_owner(self, exchange: Exchange, flight: InFlightKey) -> Awaitable[Refusal | None]:
        """Run the request as the owner of its key, whatever becomes of the client."""
        exchange.key_result = _RUNS
        exchange.route.recorder.keyed(_RUNS)
        owner = KeyOwner(exchange, flight, self._in_flight, self._settings, self._refused)
        return owner.run(self._inner)

    async def _without_store(self, exchange: Exchange) -> Refusal | None:
        """Refuse or run a request of which the store cannot say whether it ran before."""
        if self._settings.on_store_error is KeysWithoutStore.CLOSED:
            return _NO_STORE
        self._count(exchange, KeyResult.BYPASSED)
        return await self._inner(exchange)

    # Answers.

    async def _answer_with(
        self, exchange: Exchange, result: Result, key_result: KeyResult
    ) -> Refusal | None:
        """Answer a duplicate with the result of the first request."""
        match result:
            case NotKept():
                return self._refuse_duplicate(exchange, _UNSTORED)
            case KeptResponse():
                self._count(exchange, key_result)
                await exchange.answer_kept(result)
                return None
            case StoredFallback() if self._fallback is not None:
                exchange.answer_fallback(self._fallback)
            case StoredFallback():
                return self._refuse_duplicate(exchange, _UNSTORED)  # a reload took it away
        self._count(exchange, key_result)
        return result if isinstance(result, Refusal) else None

    def _refuse_duplicate(self, exchange: Exchange, claimed: Claimed) -> Refusal:
        """Refuse a duplicate, and say why it gets no result."""
        record = exchange.record
        match claimed.answer:
            case ClaimAnswer.MISMATCH:
                status = self._settings.mismatch_status
                refusal = Refusal(RefusalReason.KEY_MISMATCH, _MISMATCH, other_status=status)
                key_result = KeyResult.MISMATCH
            case ClaimAnswer.BUSY:
                wait = max(1, min(math.ceil(claimed.lease_left), _LONGEST_RETRY_AFTER))
                refusal = Refusal(RefusalReason.KEY_IN_FLIGHT, _IN_FLIGHT, wait=wait, record=record)
                key_result = KeyResult.IN_FLIGHT
            case ClaimAnswer.HELD:
                refusal = Refusal(RefusalReason.OUTCOME_UNKNOWN, _UNKNOWN, record=record)
                key_result = KeyResult.HELD
            case ClaimAnswer.UNSTORED:
                refusal = Refusal(RefusalReason.RESULT_NOT_STORED, _NOT_STORED, record=record)
                key_result = KeyResult.UNSTORED
            case _:
                return _FULL
        return self._refuse(exchange, refusal, key_result)

    def _refuse(self, exchange: Exchange, refusal: Refusal, key_result: KeyResult) -> Refusal:
        self._count(exchange, key_result)
        return refusal

    @staticmethod
    def _count(exchange: Exchange, key_result: KeyResult) -> None:
        exchange.key_result = key_result
        exchange.route.recorder.keyed(key_result)


def _enqueues(claim: Claim) -> bool:
    """Say whether the owner of *claim* sends nothing before its request is a delivery on disk."""
    return claim.owner.startswith(ENQUEUES)


async def _until(event: asyncio.Event, seconds: float) -> None:
    """Wait for *event*, for so many seconds at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
