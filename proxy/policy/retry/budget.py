"""How many retries an upstream is asked to bear: the brake on a retry storm.

When an upstream fails every request, three attempts each would triple its load at
the worst of times. A budget ties retries to what callers ask for: in any window no
more than ``ratio`` of the first attempts, and a few on top, so that a caller with
one request a minute may retry it too.

A retry is counted when it is decided, not when it is sent: else all that fail at
once would pass together. One that is cancelled before it is sent is given back.
"""

from proxy.policy.settings import BudgetSettings
from proxy.policy.window import Window

_ROUNDING = 1e-9
"""0.29 of 100 is 29, whatever floats make of it."""


class Budget:
    """The retries of one upstream."""

    __slots__ = ("_firsts", "_reserve", "_retries", "first", "settings")

    def __init__(self, settings: BudgetSettings) -> None:
        self.settings = settings
        self._reserve = settings.min_per_second * settings.window
        self._firsts = Window(settings.window)
        self._retries = Window(settings.window)
        self.first = self._firsts.add
        """Called with the time when a request is tried for the first time."""

    def take(self, now: float) -> bool:
        """Whether one more retry may be; if so, it is counted."""
        if self.remaining(now) < 1 - _ROUNDING:
            return False
        self._retries.add(now)
        return True

    def give_back(self, taken_at: float, now: float) -> None:
        """The retry that was taken at *taken_at* is not going to be sent."""
        self._retries.take_back(taken_at, now)

    def remaining(self, now: float) -> float:
        """How many retries could be taken now."""
        # Where the window's edge cuts a slice in two, err towards fewer retries.
        allowed = self.settings.ratio * self._firsts.at_least(now) + self._reserve
        return max(allowed - self._retries.at_most(now), 0.0)

    def __repr__(self) -> str:
        return f"<budget {self.settings}>"
