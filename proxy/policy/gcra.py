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

Three traps that published versions fell into, and what keeps us out of them:

- An interval such as 1/3 s is no float and no whole number of nanoseconds. Time is
  therefore counted in *ticks*, the ``count``-th part of a nanosecond: ``count`` calls in
  a period are one call each ``period`` ticks, and everything is a whole number.
- Nothing is rounded before it is compared: half an interval too early is too early.
- What is compared is the state *after* the call: else a call that costs five would
  pass on the last free slot.
"""

from dataclasses import dataclass, field, replace

from proxy.policy.settings import Rate

NANOSECONDS = 1_000_000_000
"""In a second."""


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
        interval = round(self.rate.period * NANOSECONDS)
        # How a frozen value sets what follows from its fields.
        put = object.__setattr__
        put(self, "_count", count)
        put(self, "_interval", interval)
        put(self, "_burst", interval * self.burst)
        put(self, "_furthest", interval * self.burst + self._ticks(self.ahead))

    def _ticks(self, seconds: float) -> int:
        return round(seconds * NANOSECONDS) * self._count

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

    def drained(self, state: int, until: float) -> int:
        """*state*, but nothing before *until*: one call then, and one per interval after it."""
        return max(state, self._ticks(until) + self._burst - self._interval)


class GcraMeter:
    """A rule and where it stands. At first the whole burst is free."""

    __slots__ = ("_rule", "_state")

    def __init__(self, rule: Gcra, now: float) -> None:
        self._rule = rule
        self._state = rule.leaving(rule.burst, now)

    @property
    def rate(self) -> Rate:
        return self._rule.rate

    def take(self, now: float, held: int) -> bool:
        """Count a call, if it may go out now and *held* others as well."""
        state, wait = self._rule.reserve(self._state, now, held + 1)
        if wait:
            return False
        self._state = self._rule.give_back(state, held) if held else state
        return True

    def take_back(self) -> None:
        """The last call that was counted is none."""
        self._state = self._rule.give_back(self._state)

    def spend(self, now: float) -> None:
        """Count a call that goes out now, come what may."""
        self._state, _ = self._rule.reserve(self._state, now)

    def wait(self, now: float, count: int) -> float:
        """Seconds until the *count*-th call from now may go out."""
        return self._rule.reserve(self._state, now, count)[1]

    def drain(self, now: float, until: float) -> None:
        """Nothing before *until*, then one by one. Not to be called with an earlier one later."""
        self._rule = replace(self._rule, ahead=max(until - now, 0.0))
        self._state = self._rule.drained(self._state, until)

    def reopen(self, now: float, until: float) -> None:
        """It was drained until later than that, and shall not be any more.

        What was left before that nobody knows now: nothing, to be safe.
        """
        self._rule = replace(self._rule, ahead=max(until - now, 0.0))
        self._state = self._rule.leaving(0, until)

    def leave(self, now: float, remaining: int) -> None:
        """Let so many be left, if there is room for them."""
        self._state = self._rule.leaving(remaining, now)

    def remaining(self, now: float) -> int:
        """How many calls could go out now."""
        return self._rule.remaining(self._state, now)

    def is_full(self, now: float) -> bool:
        """Whether it is as good as new."""
        return self._rule.is_full(self._state, now)

    def __repr__(self) -> str:
        rate = self._rule.rate
        full_at = self._state / rate.count / NANOSECONDS
        return f"<gcra {rate.count}/{rate.period:g}s, full at {full_at:g}s>"
