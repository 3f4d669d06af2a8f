"""The retry budget: how many retries an upstream has to bear. It stops a retry storm.

When an upstream fails every request, three attempts each would triple its load at
the worst of times. A budget ties retries to the traffic: in any window no more than
``ratio`` of the first attempts, and a few on top, so that a caller with one request a
minute may retry it too.

A retry is charged when it is decided, not when it is sent: otherwise all requests that
fail at once would be retried at once. One that is cancelled before it is sent is given back.
"""

from proxy.policy.settings import BudgetSettings
from proxy.policy.window import Window

_ROUNDING = 1e-9
"""Tolerance for float errors: 0.29 of 100 shall be 29."""


class Budget:
    """The retry budget of one upstream."""

    def __init__(self, settings: BudgetSettings) -> None:
        self.settings = settings
        self._reserve = settings.min_per_second * settings.window
        self._firsts = Window(settings.window)
        self._retries = Window(settings.window)
        self.first = self._firsts.add
        """Count a first attempt; called with its time. (speed: the window's own method.)"""

    def allows(self, now: float) -> bool:
        """Whether a retry could be charged now: the budget is not used up."""
        return self.remaining(now) >= 1 - _ROUNDING

    def charge(self, now: float) -> None:
        """Charge one retry, which :meth:`allows` has just allowed."""
        self._retries.add(now)

    def give_back(self, taken_at: float, now: float) -> None:
        """Return a retry that was charged at *taken_at* and is not going to be sent."""
        self._retries.take_back(taken_at, now)

    def remaining(self, now: float) -> float:
        """Return how many retries could be charged now."""
        # Where the window's edge cuts a slice in two, err towards fewer retries.
        allowed = self.settings.ratio * self._firsts.at_least(now) + self._reserve
        return max(allowed - self._retries.at_most(now), 0.0)

    def __repr__(self) -> str:
        return f"<budget {self.settings}>"
