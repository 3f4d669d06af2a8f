"""The clock: time and random numbers, passed in so that a test can choose them."""

import time
from random import random
from typing import Protocol


class Clock(Protocol):
    """Source of time and random numbers, passed in so that a test can choose them."""

    def monotonic(self) -> float:
        """Return seconds that never go backwards: for waits, deadlines and durations."""

    def wall(self) -> float:
        """Return seconds since the epoch: only to read or write dates."""

    def roll(self) -> float:
        """Return a random number from 0 up to, not including, 1: for the jitter of waits."""


class SystemClock:
    """The machine's own clock."""

    # Static methods of C functions: a call costs what the function costs.
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    roll = staticmethod(random)
