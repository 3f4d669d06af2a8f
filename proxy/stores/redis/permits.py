"""The permits of one bucket that all instances share.

Nothing here waits. ``take`` uses what is at hand (``leases.py``, ``places.py``); what is
not at hand is asked for, one call at a time, and the listener hears when the answer came.

While the store is down, something else stands in for it (``outage.py``). Calls that are
under way are counted throughout, so that nothing has to be found out when it is back.
"""

import asyncio
from typing import Protocol

from proxy.core import Clock
from proxy.policy.permits import LocalPermits, Permits, PermitsListener, Quota
from proxy.policy.settings import ThrottleSettings
from proxy.stores.redis.leases import Leases
from proxy.stores.redis.link import Answer, Link
from proxy.stores.redis.outage import stand_in
from proxy.stores.redis.places import ASK_EVERY, LEASE, TURN, Places, Report
from proxy.stores.redis.scripts import PERMITS, PLACES
from proxy.stores.redis.terms import terms

_PACE = 0.002
"""Seconds per instance between two questions for permits while the limit is reached: the more
of them ask, the more permits there must be for it to be worth while."""
_SLOWEST_PACE = 0.02
_GUESS = 0.005
"""Seconds after which to look again if nobody knows when permits come."""
_SAME_PAUSE = 0.005
"""Seconds by which two tellings of the same pause may differ."""


class Holders(Protocol):
    """Looks after those that hold places: they must be renewed, and given back if unused."""

    def hold(self, permits: "SharedPermits") -> None:
        """Call its :meth:`SharedPermits.look` again and again, until it says that it is done."""


