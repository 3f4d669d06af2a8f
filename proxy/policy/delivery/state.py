"""A delivery, and every change of its state: pure, and total.

::

                  ┌─ cancelled                     ┌─ delivered
    accepted ─► waiting ──take──► sending ─────────┼─ retrying ──due──► sending
                  ▲   │             │              └─ failed: a dead letter, if its route keeps them
       deferral ──┘   └ give up     └─ owner died: repeatable ─► retrying; else ─► failed, uncertain

Each function returns the delivery as it is afterwards, or a :class:`TransitionRefusal` that says
why the change is not allowed. Only a living owner may say that nothing was sent
(:func:`give_back`). Times are seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from proxy.http.fields import RawHeaders
from proxy.policy.delivery.words import DeferralReason, DeliveryEnd, DeliveryState
from proxy.policy.failure_category import FailureCategory

OPEN = frozenset({DeliveryState.WAITING, DeliveryState.SENDING, DeliveryState.RETRYING})
"""States of a delivery that has not ended."""
TAKEABLE = frozenset({DeliveryState.WAITING, DeliveryState.RETRYING})
"""States of a delivery that is sent when it is due."""


class TransitionRefusal(StrEnum):
    """Why a delivery does not change as it was asked to; the values are problem types."""

    UNKNOWN = "no_delivery"
    SENDING = "delivery_under_way"
    ENDED = "delivery_over"
    NOT_SENDING = "delivery_not_sending"
    """The owner is another one, or it has ended: whoever settles it is too late."""
    NOT_DUE = "delivery_not_due"
    REPLAYING = "letter_replaying"
    """Its dead letter is being replayed by an operator."""
    MAY_HAVE_RUN = "delivery_may_have_run"
    """It may have run and is not repeatable: only an operator may send it again, with force."""
    DUPLICATE = "delivery_open"
    """Another delivery with the same idempotency key is open."""
    CHANGED = "delivery_changed"
    """It changed since it was looked at: look again."""


@dataclass(frozen=True, slots=True)
class DeliveryRun:
    """One try, or what was sent before the request was handed off: a row that is never changed."""

    time: float
    result: str
    """``failed``, ``refused``, ``succeeded`` or ``uncertain``; ``retried``: nothing was sent, but a
    person had it begin anew."""
    attempts: tuple[Mapping[str, object], ...]
    """One record per attempt, as in the access log (:mod:`proxy.core.attempt_json`)."""
    may_have_run: bool = False
    urls: tuple[str, ...] = ()
    """URLs at which it may have run."""


@dataclass(frozen=True, slots=True)
class LetterTerms:
    """How a delivery is kept as a dead letter if it fails."""

    ttl: float
    allowed: int
    """Attempts that the route allows; 0: any number."""
    caller: str = ""
    """A digest of the credentials that the request was sent with."""
    credentials: tuple[str, ...] = ()
    """Names, in lower case, of the fields by which the route tells callers apart."""


@dataclass(frozen=True, slots=True)
class DeliveredResponse:
    """What is kept of the upstream's answer."""

    status: int
    headers: RawHeaders
    body: bytes | None
    """None: it was too large to be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A request that was handed off: its row, without body, runs and owner."""

    id: str
    route: str
    upstream: str
    method: str
    target: str
    headers: RawHeaders
    """End-to-end fields as received, the credentials among them until its end."""
    wiped: tuple[str, ...] = ()
    """Names of the fields that are wiped at its end, in lower case."""
    size: int
    """Bytes of the body."""
    request_id: str
    peer: str = ""
    scheme: str = "http"
    record: str = ""
    """The name of the record of its idempotency key; empty without one."""
    fingerprint: bytes = b""
    scope: str = ""
    """Digest of the scope that the request had: who may ask for the response."""
    caller: str
    """Whose share of the room it takes (:mod:`proxy.policy.fair_share`)."""
    accepted: float
    gives_up: float
    give_up_after: float
    """Seconds from its acceptance, or from a person's retry, until it gives up."""
    due: float
    """When it is sent next, while it waits or is retried."""
    state: DeliveryState = DeliveryState.WAITING
    attempts: int = 0
    """Tries that count against the route's ``attempts``."""
    tries: int = 0
    """All tries, those of a closed line among them."""
    last_try: float = 0.0
    """When the last try began; 0: there was none."""
    may_have_run: bool = False
    ran_at: tuple[str, ...] = ()
    """URLs at which it may have run."""
    sending_to: tuple[str, ...] = ()
    """URLs of which one may be getting it now, while it is sending."""
    has_key: bool = False
    """Whether every attempt carried a key that the upstream honours."""
    added_key: str = ""
    """The key that was added before the first attempt; empty: none was."""
    reason: str = ""
    """Why it stands as it does: a verdict's reason, or a :class:`DeliveryEnd`."""
    error: str = ""
    """How the last try failed: a failure kind or a status."""
    deferred: DeferralReason | None = None
    ttl: float
    """Seconds for which it can be asked for after its end."""
    letter: LetterTerms | None = None
    """How it is kept if it fails; None: only as an ended delivery."""
    response_status: int = 0
    """Status of the upstream's answer that is kept; 0: none."""
    ended: float = 0.0
    expires: float = 0.0
    """When it is forgotten, after its end."""
    version: int = 0
    """Counts its changes."""

    @property
    def is_open(self) -> bool:
        return self.state in OPEN


