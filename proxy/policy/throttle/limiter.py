"""The limiters of one bucket: one of its rates, and one of its concurrency.

Both count calls behind the same protocol. A *permit* lets one call out; the rates decide when there
is another one. A concurrency *slot* is taken by a call that is under way; ``concurrency`` decides
how many there are.

The wait queue (``wait_queue.py``) decides which waiter is next, and reserves permits. A limiter
neither waits nor remembers an order: it says whether a call may go out, and how long that takes.
A call is counted in the moment in which it is sent, so that no rate is ever exceeded, and a call
that is not sent costs nothing. Permits that are reserved until then are only an argument here.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

from proxy.http.refusal import QuotaLeft
from proxy.policy.settings import Rate, RateAlgorithm, ThrottleSettings
from proxy.policy.throttle.gcra import Gcra, GcraMeter
from proxy.policy.throttle.pacing import NANOSECONDS, Pace, Pacing, pace
from proxy.policy.throttle.sliding_window import SlidingWindow

NEVER = math.inf
"""The wait for what no passing of time brings."""

_WINDOW = RateAlgorithm.WINDOW


class Limiter(Protocol):
    """Counts the calls that one limit allows. Times are monotonic seconds."""

    def take(self, now: float, reserved: int) -> bool:
        """Count one more call, if the limit allows it now besides *reserved* others."""

    def give_back(self) -> None:
        """Count one call less.

        Of a rate, the call that was taken last: it is not sent after all. Only before the event
        loop runs anything else. Of the concurrency, a call that is over.
        """

    def wait(self, now: float, count: int) -> float:
        """Return the seconds until the *count*-th call from now is allowed; 0: it is now.

        NEVER if that is no matter of time: all slots are in use, or there are no permits at all.
        """

    def ask(self, now: float, waiting: int) -> bool:
        """Ask the store behind the limiter for what *waiting* calls need, which may be none.

        Tell whether its answer may allow more: then :meth:`wait` is a guess. A limiter without a
        store knows everything.
        """

    def change(self, settings: ThrottleSettings, now: float, closed_until: float) -> None:
        """Apply *settings* from now on; they count from the last call that was sent.

        Until *closed_until* no call is allowed, and from then on calls at the rate, without a
        burst.
        """

    def is_idle(self, now: float) -> bool:
        """Tell whether a new limiter could replace this one without any caller noticing."""

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:
        """Return what is left, limit by limit, for the answer to a caller that was refused."""


class LimiterListener(Protocol):
    """Notified when a limiter allows more or less without a call: those of a shared store do."""

    def permits_changed(self) -> None:
        """Look again: there may be permits or slots now, or it is clear that there are none."""

    def permits_paused(self, until: float) -> None:
        """Pause until that moment (monotonic), which the upstream has told another instance."""


NewConcurrencyLimiter = Callable[[ThrottleSettings, int], Limiter]
"""Makes the limiter of the concurrency in the settings, with so many calls under way."""


class Limiters(NamedTuple):
    """The limiters of one bucket."""

    rates: Limiter
    """For all rates; it is there without any, too, since a pause has no need of a rate."""
    new_concurrency: NewConcurrencyLimiter
    """For a bucket whose concurrency is limited, from the beginning or by a reload."""


def local_limiters(settings: ThrottleSettings, now: float) -> Limiters:
    """Return the limiters of a bucket that no other process shares."""
    return Limiters(LocalRateLimiter(settings, now), LocalConcurrencyLimiter)


_Meter = GcraMeter | SlidingWindow
"""What counts the calls of one rate."""


class LocalRateLimiter:
    """The rates of one bucket that no other process shares.

    Several rates apply together: a call is admitted if all of them admit it.
    """

    __slots__ = ("_closed_until", "_meters", "_pacing", "_settings")

    def __init__(self, settings: ThrottleSettings, now: float, pacing: Pacing = pace) -> None:
        self._settings = settings
        self._pacing = pacing
        self._meters = tuple(self._meter(rate, now) for rate in _rates(settings))
        self._closed_until = -math.inf

    def take(self, now: float, reserved: int) -> bool:
        """Count one more call, if all rates allow it."""
        for meter in self._meters:
            if not meter.take(now, reserved):
                for taken in self._meters:
                    if taken is meter:
                        return False
                    taken.take_back()
        return True

    def give_back(self) -> None:
        """Undo the last take."""
        for meter in self._meters:
            meter.take_back()

    def wait(self, now: float, count: int) -> float:
        """Return the seconds until the *count*-th call from now is allowed; 0: it is now.

        The rate that takes longest decides. Several windows can delay each other beyond that, from
        where the smallest of them begins anew: then it is the least to expect.
        """
        return max((meter.wait(now, count) for meter in self._meters), default=0.0)

    def ask(self, now: float, waiting: int) -> bool:  # noqa: ARG002 - whatever is asked
        """Return False: a local limiter knows all its permits."""
        return False

    def close_until(self, now: float, until: float) -> None:
        """Allow nothing before *until*, and from then on calls at the rate, without a burst."""
        self._closed_until = max(until, self._closed_until, now)
        for meter in self._meters:
            meter.close_until(now, self._closed_until)

    def change(self, settings: ThrottleSettings, now: float, closed_until: float) -> None:
        """Apply other limits from now on; they count from the last call that was sent.

        In windows that began before, no more goes out than the larger limit allows. If the limiter
        was closed for longer than until *closed_until*, that is shortened.
        """
        old, self._settings = self._settings, settings
        alike = _meaning(old) == _meaning(settings)
        known = {meter.rate: meter for meter in self._meters} if alike else {}
        self._meters = tuple(
            known[rate] if rate in known else self._successor(rate, now)
            for rate in _rates(settings)
        )
        opens = max(closed_until, now)
        if self._closed_until > opens:
            self._closed_until = opens
            for meter in self._meters:
                meter.reopen(now, opens)
        elif opens > now:
            self.close_until(now, opens)

    def _meter(self, rate: Rate, now: float) -> _Meter:
        sent = self._pacing(self._settings, rate)
        if self._settings.algorithm is _WINDOW:
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
        return all(meter.is_full(now) for meter in self._meters)

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:
        """Return what is left, rate by rate."""
        return tuple(_quota(meter, now) for meter in self._meters)

    def __repr__(self) -> str:
        return f"<rates {self._meters}>"


class LocalConcurrencyLimiter:
    """The concurrency slots of one bucket that no other process shares.

    Slots that are in use stay in use, even if a reload leaves too few of them.
    """

    __slots__ = ("_most", "_under_way")

    def __init__(self, settings: ThrottleSettings, under_way: int = 0) -> None:
        """Limit by *settings*, with so many calls *under_way*."""
        self._most = settings.concurrency or 0
        self._under_way = under_way

    def take(self, now: float, reserved: int) -> bool:  # noqa: ARG002 - slots depend on no time
        """Take a slot, if one is free."""
        if self._under_way + reserved >= self._most:
            return False
        self._under_way += 1
        return True

    def give_back(self) -> None:
        """Free the slot of a call that is over."""
        self._under_way -= 1

    def wait(self, now: float, count: int) -> float:  # noqa: ARG002 - slots depend on no time
        """Return 0 if so many slots are free, else NEVER: when calls end cannot be known."""
        return 0.0 if self._under_way + count <= self._most else NEVER

    def ask(self, now: float, waiting: int) -> bool:  # noqa: ARG002 - whatever is asked
        """Return False: a local limiter knows all its slots."""
        return False

    def change(self, settings: ThrottleSettings, now: float, closed_until: float) -> None:  # noqa: ARG002 - a pause frees no slot
        """Allow another number of calls to be under way."""
        self._most = settings.concurrency or 0

    def is_idle(self, now: float) -> bool:  # noqa: ARG002 - slots depend on no time
        """Tell whether no slot is in use."""
        return not self._under_way

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:  # noqa: ARG002 - slots depend on no time
        """Return how many slots are free."""
        return (concurrency_quota(self._most, self._most - self._under_way),)

    def __repr__(self) -> str:
        return f"<{self._under_way} of {self._most} slots>"


def concurrency_quota(limit: int, free: int) -> QuotaLeft:
    """Describe what is left of a concurrency limit; *free* may be less than none."""
    return QuotaLeft("concurrency", limit, None, max(free, 0), None)


def _rates(settings: ThrottleSettings) -> tuple[Rate, ...]:
    """Return each rate once: two meters for the same rate would count the same."""
    return tuple(dict.fromkeys(settings.rates))


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
