"""A sliding window counter: how many events lately, in constant memory.

A window is cut into slices, and the events of one slice are counted together.
The far edge of the window falls into a slice: whether that one counts is for the
caller to say, which knows on which side it is safe to err.

Time that steps back counts as no time gone by; a leap ahead empties the window.
"""

from collections import deque

_SLICES = 20
_LONG_AGO = -1e18


class Window:
    """Counts events over the last *seconds*."""

    __slots__ = ("_begin", "_current", "_end", "_past", "_width")

    def __init__(self, seconds: float) -> None:
        self._width = seconds / _SLICES
        self._begin = self._end = _LONG_AGO
        """Begin and end of the current slice. The first event begins the first one."""
        self._current = 0
        self._past = deque([0] * _SLICES, maxlen=_SLICES)
        """Counts of the slices before the current one, the oldest first."""

    def add(self, now: float) -> None:
        """Count one event. Runs for every request, so it is a comparison and an addition."""
        if now >= self._end:
            self._advance(now)
        self._current += 1

    def at_least(self, now: float) -> int:
        """Count the events in the window for certain: slices that lie within it entirely."""
        return self.at_most(now) - self._past[0]

    def at_most(self, now: float) -> int:
        """Count the events in the window at most: every slice that reaches into it."""
        self._settle(now)
        return self._current + sum(self._past)

    def take_back(self, then: float, now: float) -> None:
        """Uncount an event that was counted at *then*, unless it has left the window."""
        self._settle(now)
        slices_ago = -int((then - self._begin) // self._width)
        if slices_ago <= 0:
            self._current = max(self._current - 1, 0)
        elif slices_ago <= _SLICES and self._past[-slices_ago]:
            self._past[-slices_ago] -= 1

    def _settle(self, now: float) -> None:
        if not self._begin <= now < self._end:
            self._advance(now)

    def _advance(self, now: float) -> None:
        """Make the slice that contains *now* the current one."""
        if now < self._begin:
            self._begin = now
        else:
            # At least one: rounding may say that the end, which has come, is yet to come.
            ended = max((now - self._begin) // self._width, 1.0)
            if ended <= _SLICES:
                self._past.append(self._current)
                self._past.extend([0] * (int(ended) - 1))
                self._begin += ended * self._width
            else:
                self._past.extend([0] * _SLICES)
                self._begin = now
            self._current = 0
        self._end = self._begin + self._width
