"""The rates of one bucket: permits got ahead in batches, and when the store is asked for more."""

from collections import deque
from collections.abc import Callable
from math import ceil, inf

from proxy.core.clock import Clock
from proxy.stores.redis.lease_terms import LeaseTerms
from proxy.stores.redis.permit_commands import PermitCommands

_RECENTLY = 0.05
"""Seconds over which use is averaged."""
_ENOUGH = 0.75
_LOW = 0.25
"""What is got ahead, and what is left when more is asked for: shares of the use in a life."""


class PermitBatch:
    """Permits that lapse together."""

    __slots__ = ("lapses", "left", "opens")

    def __init__(self, left: int, lapses: float, opens: float = -inf) -> None:
        self.left = left
        self.lapses = lapses
        self.opens = opens


class LeasedPermits:
    """The permits that are at hand, and how many will be needed."""

    __slots__ = ("_last", "_life", "_lots", "_most", "_rate", "_since", "_used", "left", "low")

    def __init__(self, life: float, interval: float, now: float) -> None:
        """Permits live for *life* seconds; there is another one each *interval*."""
        self._life = life
        self._most = life / interval if interval else 0.0
        """What is got ahead at most."""
        self._lots: deque[PermitBatch] = deque()
        self._last = PermitBatch(0, -inf)
        """From which the last permit was taken."""
        self.left = 0
        """Permits at hand; those that have lapsed count until somebody looks."""
        self.low = 0.0
        """Below that it is time to get more, if callers go on coming as they did."""
        self._rate = 0.0
        """Permits used per second, of late."""
        self._used = 0
        self._since = now

    def take(self, now: float, reserved: int) -> bool:
        """Use a permit, if there is one besides the *reserved* ones."""
        # For every attempt: 0.2 µs.
        lots = self._lots
        while lots:
            lot = lots[0]
            if lot.left and now < lot.lapses:
                if now < lot.opens or (reserved and self._count_open(now) <= reserved):
                    return False
                lot.left -= 1
                self.left -= 1
                self._used += 1
                self._last = lot
                return True
            self.left -= lot.left
            lots.popleft()
        return False

    def take_back(self) -> None:
        """The last permit was not used."""
        lot = self._last
        lot.left += 1
        self.left += 1
        self._used -= 1
        if lot not in self._lots:  # it was empty, and somebody has looked
            self._insert(lot)

    def count(self, now: float) -> int:
        """How many are at hand."""
        lots = self._lots
        while lots and not (lots[0].left and now < lots[0].lapses):
            self.left -= lots.popleft().left
        return self.left

    def _count_open(self, now: float) -> int:
        return sum(lot.left for lot in self._lots if lot.opens <= now < lot.lapses)

    def wait(self, now: float, count: int) -> float:
        """Seconds until so many of those at hand are open. There must be so many."""
        for lot in self._lots:
            if now < lot.lapses:
                count -= lot.left
                if count <= 0:
                    return max(lot.opens - now, 0.0)
        return 0.0

    def put(self, count: int, lapses: float, now: float, opens: float = -inf) -> None:
        """Permits came from the store; too late, maybe."""
        if count and now < lapses:
            self._insert(PermitBatch(count, lapses, opens))
            self.left += count

    def _insert(self, lot: PermitBatch) -> None:
        """What lapses first is used first. Nearly always that is the order in which it came."""
        at, place = len(self._lots), (lot.lapses, lot.opens)
        while at and (self._lots[at - 1].lapses, self._lots[at - 1].opens) > place:
            at -= 1
        self._lots.insert(at, lot)

    def drop(self) -> None:
        """Let all of them lapse at once."""
        self._lots.clear()
        self._last = PermitBatch(0, -inf)  # what is taken back has lapsed as well
        self.left = 0

    def reckon(self, now: float) -> int:
        """How many more to get ahead, by recent use. To be called when the store is asked."""
        passed = now - self._since
        if passed > 0:
            weight = min(passed / _RECENTLY, 1.0)
            self._rate += (self._used / passed - self._rate) * weight
            self._used = 0
            self._since = now
        in_a_life = min(self._rate * self._life, self._most)
        self.low = in_a_life * _LOW
        return max(int(in_a_life * _ENOUGH) - self.count(now), 0)


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
        self,
        terms: LeaseTerms,
        calls: PermitCommands,
        clock: Clock,
        answered: Callable[[float], None],
    ) -> None:
        """*answered* is told, whenever the store has answered, how long a pause lasts."""
        self.terms = terms
        self._calls = calls
        self._clock = clock
        self._answered = answered
        self._leases = LeasedPermits(terms.life, terms.interval, clock.monotonic())
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

    def take(self, now: float, reserved: int) -> bool:
        """Use a permit, if there is one besides the *reserved* ones."""
        if not self.terms.rates:
            return True
        leases = self._leases
        if not leases.take(now, reserved):
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

    def change(self, terms: LeaseTerms) -> None:
        """Other limits hold from now on; the store knows what is left."""
        self.forget()
        self.terms = terms
        self._leases = LeasedPermits(terms.life, terms.interval, self._clock.monotonic())
