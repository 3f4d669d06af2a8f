"""The rates of one bucket: permits at hand, and when the store is asked for more."""

from collections.abc import Callable
from math import ceil

from proxy.core.clock import Clock
from proxy.stores.redis.calls import Calls
from proxy.stores.redis.leases import Leases
from proxy.stores.redis.terms import Terms

_PACE = 0.002
"""Seconds per instance between two questions while the limit is reached: the more instances
ask, the more permits there must be for it to be worth while."""
_GUESS = 0.005
"""Seconds after which to look again if nobody knows when permits come."""
_GRAIN = 0.0005
"""Seconds: permits that come to be used within the same of these are one lot."""


class SharedRates:
    """Permits of which all instances together have so many."""

    __slots__ = (
        "_answered",
        "_calls",
        "_clock",
        "_era",
        "_is_contested",
        "_leases",
        "_next",
        "is_asking",
        "terms",
    )

    def __init__(
        self, terms: Terms, calls: Calls, clock: Clock, answered: Callable[[float], None]
    ) -> None:
        """*answered* is told, whenever the store has answered, how long a pause lasts."""
        self.terms = terms
        self._calls = calls
        self._clock = clock
        self._answered = answered
        self._leases = Leases(terms.life, terms.interval, clock.monotonic())
        self.is_asking = False
        """Whether the store has yet to answer."""
        self._era = 0
        """Answers to what was asked in an earlier one bring no permits."""
        self._is_contested = False
        """Whether we got less than we asked for."""
        self._next = 0.0
        """Before that moment there is nothing to be had for certain."""

    def __repr__(self) -> str:
        return f"{self._leases.left} permits"

    # What is at hand.

    def take(self, now: float, held: int) -> bool:
        """Use a permit, if there is one besides the *held* ones."""
        if not self.terms.rates:
            return True
        leases = self._leases
        if not leases.take(now, held):
            return False
        if leases.left < leases.low:
            self._ask_ahead(now)
        return True

    def take_back(self) -> None:
        """The last permit was not used."""
        if self.terms.rates:
            self._leases.take_back()

    def is_idle(self, now: float) -> bool:
        """Whether there is nothing to lose."""
        return not self.is_asking and not self._leases.count(now)

    def wait(self, now: float, count: int, opens: float) -> float:
        """Seconds until there is a permit for the *count*-th call, and none before *opens*.

        Others use the same permits, so this is the least that it can be.
        """
        if not self.terms.rates:
            return max(opens - now, 0.0)
        missing = count - self._leases.count(now)
        if missing <= 0:
            return max(opens - now, self._leases.wait(now, count))
        known = max(self._next, opens)
        return (known - now if now < known else _GUESS) + (missing - 1) * self.terms.interval

    def is_unsure(self, now: float) -> bool:
        """Whether there may be permits that only asking can bring."""
        return bool(self.terms.rates) and (self.is_asking or now >= self._next)

    # What is not.

    def ask(self, now: float, want: int) -> float | None:
        """Get permits for so many, now or, if there can be none yet, at the time returned."""
        if self.is_asking or not self.terms.rates:
            return None
        want -= self._leases.count(now)
        if want <= 0:
            return None  # they are at hand, and not open yet
        if now < self._next:
            return self._next
        ahead = self._leases.reckon(now)
        self.send(want if self._is_contested else want + ahead)
        return None

    def _ask_ahead(self, now: float) -> None:
        """Get permits for those who will come, if it goes on like this."""
        if not self.is_asking and not self._is_contested and now >= self._next:
            want = self._leases.reckon(now)
            if want:
                self.send(want)

    def send(self, want: int) -> None:
        """Ask the store for so many; for none, to hear of a pause only."""
        self.is_asking = True
        era = self._era

        def answer(numbers: list[int], sent: float) -> None:
            self.is_asking = False
            if era == self._era:
                self._receive(want, numbers, sent)
            self._answered(numbers[2] / 1e6)

        self._calls.take(want, self.terms, answer)

    def _receive(self, wanted: int, numbers: list[int], sent: float) -> None:
        given, next_in, _, has_rival, *first_in = numbers
        now = self._clock.monotonic()
        self._put(given, first_in, sent + self.terms.life, now)
        if given:
            self._calls.link.look_at_distance(self.terms.life)
        self._is_contested = given < wanted
        self._next = now + next_in / 1e6
        if self._is_contested:
            pace = self._pace(rivals=self._calls.link.instances - 1 if has_rival else 0)
            self._next = max(self._next, now + pace)
            if has_rival:
                self._next += self._courtesy(pace, given)

    def _put(self, given: int, first_in: list[int], lapses: float, now: float) -> None:
        """Keep what the store gave, each until its time has come.

        *first_in*: for each rate, the microseconds until the first one may be used.
        """
        grains = 0
        count = 0
        for place in range(given):
            wait = max(
                first / 1e6 + place * interval
                for first, interval in zip(first_in, self.terms.intervals, strict=True)
            )
            opens = max(ceil(wait / _GRAIN), 0)
            if opens > grains:
                self._leases.put(count, lapses, now, now + grains * _GRAIN if grains else now)
                grains, count = opens, 0
            count += 1
        self._leases.put(count, lapses, now, now + grains * _GRAIN if grains else now)

    def own_up(self, sent: int, seconds: float, answered: Callable[[], None]) -> None:
        """Tell the store of calls that were sent without it, before it gives any permits."""

        def answer(numbers: list[int], sent: float) -> None:  # noqa: ARG001 - it knows now
            answered()

        self._calls.own_up(sent, seconds, self.terms, answer)

    def _pace(self, rivals: int) -> float:
        """Seconds until it is worth while to ask again."""
        return min(_PACE * (1 + rivals), self.terms.life / 4)

    def _courtesy(self, pace: float, given: int) -> float:
        """Seconds by which to come later than one could, where others want the same.

        All know when the next permit comes, and else who is nearest to the store would get
        every one. Who has just got something lets the others go first.
        """
        most = min(max(self.terms.interval, pace), self.terms.life / 4)
        return most * (self._clock.roll() + (1 if given else 0)) / 2

    # What changes.

    def forget(self) -> None:
        """What is at hand, and what is on its way, is not to be used; the store may be asked."""
        self._leases.drop()
        self._era += 1
        self._next = 0.0
        self._is_contested = False

    def lose_touch(self) -> None:
        """The store will not answer."""
        self.forget()
        self.is_asking = False

    def change(self, terms: Terms) -> None:
        """Other limits hold from now on; the store knows what is left."""
        self.forget()
        self.terms = terms
        self._leases = Leases(terms.life, terms.interval, self._clock.monotonic())
