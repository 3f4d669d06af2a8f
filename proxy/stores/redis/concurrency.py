"""The concurrency slots of one bucket, of which all instances together have so many.

An instance reports how many it uses and could use; the store says how many it *may* use,
from then on and until the lease runs out. Reports are whole numbers and not steps, so it
does not matter if one is lost or comes twice (``scripts/concurrency.lua``).

What the store has granted us is never less than what we use: while a report is on its
way we take no more than it says that we keep. If we may use less than we do (other instances
want their share), no slot is used again until enough calls are over.
"""

from collections.abc import Callable

from proxy.core.clock import Clock
from proxy.stores.redis.link import HEARTBEAT_TIMEOUT
from proxy.stores.redis.permit_commands import PermitCommands

RENEW_EVERY = 1.0
"""Seconds between two reports while we have slots."""
ASK_EVERY = 0.02
"""Seconds between two reports while a request waits for a slot."""
LOOK_EVERY = 0.04
"""Seconds between two looks. Slots that were not used from one to the next but one are given
back."""


class SharedConcurrency:
    """The concurrency slots of one bucket that this instance uses and may use."""

    __slots__ = (
        "_changed",
        "_clock",
        "_commands",
        "_granted",
        "_is_contested",
        "_lapses",
        "_may",
        "_most",
        "_most_before",
        "_next",
        "_reported",
        "_waiting",
        "is_asking",
        "limit",
        "under_way",
    )

    def __init__(
        self, limit: int | None, commands: PermitCommands, clock: Clock, changed: Callable[[], None]
    ) -> None:
        """Call *changed* whenever the store has answered."""
        self.limit = limit
        """How many slots there are in all; None: any number."""
        self._commands = commands
        self._clock = clock
        self._changed = changed
        self.under_way = 0
        """Calls; counted even without a limit, for one may be set while they are under way."""
        self.is_asking = False
        """Whether the store has yet to answer a report."""
        self._may = 0
        """How many slots this instance may use."""
        self._granted = 0
        """How many the store has granted us; never less than we use, while the lease runs."""
        self._lapses = 0.0
        """When the store takes this instance for dead."""
        self._reported = 0.0
        self._next = 0.0
        """Before that moment it is no use to ask for more."""
        self._waiting = 0
        self._most = self._most_before = 0
        """The most that were in use since the last look, and in the time before that."""
        self._is_contested = False
        """Whether we got less than we asked for."""

    def __repr__(self) -> str:
        return f"{self.under_way} under way, {self._may} allowed of {self.limit}"

    # Slots at hand.

    def has_capacity(self, now: float) -> bool:
        """Tell whether one more call may be under way."""
        if self.limit is None:
            return True
        return self.under_way < self._may and now < self._lapses

    def free_slots(self, now: float) -> int | None:
        """Return how many more calls may be under way; None: any number."""
        if self.limit is None:
            return None
        return max(self._may - self.under_way, 0) if now < self._lapses else 0

    def occupy(self) -> None:
        """Take a slot for a call."""
        self.under_way += 1
        if self.under_way > self._most:  # noqa: PLR1730 - for every call; max() takes thrice as long
            self._most = self.under_way

    def leave(self) -> None:
        """Free the slot of a call that is over."""
        self.under_way -= 1

    def is_idle(self) -> bool:
        """Tell whether no slot is in use, nor granted to us."""
        return not self.under_way and not self._granted and not self.is_asking

    def is_unsure(self, now: float) -> bool:
        """Tell whether asking the store may bring more slots."""
        return self.is_asking or now >= self._next

    @property
    def has_surplus(self) -> bool:
        """Whether the store has granted us more than we use, or may use."""
        return self._granted > max(self.under_way, self._may)

    # Asking the store.

    def ask(self, now: float, waiting: int) -> float | None:
        """Request slots for *waiting* waiters now; if it is too soon, return when to ask."""
        if self.is_asking:
            return None
        if now < self._next:
            return self._next
        self._waiting = waiting
        self.report(now)
        return None

    def look(self, now: float) -> bool:
        """Give back slots not used lately, and renew the rest; tell whether we have any."""
        most = max(self._most, self._most_before, self.under_way)
        self._most_before, self._most = self._most, self.under_way
        self._may = min(self._may, most)
        if self.has_surplus or now >= self._reported + RENEW_EVERY:
            self.report(now)
        return not self.is_idle()

    def report(self, now: float) -> None:
        """Report our slots to the store. Binding from this moment on."""
        if self.limit is None or self.is_asking:
            return
        self.is_asking = True
        if now >= self._lapses:
            self._may = 0
        kept = max(self.under_way, self._may)
        wanted = self.under_way + self._waiting
        if self._waiting and not self._is_contested:
            wanted += self.under_way // 2  # more will come
        wanted = max(wanted, kept)
        self._granted = max(self._granted, kept)
        self._reported = now

        def answer(numbers: list[int], sent: float) -> None:
            self.is_asking = False
            self._settle(kept, wanted, numbers[0], sent)
            self._changed()

        self._commands.report(kept, wanted, self.limit, answer)

    def _settle(self, kept: int, wanted: int, may: int, sent: float) -> None:
        if self.limit is None:
            return  # there is no limit any more
        self._waiting = 0  # requests that still wait will ask again
        self._may = min(may, self.limit)
        self._granted = max(kept, may)
        self._lapses = sent + HEARTBEAT_TIMEOUT
        self._is_contested = may < wanted
        now = self._clock.monotonic()
        if self._is_contested:
            self._next = now + ASK_EVERY * (0.75 + self._clock.roll() / 2)
        if self.has_surplus:
            self.report(now)

    # Changes.

    def change(self, limit: int | None) -> None:
        """Apply another limit. Calls that are under way stay so."""
        self.limit = limit
        self._next = 0.0
        if limit is None:
            self.forget()
        else:
            self._may = min(self._may, limit)

    def forget(self) -> None:
        """Give up all slots but for those of calls under way."""
        self._may = self._granted = self._waiting = 0
        self._next = 0.0
        self._is_contested = False

    def lose_store(self) -> None:
        """Give up all slots: the store will not answer."""
        self.forget()
        self.is_asking = False

    def give_up(self) -> None:
        """Give all slots back: the process is about to end, and so are its calls."""
        if self.limit is not None and not self.is_idle():
            self._commands.report(0, 0, self.limit, lambda numbers, sent: None)  # noqa: ARG005 - the end
