"""Notices when a body has been silent for too long.

One timer per body, however many pieces it comes in: it is set again only when
it fires and finds that something has moved meanwhile.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable


class IdleTimer:
    """Calls *on_silence* once nothing has moved for *limit* seconds."""

    __slots__ = ("_limit", "_loop", "_moved_at", "_on_silence", "_progress", "_seen", "_timer")

    def __init__(
        self,
        loop: AbstractEventLoop,
        limit: float,
        on_silence: Callable[[], None],
        progress: Callable[[], int] | None = None,
    ) -> None:
        self._loop = loop
        self._limit = limit
        self._on_silence = on_silence
        self._progress = progress
        """A number that changes when something moves of which nobody tells us."""
        self._seen = progress() if progress is not None else 0
        self._moved_at = loop.time()
        self._timer: TimerHandle | None = loop.call_later(limit, self._check)

    def moved(self) -> None:
        """Something came, or went."""
        self._moved_at = self._loop.time()

    def stop(self) -> None:
        """The body is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        now = self._loop.time()
        if self._progress is not None:
            seen = self._progress()
            if seen != self._seen:
                self._seen = seen
                self._moved_at = now
        left = self._moved_at + self._limit - now
        if left > 0:
            self._timer = self._loop.call_later(left, self._check)
        else:
            self._timer = None
            self._on_silence()