@dataclass(frozen=True, slots=True)
class Delivered:
    """The upstream has done the delivery."""

    response: DeliveredResponse | None
    """None: nothing of it is kept."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """The delivery is tried again."""

    delay: float
    """Seconds until then."""
    reason: str
    error: str = ""
    counts: bool = True
    """Whether the try counts: not while the upstream's line is closed."""
    deferred: DeferralReason | None = None


@dataclass(frozen=True, slots=True)
class FailedForGood:
    """The delivery has failed for good."""

    reason: str
    error: str = ""
    category: FailureCategory = FailureCategory.TRANSIENT
    counts: bool = True
    response: DeliveredResponse | None = None
    """The upstream's answer, if that was the end; None: nothing of it is kept."""


Settlement = Delivered | RetryLater | FailedForGood
"""How a try ends that may have been sent."""

Outcome = Delivery | TransitionRefusal


def take(
    delivery: Delivery, now: float, urls: tuple[str, ...] = (), *, early: bool = False
) -> Outcome:
    """Begin a try that may go to one of *urls*; *early*: though it is not due."""
    refusal = _refusal_unless_takeable(delivery)
    if refusal is not None:
        return refusal
    if not early and delivery.due > now:
        return TransitionRefusal.NOT_DUE
    return replace(
        delivery,
        state=DeliveryState.SENDING,
        sending_to=urls,
        last_try=now,
        deferred=None,
        version=delivery.version + 1,
    )


def give_back(
    delivery: Delivery, now: float, delay: float = 0.0, deferred: DeferralReason | None = None
) -> Outcome:
    """End a try of which nothing was sent: it costs nothing, and is due in *delay* seconds."""
    if delivery.state is not DeliveryState.SENDING:
        return TransitionRefusal.NOT_SENDING
    return replace(
        delivery,
        state=_pending_state(delivery),
        sending_to=(),
        due=now + delay,
        deferred=deferred,
        version=delivery.version + 1,
    )


def settle(
    delivery: Delivery, settlement: Settlement, run: DeliveryRun | None, now: float
) -> Outcome:
    """End a try; *run* is its record. What may have run before stays so."""
    if delivery.state is not DeliveryState.SENDING:
        return TransitionRefusal.NOT_SENDING
    ran = run is not None and run.may_have_run
    tried: dict[str, object] = {
        "sending_to": (),
        "tries": delivery.tries + 1,
        "may_have_run": delivery.may_have_run or ran,
        "ran_at": _union(delivery.ran_at, () if run is None else run.urls),
        "version": delivery.version + 1,
    }
    match settlement:
        case Delivered(response):
            tried |= _end(delivery, DeliveryState.DELIVERED, now)
            tried["attempts"] = delivery.attempts + 1
            tried["reason"] = tried["error"] = ""
            tried["response_status"] = 0 if response is None else response.status
        case RetryLater(delay, reason, error, counts, deferred):
            tried |= {
                "state": DeliveryState.RETRYING,
                "attempts": delivery.attempts + counts,
                "due": now + delay,
                "reason": reason,
                "error": error,
                "deferred": deferred,
            }
        case FailedForGood(reason, error, _, counts, response):
            tried |= _end(delivery, DeliveryState.FAILED, now)
            tried |= {"attempts": delivery.attempts + counts, "reason": reason, "error": error}
            tried["response_status"] = 0 if response is None else response.status
    return replace(delivery, **tried)  # type: ignore[arg-type]  # its own fields, put together above


