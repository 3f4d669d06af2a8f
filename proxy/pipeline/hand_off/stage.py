"""The stage that hands off: the request is on disk as a delivery before its client is answered.

::

    asked, always ──► on disk ──► 202, or the answer if it comes while the client waits
    else, with a key of a delivery ──► that delivery's 202, or 409
    else ──► the next stage ──► a failure that may be tried again ──► on disk ──► 202
                            └─► anything else ──► the client

The file of the deliveries is the truth about keys of requests that were handed off: whatever became
of the key's own record, a key that has an open delivery there is not run again.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.ids import new_delivery_id
from proxy.core.ports import DeadLetterSink, Refused
from proxy.core.route import Handler
from proxy.http.fields import RawHeaders, nominated
from proxy.http.prefer import without_honoured
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import KeptResponse, own_head
from proxy.pipeline.dead_letters import NOT_KEPT, attempt_records
from proxy.pipeline.hand_off.admission import FULL_FOR, HandOffPlan, field_names
from proxy.pipeline.hand_off.answers import (
    NOT_DURABLE,
    accepted,
    accepted_as,
    queue_full,
    too_large,
    with_preference,
)
from proxy.pipeline.hand_off.withheld import WithheldFailure
from proxy.pipeline.services import RouteServices
from proxy.policy.caller_fields import display_name
from proxy.policy.dead_letter import credentials_sent, headers_to_keep
from proxy.policy.delivery.acceptance import FailedRequest, HandOffRules
from proxy.policy.delivery.key_rules import KeyStanding, KeyTerms, key_standing
from proxy.policy.delivery.schedule import usable_hint, wait_before_next
from proxy.policy.delivery.state import Delivery, DeliveryRun, LetterTerms
from proxy.policy.delivery.words import DeliveryState
from proxy.policy.idempotency.key import KeyReader, scope_digest
from proxy.policy.idempotency.record import Claim
from proxy.policy.reasons import KeyResult
from proxy.policy.repeatable import did_not_run, may_have_run
from proxy.policy.retry.verdict import AttemptResult
from proxy.policy.settings import (
    AmbiguousKeys,
    HandOffWhen,
    IdempotencySettings,
    KeysWithoutStore,
    RouteSettings,
    UpstreamSettings,
)
from proxy.stores import StoreError
from proxy.stores.deliveries.ports import (
    Accepted,
    AcceptUncertain,
    DeliverySink,
    HeldKey,
    Mismatch,
    NewDelivery,
    NoCapacity,
    ShownDelivery,
)

_log = logging.getLogger("holdfast")

_ABOUT_THE_KEY = frozenset({RefusalReason.KEY_MISMATCH, RefusalReason.OUTCOME_UNKNOWN})
_CLIENT_ERRORS = range(400, 500)
_NO_FILE = Refusal(
    RefusalReason.NOT_DURABLE,
    "It cannot be checked now whether this key was handed off before. Send it again later.",
)
_MISMATCH = "This key belongs to another request. Repeat that one as it was, or send a new key."
_UNKNOWN = (
    "The first request with this key may have run, and how it ended is not known. Find out "
    "before you send it with another key."
)


def share_owner(settings: RouteSettings, services: RouteServices) -> Callable[[Exchange], str]:
    """Return the function that says whose share of the room a request takes.

    It is that of its scope, if the scope is known: otherwise a caller could have a share of its own
    for each name that it makes up.
    """
    keys = settings.idempotency
    if keys is None or not keys.scope:
        return lambda exchange: exchange.caller()
    reader = KeyReader(keys.header.encode(), [name.encode() for name in keys.scope])
    known, digest = services.in_flight.known_scopes, services.dead_letters.digest

    def owner(exchange: Exchange) -> str:
        fields = reader.read(exchange.raw_headers).caller
        scope = scope_digest(fields) if fields else ""
        return digest(scope.encode()) if scope in known else exchange.caller()

    return owner


class HandOff:
    """The inner stage of hand-off of a route."""

    def __init__(
        self,
        route: RouteSettings,
        upstream: UpstreamSettings,
        rules: HandOffRules,
        inner: Handler,
        *,
        store: DeliverySink,
        sink: DeadLetterSink,
        caller: Callable[[Exchange], str],
        status_path: str | None,
        clock: Clock,
    ) -> None:
        """*inner* is the next stage; *caller* says whose share of the room a request takes.

        *sink* digests credentials; *status_path* is where clients ask for their deliveries.
        """
        self.rules = rules
        self._settings = rules.settings
        self._route = route
        self._upstream = upstream
        self._inner = inner
        self._store = store
        self._sink = sink
        self._caller = caller
        self._status_path = status_path
        self._clock = clock
        self._takes_failures = HandOffWhen.FAILED in self._settings.when
        self._key_settings = keys = route.idempotency or IdempotencySettings()
        self._key_terms = KeyTerms(keys.ttl, keys.on_ambiguous is AmbiguousKeys.HOLD)
        self._scope = KeyReader(keys.header.encode(), [name.encode() for name in keys.scope])
        """Reads who may ask for the answer, on a route without keys as well."""
        letters = route.dead_letter
        dropped = frozenset[str]() if letters is None else letters.drop
        self._wiped = rules.fields_to_wipe() | dropped
        self._credentials = dropped | frozenset(keys.scope)
        """Names of the header fields that identify a caller."""

    def handle(self, exchange: Exchange) -> Awaitable[Refusal | None]:
        """Hand the request off, or serve it, and hand it off if that fails."""
        plan = exchange.hand_off
        if isinstance(plan, HandOffPlan):
            return self._enqueue(exchange, plan)
        has_key, takes_failures = exchange.owned_key is not None, self._takes_failures
        if (
            exchange.method not in self._settings.methods
            or exchange.upgrade
            or not (has_key or (takes_failures and not exchange.is_replay))
        ):
            return self._inner(exchange)
        return self._serve(exchange)

    async def is_void(self, claim: Claim, result: KeptResponse) -> bool:
        """Say whether *result* of a key tells of a delivery that is its result no longer."""
        delivery_id = accepted_as(claim.name, result)
        if not delivery_id:
            return False
        try:
            delivery = await self._store.find_record(claim.name)
        except StoreError:
            return False  # it was accepted, and whoever asks for it learns the rest
        # One that is forgotten ended well, or its time is over; one of another id is not ours.
        if delivery is None or delivery.id != delivery_id:
            return False
        return not (delivery.is_open or delivery.state is DeliveryState.DELIVERED)

    # Before anything is sent.

    async def _enqueue(self, exchange: Exchange, plan: HandOffPlan) -> Refusal | None:
        body = exchange.body
        whole = b"" if body is None else body.whole() or await body.read_whole()
        refusal = self._obstacle(exchange, plan, whole)
        if refusal is None:
            new = self._new_delivery(exchange, plan, whole)
            outcome = await self._accept(exchange, new, plan)
            if isinstance(outcome, Accepted):
                return await self._answer(exchange, plan, outcome)
            refusal = outcome
        # A claim that promises a delivery on disk must be followed by nothing else.
        is_bound = plan.comes_first and exchange.owned_key is not None
        if plan.is_forced or is_bound or refusal.reason in _ABOUT_THE_KEY:
            return refusal
        exchange.hand_off = None
        return await self.handle(exchange)

    def _obstacle(self, exchange: Exchange, plan: HandOffPlan, whole: bytes) -> Refusal | None:
        """Return why a request whose body is known now cannot be handed off; None if it can."""
        count = exchange.route.recorder.count
        if not self.rules.fits(len(whole)):
            count("holdfast_deliveries_refused_total", "too_large")
            return too_large(is_read=True)
        no_capacity = plan.no_capacity
        if plan.reservation is not None and len(whole) > plan.reserved:
            no_capacity = plan.reservation.grow(len(whole) - plan.reserved)
        if no_capacity is not None and plan.reservation is not None:
            count("holdfast_deliveries_refused_total", "queue_full")
            return queue_full(no_capacity, FULL_FOR)
        return None

    async def _accept(
        self, exchange: Exchange, new: NewDelivery, plan: HandOffPlan
    ) -> Accepted | Refusal:
        """Write the delivery to disk; return the refusal if there is none afterwards."""
        count = exchange.route.recorder.count
        try:
            outcome = await self._store.accept(new, plan.reservation)
        except AcceptUncertain as error:
            _log.warning("whether request %s was accepted is unknown: %s", new.request_id, error)
            count("holdfast_deliveries_refused_total", "not_durable")
            plan.is_forced = True  # it must not be sent in another way
            return NOT_DURABLE
        except StoreError as error:
            _log.warning("request %s cannot be handed off: %s", new.request_id, error)
            count("holdfast_deliveries_refused_total", "not_durable")
            return NOT_DURABLE
        match outcome:
            case Accepted():
                plan.delivery_id = outcome.delivery.id
                if not outcome.is_duplicate:
                    count("holdfast_deliveries_accepted_total", plan.when)
                return outcome
            case Mismatch():
                return self._mismatch(exchange)
            case HeldKey():
                return self._held(exchange)
            case NoCapacity():
                count("holdfast_deliveries_refused_total", "queue_full")
                return queue_full(outcome, FULL_FOR)

    async def _answer(
        self, exchange: Exchange, plan: HandOffPlan, outcome: Accepted
    ) -> Refusal | None:
        """Answer with 202; or with the upstream's answer, if the client waits and it comes."""
        preference, delivery = plan.preference, outcome.delivery
        waited = None
        if preference is not None and preference.wait:
            limit = self._settings.timeout
            waited = preference.wait if limit is None else min(preference.wait, int(limit))
        if waited:
            exchange.begin_wait("upstream")
            try:
                shown = await self._store.wait_for_end(delivery.id, waited)
            except StoreError:
                shown = None  # it is on disk: 202 is true whatever became of it
            exchange.end_wait()
            if preference is not None and shown is not None:
                if self._relay_answer(exchange, shown, preference.applied(waited)):
                    await self._withdraw_letter(exchange, shown)
                    return None
                delivery = shown.delivery
        applied = b"" if preference is None else preference.applied(waited)
        self._relay_accepted(exchange, delivery, applied, is_replayed=outcome.is_duplicate)
        return None

    def _relay_accepted(
        self, exchange: Exchange, delivery: Delivery, applied: bytes, *, is_replayed: bool
    ) -> None:
        head, body = accepted(
            exchange.method,
            delivery,
            self._status_path,
            now=self._clock.wall(),
            applied=applied,
            is_replayed=is_replayed,
        )
        (exchange.capture or exchange).relay_head(head, [body], complete=True)

    @staticmethod
    def _relay_answer(exchange: Exchange, shown: ShownDelivery, applied: bytes) -> bool:
        """Relay the upstream's answer to a delivery that has ended; False if there is none."""
        response = shown.response
        if shown.delivery.is_open or response is None or response.body is None:
            return False
        fields = [name + b": " + value for name, value in response.headers]
        size = len(response.body)
        head = own_head(exchange.method, response.status, with_preference(fields, applied), size)
        head.has_date = any(name.lower() == b"date" for name, _ in response.headers)
        (exchange.capture or exchange).relay_head(head, [response.body], complete=True)
        return True

    async def _withdraw_letter(self, exchange: Exchange, shown: ShownDelivery) -> None:
        """Keep no dead letter of a request whose client waited and was told what is wrong."""
        response, delivery = shown.response, shown.delivery
        is_final = response is not None and response.status in _CLIENT_ERRORS
        if delivery.state is DeliveryState.FAILED and is_final and not exchange.client_is_gone:
            with suppress(StoreError):  # then there is a dead letter too many
                await self._store.withdraw_letter(delivery.id)

    # Served while the client waits.

    async def _serve(self, exchange: Exchange) -> Refusal | None:
        if exchange.owned_key is not None:
            refusal = await self._answer_known(exchange)
            if refusal is not None or exchange.hand_off is not None:
                return refusal
        if not self._takes_failures or exchange.is_replay:
            return await self._inner(exchange)
        outer = exchange.capture
        withheld = exchange.capture = WithheldFailure(exchange, outer or exchange, self._clock)
        refused: Refused | None = None
        try:
            refusal = await self._inner(exchange)
        except Refused as error:
            refused, refusal = error, error.refusal
        finally:
            exchange.capture = outer
        if refusal is None and withheld.head is None:
            return None
        instead = await self._hand_off_failure(exchange, withheld, refusal)
        if exchange.hand_off is not None or instead is not None:
            return instead
        withheld.release()
        if refused is not None:
            raise refused
        return refusal

    async def _answer_known(self, exchange: Exchange) -> Refusal | None:
        """Answer a request whose key a delivery has: ``hand_off`` is set then, or it is refused."""
        key = exchange.owned_key
        assert key is not None  # noqa: S101 - for the type checker
        keys = self._key_settings
        try:
            delivery = await self._store.find_record(key.claim.name)
        except StoreError as error:
            if keys.on_store_error is KeysWithoutStore.OPEN:
                return None
            _log.warning("whether a key has a delivery is unknown: %s", error)
            return _NO_FILE
        if delivery is None:
            return None
        now = self._clock.wall()
        match key_standing(delivery, key.claim.fingerprint, self._key_terms, now):
            case KeyStanding.MISMATCH:
                return self._mismatch(exchange)
            case KeyStanding.DUPLICATE:
                self._count_key(exchange, KeyResult.REPLAYED)
                plan = HandOffPlan(
                    when=HandOffWhen.ASKED, result_lasts=self._settings.give_up_after
                )
                plan.delivery_id = delivery.id
                exchange.hand_off = plan
                self._relay_accepted(exchange, delivery, b"", is_replayed=True)
            case KeyStanding.HELD if not exchange.is_replay:  # an operator has decided
                return self._held(exchange)
        return None

    async def _hand_off_failure(
        self, exchange: Exchange, withheld: WithheldFailure, refusal: Refusal | None
    ) -> Refusal | None:
        """Hand a request off that failed, if it may be: ``hand_off`` is set then.

        Returns a refusal that the client gets instead, if it is not known what is on disk.
        """
        attempts = exchange.attempts
        last = attempts[-1] if attempts else None
        names = field_names(exchange)
        failed = FailedRequest(
            request=exchange,
            attempts=attempts,
            result=None
            if last is None
            else AttemptResult(last.kind, last.status, last.sent, withheld.hint),
            refusal=None if refusal is None else refusal.reason,
            client_gone=exchange.client_is_gone,
            size=0,
            now=self._clock.monotonic(),
        )
        if exchange.fallback or self.rules.after_failure(failed, names) is not None:
            return None
        whole = b"" if exchange.body is None else await exchange.body.rest()
        size = None if whole is None else len(whole)
        if whole is None or self.rules.after_failure(replace(failed, size=size), names):
            return None
        plan = HandOffPlan(when=HandOffWhen.FAILED, result_lasts=self._settings.give_up_after)
        reservation = self._store.reserve(self._caller(exchange), len(whole))
        if isinstance(reservation, NoCapacity):
            exchange.route.recorder.count("holdfast_deliveries_refused_total", "queue_full")
            return None
        plan.reservation = reservation
        wait = wait_before_next(self._settings.backoff, 1, self._clock.roll())
        hint = usable_hint(self._settings, withheld.hint.wait) or 0.0
        try:
            new = self._new_delivery(exchange, plan, whole, delay=max(wait, hint))
            outcome = await self._accept(exchange, new, plan)
        finally:
            reservation.release()
        if isinstance(outcome, Accepted):
            exchange.hand_off = plan
            exchange.code = 0  # of the response that is withheld
            self._relay_accepted(exchange, outcome.delivery, b"", is_replayed=outcome.is_duplicate)
            return None
        return outcome if plan.is_forced else None

    # The delivery.

    def _new_delivery(
        self, exchange: Exchange, plan: HandOffPlan, body: bytes, *, delay: float = 0.0
    ) -> NewDelivery:
        """Return what is written to disk of a request."""
        delivery_id = new_delivery_id()
        names, attempts = field_names(exchange), exchange.attempts
        field = self.rules.added_key(exchange.method, names, attempts)
        headers = self._headers(exchange, plan)
        if field is not None:
            headers = (*headers, (display_name(field).encode(), delivery_id.encode()))
        key = exchange.owned_key
        fields = self._scope.read(exchange.raw_headers)
        letters = self._route.dead_letter
        terms = None
        if letters is not None:
            sent = credentials_sent(exchange.raw_headers, self._credentials)
            terms = LetterTerms(
                letters.ttl,
                self._settings.attempts or 0,
                self._sink.digest(sent) if sent else "",
                tuple(sorted(self._credentials)),
            )
        return NewDelivery(
            id=delivery_id,
            route=self._route.name,
            upstream=self._upstream.name,
            method=exchange.method,
            target=exchange.target,
            headers=headers,
            wiped=self._wiped,
            body=body,
            request_id=exchange.request_id,
            peer=exchange.peer,
            scheme=exchange.scheme,
            record="" if key is None else key.claim.name,
            fingerprint=b"" if key is None else key.claim.fingerprint,
            key_terms=None if key is None else self._key_terms,
            scope=scope_digest(fields.caller) if fields.caller else "",
            caller=self._caller(exchange),
            give_up_after=self._settings.give_up_after,
            delay=delay,
            has_key=field is not None,
            added_key="" if field is None else delivery_id,
            ttl=self._settings.ttl,
            letter=terms,
            runs=self._runs(exchange),
        )

    def _headers(self, exchange: Exchange, plan: HandOffPlan) -> RawHeaders:
        """Return the fields that are stored: without what ends here, and what was honoured."""
        raw, preference = exchange.raw_headers, plan.preference
        connection = [value for name, value in raw if name.lower() == b"connection"]
        never = NOT_KEPT | nominated(connection)
        kept, _ = headers_to_keep(raw, never, self.rules.fields_left_out())
        if preference is None:
            return kept
        edited = []
        for name, value in kept:
            left = value
            if name.lower() == b"prefer":
                left = without_honoured(value, preference)
                if not left:
                    continue
            edited.append((name, left))
        return tuple(edited)

    def _runs(self, exchange: Exchange) -> tuple[DeliveryRun, ...]:
        """Return what was sent while the client waited, as the first run of the delivery."""
        attempts, refused = exchange.attempts, self._upstream.refused
        if not attempts:
            return ()
        in_doubt = [attempt for attempt in attempts if not did_not_run(attempt, refused)]
        return (
            DeliveryRun(
                self._clock.wall(),
                "failed",
                attempt_records(attempts, self._clock),
                any(may_have_run(attempt, refused) for attempt in attempts),
                tuple(dict.fromkeys(attempt.url for attempt in in_doubt)),
            ),
        )

    # Keys.

    def _mismatch(self, exchange: Exchange) -> Refusal:
        self._count_key(exchange, KeyResult.MISMATCH)
        status = self._key_settings.mismatch_status
        return Refusal(RefusalReason.KEY_MISMATCH, _MISMATCH, other_status=status)

    def _held(self, exchange: Exchange) -> Refusal:
        self._count_key(exchange, KeyResult.HELD)
        return Refusal(RefusalReason.OUTCOME_UNKNOWN, _UNKNOWN, record=exchange.record)

    @staticmethod
    def _count_key(exchange: Exchange, key_result: KeyResult) -> None:
        exchange.key_result = key_result
        exchange.route.recorder.keyed(key_result)
