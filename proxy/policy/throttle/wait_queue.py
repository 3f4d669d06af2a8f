"""The wait queue before one rate limiter: which request goes out next, waits or is refused.

::

    newcomer ──► no waiter, and there is a permit ─────────────────► out
        │
        ├─► it would be released too late, or the queue is full ───► refused
        │
        └─► the queue: first come, first served ──► released ──────► out
                 │                       │
                 └─► leaves: costs nothing, all others move up
                                         └─► a pause that is longer than it may wait: refused

No waiter has a permit assigned in advance. The first waiter gets the next permit there is,
so a waiter that leaves delays no other, a changed rate applies to all of them, and one
timer for the whole queue is enough.

A call may be sent some time after its waiter was released. While it waits in another queue
its permit is *reserved*; the permit is spent in the moment of sending. If that takes so
long that the permit lapses, or if a pause begins meanwhile, the waiter comes back and is
first in the queue.

While a connection is made for it a waiter is *set aside*, and its permit is there for any
other that can use it: else a rate of one call at a time would come down to one connection
at a time. When the connection is there, the waiter comes back. So that not every waiter gets
a connection made meanwhile, releases are as far apart as calls are, but no further than it
may take to make a connection.

Time is an argument, and a waiter is only an object: the clock, the timer and the waking
are added by ``pipeline/throttle/async_limiter.py``.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from typing import Generic, TypeVar

from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.limiter import NEVER, Limiter
from proxy.policy.throttle.release_spread import SPREAD, ReleaseSpread

_LONGEST_GAP = 0.1
"""Seconds for which others wait for a waiter whose connection is made, at most: its address may be
one that does not answer."""


class ThrottleCause(StrEnum):
    """Why the throttle refuses a request."""

    MAX_WAIT = "max_wait"
    QUEUE_FULL = "queue_full"
    DEADLINE = "deadline"
    PAUSED = "paused"
    STORE = "store"  # the limits are kept in a store that cannot be asked
    DRAINING = "draining"  # it would be another attempt, and the process is about to end


@dataclass(frozen=True, slots=True)
class ThrottleRefusal:
    """Why a request is not queued, and after which time it would be worth to try again."""

    cause: ThrottleCause
    wait: float
    """Seconds; 0 if it is not known."""


class Waiter:
    """A request in the queue."""

    __slots__ = ("deadline", "entered", "is_guess")

    def __init__(self, entered: float, deadline: float) -> None:
        self.entered = entered
        self.deadline = deadline
        """When the request's own time is over. The queue uses it only to refuse what comes too late
        for certain; ending the wait is the task of its user."""
        self.is_guess = False
        """Whether it was queued without knowing if its release comes in time."""

    @property
    def is_gone(self) -> bool:
        """Whether it waits no longer, though it is still in the queue."""
        return False


W = TypeVar("W", bound=Waiter)


@dataclass(frozen=True, slots=True)
class Served(Generic[W]):
    """The waiters that :meth:`WaitQueue.serve` has taken from the queue."""

    out: list[W] = field(default_factory=list)
    """Released waiters. Their permits are reserved, their slots taken."""
    refused: list[tuple[W, ThrottleCause]] = field(default_factory=list)


class WaitQueue(Generic[W]):
    """The queue before one limiter, and the pause that may close it."""

    __slots__ = (
        "_aside",
        "_next_release",
        "_paused_until",
        "_queue",
        "_reserved",
        "_returned",
        "_spread",
        "limiter",
        "settings",
        "under_way",
    )

    def __init__(self, settings: ThrottleSettings, limiter: Limiter) -> None:
        self.settings = settings
        self.limiter = limiter
        self._queue: OrderedDict[W, None] = OrderedDict()
        self._returned: OrderedDict[W, None] = OrderedDict()
        """Waiters that came back and are first. They have their slots."""
        self._reserved = 0
        """Permits of waiters that were released and have not sent yet."""
        self._aside = 0
        """How many were released and will need another permit, to send."""
        self._next_release = -NEVER
        """When the next waiter may be released, if any are set aside."""
        self.under_way = 0
        """Calls that have a slot: from their release on, until they are over."""
        self._paused_until = -NEVER
        """When the last pause is over."""
        self._spread: ReleaseSpread | None = None
        """Spaces the waiters of the last pause, where there is no rate."""

    def __repr__(self) -> str:
        return f"<bucket, {self.waiting} waiting, {self._reserved} held>"

    @property
    def waiting(self) -> int:
        return len(self._queue) + len(self._returned)

    def paused_for(self, now: float) -> float:
        """Return the seconds until the pause is over; 0 if there is none."""
        return max(self._paused_until - now, 0.0)

    def is_idle(self, now: float) -> bool:
        """Tell whether a new queue could replace this one without any caller noticing."""
        if self._queue or self._returned or self.under_way or now < self._paused_until:
            return False
        return self.limiter.is_idle(now)

    # Newcomers.

    def take(self, now: float) -> bool:
        """Let a newcomer out at once, if none waits: its permit is spent, its slot taken."""
        if self._queue or self._returned or now < self._paused_until or now < self._next_release:
            return False
        if not self.limiter.take(now, self._reserved):
            return False
        self.under_way += 1
        return True

    def undo(self, now: float) -> None:
        """Undo the last :meth:`take`. Only before the event loop runs anything else."""
        self.limiter.undo(now)
        self.under_way -= 1

    def refusal(
        self, now: float, time_left: float, later: float | None = None
    ) -> ThrottleRefusal | None:
        """Return why a request that was not let out at once may not wait; None if it may.

        *later* asks for a request that comes in so many seconds, judged by the present queue: who
        else comes until then is not known.
        """
        return self._refusal_behind(now, self.waiting, self._patience, time_left, later)

    def _refusal_behind(
        self, now: float, ahead: int, patience: float, time_left: float, later: float | None = None
    ) -> ThrottleRefusal | None:
        """Return why a request may not wait behind *ahead* others; None if it may."""
        is_here = later is None
        later = later or 0.0
        wait = max(self._wait_behind(ahead, now) - later, 0.0)
        if wait == NEVER:
            return ThrottleRefusal(ThrottleCause.STORE, 0.0)
        longest = min(patience, time_left)
        if self.paused_for(now) - later > max(longest, 0.0):
            return ThrottleRefusal(ThrottleCause.PAUSED, wait)
        if is_here and self.limiter.is_unsure(now):
            return None  # a queue that admits no waiter would never learn of any permit
        if ahead >= self.settings.max_queue and (is_here or wait):
            return ThrottleRefusal(ThrottleCause.QUEUE_FULL, wait)
        if wait > longest or (is_here and patience <= 0):
            cause = ThrottleCause.MAX_WAIT if patience <= time_left else ThrottleCause.DEADLINE
            return ThrottleRefusal(cause, wait)
        return None

    @property
    def _patience(self) -> float:
        """Seconds for which a request waits at most."""
        return NEVER if self.settings.max_wait is None else self.settings.max_wait

    def join(self, waiter: W, now: float) -> None:
        """Add a waiter at the end of the queue."""
        # A waiter behind a guess is examined again with it: guesses are always the last.
        follows_a_guess = bool(self._queue) and next(reversed(self._queue)).is_guess
        waiter.is_guess = follows_a_guess or self.limiter.is_unsure(now)
        self._queue[waiter] = None

    def leave(self, waiter: W) -> None:
        """Remove a waiter from the queue; all behind it move up."""
        self._queue.pop(waiter, None)
        self._returned.pop(waiter, None)

    def wait(self, now: float) -> float:
        """Return the estimated seconds until one more waiter would be released."""
        return self._wait_behind(self.waiting, now)

    def _wait_behind(self, ahead: int, now: float) -> float:
        wait = self.limiter.wait(now, self._reserved + self._aside + ahead + 1)
        if now < self._paused_until:
            # Computed as if no waiter came after it; the more there are, the sooner each of them
            # goes. The owner of a reserved permit cannot use it before the end of the pause, and
            # comes back first.
            others = ahead + self._reserved
            share = 0.0 if self.settings.rates else SPREAD * others / (others + 1)
            return max(wait, self._paused_until - now + share)
        if self._spread is not None:
            return max(wait, self._spread.wait(now, ahead))
        return wait

    # The queue moves.

    def serve(self, now: float) -> Served[W]:
        """Release the waiters that are next, and refuse those that have waited for too long."""
        served: Served[W] = Served()
        # Release first: a waiter that is released in its last moment was promised to be in time.
        if now >= self._paused_until:
            self._release_ready(now, served)
        if self.waiting and self.limiter.wait(now, 1) == NEVER:
            self._refuse_all(served)
        self._refuse_guesses(now, served)
        self._refuse_expired(now, served)
        if self.waiting:
            self.limiter.ask(now, self.waiting)
        return served

    def _release_ready(self, now: float, served: Served[W]) -> None:
        if self.waiting and self._paused_until > -NEVER and not self.settings.rates:
            if self._first().entered < self._paused_until:
                self._spread = ReleaseSpread(self._paused_until, self.waiting)
            self._paused_until = -NEVER
        while self.waiting and self._has_next(now):
            queue = self._returned or self._queue
            waiter, _ = queue.popitem(last=False)
            if waiter.is_gone:
                continue
            if queue is self._queue:
                self.limiter.occupy()
                self.under_way += 1
            self._reserve_next()
            served.out.append(waiter)
        if not self.waiting:
            self._spread = None

    def _first(self) -> W:
        return next(iter(self._returned or self._queue))

    def _has_next(self, now: float) -> bool:
        """Tell whether the first waiter may be released."""
        if not self._returned and (now < self._next_release or not self.limiter.has_capacity()):
            return False
        return self._next_in(now) <= 0

    def _next_in(self, now: float) -> float:
        """Return the seconds until a waiter that has its slot may go; not above 0: it may now."""
        wait = self.limiter.wait(now, self._reserved + 1)
        return wait if self._spread is None else max(wait, self._spread.wait(now, 0))

    def _reserve_next(self) -> None:
        """Reserve the next permit for a released waiter."""
        self._reserved += 1
        if self._spread is not None:
            self._spread.out += 1

    def _refuse_all(self, served: Served[W]) -> None:
        """Refuse every waiter: no permit will be given any more."""
        for queue in (self._returned, self._queue):
            served.refused.extend(
                (waiter, ThrottleCause.STORE) for waiter in queue if not waiter.is_gone
            )
            queue.clear()

    def _refuse_expired(self, now: float, served: Served[W]) -> None:
        patience = self._patience
        # All wait equally long at most, so those that came first give up first.
        while self._queue:
            waiter = next(iter(self._queue))
            if not waiter.is_gone and waiter.entered + patience > now:
                return
            if waiter.is_guess and not waiter.is_gone:
                return  # the store may not have been asked yet
            del self._queue[waiter]
            if not waiter.is_gone:
                cause = ThrottleCause.PAUSED if now < self._paused_until else ThrottleCause.MAX_WAIT
                served.refused.append((waiter, cause))

    def _refuse_guesses(self, now: float, served: Served[W]) -> None:
        """Refuse the guesses that would be released too late, now that the wait is known."""
        if self.limiter.is_unsure(now):
            return
        guesses = list(takewhile(lambda waiter: waiter.is_guess, reversed(self._queue)))
        ahead = self.waiting - len(guesses)
        for waiter in reversed(guesses):
            waiter.is_guess = False
            if waiter.is_gone:
                del self._queue[waiter]
                continue
            patience = waiter.entered + self._patience - now
            refusal = self._refusal_behind(now, ahead, patience, waiter.deadline - now)
            if refusal is None:
                ahead += 1
            else:
                del self._queue[waiter]
                served.refused.append((waiter, refusal.cause))

    def next_look(self, now: float) -> float | None:
        """Return the seconds after which :meth:`serve` may release one; None: unknown."""
        if not self.waiting:
            return None
        if self._returned:
            wait = max(self._next_in(now), self._paused_until - now)
        elif self.limiter.has_capacity():
            wait = max(self._next_in(now), self._paused_until - now, self._next_release - now)
        else:
            wait = NEVER
        if self._queue:
            first = next(iter(self._queue))
            if not first.is_guess:
                wait = min(wait, max(first.entered + self._patience - now, 0.0))
        return None if wait == NEVER else wait

    # After a waiter was released.

    def spend(self, now: float) -> bool:
        """Use a reserved permit to send now; False: not yet, the waiter has to come back."""
        self._reserved -= 1
        return now >= self._paused_until and self.limiter.spend(now)

    def reserve(self, now: float) -> None:
        """Only reserve what was taken or spent last. Before the event loop runs anything else."""
        self.limiter.reserve(now)
        self._reserved += 1

    def set_aside(self, now: float) -> None:
        """Keep what was taken or spent last until a connection is there, as :meth:`reserve`.

        The slot stays taken.
        """
        self.limiter.reserve(now)
        self._aside += 1
        before = self._reserved + self._aside
        # As long as there are permits for all of these, no waiter has to wait for them.
        until_next = self.limiter.wait(now, before + 1)
        gap = until_next - self.limiter.wait(now, before) if until_next < NEVER else 0.0
        self._next_release = now + min(gap, _LONGEST_GAP)

    def rejoin(self) -> None:
        """Count a waiter as set aside no longer: it comes back now, or has given up."""
        self._aside -= 1
        if not self._aside:
            self._next_release = -NEVER

    def lapse(self) -> None:
        """Give up a reserved permit that is not needed for now; its slot stays taken."""
        self._reserved -= 1

    def reserve_again(self, now: float) -> bool:
        """Reserve another permit at once for a waiter that came back, if no other came back."""
        if self._returned or now < self._paused_until or self._next_in(now) > 0:
            return False
        self._reserve_next()
        return True

    def come_back(self, waiter: W) -> bool:
        """Put a waiter that has its slot and needs another permit first in the queue.

        False: a pause has begun meanwhile that is longer than it may wait.
        """
        if self._gives_up_at(waiter) < self._paused_until:
            return False
        self._returned[waiter] = None
        return True

    def _gives_up_at(self, waiter: W) -> float:
        """Return when the waiter waits no longer."""
        return min(waiter.entered + self._patience, waiter.deadline)

    def vacate(self) -> bool:
        """Free the slot of a call that is over; True if a waiter may be waiting for it."""
        self.limiter.vacate()
        self.under_way -= 1
        return bool(self._queue)

    # All waiters at once.

    def pause(self, now: float, seconds: float, *, tells_limiter: bool = True) -> list[W]:
        """Release no waiter for so long, at most as long as the settings allow.

        *tells_limiter* is False where the limiter has announced the pause itself. Returns the
        waiters that cannot wait for its end; they are in the queue no longer.
        """
        longest = self.settings.longest_pause
        if longest is None:
            return []
        until = now + min(seconds, longest)
        if until <= self._paused_until or seconds <= 0:
            return []
        self._paused_until = until
        self._spread = None
        if tells_limiter:
            self.limiter.close_until(now, until)
        waiters = (*self._returned, *self._queue)
        hopeless = [waiter for waiter in waiters if self._gives_up_at(waiter) < until]
        for waiter in hopeless:
            self.leave(waiter)
        return hopeless

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Apply other limits from now on, also to those in the queue, and to a pause."""
        self.settings = settings
        self._paused_until = min(self._paused_until, now + (settings.longest_pause or 0.0))
        self.limiter.change(settings, now)
