"""Where the limits of a throttle are kept, and what is known of idempotency keys.

``memory/`` keeps both in this process, which is all that a single instance needs.
``sqlite/`` keeps keys in a file, so that they outlive the process; limits stay in
memory. ``redis/`` keeps both in a Redis or Valkey server, so that they hold for all
instances together. The last two are imported only where the configuration names them.
``letters/`` keeps dead letters, always in a file.

*Permits* are asked from within a request's own turn of the loop, so their users never
wait for a store: ``take`` answers at once, and a listener hears of permits that came
later. *Claims* are waited for: who does not know whether a request has run before must
not send it.
"""

from collections.abc import Callable
from typing import Protocol

from proxy.policy.permits import Permits, PermitsListener
from proxy.policy.records import Claim, Claimed, Ending, Shown
from proxy.policy.settings import ThrottleSettings


class StoreError(Exception):
    """The store did not do what it was asked for, or nobody knows whether it did.

    The text says why, and holds no secret.
    """


class PermitStore(Protocol):
    """Has the permits of every bucket."""

    def permits(
        self, bucket: str, settings: ThrottleSettings, listener: PermitsListener
    ) -> Permits:
        """The permits of *bucket*, such as ``route:charges``: one object at a time for each.

        Whoever let go of it may ask for it again; while it is not idle, something would
        be lost.
        """


class ClaimsAtOnce(Protocol):
    """A store that keeps nobody waiting: see :class:`Claims`."""

    def claim_at_once(self, ask: Claim) -> Claimed:
        """Get a key, or hear why not."""

    def settle_at_once(self, name: str, owner: str, ending: Ending) -> bool:
        """End what *owner* has begun; False if the key is not its own any more."""


class Claims(Protocol):
    """Has the record of every idempotency key; each method is one step for everybody.

    The rules are those of :mod:`proxy.policy.records`. All of them raise
    :class:`StoreError`, within the time that the store is given.
    """

    @property
    def at_once(self) -> ClaimsAtOnce | None:
        """The same without waiting, where that is possible."""

    async def claim(self, ask: Claim) -> Claimed:
        """Get a key, or hear why not.

        Whoever does not hear the answer, in time or because it was cancelled, has not got it.
        """

    async def settle(self, name: str, owner: str, ending: Ending) -> bool:
        """End what *owner* has begun; False if the key is not its own any more."""

    async def renew(self, name: str, owner: str, lease: float) -> bool:
        """*owner* is still alive; False if the key is not its own any more."""

    def watch(self, name: str, awake: Callable[[], None]) -> Callable[[], None]:
        """Call *awake*, maybe more than once, when a key that was busy may be so no longer.

        Until the function that is returned is called. Only another process's doing needs
        to be noticed.
        """

    async def show(self, name: str) -> Shown | None:
        """What is known of a key; None if nothing is."""

    async def drop(self, name: str) -> bool:
        """Forget a key; False if there is none, or somebody alive has it."""
