"""One call each so often, and a few together after a while of rest: the smooth rate.

GCRA, the "generic cell rate algorithm" of ATM networks, keeps a single number: the
moment at which the bucket is full again (the *theoretical arrival time* of the
literature). Each call moves it one interval on. As long as it is no more than
``burst`` intervals ahead of the clock, calls pass::

    rate 2/s, burst 3, an interval is 0.5 s; three calls have passed at 0.0

    0.0       0.5       1.0       1.5       2.0
     │         │         │         │         │
     now                           full again
               ▲
               the fourth call: full again no later than 3 intervals after it

It behaves like a bucket of ``burst`` tokens that is refilled all the time, but there
is nothing to refill and nothing to run down, and *when* is as easy to say as *whether*.
How long an interval is, and how many may go together, says ``pacing.py``.

Three traps that published versions fell into, and what keeps us out of them:

- An interval such as 1/3 s is no float and no whole number of nanoseconds. Time is
  therefore counted in *ticks*, the ``count``-th part of a nanosecond: ``count`` calls in
  a period are one call each ``period`` ticks, and everything is a whole number.
- Nothing is rounded before it is compared: half an interval too early is too early.
- What is compared is the state *after* the call: else a call that costs five would
  pass on the last free slot.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil

from proxy.policy.settings import Rate
from proxy.policy.throttle.pacing import NANOSECONDS, Pace, nanoseconds


@dataclass(frozen=True, slots=True)
class Gcra:
    """A rule: so many calls per period, *burst* of them together.

    A state is a number that belongs to one rule. The rule keeps none: who asks gets
    a new state and decides whether to go by it.

    A state may be further ahead than a whole burst only where slots are given away
    before their time has come, or where a bucket is closed for a while: by *ahead*
    seconds at most. Beyond that, it was made by a clock that has been set back since.
    It is cut down, so that a step back costs no more than an empty bucket.
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
    """Ticks by which a state may be ahead for its call to pass now."""
    _furthest: int = field(init=False, repr=False, compare=False)
    """Ticks by which a state may be ahead at all."""

    def __post_init__(self) -> None:
        count = self.rate.count
        interval = nanoseconds(self.rate.period)
        # How a frozen value sets what follows from its fields.
        put = object.__setattr__
        put(self, "_count", count)
        put(self, "_interval", interval)
        put(self, "_burst", interval * self.burst + self._ticks(self.early))
        put(self, "_furthest", self._burst + self._ticks(self.ahead))

    @classmethod
    def of(cls, pace: Pace) -> "Gcra":
        """The rule by which calls go out at that pace."""
        rate = Rate(pace.calls, pace.width / NANOSECONDS)
        return cls(rate, pace.burst, early=pace.early / NANOSECONDS)

    def _ticks(self, seconds: float) -> int:
        return nanoseconds(seconds) * self._count

    def reserve(self, state: int, now: float, cost: int = 1) -> tuple[int, float]:
        """The state after a call that counts as *cost*, and the seconds until it may go out.

        Keep the state if the call goes out, or will after that wait; forget it
        otherwise, and nothing has happened.

        Where *cost* is above the burst, so many never go out together. The wait is then
        that of the last of them, one going out after the other; see :meth:`fits`.
        """
        # For every attempt on a throttled route: 0.35 µs, of which round() takes a quarter.
        clock = round(now * 1e9) * self._count
        ahead = state - clock
        if ahead < 0:
            ahead = 0
        elif ahead > self._furthest:
            ahead = self._furthest
        ahead += cost * self._interval
        if ahead <= self._burst:
            return clock + ahead, 0.0
        # Up to the next nanosecond: who waits so long does not come a moment too soon.
        return clock + ahead, -((self._burst - ahead) // self._count) / NANOSECONDS

    def give_back(self, state: int, cost: int = 1) -> int:
        """The state as if the last call had not been. Right only for the last one."""
        return state - cost * self._interval

    def fits(self, cost: int) -> bool:
        """Whether a call that counts as *cost* can ever go out all at once."""
        return cost <= self.burst

    def remaining(self, state: int, now: float) -> int:
        """How many calls could go out now."""
        ahead = max(state - self._ticks(now), 0)
        return max(self._burst - ahead, 0) // self._interval

    def is_full(self, state: int, now: float) -> bool:
        """Whether the whole burst could go out now."""
        return state <= self._ticks(now)

    def leaving(self, remaining: int, now: float) -> int:
        """The state in which so many calls could go out now, but no more than the burst."""
        return self._ticks(now) + max(self.burst - remaining, 0) * self._interval

    def closed_until(self, state: int, until: float) -> int:
        """*state*, but nothing before *until*: one call then, and one per interval after it."""
        return max(state, self._ticks(until) + self._burst - self._interval)

    def reaching(self, state: int, now: float) -> "Gcra":
        """A copy of the rule for which *state*, and one call more, is not too far ahead."""
        beyond = state - self._ticks(now) - self._burst + self._interval
        return replace(self, ahead=max(beyond / self._count / NANOSECONDS, 0.0))

    @property
    def name(self) -> tuple[object, ...]:
        """Two rules with the same one let out the same."""
        return self.rate, self.burst, self.early

    @property
    def interval(self) -> Fraction:
        """Nanoseconds from one call to the next."""
        return Fraction(self._interval, self._count)

    @property
    def room(self) -> Fraction:
        """Calls that fit in before one has to wait."""
        return Fraction(self._burst, self._interval)

    def used(self, state: int, at: float) -> Fraction:
        """How much of the room was used up, in calls."""
        return Fraction(max(state - self._ticks(at), 0), self._interval)

    def after(self, other: "Gcra", used: Fraction, last: float) -> int:
        """The state of this rule where so far *other* was in force and had *used* so much.

        It counts from the *last* call sent, as if the rules had changed right after it. What was
        used stays used; if this is the slower rule it need not be more than all of the room. So
        what goes out in a window in which both were in force is no more than the larger of what
        either lets out in it.
        """
        if self.interval > other.interval:
            spare = min(other.room - used, max(self.room - used, Fraction(0)))
            used = max(self.room - spare, min(used, Fraction(1)))
        return self._ticks(last) + ceil(used * self._interval)

    def next_after(self, other: "Gcra", state: int, now: float) -> int:
        """The state after a call that *other* has let out. See :meth:`after`."""
        clock = self._ticks(now)
        state = max(state, clock) + self._interval
        return min(state, clock + self._burst) if self.interval > other.interval else state


@dataclass(frozen=True, slots=True)
class _Past:
    """A rule that was in force, and where it stands with all that was sent by *last*."""

    rule: Gcra
    state: int
    last: float


class GcraMeter:
    """A rule and where it stands. At first the whole burst is free."""

    __slots__ = ("_before", "_former", "_last", "_rule", "_state", "rate")

    def __init__(self, rule: Gcra, now: float, rate: Rate | None = None) -> None:
        """*rate* is what was written of which the rule was made, if that is another one."""
        self.rate = rule.rate if rate is None else rate
        self._rule = rule
        self._state = rule.leaving(rule.burst, now)
        self._last = self._before = now
        """When the last call was counted, from which another rule would count; and the one before
        it, for :meth:`take_back`."""
        self._former: list[_Past] = []
        """Rules that were in force before and are not as good as new yet: they go on counting, for
        the case that they come back."""

    def take(self, now: float, reserved: int) -> bool:
        """Count a call, if it may go out now and *reserved* others as well."""
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
        """The last call that was counted is none."""
        self._state = self._rule.give_back(self._state)
        self._last = self._before

    def spend(self, now: float) -> None:
        """Count a call that goes out now, come what may."""
        self._state, _ = self._rule.reserve(self._state, now)
        self._before = self._last
        self._last = now
        if self._former:
            self._count_on(now)

    def wait(self, now: float, count: int) -> float:
        """Seconds until the *count*-th call from now may go out."""
        return self._rule.reserve(self._state, now, count)[1]

    def close_until(self, now: float, until: float) -> None:
        """Nothing before *until*, then one by one. Not to be called with an earlier one later."""
        self._go_on(now, self._rule.closed_until(self._state, until), max(self._last, until))

    def reopen(self, now: float, until: float) -> None:
        """It was drained until later than that, and shall not be any more.

        What was left before that nobody knows now: nothing, to be safe.
        """
        self._go_on(now, self._rule.leaving(0, until), until)

    def follow(self, old: "GcraMeter", now: float) -> None:
        """Another rule was in force so far, and *old* knows what was sent."""
        for past in old.known(now):
            state = self._rule.after(past.rule, past.rule.used(past.state, past.last), past.last)
            self._go_on(now, max(self._state, state), past.last)
            known = (self._rule, *(other.rule for other in self._former))
            if all(past.rule.name != rule.name for rule in known):
                self._former.append(past)

    def known(self, now: float) -> list["_Past"]:
        """What is known here, and of rules before, as far as anything of it still counts."""
        former = [past for past in self._former if not past.rule.is_full(past.state, now)]
        return [_Past(self._rule, self._state, self._last), *former]

    def _count_on(self, now: float) -> None:
        """A call was counted: it counts for the rules of before, as if they had changed again."""
        self._former = [
            _Past(past.rule, past.rule.next_after(self._rule, past.state, now), now)
            for past in self._former
            if not past.rule.is_full(past.state, now)
        ]

    def follow_log(self, sent: Iterable[float], now: float) -> None:
        """Calls were sent at these moments, the oldest first, by whatever rule."""
        state = last = None
        for last in sent:
            free = self._rule.leaving(self._rule.burst, last)
            state = self._rule.give_back(free if state is None else max(state, free), -1)
        if state is not None and last is not None:
            self._go_on(now, max(self._state, state), last)

    def _go_on(self, now: float, state: int, last: float) -> None:
        """From a state that may be further ahead than by a burst."""
        self._rule = self._rule.reaching(state, now)
        self._state = state
        self._last = self._before = last

    def remaining(self, now: float) -> int:
        """How many calls could go out now."""
        return self._rule.remaining(self._state, now)

    def is_full(self, now: float) -> bool:
        """Whether it is as good as new."""
        return self._rule.is_full(self._state, now)

    def __repr__(self) -> str:
        full_at = self._state / self._rule.rate.count / NANOSECONDS
        return f"<gcra {self.rate.count}/{self.rate.period:g}s, full at {full_at:g}s>"
