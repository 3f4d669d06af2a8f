"""A clock that a test can push."""

import random

from tests.support.virtual import SEED, in_virtual_time, now, wall


class FakeClock:
    """The time of the running loop, real or virtual, plus what the test adds to it.

    Implements :class:`proxy.core.clock.Clock`. It runs, so that what is due soon still
    falls due; and it can be moved on by half an hour at no cost.
    """

    def __init__(self) -> None:
        self._passed = 0.0
        self._stopped_at: float | None = None
        self._wall_error = 0.0
        self._dice = random.Random(SEED if in_virtual_time() else None)
        self.chance: float | None = None
        """What every roll gives; None: chance itself."""

    def monotonic(self) -> float:
        running = now() if self._stopped_at is None else self._stopped_at
        return running + self._passed

    def wall(self) -> float:
        return wall() + self._passed + self._wall_error

    def roll(self) -> float:
        return self._dice.random() if self.chance is None else self.chance

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass, on both clocks."""
        self._passed += seconds

    def stop(self) -> None:
        """Let no monotonic time pass but by :meth:`advance`: for what is true of one moment."""
        self._stopped_at = now()

    def go_on(self) -> None:
        """Let it run again, from where it was stopped."""
        assert self._stopped_at is not None
        self._passed -= now() - self._stopped_at
        self._stopped_at = None

    def set_wall_wrong_by(self, seconds: float) -> None:
        """Somebody sets the machine's date: only the wall clock moves."""
        self._wall_error = seconds
