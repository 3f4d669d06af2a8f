"""Places for calls under way, of which all instances together have so many.

An instance reports how many it uses and could use; the store says how many it *may* use,
from then on and until the lease runs out. Reports are whole numbers and not steps, so it
does not matter if one is lost or comes twice (``places.lua``).

What the store has down for us is never less than what we use: while a report is on its
way we take no more than it says that we keep. If we may use less than we do (others want
their share), no place is used again until enough calls are over.
"""

from proxy.stores.redis.link import SILENCE

LEASE = SILENCE
RENEW_EVERY = 1.0
LOOK_EVERY = 0.04
"""Seconds: what was not used from one look to the next but one is given back."""
ASK_EVERY = 0.02
"""Seconds between two reports while somebody waits for a place."""
TURN = 0.2
"""Seconds after which a place goes round for which several instances wait."""


class Report:
    """What we tell the store."""

    __slots__ = ("kept", "sent", "wanted")

    def __init__(self, kept: int, wanted: int, sent: float) -> None:
        self.kept = kept
        self.wanted = wanted
        self.sent = sent


class Places:
    """The places of one bucket that we use and may use."""

    __slots__ = (
        "_granted",
        "_is_contested",
        "_lapses",
        "_may",
        "_most",
        "_most_before",
        "asked",
        "limit",
        "under_way",
    )

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        """How many there are in all; None: no end of them."""
        self.under_way = 0
        self._may = 0
        """How many we may use."""
        self._granted = 0
        """How many the store has down for us; never less than we use, while the lease runs."""
        self._lapses = 0.0
        """When the store takes us for dead."""
        self._most = 0
        self._most_before = 0
        """The most that were in use since the last look, and from the one before to that."""
        self._is_contested = False
        """Whether we got less than we asked for."""
        self.asked = 0.0
        """When the last report was sent."""

    def __repr__(self) -> str:
        return f"<places: {self.under_way} under way, {self._may} allowed of {self.limit}>"

    def has_room(self, now: float) -> bool:
        """Whether one more call may be under way."""
        if self.limit is None:
            return True
        return self.under_way < self._may and now < self._lapses

    def room(self, now: float) -> int:
        """How many more calls may be under way, where there is a limit."""
        return max(self._may - self.under_way, 0) if now < self._lapses else 0

    def occupy(self) -> None:
        """A call is under way."""
        self.under_way += 1
        if self.under_way > self._most:  # noqa: PLR1730 - for every call; max() takes thrice as long
            self._most = self.under_way

    def vacate(self) -> None:
        """A call is over."""
        if self.under_way:
            self.under_way -= 1

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in use, nor held for us."""
        return not self.under_way and not self._granted

    @property
    def has_surplus(self) -> bool:
        """Whether the store has more down for us than we may use, or do."""
        return self._granted > max(self.under_way, self._may)

    def look(self, now: float) -> bool:
        """Give up what was not used lately. Whether the store should hear from us now."""
        most = max(self._most, self._most_before, self.under_way)
        self._most_before, self._most = self._most, self.under_way
        self._may = min(self._may, most)
        return self.has_surplus or (self._granted > 0 and now >= self.asked + RENEW_EVERY)

    def report(self, now: float, waiting: int) -> Report:
        """What to tell the store, now that so many wait. Binding from this moment on."""
        if now >= self._lapses:
            self._may = 0
        kept = max(self.under_way, self._may)
        wanted = self.under_way + waiting
        if waiting and not self._is_contested:
            wanted += self.under_way // 2  # more will come
        self._granted = max(self._granted, kept)
        self.asked = now
        return Report(kept, max(wanted, kept), now)

    def settle(self, report: Report, may: int) -> None:
        """What the store answered to *report*."""
        self._may = may
        self._granted = max(report.kept, may)
        self._is_contested = may < report.wanted
        self._lapses = report.sent + LEASE

    @property
    def is_contested(self) -> bool:
        """Whether we got less than we asked for."""
        return self._is_contested

    def change(self, limit: int | None) -> None:
        """There are so many now. Calls that are under way stay so."""
        self.limit = limit
        if limit is not None:
            self._may = min(self._may, limit)

    def forget(self) -> None:
        """Nothing is known of the store any more."""
        self._may = self._granted = 0
        self._is_contested = False
