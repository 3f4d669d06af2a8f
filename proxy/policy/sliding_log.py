"""At most so many calls in any window, exactly: the log of the latest ones.

The window that counts at t is (t - W, t]: a call that was sent exactly W ago is out of
it. Of N calls per window the log keeps the latest N, nothing else matters: the next
call may go out when the oldest of those has left the window, the one after it when the
second oldest has, and so on. Calls that were never made have left it long ago::

    3 calls in 10 s; sent at 0, 1 and 2; now is 3

    the 1st call from now   at 10    0 + W
    the 2nd                 at 11    1 + W
    the 3rd                 at 12    2 + W
    the 4th                 at 20    W after the first of these
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator

from proxy.policy.gcra import NANOSECONDS
from proxy.policy.settings import Rate


class SlidingLog:
    """When the latest calls of one rate were sent. Memory grows with the rate's count.

    Moments are whole nanoseconds. They never decrease along the log: what is sent
    while the log is drained counts as sent at its end, which is later. A log of another
    rate can begin with those that are in this one: iterate over it.
    """

    __slots__ = ("_ahead", "_dropped", "_sent", "_window", "rate")

    def __init__(self, rate: Rate, sent: Iterable[int] = ()) -> None:
        self.rate = rate
        self._window = _nanoseconds(rate.period)
        self._sent = deque(sent, rate.count)
        """The oldest first; at most the rate's count."""
        self._dropped: int | None = None
        """What had to go for the last one, for :meth:`take_back`."""
        self._ahead = 0
        """How far in the future the last one may be because of :meth:`drain`."""

    def take(self, now: float, held: int) -> bool:
        """Count a call, if it may go out now and *held* others as well."""
        clock = self._read(now)
        if self._free_at(clock, held + 1) > clock:
            return False
        self._add(clock)
        return True

    def take_back(self) -> None:
        """The last call that was counted is none. Once only."""
        self._sent.pop()
        if self._dropped is not None:
            self._sent.appendleft(self._dropped)

    def spend(self, now: float) -> None:
        """Count a call that goes out now, come what may."""
        self._add(self._read(now))

    def wait(self, now: float, count: int) -> float:
        """Seconds until the *count*-th call from now may go out."""
        clock = self._read(now)
        return (self._free_at(clock, count) - clock) / NANOSECONDS

    def drain(self, now: float, until: float) -> None:
        """Nothing before *until*, then one by one. Not to be called with an earlier one later.

        As if all calls of a window had been sent evenly, the first to leave it at *until*.
        """
        end = _nanoseconds(until)
        self._ahead = max(end - _nanoseconds(now), 0)
        evenly = [end - self._window + self._share(place) for place in range(self.rate.count)]
        unmade = self.rate.count - len(self._sent)
        # Both lists grow, and so does what is later of the two, place by place.
        evenly[unmade:] = map(max, evenly[unmade:], self._sent)
        self._sent = deque(evenly, self.rate.count)

    def leave(self, now: float, remaining: int) -> None:
        """Let so many be left, and after them one by one."""
        start = _nanoseconds(now) - self._window
        spent = max(self.rate.count - remaining, 0)
        evenly = (start + self._share(place) for place in range(1, spent + 1))
        self._sent = deque(evenly, self.rate.count)

    def remaining(self, now: float) -> int:
        """How many calls could go out now."""
        clock = self._read(now)
        gone = bisect_right(self._sent, clock - self._window)
        return self.rate.count - len(self._sent) + gone

    def is_full(self, now: float) -> bool:
        """Whether it is as good as new."""
        return self.remaining(now) == self.rate.count

    def _read(self, now: float) -> int:
        """The clock. If it was set back, the log moves with it and keeps its distances."""
        clock = _nanoseconds(now)
        if self._sent and self._sent[-1] - self._ahead > clock:
            step = self._sent[-1] - self._ahead - clock
            self._sent = deque((moment - step for moment in self._sent), self.rate.count)
        return clock

    def _free_at(self, clock: int, count: int) -> int:
        """When the *count*-th call from now may go out."""
        sent, most = self._sent, self.rate.count
        rounds, place = divmod(count - 1, most)
        place -= most - len(sent)  # those that were never made are free
        free_at = clock if place < 0 else max(clock, sent[place] + self._window)
        return free_at + rounds * self._window

    def _add(self, clock: int) -> None:
        sent = self._sent
        if sent and sent[-1] > clock:
            clock = sent[-1]
        self._dropped = sent.popleft() if len(sent) == self.rate.count else None
        sent.append(clock)

    def _share(self, calls: int) -> int:
        """Nanoseconds for so many of the calls of a window, rounded up."""
        return -(-calls * self._window // self.rate.count)

    def __iter__(self) -> Iterator[int]:
        return iter(self._sent)

    def __len__(self) -> int:
        return len(self._sent)

    def __repr__(self) -> str:
        return f"<log {self.rate.count}/{self.rate.period:g}s of {len(self._sent)} calls>"


def _nanoseconds(seconds: float) -> int:
    return round(seconds * NANOSECONDS)