def cancel(delivery: Delivery, now: float) -> Outcome:
    """End a delivery that is not being sent, for an operator."""
    refusal = _refusal_unless_takeable(delivery)
    if refusal is not None:
        return refusal
    return replace(
        _ended(delivery, DeliveryState.CANCELLED, now),
        reason=DeliveryEnd.CANCELLED.value,
        version=delivery.version + 1,
    )


def give_up(delivery: Delivery, now: float) -> Outcome:
    """End a delivery whose time is over."""
    refusal = _refusal_unless_takeable(delivery)
    if refusal is not None:
        return refusal
    if delivery.gives_up > now:
        return TransitionRefusal.NOT_DUE
    return replace(
        _ended(delivery, DeliveryState.FAILED, now),
        reason=DeliveryEnd.GAVE_UP.value,
        version=delivery.version + 1,
    )


def retry(delivery: Delivery, now: float, *, repeatable: bool, force: bool) -> Outcome:
    """Send it again because a person asks: at once, or anew if it had failed.

    What may have run and is not *repeatable* needs *force*.
    """
    if delivery.state is DeliveryState.SENDING:
        return TransitionRefusal.SENDING
    if delivery.state in TAKEABLE:
        return replace(delivery, due=now, deferred=None, version=delivery.version + 1)
    if delivery.state is not DeliveryState.FAILED:
        return TransitionRefusal.ENDED
    if delivery.may_have_run and not repeatable and not force:
        return TransitionRefusal.MAY_HAVE_RUN
    return replace(
        delivery,
        state=_pending_state(delivery),
        attempts=0,
        due=now,
        gives_up=now + delivery.give_up_after,
        deferred=None,
        reason="",
        response_status=0,
        ended=0.0,
        expires=0.0,
        version=delivery.version + 1,
    )


def owner_died(delivery: Delivery, now: float, delay: float, *, repeatable: bool) -> Outcome:
    """Decide about a try whose owner died: it may have been sent, whatever was under way.

    If it is *repeatable* it is due in *delay* seconds; else it has failed, and nobody knows more.
    """
    if delivery.state is not DeliveryState.SENDING:
        return TransitionRefusal.NOT_SENDING
    died = replace(
        delivery,
        sending_to=(),
        attempts=delivery.attempts + 1,
        tries=delivery.tries + 1,
        may_have_run=True,
        ran_at=_union(delivery.ran_at, delivery.sending_to),
        reason=DeliveryEnd.UNCERTAIN.value,
        version=delivery.version + 1,
    )
    if repeatable:
        return replace(died, state=DeliveryState.RETRYING, due=now + delay)
    return _ended(died, DeliveryState.FAILED, now)


def _refusal_unless_takeable(delivery: Delivery) -> TransitionRefusal | None:
    if delivery.state in TAKEABLE:
        return None
    is_sending = delivery.state is DeliveryState.SENDING
    return TransitionRefusal.SENDING if is_sending else TransitionRefusal.ENDED


def _pending_state(delivery: Delivery) -> DeliveryState:
    return DeliveryState.RETRYING if delivery.tries else DeliveryState.WAITING


def _end(delivery: Delivery, state: DeliveryState, now: float) -> dict[str, object]:
    """Return what is different at the end: the credentials are wiped, and nothing is deferred."""
    headers = delivery.headers
    if delivery.wiped:
        headers = tuple(
            field for field in headers if field[0].lower().decode("latin-1") not in delivery.wiped
        )
    is_failed, letter = state is DeliveryState.FAILED, delivery.letter
    ttl = delivery.ttl if letter is None or not is_failed else letter.ttl
    return {
        "state": state,
        "headers": headers,
        "deferred": None,
        "ended": now,
        "expires": now + ttl,
    }


def _ended(delivery: Delivery, state: DeliveryState, now: float) -> Delivery:
    return replace(delivery, **_end(delivery, state, now))  # type: ignore[arg-type]  # as in settle()


def _union(known: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return (*known, *(url for url in dict.fromkeys(more) if url not in known))
