"""The rates of one bucket: permits leased ahead in batches, and when to ask the store for more."""

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
"""What is leased ahead, and what is left when more is asked for: shares of the use in a life."""


class PermitBatch:
    """Permits that lapse together."""

    __slots__ = ("lapses", "left", "opens")

    def __init__(self, left: int, lapses: float, opens: float = -inf) -> None:
        self.left = left
        self.lapses = lapses
        self.opens = opens


class LeasedPermits:
    """The permits that are at hand, and how many will be needed."""

    __slots__ = ("_batches", "_last", "_life", "_most", "_rate", "_since", "_used", "left", "low")

    def __init__(self, life: float, interval: float, now: float) -> None:
        """Let permits live for *life* seconds; there is another one each *interval*."""
        self._life = life
        self._most = life / interval if interval else 0.0
        """How many are leased ahead at most."""
        self._batches: deque[PermitBatch] = deque()
        self._last = PermitBatch(0, -inf)
        """The batch from which the last permit was taken."""
        self.left = 0
        """Permits at hand; those that have lapsed count until the next look."""
        self.low = 0.0
        """Below that it is time to get more, if calls go on coming as they did."""
        self._rate = 0.0
        """Permits used per second, of late."""
        self._used = 0
        self._since = now

    def take(self, now: float, reserved: int) -> bool:
        """Use a permit, if there is one besides the *reserved* ones."""
        # speed: for every attempt, 0.2 µs.
        batches = self._batches
        while batches:
            batch = batches[0]
            if batch.left and now < batch.lapses:
                if now < batch.opens or (reserved and self._count_open(now) <= reserved):
                    return False
                batch.left -= 1
                self.left -= 1
                self._used += 1
                self._last = batch
                return True
            self.left -= batch.left
            batches.popleft()
        return False

    def take_back(self) -> None:
        """Undo the last take."""
        batch = self._last
        batch.left += 1
        self.left += 1
        self._used -= 1
        if batch not in self._batches:  # it was empty, and was removed
            self._insert(batch)

    def count(self, now: float) -> int:
        """Return how many permits are at hand."""
        batches = self._batches
        while batches and not (batches[0].left and now < batches[0].lapses):
            self.left -= batches.popleft().left
        return self.left

    def _count_open(self, now: float) -> int:
        return sum(batch.left for batch in self._batches if batch.opens <= now < batch.lapses)

    def wait(self, now: float, count: int) -> float:
        """Return the seconds until *count* of those at hand are usable. There must be so many."""
        for batch in self._batches:
            if now < batch.lapses:
                count -= batch.left
                if count <= 0:
                    return max(batch.opens - now, 0.0)
        return 0.0

    def put(self, count: int, lapses: float, now: float, opens: float = -inf) -> None:
        """Add permits that came from the store; too late, maybe."""
        if count and now < lapses:
            self._insert(PermitBatch(count, lapses, opens))
            self.left += count

    def _insert(self, batch: PermitBatch) -> None:
        """Insert a batch: what lapses first is used first, nearly always the order of arrival."""
        at, order = len(self._batches), (batch.lapses, batch.opens)
        while at and (self._batches[at - 1].lapses, self._batches[at - 1].opens) > order:
            at -= 1
        self._batches.insert(at, batch)

    def drop(self) -> None:
        """Let all of them lapse at once."""
        self._batches.clear()
        self._last = PermitBatch(0, -inf)  # what is taken back has lapsed as well
        self.left = 0

    def ask_ahead_count(self, now: float) -> int:
        """Return how many more to lease ahead, by recent use; called when the store is asked."""
        elapsed = now - self._since
        if elapsed > 0:
            weight = min(elapsed / _RECENTLY, 1.0)
            self._rate += (self._used / elapsed - self._rate) * weight
            self._used = 0
            self._since = now
        in_a_life = min(self._rate * self._life, self._most)
        self.low = in_a_life * _LOW
        return max(int(in_a_life * _ENOUGH) - self.count(now), 0)


_PACE = 0.002
"""Seconds per instance between two commands while the limit is reached: the more instances ask, the
more permits there must be for it to be worth while."""
_GUESS = 0.005
"""Seconds after which to look again if it is not known when permits come."""
_GRAIN = 0.0005
"""Seconds: permits that become usable within the same of these are one batch."""


