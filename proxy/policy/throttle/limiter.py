"""The rate limiter of one bucket: its rates, and its concurrency.

A *permit* lets one call out; the rates decide when there is another one. A concurrency
*slot* is taken by a call that is under way; ``concurrency`` decides how many there are.

The wait queue (``wait_queue.py``) decides which waiter is next, and asks the limiter
whether there is a permit for it. Nothing in here waits or remembers an order: a permit is
spent in the moment in which its call is sent, so that no rate is ever exceeded, and
a call that is not sent costs nothing.

Between the release of a waiter and the moment of sending its permit may be *reserved*:
while a connection is being made, say. The wait queue counts the reserved permits; here
they are only an argument.
"""

import math
from functools import lru_cache
from typing import Protocol

from proxy.http.refusal import QuotaLeft
from proxy.policy.settings import Rate, ThrottleSettings
from proxy.policy.throttle.gcra import Gcra, GcraMeter
from proxy.policy.throttle.pacing import NANOSECONDS, Pace, Pacing, pace
from proxy.policy.throttle.sliding_window import SlidingWindow

NEVER = math.inf
"""The wait for a permit that will never come."""


class Limiter(Protocol):
    """The permits and concurrency slots of one bucket. Times are monotonic seconds."""

    def take(self, now: float, reserved: int) -> bool:
        """Let a call out now, if a permit besides the *reserved* ones and a slot are free.

        The permit is spent and the slot is taken, or neither.
        """

    def undo(self, now: float) -> None:
        """Undo the last :meth:`take`. Only before the event loop runs anything else."""

    def reserve(self, now: float) -> None:
        """Only reserve the permit taken or spent last; its slot stays taken. As :meth:`undo`."""

    def spend(self, now: float) -> bool:
        """Use a reserved permit now; False if it has lapsed, and another one is needed."""

    def has_capacity(self) -> bool:
        """Tell whether a slot is free for one more call."""

    def occupy(self) -> None:
        """Take a slot for a call whose permit is reserved."""

    def vacate(self) -> None:
        """Free the slot of a call that is over."""

    def wait(self, now: float, count: int) -> float:
        """Return the seconds until the *count*-th call from now has a permit; 0: there is one.

        Only the rates are considered: when a slot becomes free cannot be known. NEVER if no permit
        will be given.
        """

    def is_unsure(self, now: float) -> bool:
        """Tell whether asking the store may bring permits; :meth:`wait` is a guess then."""

    def ask(self, now: float, waiting: int) -> None:
        """Request permits or slots for *waiting* waiters, where a store has them."""

    def close_until(self, now: float, until: float) -> None:
        """Give nothing out before *until*, and from then on at the rate, without a burst."""

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Apply other limits from now on; they count from the last call that was sent."""

    def is_idle(self, now: float) -> bool:
        """Tell whether a new limiter could replace this one without any caller noticing."""

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:
        """Return what is left, rate by rate, for the answer to a caller that was refused."""


class LimiterListener(Protocol):
    """Notified when permits change without a call: those of a shared store do."""

    def permits_changed(self) -> None:
        """Look again: there may be permits or slots now, or it is clear that there are none."""

    def permits_paused(self, until: float) -> None:
        """Pause until that moment (monotonic), which the upstream has told another instance."""


_Meter = GcraMeter | SlidingWindow
"""What counts the calls of one rate."""


class LocalLimiter:
    """The rate limiter of one bucket that no other process shares.

    Several rates apply together: a call is admitted if all of them admit it. Slots are counted even
    where there is no limit to them, so that one can be set while calls are under way.
    """

    __slots__ = ("_closed_until", "_concurrency", "_meters", "_pacing", "_settings", "_under_way")

    def __init__(self, settings: ThrottleSettings, now: float, pacing: Pacing = pace) -> None:
        self._settings = settings
        self._pacing = pacing
        self._meters = tuple(self._meter(rate, now) for rate in _rates(settings))
        self._concurrency = _concurrency(settings)
        self._under_way = 0
        self._closed_until = -math.inf

    def take(self, now: float, reserved: int) -> bool:
        """Let a call out now, if all rates and the concurrency allow it."""
        # speed: for every attempt, 0.6 µs with one rate.
        if self._under_way >= self._concurrency:
            return False
        for meter in self._meters:
            if not meter.take(now, reserved):
                for taken in self._meters:
                    if taken is meter:
                        return False
                    taken.take_back()
        self._under_way += 1
        return True

    def undo(self, now: float) -> None:
        """Undo the last take."""
        self.reserve(now)
        self._under_way -= 1

    def reserve(self, now: float) -> None:  # noqa: ARG002 - the last take was at the same time
        """Only reserve what the last take, or the last spend, has used."""
        for meter in self._meters:
            meter.take_back()

    def spend(self, now: float) -> bool:
        """Use a reserved permit now. It has been kept free, so there always is one."""
        for meter in self._meters:
            meter.spend(now)
        return True

    def has_capacity(self) -> bool:
        """Tell whether a slot is free for one more call."""
        return self._under_way < self._concurrency

    def occupy(self) -> None:
        """Take a slot for a call whose permit is reserved."""
        self._under_way += 1

    def vacate(self) -> None:
        """Free the slot of a call that is over."""
        self._under_way -= 1

    def wait(self, now: float, count: int) -> float:
        """Return the seconds until the *count*-th call from now has a permit; 0: there is one.

        The rate that takes longest decides. Several windows can delay each other beyond that, from
        where the smallest of them begins anew: then it is the least to expect.
        """
        return max((meter.wait(now, count) for meter in self._meters), default=0.0)

    def is_unsure(self, now: float) -> bool:  # noqa: ARG002 - never, at any time
        """Return False: a local limiter knows all its permits."""
        return False

    def ask(self, now: float, waiting: int) -> None:
        """Do nothing: a local limiter has no store to ask."""

    def close_until(self, now: float, until: float) -> None:
        """Give nothing out before *until*, and from then on at the rate, without a burst."""
        self._closed_until = max(until, self._closed_until, now)
        for meter in self._meters:
            meter.close_until(now, self._closed_until)

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Apply other limits from now on; they count from the last call that was sent.

        In windows that began before, no more goes out than the larger limit allows. Slots that are
        in use stay in use, even if there are too many of them now. A pause that is longer than
        allowed now is shortened.
        """
        old, self._settings = self._settings, settings
        alike = _meaning(old) == _meaning(settings)
        known = {meter.rate: meter for meter in self._meters} if alike else {}
        self._meters = tuple(
            known[rate] if rate in known else self._successor(rate, now)
            for rate in _rates(settings)
        )
        self._concurrency = _concurrency(settings)
        latest = now + (settings.longest_pause or 0.0)
        if self._closed_until > latest:
            self._closed_until = latest
            for meter in self._meters:
                meter.reopen(now, latest)
        elif self._closed_until > now:
            self.close_until(now, self._closed_until)

    def _meter(self, rate: Rate, now: float) -> _Meter:
        sent = self._pacing(self._settings, rate)
        if self._settings.algorithm == "window":
            return SlidingWindow(rate, window=sent.window)
        return GcraMeter(_rule(sent), now, rate)

    def _successor(self, rate: Rate, now: float) -> _Meter:
        """Return a meter for a new rate that knows what the old meters know."""
        meter = self._meter(rate, now)
        logs = [old for old in self._meters if isinstance(old, SlidingWindow)]
        if logs:
            log = max(logs, key=len)  # all of them have the same calls
            if isinstance(meter, SlidingWindow):
                return log.changed_to(rate, now, self._pacing(self._settings, rate).window)
            meter.follow_log(log.sent(), now)
            return meter
        smooth = [old for old in self._meters if isinstance(old, GcraMeter)]
        # With the same period it is the same limit, with another number.
        same_limit = [old for old in smooth if old.rate.period == meter.rate.period] or smooth
        if isinstance(meter, GcraMeter):
            for old in same_limit:
                meter.follow(old, now)
        elif same_limit:
            meter.leave(now, min(old.remaining(now) for old in same_limit))
        return meter

    def is_idle(self, now: float) -> bool:
        """Tell whether a new limiter could replace this one without any caller noticing."""
        return not self._under_way and all(meter.is_full(now) for meter in self._meters)

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:
        """Return what is left, rate by rate, and of the concurrency slots."""
        quotas = [_quota(meter, now) for meter in self._meters]
        most = self._settings.concurrency
        if most is not None:
            left = max(most - self._under_way, 0)
            quotas.append(QuotaLeft("concurrency", most, None, left, None))
        return tuple(quotas)

    def __repr__(self) -> str:
        return f"<permits {self._under_way} under way {self._meters}>"


def _rates(settings: ThrottleSettings) -> tuple[Rate, ...]:
    """Return each rate once: two meters for the same rate would count the same."""
    return tuple(dict.fromkeys(settings.rates))


def _concurrency(settings: ThrottleSettings) -> float:
    return math.inf if settings.concurrency is None else settings.concurrency


def _meaning(settings: ThrottleSettings) -> tuple[object, ...]:
    """Return what changes the meaning of a rate beside its number."""
    return settings.algorithm, settings.burst, settings.margin


@lru_cache(maxsize=256)  # one for all buckets of a throttle: it may have one for each caller
def _rule(sent: Pace) -> Gcra:
    return Gcra.of(sent)


def _quota(meter: _Meter, now: float) -> QuotaLeft:
    """Describe what is left in whole seconds, rounded as it is enforced: 10/1500ms is 13 in 2 s."""
    period = meter.rate.period
    window = math.ceil(period)
    limit = meter.rate.count * window * NANOSECONDS // round(period * NANOSECONDS)
    remaining = meter.remaining(now)
    reset = None if remaining else max(math.ceil(meter.wait(now, 1)), 1)
    return QuotaLeft(f"{limit}-per-{window}s", limit, window, remaining, reset)
