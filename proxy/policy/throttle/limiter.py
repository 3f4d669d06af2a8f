"""What lets the calls of one bucket out: its rates, and its places.

A *permit* lets one call out. Rates decide when there is another one. A *place* is
taken by a call that is under way; ``concurrency`` decides how many there are.

A bucket (``bucket.py``) decides who is next; whether there is a permit for the next
one it asks here. Nothing in here waits, and nobody's turn is remembered: a permit is
spent in the moment in which its call is sent, so that no rate is ever exceeded, and
what is not sent costs nothing.

Between the moment in which it is one's turn and the moment of sending a permit may be
*reserved*: while a connection is being made, say. The bucket counts those; here they are
only an argument.
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
"""The wait for what will not come."""


class Limiter(Protocol):
    """The permits and places of one bucket. Times are monotonic seconds."""

    def take(self, now: float, reserved: int) -> bool:
        """Let a call out now, if there is a permit besides the *reserved* ones, and a place.

        The permit is spent and the place is taken, or neither.
        """

    def undo(self, now: float) -> None:
        """The last :meth:`take` did not happen after all. Only in the same turn."""

    def reserve(self, now: float) -> None:
        """What was taken or spent last is only held; its place stays taken. As :meth:`undo`."""

    def spend(self, now: float) -> bool:
        """A held permit is used now; False if it has lapsed, and another one is needed."""

    def has_room(self) -> bool:
        """Whether there is a place for one more call."""

    def occupy(self) -> None:
        """A call takes its place; its permit is held."""

    def vacate(self) -> None:
        """A call is over, and its place is free."""

    def wait(self, now: float, count: int) -> float:
        """Seconds until there is a permit for the *count*-th call from now; 0: there is one.

        As far as rates can tell: nobody knows when a place becomes free. NEVER if none
        will be given.
        """

    def is_unsure(self, now: float) -> bool:
        """Whether there may be permits that only asking can bring; :meth:`wait` is a guess then."""

    def ask(self, now: float, waiting: int) -> None:
        """So many wait, and there is no permit or no place: see to it, if anything can be done."""

    def close_until(self, now: float, until: float) -> None:
        """Give nothing out before *until*, and from then on at the rate, without a burst."""

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Other limits hold from now on; they count from the last call that was sent."""

    def is_idle(self, now: float) -> bool:
        """Whether a new one could take over and nobody would notice."""

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:
        """What is left, rate by rate, for the answer to a caller that was refused."""


class LimiterListener(Protocol):
    """Who wants to know when permits change by themselves: those of a shared store do."""

    def permits_changed(self) -> None:
        """There may be permits or places now, or it is clear that there are none."""

    def permits_paused(self, until: float) -> None:
        """Another instance was told to leave the upstream alone until then (monotonic)."""


_Meter = GcraMeter | SlidingWindow
"""What counts the calls of one rate."""


