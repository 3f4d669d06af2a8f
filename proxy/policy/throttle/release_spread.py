"""Releases waiters evenly after a pause, where no rate spaces them."""

SPREAD = 1.0
"""Seconds over which the waiters of a pause are released."""


class ReleaseSpread:
    """Spaces the release of *waiting* waiters evenly from *start* on."""

    __slots__ = ("_every", "_start", "out")

    def __init__(self, start: float, waiting: int) -> None:
        self._start = start
        self._every = SPREAD / waiting
        self.out = 0
        """Waiters released so far."""

    def wait(self, now: float, ahead: int) -> float:
        """Return the seconds until the waiter behind *ahead* others may go; not above 0: now."""
        return self._start + min((self.out + ahead) * self._every, SPREAD) - now
