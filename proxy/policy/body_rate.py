"""Whether a request's body comes fast enough, by the time in which it was waited for.

Only waiting counts: while the upstream is behind, or the request stands in line, nobody reads,
and the client cannot help it. So time here is the sum of all waits, which stands still between
them, and a body must bring its rate over every :data:`WINDOW` of that.
"""

from collections import deque

WINDOW = 30.0
"""Seconds over which the average is taken."""
SAMPLE_EVERY = 1.0
"""Seconds between two looks at a body; what is too slow is noticed that much later."""


class BodyRate:
    """Looks at one body from time to time: what it has brought, and how long that took."""

    __slots__ = ("_rate", "_samples")

    def __init__(self, rate: int) -> None:
        self._rate = rate
        """Bytes per second."""
        self._samples: deque[tuple[float, int]] = deque([(0.0, 0)])
        """Seconds waited and bytes received, at each look; the first is a window ago."""

    def is_too_slow(self, waited: float, received: int) -> bool:
        """Whether the last window of waiting brought too little.

        *waited* and *received* are sums from the body's beginning.
        """
        samples = self._samples
        begin = waited - WINDOW
        # The last look that is at least a window ago.
        while len(samples) > 1 and samples[1][0] <= begin:
            samples.popleft()
        then, had = samples[0]
        if waited >= samples[-1][0] + SAMPLE_EVERY / 2:
            samples.append((waited, received))
        return then <= begin and received - had < int(self._rate * (waited - then))

    def is_behind(self, waited: float, received: int) -> bool:
        """Whether it has brought too little lately: in the last second or two of waiting.

        It may yet catch up: this is no reason to end it unless others need what it holds.
        """
        for then, had in reversed(self._samples):
            if then <= waited - SAMPLE_EVERY:
                return received - had < int(self._rate * (waited - then))
        return False
