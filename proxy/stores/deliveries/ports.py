"""The protocol of the engine that keeps deliveries.

Every awaited method is one atomic step, and is on disk when it returns. All raise
:class:`proxy.stores.StoreError` within the time that the store is given (5 s). Times go in as
durations: the store has the clock, so that a wall clock that is set changes no wait.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from proxy.http.fields import RawHeaders
from proxy.policy.delivery.capacity import CapacityCause
from proxy.policy.delivery.counts import RouteDeliveries
from proxy.policy.delivery.key_rules import KeyTerms
from proxy.policy.delivery.state import (
    DeliveredResponse,
    Delivery,
    DeliveryRun,
    LetterTerms,
    Settlement,
    TransitionRefusal,
)
from proxy.policy.delivery.words import DeferralReason, DeliveryState
from proxy.stores.ports import StoreError


class AcceptUncertain(StoreError):
    """Whether the delivery was accepted is not known: it must not be served in another way.

    The client gets 503, and may send it again with the same key: what is stored is found by that.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelivery:
    """A request to be handed off; the fields are those of :class:`Delivery`."""

    id: str
    route: str
    upstream: str
    method: str
    target: str
    headers: RawHeaders
    wiped: frozenset[str] = frozenset()
    """Names of the fields that are wiped at the end, in lower case: credentials, and what the
    route's dead letters drop."""
    body: bytes
    request_id: str
    peer: str = ""
    scheme: str = "http"
    record: str = ""
    fingerprint: bytes = b""
    key_terms: KeyTerms | None = None
    """How an ended delivery with the same key is judged; None: only open ones matter."""
    scope: str = ""
    caller: str
    give_up_after: float
    delay: float = 0.0
    """Seconds until it is due."""
    has_key: bool = False
    added_key: str = ""
    ttl: float
    letter: LetterTerms | None
    runs: tuple[DeliveryRun, ...] = ()
    """What was sent before it was handed off; where it may have run follows from them."""


@dataclass(frozen=True, slots=True)
class NoCapacity:
    """There is no room for the delivery."""

    cause: CapacityCause


class CapacityReservation(Protocol):
    """Room that is kept for a request while its body is read."""

    def grow(self, size: int) -> NoCapacity | None:
        """Reserve *size* bytes more, as a body of unknown length comes; None: that is done."""

    def release(self) -> None:
        """Give the room back, if the request was not accepted; may be called more than once."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The delivery is on disk."""

    delivery: Delivery
    is_duplicate: bool = False
    """Whether it is the first one's, with the same key; nothing was stored."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A delivery has the same key, and another fingerprint."""

    delivery_id: str


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A delivery with the same key has failed, and may have run: the key is held."""

    delivery_id: str


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivery to be sent by this process: it is ``sending`` on disk."""

    delivery: Delivery
    body: bytes


@dataclass(frozen=True, slots=True)
class TakenBatch:
    """What was due on a route."""

    taken: tuple[Taken, ...]
    next_due: float | None
    """Seconds until the next one of the route is due (0 or less: now); None: none waits."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """What becomes of a delivery whose owner died while it was sending."""

    repeatable: bool
    delay: float = 0.0
    """Seconds until it is tried again, if it is repeatable."""


@dataclass(frozen=True, slots=True)
class ShownDelivery:
    """All of a delivery but its body."""

    delivery: Delivery
    """Without credentials."""
    runs: tuple[DeliveryRun, ...]
    response: DeliveredResponse | None


class Gone(StrEnum):
    """Why there is no delivery with an id."""

    UNKNOWN = "unknown"
    EXPIRED = "expired"
    """There was one, and its time is over, or an operator dropped it."""


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Some deliveries of a list."""

    deliveries: tuple[Delivery, ...]
    """Without header fields."""
    next: str
    """For the next page; empty: this is the last one."""


class DeliverySink(Protocol):
    """Accepts deliveries: all that a request needs of the store."""

    @property
    def state(self) -> str:
        """``up`` or ``down``."""

    def reserve(self, caller: str, size: int) -> CapacityReservation | NoCapacity:
        """Reserve room for one delivery of *size* bytes, before its body is read; at once."""

    async def accept(
        self, new: NewDelivery, reservation: CapacityReservation | None = None
    ) -> Accepted | Mismatch | HeldKey | NoCapacity:
        """Store a delivery: on disk when this returns. The *reservation* is released.

        A key that an open delivery has is a duplicate, and so is that of a delivered one as long as
        the key counts. Raises :class:`AcceptUncertain` if it is not known what was stored; after
        any other StoreError nothing was.
        """

    async def find_record(self, record: str) -> Delivery | None:
        """Return the delivery of an idempotency key's record, the open one or the newest."""

    async def wait_for_end(self, delivery_id: str, seconds: float) -> ShownDelivery | None:
        """Return the delivery once it has ended or failed once; None: not within *seconds*.

        It does so, too, when the delivery is to be retried: whoever waits need not go on.
        """

    async def withdraw_letter(self, delivery_id: str) -> None:
        """Keep a delivery that failed as an ended one only: its client has the answer."""


