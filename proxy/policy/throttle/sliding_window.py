"""The sliding window rate limit: at most N calls in any window, as soon as possible.

It logs the latest calls. The window that counts at t is (t - W, t]: a call that was sent
exactly W ago is out of it. Of N calls per window the log keeps the latest N, nothing else
matters: the next call may go out when the oldest of those has left the window, the one
after it when the second oldest has, and so on. Calls that were never made have left it
long ago::

    3 calls in 10 s; sent at 0, 1 and 2; now is 3

    the 1st call from now   at 10    0 + W
    the 2nd                 at 11    1 + W
    the 3rd                 at 12    2 + W
    the 4th                 at 20    W after the first of these

W is the window as the sender has to count it for the upstream to find no more in its own
(``pacing.py``).

After the limiter was *closed_until* a moment, the first N calls are also W / N apart: a
window that is free altogether would let all of them out at once.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from proxy.policy.settings import Rate
from proxy.policy.throttle.pacing import NANOSECONDS, nanoseconds

_LONG_AGO = -(10**30)


class SlidingWindow:
    """The log of the latest calls of one rate. Memory grows with the rate's count."""

    __slots__ = ("_closed_until", "_dropped", "_sent", "_sent_since_closed", "_window", "rate")

    def __init__(self, rate: Rate, sent: Iterable[int] = (), window: int | None = None) -> None:
        """Count calls for *window* nanoseconds, by default the rate's period; *sent* is the log."""
        self.rate = rate
        self._window = nanoseconds(rate.period) if window is None else window
        self._sent = deque(sent, rate.count)
        """Whole nanoseconds, the oldest first; at most the rate's count, the latest ones."""
        self._dropped: int | None = None
        """The entry that the last call pushed out, for :meth:`take_back`."""
        self._closed_until = _LONG_AGO
        """Until when it was closed."""
        self._sent_since_closed = 0
        """Calls since it was closed."""

    def take(self, now: float, reserved: int) -> bool:
        """Count a call, if it may go out now besides *reserved* others; False if it may not."""
        clock = self._read(now)
        if self._free_at(clock, reserved + 1) > clock:
            return False
        sent = self._sent
        self._sent_since_closed += 1
        self._dropped = sent.popleft() if len(sent) == self.rate.count else None
        sent.append(clock)
        return True

    def take_back(self) -> None:
        """Undo the count of the last call. Once only."""
        self._sent_since_closed -= 1
        self._sent.pop()
        if self._dropped is not None:
            self._sent.appendleft(self._dropped)

    def wait(self, now: float, count: int) -> float:
        """Return the seconds until the *count*-th call from now may go out."""
        clock = self._read(now)
        return (self._free_at(clock, count) - clock) / NANOSECONDS

    def _free_at(self, clock: int, count: int) -> int:
        """Return when the *count*-th call from now may go out."""
        sent, most = self._sent, self.rate.count
        rounds, ahead = divmod(count - 1, most)
        unmade = most - len(sent)
        free_at = clock
        if ahead >= unmade:
            free_at = max(free_at, sent[ahead - unmade] + self._window)
        if clock < self._closed_until + self._window:
            free_at = max(free_at, self._due(ahead))
        return free_at + rounds * self._window

    def close_until(self, now: float, until: float) -> None:
        """Admit nothing before *until*, then one by one, and nothing earlier than without it."""
        if self._read(now) < self._closed_until + self._window:
            self._closed_until = max(self._due(0), nanoseconds(until))
        else:
            self._closed_until = nanoseconds(until)
        self._sent_since_closed = 0

    def reopen(self, now: float, until: float) -> None:  # noqa: ARG002 - the log knows the rest
        """End the closed time at *until*, which is earlier than it was set to."""
        self._closed_until = nanoseconds(until)
        self._sent_since_closed = 0

    def _due(self, ahead: int) -> int:
        """Return when the call behind *ahead* others may go out after the closing."""
        calls = min(self._sent_since_closed + ahead, self.rate.count - 1)
        return self._closed_until + self._share(calls)

    def _share(self, calls: int) -> int:
        """Return the nanoseconds for *calls* of the calls of a window, rounded up."""
        return -(-calls * self._window // self.rate.count)

    def leave(self, now: float, remaining: int) -> None:
        """Leave *remaining* calls, then one by one, as if the others had been sent evenly."""
        start = nanoseconds(now) - self._window
        spent = max(self.rate.count - remaining, 0)
        evenly = (start + self._share(ahead) for ahead in range(1, spent + 1))
        self._sent = deque(evenly, self.rate.count)

    def changed_to(self, rate: Rate, now: float, window: int | None = None) -> "SlidingWindow":
        """Return the log of another rate, for which the same calls were sent."""
        log = SlidingWindow(rate, self._sent, window)
        if self._read(now) < self._closed_until + self._window:
            log.close_until(now, self._due(0) / NANOSECONDS)
        return log

    def sent(self) -> list[float]:
        """Return when the latest calls went out, the oldest first."""
        return [moment / NANOSECONDS for moment in self._sent]

    def remaining(self, now: float) -> int:
        """Return how many calls could go out now."""
        clock = self._read(now)
        sent, most = self._sent, self.rate.count
        left = most - len(sent) + bisect_right(sent, clock - self._window)
        if clock < self._closed_until + self._window:
            due = (clock - self._closed_until) * most // self._window + 1
            left = min(left, max(due - self._sent_since_closed, 0))
        return left

    def is_full(self, now: float) -> bool:
        """Tell whether the window is equal to a new one."""
        return self.remaining(now) == self.rate.count

    def _read(self, now: float) -> int:
        """Read the clock. If it was set back, the log moves with it and keeps its distances."""
        clock = nanoseconds(now)
        if self._sent and self._sent[-1] > clock:
            step = self._sent[-1] - clock
            self._sent = deque((moment - step for moment in self._sent), self.rate.count)
            self._closed_until -= step
        return clock

    def __len__(self) -> int:
        return len(self._sent)

    def __repr__(self) -> str:
        return f"<log {self.rate.count}/{self.rate.period:g}s of {len(self._sent)} calls>"
