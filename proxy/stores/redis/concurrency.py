"""The concurrency slots of one bucket, of which all instances together have so many.

An instance reports how many it uses and could use; the store says how many it *may* use,
from then on and until the lease runs out. Reports are whole numbers and not steps, so it
does not matter if one is lost or comes twice (``scripts/concurrency.lua``).

What the store has granted us is never less than what we use: while a report is on its
way we take no more than it says that we keep. If we may use less than we do (other instances
want their share), no slot is used again until enough calls are over.
"""

import asyncio
from dataclasses import KW_ONLY, dataclass, field
from math import inf

from proxy.http.refusal import QuotaLeft
from proxy.policy.settings import ThrottleSettings, ThrottleWithoutStore
from proxy.policy.throttle.limiter import NEVER, concurrency_quota
from proxy.stores.redis.degraded import degraded_slots
from proxy.stores.redis.limiter import SharedLimiter
from proxy.stores.redis.link import HEARTBEAT_TIMEOUT

RENEW_EVERY = 1.0
"""Seconds between two reports while we have slots."""
ASK_EVERY = 0.02
"""Seconds between two reports while a request waits for a slot."""
LOOK_EVERY = 0.04
"""Seconds between two looks. Slots that were not used from one to the next but one are given
back."""


@dataclass(slots=True, eq=False, repr=False)
class SharedConcurrencyLimiter(SharedLimiter):
    """The concurrency slots of one bucket that this instance uses and may use."""

    _under_way: int
    _: KW_ONLY
    _limit: int = field(init=False)
    """How many slots there are in all; 0 once they are given back for good."""
    _alone: float | None = None
    """How many we may use while the store is down, and for a moment after that."""
    _may: int = 0
    """How many slots this instance may use."""
    _granted: int = 0
    """How many the store has granted us; never less than we use, while the lease runs."""
    _lapses: float = 0.0
    """When the store takes this instance for dead."""
    _reported: float = 0.0
    _next: float = 0.0
    """Before that moment it is no use to ask for more."""
    _wanted: int = 0
    """Slots for calls that wait, as far as we were told."""
    _most: int = 0
    _most_before: int = 0
    """The most that were in use since the last look, and in the time before that."""
    _is_contested: bool = False
    """Whether we got less than we asked for."""
    _look_timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        SharedLimiter.__post_init__(self)
        self._limit = self._settings.concurrency or 0
        if not self._store_is_up:
            self._do_without_store()
        elif self._under_way:
            self._report(self._clock.monotonic())

    def __repr__(self) -> str:
        return (
            f"<slots of {self._commands}: {self._under_way} of {self._may}, {self._limit} in all>"
        )

    # Slots at hand.

    def take(self, now: float, reserved: int) -> bool:
        """Take a slot, if one is free."""
        if self._free(now) <= reserved:
            return False
        self._under_way += 1
        self._most = max(self._most, self._under_way)
        return True

    def _free(self, now: float) -> float:
        """Return how many more calls may be under way; less than none, if there are too many."""
        may = inf if self._alone is None else self._alone
        if self._store_is_up:
            may = min(may, self._may if now < self._lapses else 0)
        return may - self._under_way

    def give_back(self) -> None:
        """Free the slot of a call that is over."""
        self._under_way -= 1
        if self._has_surplus and self._store_is_up:
            self._report(self._clock.monotonic())

    def wait(self, now: float, count: int) -> float:
        """Return 0 if so many slots are free, else NEVER: when calls end cannot be known."""
        return 0.0 if self._free(now) >= count else NEVER

    def is_idle(self, now: float) -> bool:  # noqa: ARG002 - slots depend on no time
        """Tell whether no slot is in use, nor granted to us."""
        return not self._under_way and not self._granted and not self.is_asking

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:
        """Return how many slots are free, as far as is known here."""
        free = self._free(now)
        if free == inf:
            return ()
        limit = self._limit if self._store_is_up or self._alone is None else int(self._alone)
        return (concurrency_quota(limit, int(free)),)

    @property
    def _has_surplus(self) -> bool:
        """Whether the store has granted us more than we use, or may use."""
        return self._granted > max(self._under_way, self._may)

    # Asking the store.

    def ask(self, now: float, waiting: int) -> bool:
        """Request slots for *waiting* calls; tell whether the store may grant any."""
        if not self._store_is_up or (self._alone is not None and self._under_way >= self._alone):
            return False
        if waiting and not self.is_asking:
            if now < self._next:
                self._ask_at(self._next, now, waiting)
            else:
                self._wanted = waiting
                self._report(now)
        return self.is_asking or now >= self._next

    def _look(self) -> None:
        """Give back slots not used lately, and renew the rest, as long as we have any."""
        self._look_timer = None
        if not self._store_is_up:
            return
        now = self._clock.monotonic()
        most = max(self._most, self._most_before, self._under_way)
        self._most_before, self._most = self._most, self._under_way
        self._may = min(self._may, most)
        if self._has_surplus or now >= self._reported + RENEW_EVERY:
            self._report(now)
        if not self.is_idle(now):
            self._look_later()

    def _look_later(self) -> None:
        if self._look_timer is None:
            self._look_timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)

    def _report(self, now: float) -> None:
        """Report our slots to the store. Binding from this moment on."""
        if self.is_asking or not self._limit:
            return
        self.is_asking = True
        if now >= self._lapses:
            self._may = 0
        kept = max(self._under_way, self._may)
        wanted = self._under_way + self._wanted
        if self._wanted and not self._is_contested:
            wanted += self._under_way // 2  # more will come
        wanted = max(wanted, kept)
        self._granted = max(self._granted, kept)
        self._reported = now
        self._look_later()

        def answer(numbers: list[int], sent: float) -> None:
            self.is_asking = False
            self._settle(kept, wanted, numbers[0], sent)
            self._answered()

        self._commands.report(kept, wanted, self._limit, answer)

    def _settle(self, kept: int, wanted: int, may: int, sent: float) -> None:
        if not self._limit:
            return
        self._wanted = 0  # requests that still wait will ask again
        self._may = min(may, self._limit)
        self._granted = max(kept, may)
        self._lapses = sent + HEARTBEAT_TIMEOUT
        self._is_contested = may < wanted
        now = self._clock.monotonic()
        if self._is_contested:
            self._next = now + ASK_EVERY * (0.75 + self._clock.roll() / 2)
        if self._has_surplus:
            self._report(now)

    # Changes.

    def change(self, settings: ThrottleSettings, now: float, closed_until: float) -> None:  # noqa: ARG002 - a pause frees no slot
        """Apply another limit, or none at all. Calls that are under way stay so."""
        self._settings = settings
        self._next = 0.0
        if settings.concurrency is None:
            self.close()
            return
        self._limit = settings.concurrency
        self._may = min(self._may, self._limit)
        if self._alone is not None:
            self._do_without_store()
        if self._under_way and self._store_is_up:
            self._report(now)

    def _forget(self) -> None:
        """Give up all slots but for those of calls under way."""
        self._may = self._granted = self._wanted = 0
        self._next = 0.0
        self._is_contested = False

    # The store comes and goes.

    def went_down(self, now: float) -> None:  # noqa: ARG002 - slots depend on no time
        """Give up all slots: the store will not answer. Use our share of them from now on."""
        self._forget()
        self.is_asking = False
        self._store_is_up = False
        self._do_without_store()
        self._listener.permits_changed()

    def _do_without_store(self) -> None:
        self._alone = degraded_slots(self._settings, self._commands.link.instances)

    def came_up(self, now: float) -> None:
        """Use the store again, and report what is under way."""
        self._store_is_up = True
        if self._settings.on_store_error is not ThrottleWithoutStore.LOCAL:
            self._alone = None
        if self._under_way:
            self._report(now)
        self._listener.permits_changed()

    def trust_store(self) -> None:
        """Use what the store grants: by now all instances know that it is up."""
        if self._store_is_up and self._alone is not None:
            self._alone = None
            self._listener.permits_changed()

    def missed(self) -> None:
        """Do nothing: nothing is published about slots."""

    def close(self) -> None:
        """Give all slots back: the process is about to end, or the limit has."""
        SharedLimiter.close(self)  # super() does not survive slots=True
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        if self._store_is_up and not self.is_idle(self._clock.monotonic()):
            self._commands.report(0, 0, self._limit, lambda numbers, sent: None)  # noqa: ARG005 - the end
        self._limit = 0