class DeliveryStore(DeliverySink, Protocol):
    """Keeps deliveries until their end, and for a while after it."""

    @property
    def is_open(self) -> bool:
        """Whether the store was started: not where no route hands off."""

    @property
    def counts(self) -> Mapping[str, RouteDeliveries]:
        """By route, as of a moment ago."""

    @property
    def fill(self) -> float:
        """What is used of the room, from 0 to 1: of entries or bytes, whichever is more."""

    async def start(self) -> None:
        """Open the store. Raises StoreError, with a suggestion in its text, if it cannot."""

    async def close(self) -> None:
        """Finish what was asked for, give up the lock, and leave nothing behind."""

    def resize(self, entries: int, size: int) -> None:
        """Change the room, at a reload; what is there stays, though it be more."""

    # To deliver.

    @property
    def delivers(self) -> bool:
        """Whether this process holds the lock: one process of a machine delivers."""

    async def lead(self) -> None:
        """Wait until this process holds the lock; within 1 s if the other one dies."""

    async def wait_for_work(self, seconds: float) -> bool:
        """Wait for a delivery that became due by a person or by acceptance, here or elsewhere.

        False: so many *seconds* passed. May return without cause.
        """

    async def recover(
        self, decide: Callable[[Delivery], Abandoned], limit: int = 200
    ) -> Sequence[Delivery]:
        """End the tries of dead owners, as *decide* says; return up to *limit* as they are then.

        An empty answer: there are no more. Only what is ``sending`` by an owner that does not live
        is touched.
        """

    async def take(self, route: str, limit: int, urls: Sequence[str] = ()) -> TakenBatch:
        """Take up to *limit* deliveries that are due, the longest due first.

        *urls*: where they may be sent to. If the caller is cancelled they are given back.
        """

    async def take_one(self, delivery_id: str, urls: Sequence[str] = ()) -> Taken | None:
        """Take one that is open, due or not: a canary. None: it cannot be taken."""

    async def candidates(
        self, route: str, *, not_tried_for: float, after: str = "", limit: int = 50
    ) -> DeliveryPage:
        """Return the oldest that are open, not sending, and not tried for so many seconds.

        They have their header fields, less those that are wiped at the end.
        """

    async def give_back(
        self, taken: Delivery, *, delay: float = 0.0, deferred: DeferralReason | None = None
    ) -> Delivery | TransitionRefusal:
        """End a try of which nothing was sent: no attempt is counted."""

    async def settle(
        self, taken: Delivery, settlement: Settlement, run: DeliveryRun | None
    ) -> Delivery | TransitionRefusal:
        """End a try. ``failed`` is the dead letter: the same row, in the same transaction."""

    async def forgive(self, delivery_ids: Sequence[str]) -> None:
        """Give deliveries that are to be retried an attempt back, once for each time named."""

    async def defer(self, route: str, reason: DeferralReason | None, seconds: float = 0.0) -> None:
        """Note why what is due on a route is not sent, for so long at most; None: it is again."""

    async def give_up(self, limit: int = 200) -> Sequence[Delivery]:
        """Fail those whose time is over; return up to *limit* of them. Empty: no more."""

    async def expire(self) -> Mapping[str, int]:
        """Forget some ended ones whose time is over; return those that had failed, by route."""

    # To see and to touch.

    async def find(self, delivery_id: str) -> ShownDelivery | Gone:
        """Return all of a delivery but its body."""

    async def page(
        self,
        *,
        route: str | None = None,
        state: DeliveryState | None = None,
        reason: str | None = None,
        after: str = "",
        limit: int = 100,
        newest: bool = False,
    ) -> DeliveryPage:
        """Return some deliveries, in the order of their acceptance."""

    async def cancel(self, delivery_id: str) -> Delivery | TransitionRefusal:
        """End a delivery that is not being sent."""

    async def retry(
        self, seen: Delivery, *, repeatable: bool, force: bool = False
    ) -> Delivery | TransitionRefusal:
        """Make a delivery due now, or start a failed one anew under its key.

        *seen* is what *repeatable* was decided by: if it has changed, this is refused.
        """
