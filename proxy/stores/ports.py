"""The protocols of a store: rate limits, and the records of idempotency keys.

A limiter answers within the request's own step of the event loop, so its users never
wait for a store: ``take`` returns at once, and a listener is told of what is allowed later.
Claims of idempotency keys are awaited: a request of which it is not known whether it has run
before must not be sent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from proxy.core.recorders import StoreRecorder
from proxy.policy.idempotency.record import (
    Claim,
    Claimed,
    Ending,
    KeyFilter,
    KeyPage,
    KnownKeys,
    Shown,
)
from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.limiter import LimiterListener, Limiters

LARGE = 4096
"""Bytes of a result beyond which it is sent apart from commands: nothing that is urgent waits
behind it."""

PATIENCE = 5.0
"""Seconds that a large result may take to be kept or fetched; all else has the ``timeout``."""


MOST_OPEN = 50_000
"""Keys in flight or held that one caller may have at the same time, where instances share them."""


def caller_share_name(caller: str, key: bytes = b"") -> str:
    """Return the name of a caller's share in a store that others may read: a digest.

    Neither an address nor a credential can be read from it. With a *key* that only instances have,
    no one else can find out either by trying.
    """
    return blake2b(caller.encode(), digest_size=8, key=key, person=b"holdfast room").hexdigest()


class StoreError(Exception):
    """The store did not do what it was asked for, or it is not known whether it did.

    The text gives the reason, and has no secret in it.
    """


class StoreRefusal(StoreError):
    """The store answers, but has no space for what it was to keep. A smaller value may fit."""


class SharedStore(Protocol):
    """A store outside this process: it is started, closed, and up or down."""

    @property
    def state(self) -> str:
        """``up`` or ``down``."""

    async def start(self) -> None:
        """Open the store. Raises :class:`StoreError` if the process cannot do without it."""

    async def close(self) -> None:
        """Close the store, and leave no connection, task or thread behind."""


class LimiterStore(Protocol):
    """Has the limiters of every bucket."""

    @property
    def digest_key(self) -> bytes:
        """The key of the digests of callers' values: the same wherever the buckets are."""

    def open_bucket(
        self, bucket: str, settings: ThrottleSettings, listener: LimiterListener
    ) -> Limiters:
        """Return the limiters of *bucket*, such as ``route:charges``: used by one queue at a time.

        A caller that dropped them may ask for them again; if they were not idle when they were
        dropped, their usage may be lost.
        """


class ImmediateIdempotencyStore(Protocol):
    """A store that answers without waiting: see :class:`IdempotencyStore`."""

    def claim_at_once(self, ask: Claim) -> Claimed:
        """Claim a key; the answer tells who has it otherwise."""

    def settle_at_once(self, name: str, owner: str, ending: Ending) -> bool:
        """Finish what *owner* has begun; False if the key is not its own any more."""

    def known(self) -> KnownKeys:
        """Return how many keys are remembered, and how far back."""


class IdempotencyStore(Protocol):
    """Has the record of every idempotency key; each method is one atomic step.

    The rules are those of :mod:`proxy.policy.idempotency.record`. All methods raise
    :class:`StoreError`, within the time that the store is given.
    """

    @property
    def at_once(self) -> ImmediateIdempotencyStore | None:
        """Return the operations that do not wait; None if the store has none."""

    async def claim(self, ask: Claim) -> Claimed:
        """Claim a key; the answer tells who has it otherwise.

        A large result does not come with the answer: :meth:`fetch` has it. A request that does not
        get the answer, because it is late or the request was cancelled, does not own the key.
        """

    async def fetch(self, name: str, owner: str = "") -> bytes | None:
        """Return the result of a key that is done; with *owner*, what that owner left behind.

        None if it is gone. A large one may take longer than a claim, and delays none.
        """

    async def settle(self, name: str, owner: str, ending: Ending) -> bool:
        """Finish what *owner* has begun; False if the key is not its own any more."""

    async def renew(self, name: str, owner: str, lease: float, ttl: float) -> bool:
        """Renew the lease of *owner*, which is alive; False if the key is not its own any more.

        From now on it has the key for *lease* seconds, and is known for *ttl* seconds more.
        """

    def watch(self, name: str, awake: Callable[[], None]) -> Callable[[], None]:
        """Call *awake*, maybe more than once, when a key that was busy may be so no longer.

        This lasts until the returned function is called. Only changes by another process need to be
        noticed.
        """

    async def show(self, name: str) -> Shown | None:
        """Return a key's record for an operator; None if there is none."""

    async def page(self, wanted: KeyFilter, after: str) -> KeyPage | None:
        """Return records for an operator, from *after*, which is empty or of the page before.

        None if *after* is of no page of this store. Looks at a bounded number of records, delays
        no request, and orders nothing: what changes meanwhile may be missing, or there twice.
        """

    async def drop(self, name: str) -> bool:
        """Forget a key; False if there is none, or its owner is alive."""

    async def revoke(self, name: str) -> bool:
        """Take a key from its owner, so that it is held; False if no owner that is alive has it."""


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """Where limits and idempotency keys are kept, and what of it other processes share."""

    limiters: LimiterStore
    keys: IdempotencyStore
    shared: SharedStore | None = None
    """The store that has to be started and closed; None if all is in this process's memory."""
    recorder: StoreRecorder | None = None
    """Where the operations of the shared store are counted; None without one."""
    on_first_key_route: Callable[[], None] | None = None
    """Called when a reload first configures idempotency; None if the store needs no call."""
