"""The smooth rate limit: one call per interval, and a burst of a few after a time without calls.

GCRA, the "generic cell rate algorithm" of ATM networks, keeps a single number: the
moment at which the (token) bucket is full again, the *theoretical arrival time* of the
literature. Each call moves it one interval on. As long as it is no more than
``burst`` intervals ahead of the clock, calls are admitted::

    rate 2/s, burst 3, an interval is 0.5 s; three calls were admitted at 0.0

    0.0       0.5       1.0       1.5       2.0
     │         │         │         │         │
     now                           full again
               ▲
               the fourth call: full again no later than 3 intervals after it

It behaves like a bucket of ``burst`` tokens that is refilled all the time, but there
is nothing to refill and nothing to run down, and *when* is as easy to compute as *whether*.
The length of the interval and the size of the burst come from ``pacing.py``.

Three traps that published versions fell into, and how this one avoids them:

- An interval such as 1/3 s is no float and no whole number of nanoseconds. Time is
  therefore counted in *ticks*, the ``count``-th part of a nanosecond: ``count`` calls in
  a period are one call each ``period`` ticks, and everything is a whole number.
- Nothing is rounded before it is compared: half an interval too early is too early.
- The state *after* the call is compared: else a call that costs five would be admitted
  with one token left.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil

from proxy.policy.settings import Rate
from proxy.policy.throttle.pacing import NANOSECONDS, Pace, nanoseconds


@dataclass(frozen=True, slots=True)
class Gcra:
    """A rule of the rate limit: so many calls per period, *burst* of them together.

    A state is a number that belongs to one rule. The rule stores none: each method returns a new
    state, and the caller decides whether to keep it.

    A state may be further ahead than a whole burst only where calls are reserved before their time
    has come, or where the limiter is closed for a while: by *ahead* seconds at most. A state beyond
    that was made by a clock that has been set back since. It is cut down, so that a step back costs
    no more than an empty bucket.
    """

    rate: Rate
    burst: int
    ahead: float = 0.0
    early: float = 0.0
    """Seconds by which a call may go out before its time, besides the burst."""
    _count: int = field(init=False, repr=False, compare=False)
    """Ticks in a nanosecond."""
    _interval: int = field(init=False, repr=False, compare=False)
    """Ticks from one call to the next."""
    _burst: int = field(init=False, repr=False, compare=False)
    """Ticks by which a state may be ahead for its call to be admitted now."""
    _furthest: int = field(init=False, repr=False, compare=False)
    """Ticks by which a state may be ahead at all."""

    def __post_init__(self) -> None:
        count = self.rate.count
        interval = nanoseconds(self.rate.period)
        # A frozen dataclass sets its derived fields this way.
        put = object.__setattr__
        put(self, "_count", count)
        put(self, "_interval", interval)
        put(self, "_burst", interval * self.burst + self._ticks(self.early))
        put(self, "_furthest", self._burst + self._ticks(self.ahead))

    @classmethod
    def of(cls, pace: Pace) -> "Gcra":
        """Return the rule by which calls go out at *pace*."""
        rate = Rate(pace.calls, pace.width / NANOSECONDS)
        return cls(rate, pace.burst, early=pace.early / NANOSECONDS)

    def _ticks(self, seconds: float) -> int:
        return nanoseconds(seconds) * self._count

    def reserve(self, state: int, now: float, cost: int = 1) -> tuple[int, float]:
        """Return the state after a call that counts as *cost*, and the seconds until it may go out.

        Keep the state if the call goes out, or will after that wait; discard it otherwise, and
        nothing has happened.

        Where *cost* is above the burst, so many never go out together. The wait is then that of the
        last of them, one going out after the other.
        """
        # speed: same as _ticks(), max() and min(), held by tests/policy/throttle/test_gcra.py (the
        # textbook in fractions); saves 4 of 6 calls, 3,900 instead of 6,900 instructions
        clock = round(now * 1e9) * self._count
        ahead = state - clock
        if ahead < 0:
            ahead = 0
        elif ahead > self._furthest:
            ahead = self._furthest
        ahead += cost * self._interval
        if ahead <= self._burst:
            return clock + ahead, 0.0
        # Rounded up to the next nanosecond, so that the call does not go out a moment too soon.
        return clock + ahead, -((self._burst - ahead) // self._count) / NANOSECONDS

    def give_back(self, state: int, cost: int = 1) -> int:
        """Return the state without the last call of *cost*; wrong for any call but the last."""
        return state - cost * self._interval

    def remaining(self, state: int, now: float) -> int:
        """Return how many calls could go out now."""
        ahead = max(state - self._ticks(now), 0)
        return max(self._burst - ahead, 0) // self._interval

    def is_full(self, state: int, now: float) -> bool:
        """Tell whether the whole burst could go out now."""
        return state <= self._ticks(now)

    def leaving(self, remaining: int, now: float) -> int:
        """Return the state in which *remaining* calls could go out now, at most the burst."""
        return self._ticks(now) + max(self.burst - remaining, 0) * self._interval

    def closed_until(self, state: int, until: float) -> int:
        """Return *state* without calls before *until*: one then, and one per interval after it."""
        return max(state, self._ticks(until) + self._burst - self._interval)

    def reaching(self, state: int, now: float) -> "Gcra":
        """Return a copy of the rule for which *state*, and one call more, is not too far ahead."""
        beyond = state - self._ticks(now) - self._burst + self._interval
        return replace(self, ahead=max(beyond / self._count / NANOSECONDS, 0.0))

    @property
    def name(self) -> tuple[object, ...]:
        """Identify the rule: two rules of the same name admit the same calls."""
        return self.rate, self.burst, self.early

    @property
    def interval(self) -> Fraction:
        """Nanoseconds from one call to the next."""
        return Fraction(self._interval, self._count)

    @property
    def capacity(self) -> Fraction:
        """Calls that fit in before one has to wait."""
        return Fraction(self._burst, self._interval)

    def used(self, state: int, at: float) -> Fraction:
        """Return how much of the capacity was used up, in calls."""
        return Fraction(max(state - self._ticks(at), 0), self._interval)

    def after(self, other: "Gcra", used: Fraction, last: float) -> int:
        """Return the state of this rule where *other* was in force and had *used* so much of it.

        The state counts from the *last* call sent, as if the rules had changed right after it. What
        was used stays used; if this is the slower rule it need not be more than all of its
        capacity. So what goes out in a window in which both were in force is no more than the
        larger of what either lets out in it.
        """
        if self.interval > other.interval:
            spare = min(other.capacity - used, max(self.capacity - used, Fraction(0)))
            used = max(self.capacity - spare, min(used, Fraction(1)))
        return self._ticks(last) + ceil(used * self._interval)

    def next_after(self, other: "Gcra", state: int, now: float) -> int:
        """Return the state after a call that *other* has admitted. See :meth:`after`."""
        clock = self._ticks(now)
        state = max(state, clock) + self._interval
        return min(state, clock + self._burst) if self.interval > other.interval else state


@dataclass(frozen=True, slots=True)
class _Past:
    """A former rule, and its state with all that was sent by *last*."""

    rule: Gcra
    state: int
    last: float


class GcraMeter:
    """Counts the calls of one rate with a GCRA rule. At first the whole burst is free."""

    __slots__ = ("_before", "_former", "_last", "_rule", "_state", "rate")

    def __init__(self, rule: Gcra, now: float, rate: Rate | None = None) -> None:
        """Count by *rule*; *rate* is the configured one it was made from, if they differ."""
        self.rate = rule.rate if rate is None else rate
        self._rule = rule
        self._state = rule.leaving(rule.burst, now)
        self._last = self._before = now
        """Time of the last counted call, from which another rule would count; and of the one before
        it, for :meth:`take_back`."""
        self._former: list[_Past] = []
        """Former rules that are not full again yet: they go on counting, in case they come back."""

    def take(self, now: float, reserved: int) -> bool:
        """Count a call, if it may go out now besides *reserved* others; False if it may not."""
        state, wait = self._rule.reserve(self._state, now, reserved + 1)
        if wait:
            return False
        self._state = self._rule.give_back(state, reserved) if reserved else state
        self._before = self._last
        self._last = now
        if self._former:
            self._count_on(now)
        return True

    def take_back(self) -> None:
        """Undo the count of the last call."""
        self._state = self._rule.give_back(self._state)
        self._last = self._before

    def wait(self, now: float, count: int) -> float:
        """Return the seconds until the *count*-th call from now may go out."""
        return self._rule.reserve(self._state, now, count)[1]

    def close_until(self, now: float, until: float) -> None:
        """Admit nothing before *until*, then one call per interval; *until* never decreases."""
        self._go_on(now, self._rule.closed_until(self._state, until), max(self._last, until))

    def reopen(self, now: float, until: float) -> None:
        """End the closed time at *until*, which is earlier than it was set to.

        How much was left before the closing is not known any more: nothing is assumed, to be safe.
        """
        self._go_on(now, self._rule.leaving(0, until), until)

    def follow(self, old: "GcraMeter", now: float) -> None:
        """Take over from *old*, which counted by another rule and knows what was sent."""
        for past in old.known(now):
            state = self._rule.after(past.rule, past.rule.used(past.state, past.last), past.last)
            self._go_on(now, max(self._state, state), past.last)
            known = (self._rule, *(other.rule for other in self._former))
            if all(past.rule.name != rule.name for rule in known):
                self._former.append(past)

    def known(self, now: float) -> list["_Past"]:
        """Return this rule and its former ones, as far as anything they counted still matters."""
        former = [past for past in self._former if not past.rule.is_full(past.state, now)]
        return [_Past(self._rule, self._state, self._last), *former]

    def _count_on(self, now: float) -> None:
        """Count a call for the former rules too, as if they came back into force."""
        self._former = [
            _Past(past.rule, past.rule.next_after(self._rule, past.state, now), now)
            for past in self._former
            if not past.rule.is_full(past.state, now)
        ]

    def follow_log(self, sent: Iterable[float], now: float) -> None:
        """Count calls that were *sent* at these moments, the oldest first, by whatever rule."""
        state = last = None
        for last in sent:
            free = self._rule.leaving(self._rule.burst, last)
            state = self._rule.give_back(free if state is None else max(state, free), -1)
        if state is not None and last is not None:
            self._go_on(now, max(self._state, state), last)

    def _go_on(self, now: float, state: int, last: float) -> None:
        """Continue from a state that may be further ahead than by a burst."""
        self._rule = self._rule.reaching(state, now)
        self._state = state
        self._last = self._before = last

    def remaining(self, now: float) -> int:
        """Return how many calls could go out now."""
        return self._rule.remaining(self._state, now)

    def is_full(self, now: float) -> bool:
        """Tell whether the meter is equal to a new one."""
        return self._rule.is_full(self._state, now)

    def __repr__(self) -> str:
        full_at = self._state / self._rule.rate.count / NANOSECONDS
        return f"<gcra {self.rate.count}/{self.rate.period:g}s, full at {full_at:g}s>"
