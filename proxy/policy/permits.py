"""What lets the calls of one bucket out: its rates, and its places.

A *permit* lets one call out. Rates decide when there is another one. A *place* is
taken by a call that is under way; ``concurrency`` decides how many there are.

A bucket (``bucket.py``) decides who is next; whether there is a permit for the next
one it asks here. Nothing in here waits, and nobody's turn is remembered: a permit is
spent in the moment in which its call is sent, so that no rate is ever exceeded, and
what is not sent costs nothing.

Between the moment in which it is one's turn and the moment of sending a permit may be
*held*: while a connection is being made, say. The bucket counts those; here they are
only an argument.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from proxy.policy.settings import ThrottleSettings

NEVER = math.inf
"""The wait for what will not come."""


@dataclass(frozen=True, slots=True)
class Quota:
    """One limit and what is left of it, for RateLimit and RateLimit-Policy."""

    name: str
    limit: int
    window: int | None
    """Seconds; None for a limit of calls under way."""
    remaining: int
    reset: int | None
    """Seconds until more of it is left; None if nobody can tell."""


class Permits(Protocol):
    """The permits and places of one bucket. Times are monotonic seconds."""

    def take(self, now: float, held: int) -> bool:
        """Let a call out now, if there is a permit besides the *held* ones, and a place.

        The permit is spent and the place is taken, or neither.
        """

    def undo(self, now: float) -> None:
        """The last :meth:`take` did not happen after all. Only in the same turn."""

    def hold(self, now: float) -> None:
        """What the last :meth:`take` spent is only held; its place stays taken. As there."""

    def spend(self, now: float) -> bool:
        """A held permit is used now; False if it has lapsed, and another one is needed."""

    def has_room(self) -> bool:
        """Whether there is a place for one more call."""

    def occupy(self) -> None:
        """A call takes its place; its permit is held."""

    def vacate(self, now: float) -> None:
        """A call is over, and its place is free."""

    def wait(self, now: float, count: int) -> float:
        """Seconds until there is a permit for the *count*-th call from now; 0: there is one.

        As far as rates can tell: nobody knows when a place becomes free. NEVER if none
        will be given.
        """

    def is_unsure(self, now: float) -> bool:
        """Whether there may be permits that only asking can bring; :meth:`wait` is a guess then."""

    def ask(self, now: float, waiting: int) -> None:
        """So many wait, and there is no permit or no place: see to it, if anything can be done."""

    def drain(self, now: float, until: float) -> None:
        """Give nothing out before *until*, and from then on at the rate, without a burst."""

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Other limits hold from now on. What was left of the old ones is left, but no more."""

    def is_idle(self, now: float) -> bool:
        """Whether a new one could take over and nobody would notice."""

    def quotas(self, now: float) -> tuple[Quota, ...]:
        """What is left, rate by rate, for the answer to a caller that was refused."""


class PermitsListener(Protocol):
    """Who wants to know when permits change by themselves: those of a shared store do."""

    def permits_changed(self) -> None:
        """There may be permits or places now, or it is clear that there are none."""

    def permits_paused(self, until: float) -> None:
        """Another instance was told to leave the upstream alone until then (monotonic)."""
