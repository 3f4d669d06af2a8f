"""The permits of one bucket that all instances share.

Nothing here waits. What is at hand is used (``rates.py``, ``places.py``); what is not is
asked for, one question at a time, and the listener hears when the answer has come.

While the store is down, something else stands in for it (``outage.py``). Calls that are
under way are counted throughout, so that nothing has to be found out when it is back.

Instances find out one after the other that it is back. Whoever is first must not take what
the others, still on their own, count as theirs. So for a moment both hold: what the store
gives, and our share of it. And the store is told what was sent meanwhile, which it did not count.
"""

import asyncio
from dataclasses import replace
from typing import Protocol

from proxy.core.clock import Clock
from proxy.http.refusal import QuotaLeft
from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.limiter import Limiter, LimiterListener, LocalLimiter
from proxy.stores.redis.concurrency import SharedConcurrency
from proxy.stores.redis.degraded import stand_in
from proxy.stores.redis.lease_terms import lease_terms
from proxy.stores.redis.permit_commands import PermitCommands
from proxy.stores.redis.rates import SharedRates

_SAME_PAUSE = 0.005
"""Seconds by which two tellings of one pause may differ."""


class Caretaker(Protocol):
    """Looks after those that have places: they must be renewed, and given back if unused."""

    def look_after(self, permits: "SharedLimiter") -> None:
        """Call its :meth:`SharedLimiter.look` again and again, until that says no."""


