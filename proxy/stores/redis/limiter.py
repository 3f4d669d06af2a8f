"""The rate limiter of one bucket that all instances share.

Nothing here waits. Permits and slots at hand are used (``rates.py``, ``concurrency.py``); others
are asked for, one command at a time, and the listener is told when the answer has come.

While the store is down, a degraded limiter replaces it (``degraded.py``). Calls that are
under way are counted throughout, so that nothing has to be found out when it is back.

Instances find out one after the other that it is back. The first one must not take what
the others, still degraded, count as theirs. So for a moment both limits apply: what the store
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
from proxy.stores.redis.degraded import degraded_limiter
from proxy.stores.redis.lease_terms import lease_terms
from proxy.stores.redis.permit_commands import PermitCommands
from proxy.stores.redis.rates import SharedRates

_SAME_PAUSE = 0.005
"""Seconds by which two messages about one pause may differ."""


class SlotRenewer(Protocol):
    """Renews the slots of limiters that have any, and gives back those that are not used."""

    def keep_renewing(self, limiter: "SharedLimiter") -> None:
        """Call :meth:`SharedLimiter.look` of *limiter* regularly, until that returns False."""


class SharedLimiter:
    """Implements :class:`~proxy.policy.throttle.limiter.Limiter` with a store behind it."""

    __slots__ = (
        "__weakref__",
        "_alone_since",
        "_clock",
        "_commands",
        "_concurrency",
        "_degraded",
        "_due",
        "_listener",
        "_paused_until",
        "_permit_life",
        "_rates",
        "_renewer",
        "_sent_alone",
        "_settings",
        "_store_is_up",
        "_timer",
        "_waiting",
    )

    def __init__(
        self,
        settings: ThrottleSettings,
        listener: LimiterListener,
        commands: PermitCommands,
        renewer: SlotRenewer,
        clock: Clock,
        *,
        permit_life: float | None = None,
    ) -> None:
        """Limit by *settings*; *permit_life*: seconds, if the rates do not decide."""
        self._settings = settings
        self._permit_life = permit_life
        self._listener = listener
        self._commands = commands
        self._renewer = renewer
        self._clock = clock
        self._rates = SharedRates(
            lease_terms(settings, permit_life), commands, clock, self._permits_came
        )
        self._concurrency = SharedConcurrency(
            settings.concurrency, commands, clock, self._slots_came
        )
        self._degraded: Limiter | None = None
        """The limiter in force while the store is down, and for a moment after that."""
        self._store_is_up = True
        """Whether the store can be asked."""
        self._sent_alone = 0
        """Calls that were sent without the store, and of which it does not know yet."""
        self._alone_since = 0.0
        self._paused_until = 0.0
        """When the last pause is over."""
        self._waiting = 0
        """How many wait, as far as we were told since the store last answered."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """When the timer fires."""
        if not commands.link.is_up:
            self._do_without_store(clock.monotonic())

    def __repr__(self) -> str:
        state = self._rates if self._store_is_up else "no store"
        return f"<permits of {self._commands}: {state}, {self._concurrency}>"

    # Permits and slots.

    def take(self, now: float, reserved: int) -> bool:
        """Let a call out now, if a permit besides the *reserved* ones and a slot are free."""
        # speed: for every attempt, 0.5 µs with a rate.
        if now < self._paused_until:
            return False
        if self._degraded is not None:
            return self._take_beside(self._degraded, now, reserved)
        concurrency = self._concurrency
        if not concurrency.has_capacity(now) or not self._rates.take(now, reserved):
            return False
        concurrency.occupy()
        return True

    def _take_beside(self, other: Limiter, now: float, reserved: int) -> bool:
        if not other.take(now, reserved):
            return False
        if not self._store_is_up:
            self._sent_alone += 1
        elif not (self._concurrency.has_capacity(now) and self._rates.take(now, reserved)):
            other.undo(now)
            return False
        self._concurrency.occupy()
        return True

    def undo(self, now: float) -> None:
        """Undo the last take."""
        if self._degraded is not None:
            self._degraded.undo(now)
        self._take_back()
        self._concurrency.leave()

    def reserve(self, now: float) -> None:
        """Only reserve what the last take, or the last spend, has used."""
        if self._degraded is not None:
            self._degraded.reserve(now)
        self._take_back()

    def _take_back(self) -> None:
        if self._store_is_up:
            self._rates.take_back()
        else:
            self._sent_alone -= 1

    def spend(self, now: float) -> bool:
        """Use a reserved permit now; False if it has lapsed, and another one is needed."""
        if now < self._paused_until or (self._store_is_up and not self._rates.take(now, 0)):
            return False
        if self._degraded is not None and not self._degraded.spend(now):
            return False
        if not self._store_is_up:
            self._sent_alone += 1
        return True

    def has_capacity(self) -> bool:
        """Tell whether a slot is free for one more call."""
        if self._degraded is not None and not self._degraded.has_capacity():
            return False
        return not self._store_is_up or self._concurrency.has_capacity(self._clock.monotonic())

    def occupy(self) -> None:
        """Take a slot for a call whose permit is reserved."""
        if self._degraded is not None:
            self._degraded.occupy()
        self._concurrency.occupy()

    def vacate(self) -> None:
        """Free the slot of a call that is over."""
        concurrency = self._concurrency
        concurrency.leave()
        if self._degraded is not None:
            self._degraded.vacate()
        if concurrency.has_surplus and self._store_is_up:
            concurrency.report(self._clock.monotonic())

    # Known limits.

    def wait(self, now: float, count: int) -> float:
        """Return the seconds until the *count*-th call from now has a permit; 0: there is one."""
        alone = 0.0 if self._degraded is None else self._degraded.wait(now, count)
        if self._store_is_up:
            return max(alone, self._rates.wait(now, count, self._paused_until))
        return max(alone, self._paused_until - now)

    def is_unsure(self, now: float) -> bool:
        """Tell whether asking the store may bring permits or slots."""
        if not self._store_is_up or now < self._paused_until:
            return False
        if self._concurrency.has_capacity(now):
            return self._rates.is_unsure(now)
        return self._concurrency.is_unsure(now)

    def is_idle(self, now: float) -> bool:
        """Tell whether a new limiter could replace this one without any caller noticing."""
        if (
            now < self._paused_until
            or not self._concurrency.is_idle()
            or not self._rates.is_idle(now)
        ):
            return False
        return self._degraded is None or self._degraded.is_idle(now)

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:
        """Return what is left, as far as is known here: of the rates, either nothing or enough."""
        if self._degraded is not None and not self._store_is_up:
            return self._degraded.quotas(now)
        rates = LocalLimiter(replace(self._settings, concurrency=None), now)
        wait = self.wait(now, 1)
        if wait > 0:
            rates.close_until(now, now + wait)
        limit, free_slots = self._concurrency.limit, self._concurrency.free_slots(now)
        if limit is None or free_slots is None:
            return rates.quotas(now)
        return (*rates.quotas(now), QuotaLeft("concurrency", limit, None, free_slots, None))

    # Asking the store.

    def ask(self, now: float, waiting: int) -> None:
        """Request permits or slots for *waiting* waiters, as soon as that can be done."""
        if not self._store_is_up or (
            self._degraded is not None and not self._degraded.has_capacity()
        ):
            return
        self._waiting = waiting
        due: float | None
        if now < self._paused_until:
            due = self._paused_until
        elif self._concurrency.has_capacity(now):
            free_slots = self._concurrency.free_slots(now)
            due = self._ask_for_permits(
                now, waiting if free_slots is None else min(waiting, free_slots)
            )
        else:
            self._renewer.keep_renewing(self)
            due = self._concurrency.ask(now, waiting)
        if due is not None:
            self._come_back(now, due)

    def _ask_for_permits(self, now: float, want: int) -> float | None:
        if self._degraded is not None:  # no more than the degraded limiter could use
            wait = self._degraded.wait(now, 1)
            if wait > 0:
                return now + wait
            while want > 1 and self._degraded.wait(now, want) > 0:
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
        self._slots_came()

    def _slots_came(self) -> None:
        self._waiting = 0  # requests that still wait will ask again
        self._listener.permits_changed()

    def look(self, now: float) -> bool:
        """Renew our slots, and give back those that were not used; tell whether we have any."""
        return self._store_is_up and self._concurrency.look(now)

    def _report_slots(self, now: float) -> None:
        if self._concurrency.under_way and self._store_is_up:
            self._renewer.keep_renewing(self)
            self._concurrency.report(now)

    # Pauses and changes.

    def close_until(self, now: float, until: float) -> None:
        """Give nothing out before *until*, and from then on at the rate, without a burst."""
        self._close_until(now, until)
        if self._store_is_up:
            self._tell_pause(now)

    def _close_until(self, now: float, until: float) -> None:
        self._paused_until = max(self._paused_until, until)
        self._rates.forget()
        if self._degraded is not None:
            self._degraded.close_until(now, self._paused_until)

    def _tell_pause(self, now: float) -> None:
        def answer(numbers: list[int], sent: float) -> None:  # noqa: ARG001 - no matter when
            self.hear_pause(numbers[2] / 1e6)

        self._commands.pause(self._paused_until - now, self._rates.terms, answer)

    def hear_pause(self, seconds: float) -> None:
        """Pause for *seconds*, as the upstream has told another instance."""
        now = self._clock.monotonic()
        until = now + min(seconds, self._rates.terms.longest_pause)
        if seconds and until > self._paused_until + _SAME_PAUSE:
            self._close_until(now, until)
            self._listener.permits_paused(until)

    def look_for_pause(self) -> None:
        """Ask the store whether there is a pause whose message we missed."""
        may_pause = self._rates.terms.longest_pause > 0
        if may_pause and self._store_is_up and not self._rates.is_asking:
            self._rates.send(0)

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Apply other limits from now on. The store knows what is left of them."""
        self._settings = settings
        self._rates.change(lease_terms(settings, self._permit_life))
        self._concurrency.change(settings.concurrency)
        if self._degraded is not None:
            self._degraded = self._new_degraded(now)
        self._report_slots(now)
        self._listener.permits_changed()

    # The store comes and goes.

    def went_down(self, now: float) -> None:
        """Use a degraded limiter from now on: the store is down."""
        self._rates.lose_store()
        self._concurrency.lose_store()
        self._do_without_store(now)
        self._listener.permits_changed()

    def _do_without_store(self, now: float) -> None:
        self._store_is_up = False
        if not self._sent_alone:
            self._alone_since = now
        if self._degraded is None:
            self._degraded = self._new_degraded(now)

    def _new_degraded(self, now: float) -> Limiter:
        instances, under_way = self._commands.link.instances, self._concurrency.under_way
        limiter = degraded_limiter(
            self._settings, instances, now, under_way, self._rates.terms.life
        )
        if now < self._paused_until:
            limiter.close_until(now, self._paused_until)
        return limiter

    def came_up(self, now: float) -> None:
        """Use the store again; other instances may not know yet that it is up."""
        self._store_is_up = True
        if self._settings.on_store_error != "local":
            self._degraded = None
            self._sent_alone = 0
        self._report_sent(now)
        if now < self._paused_until:
            self._tell_pause(now)
        self._report_slots(now)
        self._listener.permits_changed()

    def _report_sent(self, now: float) -> None:
        """Report to the store what was sent without it."""
        sent = self._sent_alone
        if not sent or not self._settings.rates:
            self._sent_alone = 0
            return

        def answered() -> None:
            self._sent_alone -= sent

        self._rates.report_sent(sent, now - self._alone_since, answered)

    def trust_store(self) -> None:
        """Drop the degraded limiter: by now all instances know that the store is up."""
        if self._store_is_up and self._degraded is not None:
            self._degraded = None
            self._listener.permits_changed()

    def close(self) -> None:
        """Give the slots back, if the store can take them, and ask no more."""
        self._waiting = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._store_is_up:
            self._concurrency.give_up()
