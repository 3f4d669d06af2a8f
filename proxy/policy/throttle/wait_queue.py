"""The wait queue before the limiters of a bucket: which request goes out next, waits or is refused.

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

Whoever is let out gets a :class:`Reservation`. A call may be sent some time after that: while it
waits in another queue its permit is *reserved*, and it is *committed* in the moment of sending. If
that takes so long that the permit lapses, or if a pause begins meanwhile, the waiter comes back
and is first in the queue.

While a connection is made for it a waiter is *set aside*, and its permit is there for any
other that can use it: else a rate of one call at a time would come down to one connection
at a time. When the connection is there, the waiter comes back. So that not every waiter gets
a connection made meanwhile, releases are as far apart as calls are, but no further than it
may take to make a connection.

Time is an argument, and a waiter is only an object: the clock, the timer and the waking
are added by ``pipeline/throttle/async_limiter.py``.
"""

from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from itertools import takewhile
from typing import Any, Generic, TypeVar

from proxy.http.refusal import QuotaLeft
from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.limiter import NEVER, Limiters
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


class ReservationState(Enum):
    """What has become of the permit of a reservation."""

    RESERVED = auto()  # kept free for the call
    COMMITTED = auto()  # counted, since the call is sent
    ASIDE = auto()  # for any call to use, while a connection is made for this one
    RELEASED = auto()  # given back, or lapsed: the call needs another one
    CLOSED = auto()  # the call is over, and its slot is free


_RESERVED, _COMMITTED, _ASIDE, _RELEASED, _CLOSED = ReservationState


class Reservation:
    """What one call has of one bucket: a permit of its rates, and a slot of its concurrency.

    ::

        reserved ──► commit: it is sent ──► committed ──► set_aside
           ▲  │         │                       │             │
           │  │         ▼ it has lapsed         │             ▼
           │  └──────► released ◄── release ────┴──────────  aside
           └── again ─────┘

    The slot is taken from the beginning until :meth:`close`, which may come in every state; only
    the permit comes and goes.
    """

    __slots__ = ("queue", "state")

    queue: "WaitQueue[Any]"
    state: ReservationState

    @classmethod
    def of(cls, queue: "WaitQueue[Any]", state: ReservationState) -> "Reservation":
        """Return the reservation of a call that *queue* counts as under way."""
        reservation = cls()
        reservation.queue = queue
        reservation.state = state
        return reservation

    def __repr__(self) -> str:
        return f"<reservation, {self.state.name.lower()}>"

    def commit(self, now: float) -> bool:
        """Count the call, since it is sent now; False if its permit is gone, and it needs another.

        A permit is gone if it has lapsed, if other limits apply by now, or during a pause.
        """
        if self.state is not _RESERVED:
            return self.state is _COMMITTED
        queue = self.queue
        queue.reserved -= 1
        if now >= queue.paused_until and queue.rates.take(now, 0):
            self.state = _COMMITTED
            return True
        self.state = _RELEASED
        return False

    def release(self) -> bool:
        """Leave the permit to other calls; True if there is one, and a waiter to whom it may go.

        A committed permit only before the event loop runs anything else: its call is not sent.
        Without a permit nothing happens.
        """
        queue, state = self.queue, self.state
        if state is _RELEASED or state is _CLOSED:
            return False
        if state is _RESERVED:
            queue.reserved -= 1
        elif state is _COMMITTED:
            queue.rates.give_back()
        else:
            queue.rejoin()
        self.state = _RELEASED
        return bool(queue.waiters or queue.returned)

    def set_aside(self, now: float) -> None:
        """Release a committed permit, as :meth:`release`, while a connection is made for its call.

        Until the reservation is released the queue counts on it that the call will need a permit.
        """
        if self.state is _COMMITTED:
            self.queue.set_aside(now)
            self.state = _ASIDE

    def close(self) -> bool:
        """End the reservation with its call; True if a waiter may be waiting for what is free now.

        A committed permit stays spent, all else is given back. A second time nothing happens.
        """
        if self.state is not _COMMITTED:
            if self.state is _CLOSED:
                return False
            self.release()
        self.state = _CLOSED
        queue = self.queue
        queue.under_way -= 1
        if queue.concurrency is not None:
            queue.concurrency.give_back()
        return bool(queue.waiters or queue.returned)


