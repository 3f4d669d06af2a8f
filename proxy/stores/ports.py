"""What a store is asked for: limits, and what is known of idempotency keys.

*Permits* are asked for within a request's own turn of the event loop, so their users never
wait for a store: ``take`` answers at once, and a listener is told of permits that came later.
*Claims* are waited for: a request of which it is not known whether it has run before must not
be sent.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from proxy.policy.idempotency.record import Claim, Claimed, Ending, KnownKeys, Shown
from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.limiter import Limiter, LimiterListener

LARGE = 4096
"""Bytes of a result beyond which it goes its own way: nothing that is urgent waits behind it."""

PATIENCE = 5.0
"""Seconds that a large result may take to be kept or fetched; all else has the ``timeout``."""


MOST_OPEN = 50_000
"""Keys in flight or held that one caller may have at the same time, where instances share them."""


def caller_share_name(caller: str, key: bytes = b"") -> str:
    """What a caller's room is called in a store that others may read: no address, no credential.

    With a *key* that only instances have, nobody else can find out either by trying.
    """
    return blake2b(caller.encode(), digest_size=8, key=key, person=b"holdfast room").hexdigest()


class StoreError(Exception):
    """The store did not do what it was asked for, or nobody knows whether it did.

    The text says why, and holds no secret.
    """


class StoreRefusal(StoreError):
    """The store answers, but has no room for what it was to keep. A smaller thing may fit."""


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
    """Has the permits of every bucket."""

    @property
    def digest_key(self) -> bytes:
        """What the digests of callers' values are keyed with: the same wherever buckets are."""

    def permits(
        self, bucket: str, settings: ThrottleSettings, listener: LimiterListener
    ) -> Limiter:
        """The permits of *bucket*, such as ``route:charges``: one object at a time for each.

        Whoever let go of it may ask for it again; while it is not idle, something would
        be lost.
        """


class ImmediateIdempotencyStore(Protocol):
    """A store that keeps nobody waiting: see :class:`IdempotencyStore`."""

    def claim_at_once(self, ask: Claim) -> Claimed:
        """Get a key, or hear why not."""

    def settle_at_once(self, name: str, owner: str, ending: Ending) -> bool:
        """End what *owner* has begun; False if the key is not its own any more."""

    def known(self) -> KnownKeys:
        """How much is remembered, and how far back."""


class IdempotencyStore(Protocol):
    """Has the record of every idempotency key; each method is one step for everybody.

    The rules are those of :mod:`proxy.policy.idempotency.record`. All of them raise
    :class:`StoreError`, within the time that the store is given.
    """

    @property
    def at_once(self) -> ImmediateIdempotencyStore | None:
        """The same without waiting, where that is possible."""

    async def claim(self, ask: Claim) -> Claimed:
        """Get a key, or hear why not.

        A large result is not told with it: :meth:`fetch` has it. Whoever does not hear the
        answer, in time or because it was cancelled, has not got it.
        """

    async def fetch(self, name: str, owner: str = "") -> bytes | None:
        """The result of a key that is done; with *owner*, what that one left behind.

        None if it is gone. A large one may take longer than a claim, and delays none.
        """

    async def settle(self, name: str, owner: str, ending: Ending) -> bool:
        """End what *owner* has begun; False if the key is not its own any more."""

    async def renew(self, name: str, owner: str, lease: float, ttl: float) -> bool:
        """*owner* is still alive; False if the key is not its own any more.

        From now on it has the key for *lease* seconds, and is known for *ttl* seconds more.
        """

    def watch(self, name: str, awake: Callable[[], None]) -> Callable[[], None]:
        """Call *awake*, maybe more than once, when a key that was busy may be so no longer.

        Until the function that is returned is called. Only another process's doing needs
        to be noticed.
        """

    async def show(self, name: str) -> Shown | None:
        """What is known of a key; None if nothing is."""

    async def drop(self, name: str) -> bool:
        """Forget a key; False if there is none, or somebody alive has it."""

    async def revoke(self, name: str) -> bool:
        """Take a key from the owner that has it, so that it is held; False if none alive has."""