class SharedRates:
    """Permits of which all instances together have so many."""

    __slots__ = (
        "_answered",
        "_clock",
        "_commands",
        "_epoch",
        "_is_contested",
        "_leases",
        "_next",
        "is_asking",
        "terms",
    )

    def __init__(
        self,
        terms: LeaseTerms,
        commands: PermitCommands,
        clock: Clock,
        answered: Callable[[float], None],
    ) -> None:
        """Call *answered*, whenever the store has answered, with the time that a pause lasts."""
        self.terms = terms
        self._commands = commands
        self._clock = clock
        self._answered = answered
        self._leases = LeasedPermits(terms.life, terms.interval, clock.monotonic())
        self.is_asking = False
        """Whether the store has yet to answer."""
        self._epoch = 0
        """Answers to commands of an earlier epoch bring no permits."""
        self._is_contested = False
        """Whether we got less than we asked for."""
        self._next = 0.0
        """Before that moment there is no permit for certain."""

    def __repr__(self) -> str:
        return f"{self._leases.left} permits"

    # Permits at hand.

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
        """Undo the last take."""
        if self.terms.rates:
            self._leases.take_back()

    def is_idle(self, now: float) -> bool:
        """Tell whether there is nothing to lose."""
        return not self.is_asking and not self._leases.count(now)

    def wait(self, now: float, count: int, opens: float) -> float:
        """Return the seconds until the *count*-th call has a permit, and none before *opens*.

        Other instances use the same permits, so this is the least that it can be.
        """
        if not self.terms.rates:
            return max(opens - now, 0.0)
        missing = count - self._leases.count(now)
        if missing <= 0:
            return max(opens - now, self._leases.wait(now, count))
        known = max(self._next, opens)
        return (known - now if now < known else _GUESS) + (missing - 1) * self.terms.interval

    def is_unsure(self, now: float) -> bool:
        """Tell whether asking the store may bring permits."""
        return bool(self.terms.rates) and (self.is_asking or now >= self._next)

    # Asking the store.

    def ask(self, now: float, want: int) -> float | None:
        """Request permits for *want* calls now; if there can be none yet, return when to ask."""
        if self.is_asking or not self.terms.rates:
            return None
        want -= self._leases.count(now)
        if want <= 0:
            return None  # they are at hand, and not usable yet
        if now < self._next:
            return self._next
        ahead = self._leases.ask_ahead_count(now)
        self.send(want if self._is_contested else want + ahead)
        return None

    def _ask_ahead(self, now: float) -> None:
        """Request permits for calls that will come, if it goes on like this."""
        if not self.is_asking and not self._is_contested and now >= self._next:
            want = self._leases.ask_ahead_count(now)
            if want:
                self.send(want)

    def send(self, want: int) -> None:
        """Ask the store for *want* permits; for none, to learn of a pause only."""
        self.is_asking = True
        epoch = self._epoch

        def answer(numbers: list[int], sent: float) -> None:
            self.is_asking = False
            if epoch == self._epoch:
                self._receive(want, numbers, sent)
            self._answered(numbers[2] / 1e6)

        self._commands.take(want, self.terms, answer)

    def _receive(self, wanted: int, numbers: list[int], sent: float) -> None:
        given, next_in, _, has_rival, *first_in = numbers
        now = self._clock.monotonic()
        self._put(given, first_in, sent + self.terms.life, now)
        if given:
            self._commands.link.check_round_trip(self.terms.life)
        self._is_contested = given < wanted
        self._next = now + next_in / 1e6
        if self._is_contested:
            pace = self._pace(rivals=self._commands.link.instances - 1 if has_rival else 0)
            self._next = max(self._next, now + pace)
            if has_rival:
                self._next += self._courtesy(pace, given)

    def _put(self, given: int, first_in: list[int], lapses: float, now: float) -> None:
        """Keep what the store gave, each permit until its due time.

        *first_in*: for each rate, the microseconds until the first one may be used.
        """
        grains = 0
        count = 0
        for position in range(given):
            wait = max(
                first / 1e6 + position * interval
                for first, interval in zip(first_in, self.terms.intervals, strict=True)
            )
            opens = max(ceil(wait / _GRAIN), 0)
            if opens > grains:
                self._leases.put(count, lapses, now, now + grains * _GRAIN if grains else now)
                grains, count = opens, 0
            count += 1
        self._leases.put(count, lapses, now, now + grains * _GRAIN if grains else now)

    def report_sent(self, sent: int, seconds: float, answered: Callable[[], None]) -> None:
        """Report calls that were sent without the store, before it gives any permits."""

        def answer(numbers: list[int], sent: float) -> None:  # noqa: ARG001 - it knows now
            answered()

        self._commands.report_sent(sent, seconds, self.terms, answer)

    def _pace(self, rivals: int) -> float:
        """Return the seconds until it is worth while to ask again."""
        return min(_PACE * (1 + rivals), self.terms.life / 4)

    def _courtesy(self, pace: float, given: int) -> float:
        """Return the seconds by which to ask later than possible, where instances compete.

        All know when the next permit comes, and else the instance nearest to the store would get
        every one. An instance that has just got permits lets the others go first.
        """
        most = min(max(self.terms.interval, pace), self.terms.life / 4)
        return most * (self._clock.roll() + (1 if given else 0)) / 2

    # Changes.

    def forget(self) -> None:
        """Drop the permits at hand and on their way; the store may be asked again."""
        self._leases.drop()
        self._epoch += 1
        self._next = 0.0
        self._is_contested = False

    def lose_store(self) -> None:
        """Drop all permits: the store will not answer."""
        self.forget()
        self.is_asking = False

    def change(self, terms: LeaseTerms) -> None:
        """Apply other limits from now on; the store knows what is left."""
        self.forget()
        self.terms = terms
        self._leases = LeasedPermits(terms.life, terms.interval, self._clock.monotonic())