class SharedPermits:
    """Implements :class:`~proxy.policy.permits.Permits` with a store behind it."""

    __slots__ = (
        "__weakref__",
        "_asking",
        "_clock",
        "_due",
        "_era",
        "_holders",
        "_is_contested",
        "_key",
        "_leases",
        "_link",
        "_listener",
        "_name",
        "_next",
        "_next_place",
        "_paused_until",
        "_pauses",
        "_places",
        "_reporting",
        "_settings",
        "_stand_in",
        "_terms",
        "_timer",
        "_waiting",
    )

    def __init__(
        self,
        *,
        key: str,
        name: str,
        pauses: tuple[str, str],
        settings: ThrottleSettings,
        listener: PermitsListener,
        link: Link,
        holders: Holders,
        clock: Clock,
    ) -> None:
        """*name* is our own among all holders of places; *pauses*, the channel and our words."""
        now = clock.monotonic()
        self._key = key
        self._name = name
        self._pauses = pauses
        self._settings = settings
        self._listener = listener
        self._link = link
        self._holders = holders
        self._clock = clock
        self._terms = terms(settings)
        self._leases = Leases(self._terms, now)
        self._places = Places(settings.concurrency)
        self._stand_in: Permits | None = None
        self._paused_until = -1.0
        self._asking = self._reporting = False
        """Whether the store has yet to answer about permits, and about places."""
        self._era = 0
        """Answers to what was asked in an earlier one bring no permits."""
        self._is_contested = False
        """Whether we got less permits than we asked for."""
        self._next = self._next_place = -1.0
        """Before that moment there is nothing to be had for certain."""
        self._waiting = 0
        """How many wait, as far as we were told."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """When the timer fires."""
        if not link.is_up:
            self._stand_in = stand_in(settings, link.instances, now, 0)

    def __repr__(self) -> str:
        state = "without the store" if self._stand_in is not None else f"{self._leases.left} left"
        return f"<shared permits of {self._key}: {state}, {self._places}>"

    # Permits and places.

    def take(self, now: float, held: int) -> bool:
        """Let a call out now, if there is a permit besides the *held* ones, and a place."""
        places = self._places
        if now < self._paused_until:
            return False
        if self._stand_in is not None:
            if not self._stand_in.take(now, held):
                return False
        elif not places.has_room(now):
            return False
        elif self._terms.arguments:
            leases = self._leases
            if not leases.take(now, held):
                return False
            if leases.is_low():
                self._ask_ahead(now)
        places.occupy()
        return True

    def undo(self, now: float) -> None:
        """The last take did not happen after all."""
        if self._stand_in is not None:
            self._stand_in.undo(now)
        elif self._terms.arguments:
            self._leases.take_back()
        self._places.vacate()

    def hold(self, now: float) -> None:
        """What the last take, or the last spend, has used is only held."""
        if self._stand_in is not None:
            self._stand_in.hold(now)
        elif self._terms.arguments:
            self._leases.take_back()

    def spend(self, now: float) -> bool:
        """A held permit is used now; False if it has lapsed, and another one is needed."""
        if now < self._paused_until:
            return False
        if self._stand_in is not None:
            return self._stand_in.spend(now)
        return not self._terms.arguments or self._leases.take(now, 0)

    def has_room(self) -> bool:
        """Whether there is a place for one more call."""
        if self._stand_in is not None:
            return self._stand_in.has_room()
        return self._places.has_room(self._clock.monotonic())

    def occupy(self) -> None:
        """A call takes its place; its permit is held."""
        if self._stand_in is not None:
            self._stand_in.occupy()
        self._places.occupy()

    def vacate(self, now: float) -> None:
        """A call is over, and its place is free."""
        if self._stand_in is not None:
            self._stand_in.vacate(now)
        self._places.vacate()
        if self._places.has_surplus:
            self._report(now)

    # What is known.

    def wait(self, now: float, count: int) -> float:
        """Seconds until there is a permit for the *count*-th call from now; 0: there is one.

        Others use the same permits, so this is the least that it can be.
        """
        if now < self._paused_until:
            ahead = (count - 1) * self._terms.interval if self._stand_in is None else 0.0
            return self._paused_until - now + ahead
        if self._stand_in is not None:
            return self._stand_in.wait(now, count)
        missing = count - self._leases.count(now) if self._terms.arguments else 0
        if missing <= 0:
            return 0.0
        first = self._next - now if now < self._next else _GUESS
        return first + (missing - 1) * self._terms.interval

    def is_unsure(self, now: float) -> bool:
        """Whether there may be permits or places that only asking can bring."""
        if self._stand_in is not None or now < self._paused_until:
            return False
        places = self._places
        if not places.has_room(now) and (self._reporting or now >= self._next_place):
            return True
        return bool(self._terms.arguments) and (self._asking or now >= self._next)

    def is_idle(self, now: float) -> bool:
        """Whether a new one could take over and nobody would notice."""
        if now < self._paused_until or self._asking or self._reporting:
            return False
        if not self._places.is_idle or self._leases.count(now):
            return False
        return self._stand_in is None or self._stand_in.is_idle(now)

    def quotas(self, now: float) -> tuple[Quota, ...]:
        """What is left, as far as is known here: of the rates, either nothing or enough."""
        if self._stand_in is not None:
            return self._stand_in.quotas(now)
        picture = LocalPermits(self._settings, now)
        if self.wait(now, 1) > 0:
            picture.drain(now, now + self.wait(now, 1))
        limit = self._settings.concurrency
        if limit is not None:
            for _ in range(limit - self._places.room(now)):
                picture.occupy()
        return picture.quotas(now)

    # Asking the store.

    def ask(self, now: float, waiting: int) -> None:
        """So many wait, and there is no permit or no place: get them, as soon as can be."""
        if self._stand_in is not None:
            return
        self._waiting = waiting
        if not self._places.has_room(now):
            if now >= self._next_place:
                self._report(now)
            else:
                self._come_back(now, self._next_place)
        elif self._terms.arguments and not self._asking:
            if now >= max(self._next, self._paused_until):
                self._ask(now)
            else:
                self._come_back(now, max(self._next, self._paused_until))

    def _come_back(self, now: float, due: float) -> None:
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = asyncio.get_running_loop().call_later(due - now, self._ask_again)

    def _ask_again(self) -> None:
        self._timer = None
        if self._waiting:
            self.ask(self._clock.monotonic(), self._waiting)

    def _ask(self, now: float) -> None:
        """Permits for all who wait and have a place."""
        want = self._waiting
        if self._places.limit is not None:
            want = min(want, self._places.room(now))
        ahead = self._leases.reckon(now)
        self._send(want if self._is_contested else want + ahead)

    def _ask_ahead(self, now: float) -> None:
        """Permits for those who will come, if it goes on like this."""
        if not self._asking and not self._is_contested and now >= self._next:
            want = self._leases.reckon(now)
            if want:
                self._send(want)

    def _send(self, want: int) -> None:
        self._asking = True
        era = self._era

        def answer(numbers: list[int], sent: float) -> None:
            self._asking = False
            given, next_in, paused_for, *_ = numbers
            now = self._clock.monotonic()
            if era == self._era:
                life = max(self._terms.life, 2 * self._link.round_trip)
                self._leases.put(given, sent + life, now)
                self._is_contested = given < want
                self._next = now + next_in / 1e6
                if self._is_contested:
                    self._next = max(self._next, now + self._pace())
            self._waiting = 0  # whoever still waits will say so
            self._learn_pause(now, paused_for)
            self._listener.permits_changed()

        self._call_permits("take", want, 0, answer)

    def _call_permits(self, operation: str, want: int, pause: int, answer: Answer) -> None:
        longest = self._settings.longest_pause
        args: tuple[str | int, ...] = (want, pause, round((longest or 0.0) * 1e6))
        args += (*self._pauses, *self._terms.arguments)
        self._link.call(operation, PERMITS, self._key, args, answer)

    def _pace(self) -> float:
        """Seconds until it is worth while to ask again."""
        pace = min(_PACE * self._link.instances, self._terms.life / 4, _SLOWEST_PACE)
        return pace * (0.75 + self._clock.roll() / 2)

    def _report(self, now: float) -> None:
        """Tell the store of our places."""
        if self._reporting or self._stand_in is not None or self._places.limit is None:
            return
        self._reporting = True
        self._holders.hold(self)
        report = self._places.report(now, self._waiting)

        def answer(numbers: list[int], sent: float) -> None:  # noqa: ARG001 - the report knows
            self._reporting = False
            self._settle(report, numbers[0])

        args = (
            self._name,
            report.kept,
            report.wanted,
            self._places.limit,
            round(LEASE * 1e6),
            round(TURN * 1e6),
        )
        self._link.call("places", PLACES, self._key, args, answer)

    def _settle(self, report: Report, may: int) -> None:
        places = self._places
        now = self._clock.monotonic()
        places.settle(report, may)
        if places.is_contested:
            self._next_place = now + ASK_EVERY * (0.75 + self._clock.roll() / 2)
        if places.has_surplus:
            self._report(now)
        self._waiting = 0  # whoever still waits will say so
        self._listener.permits_changed()

    def look(self, now: float) -> bool:
        """Renew our places, and give back those that were not used. Whether we hold any."""
        if self._stand_in is None and self._places.look(now):
            self._report(now)
        return self._reporting or not self._places.is_idle

    # Pauses and changes.

    def drain(self, now: float, until: float) -> None:
        """Give nothing out before *until*, and from then on at the rate, without a burst."""
        self._close_until(now, until)
        if self._stand_in is None:
            self._tell_pause(now)

    def _close_until(self, now: float, until: float) -> None:
        self._paused_until = max(self._paused_until, until)
        self._leases.drop()
        self._era += 1
        if self._stand_in is not None:
            self._stand_in.drain(now, until)

    def _tell_pause(self, now: float) -> None:
        def answer(numbers: list[int], sent: float) -> None:  # noqa: ARG001 - no matter when
            self._learn_pause(self._clock.monotonic(), numbers[2])

        self._call_permits("pause", 0, round((self._paused_until - now) * 1e6), answer)

    def _learn_pause(self, now: float, microseconds: int) -> None:
        if microseconds:
            self.hear_pause(now, microseconds / 1e6)

    def hear_pause(self, now: float, seconds: float) -> None:
        """Another instance was told to leave the upstream alone for so long."""
        longest = self._settings.longest_pause
        if longest is None:
            return
        until = now + min(seconds, longest)
        if until > self._paused_until + _SAME_PAUSE:
            self._close_until(now, until)
            self._listener.permits_paused(until)

    def look_for_pause(self) -> None:
        """Ask the store whether there is a pause that we did not hear of."""
        if self._stand_in is None and not self._asking and self._settings.longest_pause:
            self._send(0)

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Other limits hold from now on; the store knows what is left."""
        self._settings = settings
        self._terms = terms(settings)
        self._leases = Leases(self._terms, now)
        self._places.change(settings.concurrency)
        self._era += 1
        self._next = self._next_place = -1.0
        if self._stand_in is not None:
            self._stand_in = stand_in(settings, self._link.instances, now, self._places.under_way)
            if now < self._paused_until:
                self._stand_in.drain(now, self._paused_until)
        self._listener.permits_changed()

    # The store comes and goes.

    def went_down(self, now: float) -> None:
        """From now on something else stands in for the store."""
        self._asking = self._reporting = False
        self._era += 1
        self._leases.drop()
        self._places.forget()
        self._stand_in = stand_in(self._settings, self._link.instances, now, self._places.under_way)
        if now < self._paused_until:
            self._stand_in.drain(now, self._paused_until)
        self._listener.permits_changed()

    def came_up(self, now: float) -> None:
        """The store can be used again."""
        self._stand_in = None
        self._next = self._next_place = -1.0
        if now < self._paused_until:
            self._tell_pause(now)
        self._listener.permits_changed()

    def close(self) -> None:
        """Ask for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
