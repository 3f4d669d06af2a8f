"""The recent past: samples of all counters, and what was counted in the last minute.

The process takes a sample every few seconds, which reads numbers and waits for nothing; a request
pays nothing for it. What happened lately is the difference between the counters as they are and an
old sample, so it is exact for a span that is known to the millisecond.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from proxy.observe.metrics.difference import CounterSample, counted_since, sample_counters
from proxy.observe.metrics.snapshot import ProcessSnapshot

SAMPLE_EVERY = 5.0
"""Seconds between two samples."""
_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class CountedWindow:
    """What was counted in the last *seconds*."""

    seconds: float
    counted: ProcessSnapshot


class History:
    """The samples of the last minute, the oldest first."""

    def __init__(self) -> None:
        # One more than fit into a minute, so that one is always about that old.
        self._samples: deque[tuple[float, CounterSample]] = deque(
            maxlen=int(_MINUTE / SAMPLE_EVERY) + 1
        )

    def sample(self, now: float, snapshot: ProcessSnapshot) -> None:
        """Remember what *snapshot* counted until *now*, in monotonic seconds."""
        before = self._samples[-1][1] if self._samples else None
        self._samples.append((now, sample_counters(snapshot, before)))

    def last_minute(self, now: float, snapshot: ProcessSnapshot) -> CountedWindow:
        """Return what was counted up to *snapshot*, which was taken *now*, since a minute ago.

        The window begins with the sample that is nearest to a minute old: it may be up to half of
        ``SAMPLE_EVERY`` longer or shorter, and says so. In the first minute it begins with the
        first sample.
        """
        if not self._samples:
            return CountedWindow(0.0, ProcessSnapshot({}))
        then, sample = min(self._samples, key=lambda taken: abs(now - taken[0] - _MINUTE))
        return CountedWindow(max(now - then, 0.0), counted_since(sample, snapshot))


async def keep_sampling(sample: Callable[[], None]) -> None:
    """Call *sample* every few seconds. Never ends."""
    while True:
        await asyncio.sleep(SAMPLE_EVERY)
        sample()
