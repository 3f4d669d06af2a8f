"""Admission to hand-off: decided from the head of a request, before its body is read.

::

    method, credentials, size ──no──► served as ever; with ``always``: refused
              │
           room? ───────────────no──► served as ever; with ``always``: 503, unless its key is known
              │
              ▼
    reserved, until the delivery is on disk or the request has ended otherwise

The stage stands outside idempotency: the owner of a key says in its claim whether anything may have
been sent without a delivery on disk (:attr:`proxy.core.ports.HandOffTicket.comes_first`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from proxy.core.exchange import Exchange
from proxy.core.route import Handler
from proxy.http.framing import CHUNKED
from proxy.http.prefer import AsyncPreference, read_prefer
from proxy.http.refusal import Refusal, RefusalReason
from proxy.pipeline.hand_off.answers import NOT_DURABLE, queue_full, too_large
from proxy.policy.caller_fields import display_name
from proxy.policy.delivery.acceptance import Acceptance, HandOffRules, NotHandedOff
from proxy.policy.settings import HandOffWhen
from proxy.stores.deliveries.ports import CapacityReservation, DeliverySink, NoCapacity

FIRST_PIECE = 64 * 1024
"""Bytes that are reserved for a body whose length is not known."""
FULL_FOR = 5
"""Seconds after which a client may try again when there is no room."""


@dataclass(slots=True, eq=False, kw_only=True)
class HandOffPlan:
    """How one request is handed off (core.ports.HandOffTicket)."""

    when: HandOffWhen
    is_forced: bool = False
    """Whether it is refused if it cannot be handed off."""
    preference: AsyncPreference | None = None
    """What the client asked for; None: it did not."""
    result_lasts: float = 0.0
    comes_first: bool = False
    no_capacity: NoCapacity | None = None
    """Why nothing is reserved: only a duplicate can be answered."""
    reservation: CapacityReservation | None = None
    reserved: int = 0
    """Bytes that are reserved."""
    delivery_id: str = field(default="", init=False)


class HandOffAdmission:
    """The outer stage of hand-off: decides, and reserves room before a body is read."""

    def __init__(
        self,
        rules: HandOffRules,
        inner: Handler,
        store: DeliverySink,
        *,
        caller: Callable[[Exchange], str],
        has_known_key: Callable[[Exchange], Awaitable[bool]] | None,
        buffer: int,
    ) -> None:
        """*inner* is the next stage, *caller* says whose share of the room a request takes.

        *has_known_key* says whether a request is a duplicate, as far as can be told without its
        body; None on a route without keys. *buffer*: bytes of a body that can be kept at all.
        """
        self._rules = rules
        self._inner = inner
        self._store = store
        self._caller = caller
        self._has_known_key = has_known_key
        self._buffer = buffer

    def handle(self, exchange: Exchange) -> Awaitable[Refusal | None]:
        """Pass on what is not handed off before it is sent; admit the others."""
        # A replay is sent for an operator, who waits for it.
        if (
            exchange.method not in self._rules.settings.methods
            or exchange.upgrade
            or exchange.is_replay
        ):
            return self._inner(exchange)
        headers = exchange.raw_headers
        preference = read_prefer(value for name, value in headers if name.lower() == b"prefer")
        length = exchange.head.length
        acceptance = self._rules.accept(
            exchange.method,
            field_names(exchange),
            None if length == CHUNKED else length,
            is_asked=preference is not None,
        )
        if length != CHUNKED and length > self._buffer and acceptance.when is not None:
            acceptance = Acceptance(None, NotHandedOff.TOO_LARGE, acceptance.is_forced)
        if acceptance.when is None and not acceptance.is_forced:
            return self._inner(exchange)
        return self._admit(exchange, acceptance, preference)

    async def _admit(
        self, exchange: Exchange, acceptance: Acceptance, preference: AsyncPreference | None
    ) -> Refusal | None:
        recorder = exchange.route.recorder
        if acceptance.when is None:
            reason = acceptance.obstacle or NotHandedOff.METHOD
            recorder.count("holdfast_deliveries_refused_total", reason)
            return _not_accepted(acceptance)
        is_forced = acceptance.is_forced
        if self._store.state != "up":
            recorder.count("holdfast_deliveries_refused_total", "not_durable")
            return NOT_DURABLE if is_forced else await self._inner(exchange)
        length = exchange.head.length
        size = FIRST_PIECE if length == CHUNKED else length
        reservation = self._store.reserve(self._caller(exchange), size)
        plan = HandOffPlan(
            when=acceptance.when,
            is_forced=is_forced,
            preference=preference,
            result_lasts=self._rules.settings.give_up_after,
            # A body that turns out to be too large is sent at once, after all.
            comes_first=length != CHUNKED or is_forced,
        )
        if isinstance(reservation, NoCapacity):
            is_duplicate = self._has_known_key is not None and await self._has_known_key(exchange)
            if not is_duplicate:
                recorder.count("holdfast_deliveries_refused_total", "queue_full")
                if is_forced:
                    return queue_full(reservation, FULL_FOR)
                return await self._inner(exchange)
            plan.no_capacity = reservation
        else:
            plan.reservation, plan.reserved = reservation, size
        exchange.hand_off = plan
        try:
            return await self._inner(exchange)
        finally:
            if plan.reservation is not None:
                plan.reservation.release()


def field_names(exchange: Exchange) -> frozenset[str]:
    """Return the names of the request's header fields, in lower case."""
    return frozenset(name.lower().decode("latin-1") for name, _ in exchange.raw_headers)


def _not_accepted(acceptance: Acceptance) -> Refusal:
    """Refuse a request that is only served by handing it off, and cannot be."""
    if acceptance.obstacle is NotHandedOff.TOO_LARGE:
        return too_large(is_read=False)
    names = " and ".join(map(display_name, acceptance.fields))
    return Refusal(
        RefusalReason.BAD_REQUEST,
        f"This route does not store credentials: send the request without {names}, or "
        "let the route set them (headers.request.set), or write hand_off: {credentials: store}.",
    )
