"""Who is let out next, who has to wait, and who is told at once that it is no use.

::

    newcomer ──► nobody waits, and there is a permit ──────────────► out
        │
        ├─► its turn would come too late, or the line is full ─────► refused
        │
        └─► the line: first come, first served ──► its turn ───────► out
                 │                       │
                 └─► leaves: costs nothing, everybody moves up
                                         └─► a pause that is longer than it may wait: refused

Nobody in line has a slot of its own. Whoever is first gets the next permit there is,
so a place that is given up delays nobody, a changed rate holds for everybody, and one
timer for the whole line is enough.

It may take until a call is sent after its turn has come. While it waits for its turn
elsewhere its permit is *reserved*; it is spent in the moment of sending. If that takes so
long that the permit lapses, or if a pause begins meanwhile, the call comes back and is
first in line.

While a connection is made for it a call is *set aside*, and its permit is there for whoever
can use it: else a rate of one call at a time would come down to one connection at a time.
When the connection is there, it comes back. So that not everybody in line gets a connection
made meanwhile, turns are as far apart as calls are, but no further than it may take to make
one.

Time is an argument, and whoever waits is only an object: the clock, the timer and the waking
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
"""Seconds for which others wait for one whose connection is made, at most: its address may be one
that does not answer."""


class ThrottleCause(StrEnum):
    """Why somebody is not let through."""

    MAX_WAIT = "max_wait"
    QUEUE_FULL = "queue_full"
    DEADLINE = "deadline"
    PAUSED = "paused"
    STORE = "store"  # the limits are kept elsewhere, and nobody can ask there
    DRAINING = "draining"  # it would be another attempt, and the process is about to end


@dataclass(frozen=True, slots=True)
class ThrottleRefusal:
    """Why somebody is not let in line, and when it would be of use to come back."""

    cause: ThrottleCause
    wait: float
    """Seconds; 0 if nobody can tell."""


class Waiter:
    """Somebody in line."""

    __slots__ = ("deadline", "entered", "is_guess")

    def __init__(self, entered: float, deadline: float) -> None:
        self.entered = entered
        self.deadline = deadline
        """When its own time is over. The bucket only looks at it where that comes too soon
        for certain; to end the wait is for others."""
        self.is_guess = False
        """Whether it was let in line without knowing if its turn comes in time."""

    @property
    def is_gone(self) -> bool:
        """Whether it waits no longer, though it is still in line."""
        return False


W = TypeVar("W", bound=Waiter)


@dataclass(frozen=True, slots=True)
class Served(Generic[W]):
    """What a look at the line brought."""

    out: list[W] = field(default_factory=list)
    """Those whose turn it is. Their permits are held, their places taken."""
    refused: list[tuple[W, ThrottleCause]] = field(default_factory=list)


class WaitQueue(Generic[W]):
    """The line before one set of permits, and the pause that may close it."""

    __slots__ = (
        "_aside",
        "_back",
        "_line",
        "_next_turn",
        "_opens",
        "_reserved",
        "_spread",
        "permits",
        "settings",
        "under_way",
    )

    def __init__(self, settings: ThrottleSettings, permits: Limiter) -> None:
        self.settings = settings
        self.permits = permits
        self._line: OrderedDict[W, None] = OrderedDict()
        self._back: OrderedDict[W, None] = OrderedDict()
        """Those who came back and are first. They have their places."""
        self._reserved = 0
        """Permits of those whose turn has come and who have not sent yet."""
        self._aside = 0
        """How many have had their turn and will need another one, to send."""
        self._next_turn = -NEVER
        """When the next one comes, if any are set aside."""
        self.under_way = 0
        """How many have their place: from their turn on, until their call is over."""
        self._opens = -NEVER
        """When the last pause is over."""
        self._spread: ReleaseSpread | None = None
        """How those go out who waited for its end, where there is no rate."""

    def __repr__(self) -> str:
        return f"<bucket, {self.waiting} waiting, {self._reserved} held>"

    @property
    def waiting(self) -> int:
        return len(self._line) + len(self._back)

    def paused_for(self, now: float) -> float:
        """Seconds until it opens; 0 if it is open."""
        return max(self._opens - now, 0.0)

    def is_idle(self, now: float) -> bool:
        """Whether a new bucket could take its place and nobody would notice."""
        if self._line or self._back or self.under_way or now < self._opens:
            return False
        return self.permits.is_idle(now)

    # Newcomers.

    def take(self, now: float) -> bool:
        """Let somebody out at once, if nobody waits: its permit is spent, its place taken."""
        if self._line or self._back or now < self._opens or now < self._next_turn:
            return False
        if not self.permits.take(now, self._reserved):
            return False
        self.under_way += 1
        return True

    def undo(self, now: float) -> None:
        """The last :meth:`take` did not happen after all. Only in the same turn."""
        self.permits.undo(now)
        self.under_way -= 1

    def hindrance(
        self, now: float, time_left: float, later: float | None = None
    ) -> ThrottleRefusal | None:
        """Why somebody is not let in line who was not let out at once; None if it is.

        Or somebody who comes *later*, in so many seconds. As things stand: who knows who
        else will come until then.
        """
        return self._hindrance(now, self.waiting, self._patience, time_left, later)

    def _hindrance(
        self, now: float, ahead: int, patience: float, time_left: float, later: float | None = None
    ) -> ThrottleRefusal | None:
        """The same for somebody with so many before it, and so many seconds to wait."""
        is_here = later is None
        later = later or 0.0
        wait = max(self._wait_behind(ahead, now) - later, 0.0)
        if wait == NEVER:
            return ThrottleRefusal(ThrottleCause.STORE, 0.0)
        longest = min(patience, time_left)
        if self.paused_for(now) - later > max(longest, 0.0):
            return ThrottleRefusal(ThrottleCause.PAUSED, wait)
        if is_here and self.permits.is_unsure(now):
            return None  # a line in which nobody may stand would never learn of any permit
        if ahead >= self.settings.max_queue and (is_here or wait):
            return ThrottleRefusal(ThrottleCause.QUEUE_FULL, wait)
        if wait > longest or (is_here and patience <= 0):
            cause = ThrottleCause.MAX_WAIT if patience <= time_left else ThrottleCause.DEADLINE
            return ThrottleRefusal(cause, wait)
        return None

    @property
    def _patience(self) -> float:
        """For how many seconds anybody waits."""
        return NEVER if self.settings.max_wait is None else self.settings.max_wait

    def join(self, waiter: W, now: float) -> None:
        """Somebody gets in line."""
        # Who comes after a guess is looked at again with it: guesses are always the last.
        follows_a_guess = bool(self._line) and next(reversed(self._line)).is_guess
        waiter.is_guess = follows_a_guess or self.permits.is_unsure(now)
        self._line[waiter] = None

    def leave(self, waiter: W) -> None:
        """Somebody is in line no longer; all behind it move up."""
        self._line.pop(waiter, None)
        self._back.pop(waiter, None)

    def wait(self, now: float) -> float:
        """Seconds until the turn of one more in line, as far as one can tell."""
        return self._wait_behind(self.waiting, now)

    def _wait_behind(self, ahead: int, now: float) -> float:
        wait = self.permits.wait(now, self._reserved + self._aside + ahead + 1)
        if now < self._opens:
            # As if nobody came after it; the more there are, the sooner each of them goes. Who
            # holds a permit cannot use it before the end of the pause, and comes back first.
            others = ahead + self._reserved
            share = 0.0 if self.settings.rates else SPREAD * others / (others + 1)
            return max(wait, self._opens - now + share)
        if self._spread is not None:
            return max(wait, self._spread.wait(now, ahead))
        return wait

    # The line moves.

    def serve(self, now: float) -> Served[W]:
        """Look who is next, and who has waited for too long."""
        served: Served[W] = Served()
        # First of all: whose turn comes in its last moment was promised that it comes in time.
        if now >= self._opens:
            self._let_out(now, served)
        if self.waiting and self.permits.wait(now, 1) == NEVER:
            self._refuse_all(served)
        self._refuse_guesses(now, served)
        self._refuse_expired(now, served)
        if self.waiting:
            self.permits.ask(now, self.waiting)
        return served

    def _let_out(self, now: float, served: Served[W]) -> None:
        if self.waiting and self._opens > -NEVER and not self.settings.rates:
            if self._first().entered < self._opens:
                self._spread = ReleaseSpread(self._opens, self.waiting)
            self._opens = -NEVER
        while self.waiting and self._has_next(now):
            line = self._back or self._line
            waiter, _ = line.popitem(last=False)
            if waiter.is_gone:
                continue
            if line is self._line:
                self.permits.occupy()
                self.under_way += 1
            self._reserve_next()
            served.out.append(waiter)
        if not self.waiting:
            self._spread = None

    def _first(self) -> W:
        return next(iter(self._back or self._line))

    def _has_next(self, now: float) -> bool:
        """Whether it is the turn of whoever is first."""
        if not self._back and (now < self._next_turn or not self.permits.has_room()):
            return False
        return self._next_in(now) <= 0

    def _next_in(self, now: float) -> float:
        """Seconds until somebody who has its place may go; not above 0: it may now."""
        wait = self.permits.wait(now, self._reserved + 1)
        return wait if self._spread is None else max(wait, self._spread.wait(now, 0))

    def _reserve_next(self) -> None:
        """The next permit there is, is held for somebody."""
        self._reserved += 1
        if self._spread is not None:
            self._spread.out += 1

    def _refuse_all(self, served: Served[W]) -> None:
        """Nothing is given out any more: there is nothing to wait for."""
        for line in (self._back, self._line):
            served.refused.extend(
                (waiter, ThrottleCause.STORE) for waiter in line if not waiter.is_gone
            )
            line.clear()

    def _refuse_expired(self, now: float, served: Served[W]) -> None:
        patience = self._patience
        # All wait equally long at most, so those who came first give up first.
        while self._line:
            waiter = next(iter(self._line))
            if not waiter.is_gone and waiter.entered + patience > now:
                return
            if waiter.is_guess and not waiter.is_gone:
                return  # it may be that nobody has asked yet
            del self._line[waiter]
            if not waiter.is_gone:
                cause = ThrottleCause.PAUSED if now < self._opens else ThrottleCause.MAX_WAIT
                served.refused.append((waiter, cause))

    def _refuse_guesses(self, now: float, served: Served[W]) -> None:
        """Now that it is known, tell those whose turn comes too late."""
        if self.permits.is_unsure(now):
            return
        guesses = list(takewhile(lambda waiter: waiter.is_guess, reversed(self._line)))
        ahead = self.waiting - len(guesses)
        for waiter in reversed(guesses):
            waiter.is_guess = False
            if waiter.is_gone:
                del self._line[waiter]
                continue
            patience = waiter.entered + self._patience - now
            hindrance = self._hindrance(now, ahead, patience, waiter.deadline - now)
            if hindrance is None:
                ahead += 1
            else:
                del self._line[waiter]
                served.refused.append((waiter, hindrance.cause))

    def next_look(self, now: float) -> float | None:
        """Seconds after which :meth:`serve` may bring something; None: not by itself."""
        if not self.waiting:
            return None
        if self._back:
            wait = max(self._next_in(now), self._opens - now)
        elif self.permits.has_room():
            wait = max(self._next_in(now), self._opens - now, self._next_turn - now)
        else:
            wait = NEVER
        if self._line:
            first = next(iter(self._line))
            if not first.is_guess:
                wait = min(wait, max(first.entered + self._patience - now, 0.0))
        return None if wait == NEVER else wait

    # After one's turn has come.

    def spend(self, now: float) -> bool:
        """A held permit is used: its call is sent now. False: not yet, it has to come back."""
        self._reserved -= 1
        return now >= self._opens and self.permits.spend(now)

    def reserve(self, now: float) -> None:
        """Only reserve what was taken or spent last. In the same turn of the loop."""
        self.permits.reserve(now)
        self._reserved += 1

    def set_aside(self, now: float) -> None:
        """Keep what was taken or spent last for when a connection is there, as :meth:`reserve`.

        Its place stays taken.
        """
        self.permits.reserve(now)
        self._aside += 1
        before = self._reserved + self._aside
        # As long as there are permits for all of these, nobody has to wait for them.
        until_next = self.permits.wait(now, before + 1)
        gap = until_next - self.permits.wait(now, before) if until_next < NEVER else 0.0
        self._next_turn = now + min(gap, _LONGEST_GAP)

    def rejoin(self) -> None:
        """Who was set aside is so no longer: it comes back now, or has given up."""
        self._aside -= 1
        if not self._aside:
            self._next_turn = -NEVER

    def lapse(self) -> None:
        """A held permit is not needed for now; its place stays taken."""
        self._reserved -= 1

    def reserve_again(self, now: float) -> bool:
        """Let somebody who came back have another permit at once, if nobody else came back."""
        if self._back or now < self._opens or self._next_in(now) > 0:
            return False
        self._reserve_next()
        return True

    def come_back(self, waiter: W) -> bool:
        """Somebody who has its place needs another permit: it is first in line.

        False: a pause has begun meanwhile that is longer than it may wait.
        """
        if self._gives_up(waiter) < self._opens:
            return False
        self._back[waiter] = None
        return True

    def _gives_up(self, waiter: W) -> float:
        """When it waits no longer."""
        return min(waiter.entered + self._patience, waiter.deadline)

    def vacate(self) -> bool:
        """A call is over: its place is free. Whether somebody may be waiting for it."""
        self.permits.vacate()
        self.under_way -= 1
        return bool(self._line)

    # Everybody at once.

    def pause(self, now: float, seconds: float, *, is_news: bool = True) -> list[W]:
        """Let nobody out for so long, at most as long as the settings allow.

        Its permits know already if it *is_news* to us only. Returns those who cannot wait
        for its end; they are in line no longer.
        """
        longest = self.settings.longest_pause
        if longest is None:
            return []
        until = now + min(seconds, longest)
        if until <= self._opens or seconds <= 0:
            return []
        self._opens = until
        self._spread = None
        if is_news:
            self.permits.close_until(now, until)
        everybody = (*self._back, *self._line)
        hopeless = [waiter for waiter in everybody if self._gives_up(waiter) < until]
        for waiter in hopeless:
            self.leave(waiter)
        return hopeless

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Other limits hold from now on, for those in line too, and for a pause."""
        self.settings = settings
        self._opens = min(self._opens, now + (settings.longest_pause or 0.0))
        self.permits.change(settings, now)
