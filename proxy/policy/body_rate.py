"""The minimum rate of request bodies: whether one comes fast enough while it is waited for.

Only waiting counts: while the upstream is behind (back-pressure), or the request is in a wait
queue, the proxy does not read, and the client cannot help it. So time here is the sum of all
waits, which stands still between them, and a body must meet its rate over every :data:`WINDOW`
of that time.
"""

from collections import deque

WINDOW = 30.0
"""Seconds over which the rate is averaged."""
SAMPLE_EVERY = 1.0
"""Seconds between two samples of a body; one that is too slow is noticed that much later."""


class BodyRate:
    """Samples one body from time to time: bytes received, and seconds waited for them."""

    __slots__ = ("_rate", "_samples")

    def __init__(self, rate: int) -> None:
        self._rate = rate
        """Bytes per second."""
        self._samples: deque[tuple[float, int]] = deque([(0.0, 0)])
        """Seconds waited and bytes received, per sample; the first is a window ago."""

    def is_too_slow(self, waited: float, received: int) -> bool:
        """Whether the body came below its rate over the last window of waiting.

        *waited* and *received* are sums from the body's beginning.
        """
        samples = self._samples
        begin = waited - WINDOW
        # The last sample that is at least a window ago.
        while len(samples) > 1 and samples[1][0] <= begin:
            samples.popleft()
        then, had = samples[0]
        if waited >= samples[-1][0] + SAMPLE_EVERY / 2:
            samples.append((waited, received))
        return then <= begin and received - had < int(self._rate * (waited - then))

    def is_behind(self, waited: float, received: int) -> bool:
        """Whether the body came below its rate in the last second or two of waiting.

        The body may yet catch up: this is no reason to end its request, unless others need the
        memory that it takes.
        """
        for then, had in reversed(self._samples):
            if then <= waited - SAMPLE_EVERY:
                return received - had < int(self._rate * (waited - then))
        return False