@dataclass(slots=True, eq=False)
class Waiter:
    """A request in the queue."""

    entered: float
    deadline: float
    """When the request's own time is over. The queue uses it only to refuse what comes too late for
    certain; ending the wait is the task of its user."""
    reservation: Reservation | None = None
    """The reservation of a request that has one and needs a new permit for it."""
    is_guess: bool = False
    """Whether it was queued without knowing if its release comes in time."""

    @property
    def is_gone(self) -> bool:
        """Whether it waits no longer, though it is still in the queue."""
        return False


W = TypeVar("W", bound=Waiter)


@dataclass(frozen=True, slots=True)
class Served(Generic[W]):
    """The waiters that :meth:`WaitQueue.serve` has taken from the queue."""

    out: list[tuple[W, Reservation]] = field(default_factory=list)
    """Released waiters, each with a permit reserved for it."""
    refused: list[tuple[W, ThrottleCause]] = field(default_factory=list)


class WaitQueue(Generic[W]):
    """The queue before the limiters of one bucket, and the pause that may close it."""

    __slots__ = (
        "_aside",
        "_new_concurrency",
        "_next_release",
        "_spread",
        "concurrency",
        "paused_until",
        "rates",
        "reserved",
        "returned",
        "settings",
        "under_way",
        "waiters",
    )

    def __init__(self, settings: ThrottleSettings, limiters: Limiters) -> None:
        self.settings = settings
        self.rates = limiters.rates
        self._new_concurrency = limiters.new_concurrency
        limited = settings.concurrency is not None
        self.concurrency = self._new_concurrency(settings, 0) if limited else None
        """The limiter of the concurrency; None without a limit."""
        self.waiters: OrderedDict[W, None] = OrderedDict()
        self.returned: OrderedDict[W, None] = OrderedDict()
        """Waiters that came back and are first. They have their slots."""
        self.reserved = 0
        """Permits that are reserved (:class:`Reservation`)."""
        self._aside = 0
        """How many were released and will need another permit, to send."""
        self._next_release = -NEVER
        """When the next waiter may be released, if any are set aside."""
        self.under_way = 0
        """Calls that have a reservation; counted without a limit, too, for one may be set."""
        self.paused_until = -NEVER
        """When the last pause is over."""
        self._spread: ReleaseSpread | None = None
        """Spaces the waiters of the last pause, where there is no rate."""

    def __repr__(self) -> str:
        return f"<bucket, {self.waiting} waiting, {self.reserved} reserved>"

    @property
    def waiting(self) -> int:
        return len(self.waiters) + len(self.returned)

    def paused_for(self, now: float) -> float:
        """Return the seconds until the pause is over; 0 if there is none."""
        return max(self.paused_until - now, 0.0)

    def is_idle(self, now: float) -> bool:
        """Tell whether a new queue could replace this one without any caller noticing."""
        if self.waiters or self.returned or self.under_way or now < self.paused_until:
            return False
        if self.concurrency is not None and not self.concurrency.is_idle(now):
            return False
        return self.rates.is_idle(now)

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:
        """Return what is left, limit by limit, for the answer to a caller that was refused."""
        rates = self.rates.quotas(now)
        return rates if self.concurrency is None else (*rates, *self.concurrency.quotas(now))

    # Newcomers.

    def reserve(self, now: float) -> Reservation | None:
        """Let a newcomer out at once, if none waits and both limiters allow it; None if not."""
        if self.waiters or self.returned or now < self.paused_until or now < self._next_release:
            return None
        if self._next_in(now) > 0 or not self._take_slot(now):
            return None
        reservation = Reservation.of(self, _RELEASED)
        self._reserve_for(reservation)
        return reservation

    def take(self, now: float) -> Reservation | None:
        """Let a newcomer out at once whose call is sent right now: its permit is committed."""
        # speed: same as reserve() and commit(), held by tests/policy/throttle/test_reservation.py;
        # saves 12 of 17 calls, 7,800 instead of 22,100 instructions
        if self.waiters or self.returned or now < self.paused_until or now < self._next_release:
            return None
        concurrency = self.concurrency
        if concurrency is not None and not concurrency.take(now, 0):
            return None
        if not self.rates.take(now, self.reserved):
            if concurrency is not None:
                concurrency.give_back()
            return None
        self.under_way += 1
        reservation = Reservation()
        reservation.queue = self
        reservation.state = _COMMITTED
        return reservation

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
        if is_here and self._is_unsure(now):
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
        follows_a_guess = bool(self.waiters) and next(reversed(self.waiters)).is_guess
        waiter.is_guess = follows_a_guess or self._is_unsure(now)
        self.waiters[waiter] = None

    def leave(self, waiter: W) -> None:
        """Remove a waiter from the queue; all behind it move up."""
        self.waiters.pop(waiter, None)
        self.returned.pop(waiter, None)

    def wait(self, now: float) -> float:
        """Return the estimated seconds until one more waiter would be released."""
        return self._wait_behind(self.waiting, now)

    def _wait_behind(self, ahead: int, now: float) -> float:
        wait = self.rates.wait(now, self.reserved + self._aside + ahead + 1)
        if now < self.paused_until:
            # Computed as if no waiter came after it; the more there are, the sooner each of them
            # goes. The owner of a reserved permit cannot use it before the end of the pause, and
            # comes back first.
            others = ahead + self.reserved
            share = 0.0 if self.settings.rates else SPREAD * others / (others + 1)
            return max(wait, self.paused_until - now + share)
        if self._spread is not None:
            return max(wait, self._spread.wait(now, ahead))
        return wait

    # The queue moves.

    def serve(self, now: float) -> Served[W]:
        """Release the waiters that are next, and refuse those that have waited for too long."""
        served: Served[W] = Served()
        # Release first: a waiter that is released in its last moment was promised to be in time.
        if now >= self.paused_until:
            self._release_ready(now, served)
        if self.waiting and self.rates.wait(now, 1) == NEVER:
            self._refuse_all(served)
        self._refuse_guesses(now, served)
        self._refuse_expired(now, served)
        if self.waiting and now >= self.paused_until:
            self._ask_stores(now)
        return served

    def _release_ready(self, now: float, served: Served[W]) -> None:
        if self.waiting and self.paused_until > -NEVER and not self.settings.rates:
            if self._first().entered < self.paused_until:
                self._spread = ReleaseSpread(self.paused_until, self.waiting)
            self.paused_until = -NEVER
        while self.waiting and self._next_in(now) <= 0:
            waiters = self.returned or self.waiters
            waiter = next(iter(waiters))
            if waiter.is_gone:
                del waiters[waiter]
                continue
            reservation = waiter.reservation
            if reservation is None:
                if now < self._next_release or not self._take_slot(now):
                    break
                reservation = Reservation.of(self, _RELEASED)
            del waiters[waiter]
            self._reserve_for(reservation)
            served.out.append((waiter, reservation))
        if not self.waiting:
            self._spread = None

    def _first(self) -> W:
        return next(iter(self.returned or self.waiters))

    def _take_slot(self, now: float) -> bool:
        if self.concurrency is not None and not self.concurrency.take(now, 0):
            return False
        self.under_way += 1
        return True

    def _has_slot(self, now: float) -> bool:
        return self.concurrency is None or self.concurrency.wait(now, 1) <= 0

    def _next_in(self, now: float) -> float:
        """Return the seconds until a waiter that has its slot may go; not above 0: it may now."""
        wait = self.rates.wait(now, self.reserved + 1)
        return wait if self._spread is None else max(wait, self._spread.wait(now, 0))

    def _reserve_for(self, reservation: Reservation) -> None:
        """Reserve the next permit for a call that has its slot."""
        reservation.state = _RESERVED
        self.reserved += 1
        if self._spread is not None:
            self._spread.out += 1

    def _refuse_all(self, served: Served[W]) -> None:
        """Refuse every waiter: no permit will be given any more."""
        for queue in (self.returned, self.waiters):
            served.refused.extend(
                (waiter, ThrottleCause.STORE) for waiter in queue if not waiter.is_gone
            )
            queue.clear()

    def _refuse_expired(self, now: float, served: Served[W]) -> None:
        patience = self._patience
        # All wait equally long at most, so those that came first give up first.
        while self.waiters:
            waiter = next(iter(self.waiters))
            if not waiter.is_gone and waiter.entered + patience > now:
                return
            if waiter.is_guess and not waiter.is_gone:
                return  # the store may not have been asked yet
            del self.waiters[waiter]
            if not waiter.is_gone:
                cause = ThrottleCause.PAUSED if now < self.paused_until else ThrottleCause.MAX_WAIT
                served.refused.append((waiter, cause))

    def _refuse_guesses(self, now: float, served: Served[W]) -> None:
        """Refuse the guesses that would be released too late, now that the wait is known."""
        if self._is_unsure(now):
            return
        guesses = list(takewhile(lambda waiter: waiter.is_guess, reversed(self.waiters)))
        ahead = self.waiting - len(guesses)
        for waiter in reversed(guesses):
            waiter.is_guess = False
            if waiter.is_gone:
                del self.waiters[waiter]
                continue
            patience = waiter.entered + self._patience - now
            refusal = self._refusal_behind(now, ahead, patience, waiter.deadline - now)
            if refusal is None:
                ahead += 1
            else:
                del self.waiters[waiter]
                served.refused.append((waiter, refusal.cause))

    def next_look(self, now: float) -> float | None:
        """Return the seconds after which :meth:`serve` may release one; None: unknown."""
        if not self.waiting:
            return None
        if self.returned:
            wait = max(self._next_in(now), self.paused_until - now)
        elif self._has_slot(now):
            wait = max(self._next_in(now), self.paused_until - now, self._next_release - now)
        else:
            wait = NEVER
        if self.waiters:
            first = next(iter(self.waiters))
            if not first.is_guess:
                wait = min(wait, max(first.entered + self._patience - now, 0.0))
        return None if wait == NEVER else wait

    # Limiters with a store behind them.

    def _is_unsure(self, now: float) -> bool:
        """Tell whether a store may yet allow more than is known."""
        if now < self.paused_until:
            return False
        if self.concurrency is None or self._has_slot(now):
            return self.rates.ask(now, 0)
        return self.concurrency.ask(now, 0)

    def _ask_stores(self, now: float) -> None:
        """Ask for permits for those who have a slot or can get one; for slots if none is free."""
        free, concurrency = len(self.waiters), self.concurrency
        if concurrency is not None and free:
            in_vain = range(1, free + 1)
            free = bisect_left(in_vain, NEVER, key=lambda count: concurrency.wait(now, count))
            if not free:
                concurrency.ask(now, len(self.waiters))
        if free or self.returned:
            self.rates.ask(now, len(self.returned) + free)

    # After a waiter was released.

    def set_aside(self, now: float) -> None:
        """Leave the permit committed last to any call; see :meth:`Reservation.set_aside`."""
        self.rates.give_back()
        self._aside += 1
        before = self.reserved + self._aside
        # As long as there are permits for all of these, no waiter has to wait for them.
        until_next = self.rates.wait(now, before + 1)
        gap = until_next - self.rates.wait(now, before) if until_next < NEVER else 0.0
        self._next_release = now + min(gap, _LONGEST_GAP)

    def rejoin(self) -> None:
        """Count a waiter as set aside no longer: it comes back now, or has given up."""
        self._aside -= 1
        if not self._aside:
            self._next_release = -NEVER

    def reserve_again(self, reservation: Reservation, now: float) -> bool:
        """Reserve another permit at once for a call whose own is gone, if no other came back."""
        if self.returned or now < self.paused_until or self._next_in(now) > 0:
            return False
        self._reserve_for(reservation)
        return True

    def come_back(self, waiter: W) -> bool:
        """Put a waiter that has a reservation without a permit first in the queue.

        False: a pause has begun meanwhile that is longer than it may wait.
        """
        if self._gives_up_at(waiter) < self.paused_until:
            return False
        self.returned[waiter] = None
        return True

    def _gives_up_at(self, waiter: W) -> float:
        """Return when the waiter waits no longer."""
        return min(waiter.entered + self._patience, waiter.deadline)

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
        if until <= self.paused_until or seconds <= 0:
            return []
        self.paused_until = until
        self._spread = None
        if tells_limiter:
            self.rates.change(self.settings, now, until)
        waiters = (*self.returned, *self.waiters)
        hopeless = [waiter for waiter in waiters if self._gives_up_at(waiter) < until]
        for waiter in hopeless:
            self.leave(waiter)
        return hopeless

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Apply other limits from now on, also to those in the queue, and to a pause."""
        self.settings = settings
        self.paused_until = min(self.paused_until, now + (settings.longest_pause or 0.0))
        self.rates.change(settings, now, self.paused_until)
        self._change_concurrency(settings, now)

    def _change_concurrency(self, settings: ThrottleSettings, now: float) -> None:
        if self.concurrency is not None:
            self.concurrency.change(settings, now, self.paused_until)
            if settings.concurrency is None:
                self.concurrency = None
        elif settings.concurrency is not None:
            self.concurrency = self._new_concurrency(settings, self.under_way)