class LocalLimiter:
    """The permits of one bucket that no other process shares.

    Several rates hold together: a call passes if all of them let it pass. Places are
    counted even where there is no limit to them, so that one can be set while calls
    are under way.
    """

    __slots__ = ("_closed_until", "_meters", "_most", "_pacing", "_settings", "_under_way")

    def __init__(self, settings: ThrottleSettings, now: float, pacing: Pacing = pace) -> None:
        self._settings = settings
        self._pacing = pacing
        self._meters = tuple(self._meter(rate, now) for rate in _rates(settings))
        self._most = _most(settings)
        self._under_way = 0
        self._closed_until = -math.inf

    def take(self, now: float, reserved: int) -> bool:
        """Let a call out now, if all rates and the places allow it."""
        # For every attempt: 0.6 µs with one rate.
        if self._under_way >= self._most:
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
        """The last take did not happen after all."""
        self.reserve(now)
        self._under_way -= 1

    def reserve(self, now: float) -> None:  # noqa: ARG002 - the last take was at the same time
        """What the last take, or the last spend, has used is only held."""
        for meter in self._meters:
            meter.take_back()

    def spend(self, now: float) -> bool:
        """A held permit is used now. It has been kept free, so there is one."""
        for meter in self._meters:
            meter.spend(now)
        return True

    def has_room(self) -> bool:
        """Whether there is a place for one more call."""
        return self._under_way < self._most

    def occupy(self) -> None:
        """A call takes its place; its permit is held."""
        self._under_way += 1

    def vacate(self) -> None:
        """A call is over, and its place is free."""
        self._under_way -= 1

    def wait(self, now: float, count: int) -> float:
        """Seconds until there is a permit for the *count*-th call from now; 0: there is one.

        The rate that takes longest decides. Several windows can delay each other beyond
        that, from where the smallest of them begins anew: then it is the least to expect.
        """
        return max((meter.wait(now, count) for meter in self._meters), default=0.0)

    def is_unsure(self, now: float) -> bool:  # noqa: ARG002 - never, at any time
        """Everything is known here."""
        return False

    def ask(self, now: float, waiting: int) -> None:
        """There is nobody to ask."""

    def close_until(self, now: float, until: float) -> None:
        """Give nothing out before *until*, and from then on at the rate, without a burst."""
        self._closed_until = max(until, self._closed_until, now)
        for meter in self._meters:
            meter.close_until(now, self._closed_until)

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Other limits hold from now on; they count from the last call that was sent.

        In windows that began before, no more goes out than the larger limit allows.
        Places that are in use stay in use, even if there are too many of them now. A pause
        that is longer than allowed now is shortened.
        """
        old, self._settings = self._settings, settings
        alike = _kind(old) == _kind(settings)
        known = {meter.rate: meter for meter in self._meters} if alike else {}
        self._meters = tuple(
            known[rate] if rate in known else self._successor(rate, now)
            for rate in _rates(settings)
        )
        self._most = _most(settings)
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
        """A meter for a new rate that knows what the old ones know."""
        meter = self._meter(rate, now)
        logs = [old for old in self._meters if isinstance(old, SlidingWindow)]
        if logs:
            log = max(logs, key=len)  # all of them hold the same calls
            if isinstance(meter, SlidingWindow):
                return log.changed_to(rate, now, self._pacing(self._settings, rate).window)
            meter.follow_log(log.sent(), now)
            return meter
        smooth = [old for old in self._meters if isinstance(old, GcraMeter)]
        # With the same period it is the same limit, by another number.
        akin = [old for old in smooth if old.rate.period == meter.rate.period] or smooth
        if isinstance(meter, GcraMeter):
            for old in akin:
                meter.follow(old, now)
        elif akin:
            meter.leave(now, min(old.remaining(now) for old in akin))
        return meter

    def is_idle(self, now: float) -> bool:
        """Whether a new one could take over and nobody would notice."""
        return not self._under_way and all(meter.is_full(now) for meter in self._meters)

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:
        """What is left, rate by rate, and of the places."""
        quotas = [_quota(meter, now) for meter in self._meters]
        most = self._settings.concurrency
        if most is not None:
            left = max(most - self._under_way, 0)
            quotas.append(QuotaLeft("concurrency", most, None, left, None))
        return tuple(quotas)

    def __repr__(self) -> str:
        return f"<permits {self._under_way} under way {self._meters}>"


def _rates(settings: ThrottleSettings) -> tuple[Rate, ...]:
    """Each one once: two meters for the same rate would say the same."""
    return tuple(dict.fromkeys(settings.rates))


def _most(settings: ThrottleSettings) -> float:
    return math.inf if settings.concurrency is None else settings.concurrency


def _kind(settings: ThrottleSettings) -> tuple[object, ...]:
    """What a rate means beside its number."""
    return settings.algorithm, settings.burst, settings.margin


@lru_cache(maxsize=256)  # one for all buckets of a throttle: it may have one for each caller
def _rule(sent: Pace) -> Gcra:
    return Gcra.of(sent)


def _quota(meter: _Meter, now: float) -> QuotaLeft:
    """Told in whole seconds, rounded to what we do keep: 10/1500ms is 13 in 2 seconds."""
    period = meter.rate.period
    window = math.ceil(period)
    limit = meter.rate.count * window * NANOSECONDS // round(period * NANOSECONDS)
    remaining = meter.remaining(now)
    reset = None if remaining else max(math.ceil(meter.wait(now, 1)), 1)
    return QuotaLeft(f"{limit}-per-{window}s", limit, window, remaining, reset)
