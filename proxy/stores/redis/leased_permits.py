"""The permits of one bucket that are leased ahead in batches, and how many will be needed."""

from collections import deque
from dataclasses import dataclass
from math import inf

_RECENTLY = 0.05
"""Seconds over which use is averaged."""
_ENOUGH = 0.75
_LOW = 0.25
"""What is leased ahead, and what is left when more is asked for: shares of the use in a life."""


@dataclass(slots=True, eq=False)
class PermitBatch:
    """Permits that lapse together."""

    left: int
    lapses: float
    opens: float = -inf


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
