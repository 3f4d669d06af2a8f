"""Permits that were got from the store ahead of their use.

They come in lots. A lot lapses a fixed time after it was *asked* for, on our own clock: so
it cannot outlive its terms, however slow the network is and however long the loop sleeps. Some
are given before their time: a lot is not used before it *opens*.

While callers come steadily, the next lot is asked for before the last one is used up, as
large as recent use suggests; a caller then never waits for the store, and one call to the
store serves dozens. Permits that lapse unused are lost to everybody, so nothing is got ahead
while the limit is reached, and never more than come anew while they live: what a slow rate
takes an hour to give is not had in stock.
"""

from collections import deque
from math import inf

_RECENTLY = 0.05
"""Seconds over which use is averaged."""
_ENOUGH = 0.75
_LOW = 0.25
"""What is got ahead, and what is left when more is asked for: shares of the use in a life."""


class Lot:
    """Permits that lapse together."""

    __slots__ = ("lapses", "left", "opens")

    def __init__(self, left: int, lapses: float, opens: float = -inf) -> None:
        self.left = left
        self.lapses = lapses
        self.opens = opens


class Leases:
    """The permits that are at hand, and how many will be needed."""

    __slots__ = ("_last", "_life", "_lots", "_most", "_rate", "_since", "_used", "left", "low")

    def __init__(self, life: float, interval: float, now: float) -> None:
        """Permits live for *life* seconds; there is another one each *interval*."""
        self._life = life
        self._most = life / interval if interval else 0.0
        """What is got ahead at most."""
        self._lots: deque[Lot] = deque()
        self._last = Lot(0, -inf)
        """From which the last permit was taken."""
        self.left = 0
        """Permits at hand; those that have lapsed count until somebody looks."""
        self.low = 0.0
        """Below that it is time to get more, if callers go on coming as they did."""
        self._rate = 0.0
        """Permits used per second, of late."""
        self._used = 0
        self._since = now

    def take(self, now: float, held: int) -> bool:
        """Use a permit, if there is one besides the *held* ones."""
        # For every attempt: 0.2 µs.
        lots = self._lots
        while lots:
            lot = lots[0]
            if lot.left and now < lot.lapses:
                if now < lot.opens or (held and self._count_open(now) <= held):
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
            self._insert(Lot(count, lapses, opens))
            self.left += count

    def _insert(self, lot: Lot) -> None:
        """What lapses first is used first. Nearly always that is the order in which it came."""
        at, place = len(self._lots), (lot.lapses, lot.opens)
        while at and (self._lots[at - 1].lapses, self._lots[at - 1].opens) > place:
            at -= 1
        self._lots.insert(at, lot)

    def drop(self) -> None:
        """Let all of them lapse at once."""
        self._lots.clear()
        self._last = Lot(0, -inf)  # what is taken back has lapsed as well
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