class SharedLimiter:
    """Implements :class:`~proxy.policy.throttle.limiter.Limiter` with a store behind it."""

    __slots__ = (
        "__weakref__",
        "_alone",
        "_alone_since",
        "_calls",
        "_can_ask",
        "_caretaker",
        "_clock",
        "_due",
        "_listener",
        "_opens",
        "_permit_life",
        "_places",
        "_rates",
        "_settings",
        "_stand_in",
        "_timer",
        "_waiting",
    )

    def __init__(
        self,
        settings: ThrottleSettings,
        listener: LimiterListener,
        calls: PermitCommands,
        caretaker: Caretaker,
        clock: Clock,
        *,
        permit_life: float | None = None,
    ) -> None:
        """*permit_life*: how long a permit lives, if that is not left to its rates."""
        self._settings = settings
        self._permit_life = permit_life
        self._listener = listener
        self._calls = calls
        self._caretaker = caretaker
        self._clock = clock
        self._rates = SharedRates(
            lease_terms(settings, permit_life), calls, clock, self._permits_came
        )
        self._places = SharedConcurrency(settings.concurrency, calls, clock, self._places_came)
        self._stand_in: Limiter | None = None
        """What holds while the store is down, and for a moment after that."""
        self._can_ask = True
        """Whether the store is there."""
        self._alone = 0
        """Calls that were sent without the store, and of which it does not know yet."""
        self._alone_since = 0.0
        self._opens = 0.0
        """When the last pause is over."""
        self._waiting = 0
        """How many wait, as far as we were told since the store last answered."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """When the timer fires."""
        if not calls.link.is_up:
            self._do_without_store(clock.monotonic())

    def __repr__(self) -> str:
        state = self._rates if self._can_ask else "no store"
        return f"<permits of {self._calls}: {state}, {self._places}>"

    # Permits and places.

    def take(self, now: float, reserved: int) -> bool:
        """Let a call out now, if there is a permit besides the *reserved* ones, and a place."""
        # For every attempt: 0.5 µs with a rate.
        if now < self._opens:
            return False
        if self._stand_in is not None:
            return self._take_beside(self._stand_in, now, reserved)
        places = self._places
        if not places.has_room(now) or not self._rates.take(now, reserved):
            return False
        places.occupy()
        return True

    def _take_beside(self, other: Limiter, now: float, reserved: int) -> bool:
        if not other.take(now, reserved):
            return False
        if not self._can_ask:
            self._alone += 1
        elif not (self._places.has_room(now) and self._rates.take(now, reserved)):
            other.undo(now)
            return False
        self._places.occupy()
        return True

    def undo(self, now: float) -> None:
        """The last take did not happen after all."""
        if self._stand_in is not None:
            self._stand_in.undo(now)
        self._take_back()
        self._places.leave()

    def reserve(self, now: float) -> None:
        """What the last take, or the last spend, has used is only held."""
        if self._stand_in is not None:
            self._stand_in.reserve(now)
        self._take_back()

    def _take_back(self) -> None:
        if self._can_ask:
            self._rates.take_back()
        else:
            self._alone -= 1

    def spend(self, now: float) -> bool:
        """A held permit is used now; False if it has lapsed, and another one is needed."""
        if now < self._opens or (self._can_ask and not self._rates.take(now, 0)):
            return False
        if self._stand_in is not None and not self._stand_in.spend(now):
            return False
        if not self._can_ask:
            self._alone += 1
        return True

    def has_room(self) -> bool:
        """Whether there is a place for one more call."""
        if self._stand_in is not None and not self._stand_in.has_room():
            return False
        return not self._can_ask or self._places.has_room(self._clock.monotonic())

    def occupy(self) -> None:
        """A call takes its place; its permit is held."""
        if self._stand_in is not None:
            self._stand_in.occupy()
        self._places.occupy()

    def vacate(self) -> None:
        """A call is over, and its place is free."""
        places = self._places
        places.leave()
        if self._stand_in is not None:
            self._stand_in.vacate()
        if places.has_surplus and self._can_ask:
            places.report(self._clock.monotonic())

    # What is known.

    def wait(self, now: float, count: int) -> float:
        """Seconds until there is a permit for the *count*-th call from now; 0: there is one."""
        alone = 0.0 if self._stand_in is None else self._stand_in.wait(now, count)
        if self._can_ask:
            return max(alone, self._rates.wait(now, count, self._opens))
        return max(alone, self._opens - now)

    def is_unsure(self, now: float) -> bool:
        """Whether there may be permits or places that only asking can bring."""
        if not self._can_ask or now < self._opens:
            return False
        if self._places.has_room(now):
            return self._rates.is_unsure(now)
        return self._places.is_unsure(now)

    def is_idle(self, now: float) -> bool:
        """Whether a new one could take over and nobody would notice."""
        if now < self._opens or not self._places.is_idle() or not self._rates.is_idle(now):
            return False
        return self._stand_in is None or self._stand_in.is_idle(now)

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:
        """What is left, as far as is known here: of the rates, either nothing or enough."""
        if self._stand_in is not None and not self._can_ask:
            return self._stand_in.quotas(now)
        rates = LocalLimiter(replace(self._settings, concurrency=None), now)
        wait = self.wait(now, 1)
        if wait > 0:
            rates.close_until(now, now + wait)
        limit, room = self._places.limit, self._places.room(now)
        if limit is None or room is None:
            return rates.quotas(now)
        return (*rates.quotas(now), QuotaLeft("concurrency", limit, None, room, None))

    # Asking the store.

    def ask(self, now: float, waiting: int) -> None:
        """So many wait, and there is no permit or no place: get them, as soon as can be."""
        if not self._can_ask or (self._stand_in is not None and not self._stand_in.has_room()):
            return
        self._waiting = waiting
        due: float | None
        if now < self._opens:
            due = self._opens
        elif self._places.has_room(now):
            room = self._places.room(now)
            due = self._ask_for_permits(now, waiting if room is None else min(waiting, room))
        else:
            self._caretaker.look_after(self)
            due = self._places.ask(now, waiting)
        if due is not None:
            self._come_back(now, due)

    def _ask_for_permits(self, now: float, want: int) -> float | None:
        if self._stand_in is not None:  # no more than we could use
            wait = self._stand_in.wait(now, 1)
            if wait > 0:
                return now + wait
            while want > 1 and self._stand_in.wait(now, want) > 0:
                want //= 2
        return self._rates.ask(now, want)

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

    def _permits_came(self, paused_for: float) -> None:
        self.hear_pause(paused_for)
        self._places_came()

    def _places_came(self) -> None:
        self._waiting = 0  # whoever still waits will say so
        self._listener.permits_changed()

    def look(self, now: float) -> bool:
        """Renew our places, and give back those that were not used. Whether we have any."""
        return self._can_ask and self._places.look(now)

    def _report_places(self, now: float) -> None:
        if self._places.under_way and self._can_ask:
            self._caretaker.look_after(self)
            self._places.report(now)

    # Pauses and changes.

    def close_until(self, now: float, until: float) -> None:
        """Give nothing out before *until*, and from then on at the rate, without a burst."""
        self._close_until(now, until)
        if self._can_ask:
            self._tell_pause(now)

    def _close_until(self, now: float, until: float) -> None:
        self._opens = max(self._opens, until)
        self._rates.forget()
        if self._stand_in is not None:
            self._stand_in.close_until(now, self._opens)

    def _tell_pause(self, now: float) -> None:
        def answer(numbers: list[int], sent: float) -> None:  # noqa: ARG001 - no matter when
            self.hear_pause(numbers[2] / 1e6)

        self._calls.pause(self._opens - now, self._rates.terms, answer)

    def hear_pause(self, seconds: float) -> None:
        """The upstream is to be left alone for so long, as others were told."""
        now = self._clock.monotonic()
        until = now + min(seconds, self._rates.terms.longest_pause)
        if seconds and until > self._opens + _SAME_PAUSE:
            self._close_until(now, until)
            self._listener.permits_paused(until)

    def look_for_pause(self) -> None:
        """Ask the store whether there is a pause that we did not hear of."""
        retry_waits = self._rates.terms.longest_pause > 0
        if retry_waits and self._can_ask and not self._rates.is_asking:
            self._rates.send(0)

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Other limits hold from now on. What is left of them the store knows."""
        self._settings = settings
        self._rates.change(lease_terms(settings, self._permit_life))
        self._places.change(settings.concurrency)
        if self._stand_in is not None:
            self._stand_in = self._stand_in_from(now)
        self._report_places(now)
        self._listener.permits_changed()

    # The store comes and goes.

    def went_down(self, now: float) -> None:
        """From now on something else stands in for the store."""
        self._rates.lose_touch()
        self._places.lose_touch()
        self._do_without_store(now)
        self._listener.permits_changed()

    def _do_without_store(self, now: float) -> None:
        self._can_ask = False
        if not self._alone:
            self._alone_since = now
        if self._stand_in is None:
            self._stand_in = self._stand_in_from(now)

    def _stand_in_from(self, now: float) -> Limiter:
        instances, under_way = self._calls.link.instances, self._places.under_way
        permits = stand_in(self._settings, instances, now, under_way, self._rates.terms.life)
        if now < self._opens:
            permits.close_until(now, self._opens)
        return permits

    def came_up(self, now: float) -> None:
        """The store can be used again; others may not know that yet."""
        self._can_ask = True
        if self._settings.on_store_error != "local":
            self._stand_in = None
            self._alone = 0
        self._own_up(now)
        if now < self._opens:
            self._tell_pause(now)
        self._report_places(now)
        self._listener.permits_changed()

    def _own_up(self, now: float) -> None:
        """Tell the store what was sent without it."""
        told = self._alone
        if not told or not self._settings.rates:
            self._alone = 0
            return

        def answered() -> None:
            self._alone -= told

        self._rates.own_up(told, now - self._alone_since, answered)

    def trust_store(self) -> None:
        """By now everybody knows that the store is there: nothing else holds any more."""
        if self._can_ask and self._stand_in is not None:
            self._stand_in = None
            self._listener.permits_changed()

    def close(self) -> None:
        """Give the places back, if there is still somebody to take them, and ask no more."""
        self._waiting = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._can_ask:
            self._places.give_up()
