"""How those go out who waited for the end of a pause, where no rate tells: evenly."""

SPREAD = 1.0
"""Seconds over which they do."""


class ReleaseSpread:
    """So many go out from *start* on."""

    __slots__ = ("_every", "_start", "out")

    def __init__(self, start: float, waiting: int) -> None:
        self._start = start
        self._every = SPREAD / waiting
        self.out = 0
        """How many have gone."""

    def wait(self, now: float, ahead: int) -> float:
        """Seconds until one may go with so many before it; not above 0: it may now."""
        return self._start + min((self.out + ahead) * self._every, SPREAD) - now
