"""Where the limits of a throttle are kept.

``memory.py`` keeps them in this process, which is all that a single instance needs.
``redis/`` keeps them in a Redis or Valkey server, so that one limit holds for all
instances together. It is imported only where the configuration names such a server.

Both hand out :class:`~proxy.policy.permits.Permits`, one for each bucket. Whoever uses
them never waits for a store: ``take`` answers at once, and a listener hears of permits
that came later.
"""

from typing import Protocol

from proxy.policy.permits import Permits, PermitsListener
from proxy.policy.settings import ThrottleSettings


class PermitStore(Protocol):
    """Has the permits of every bucket."""

    def permits(
        self, bucket: str, settings: ThrottleSettings, listener: PermitsListener
    ) -> Permits:
        """The permits of *bucket*, such as ``route:charges``: one object at a time for each.

        Whoever let go of it may ask for it again; while it is not idle, something would
        be lost.
        """
