"""Time and chance, handed in so that a test can say what they are."""

import time
from random import random
from typing import Protocol


class Clock(Protocol):
    """Time and chance. Handed in, so that a test can say what they are."""

    def monotonic(self) -> float:
        """Seconds that never go backwards: for waits, deadlines and durations."""

    def wall(self) -> float:
        """Seconds since the epoch: only to read or write dates."""

    def roll(self) -> float:
        """Chance, for waits that shall not all be alike: from 0 up to, not including, 1."""


class SystemClock:
    """The machine's own clock."""

    # Static methods of C functions: a call costs what the function costs.
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    roll = staticmethod(random)
