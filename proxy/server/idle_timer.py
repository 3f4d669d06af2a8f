"""The idle timeout of a body: notices when nothing of it has moved for too long.

One timer per body, however many pieces the body comes in: it is set again only when
it fires and finds that something has moved meanwhile.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable


class IdleTimer:
    """Calls *on_idle* once nothing has moved for *limit* seconds."""

    __slots__ = ("_last_progress", "_limit", "_loop", "_on_idle", "_progress", "_seen", "_timer")

    def __init__(
        self,
        loop: AbstractEventLoop,
        limit: float,
        on_idle: Callable[[], None],
        progress: Callable[[], int] | None = None,
    ) -> None:
        self._loop = loop
        self._limit = limit
        self._on_idle = on_idle
        self._progress = progress
        """Returns a number that changes when something moves without a call of :meth:`touch`."""
        self._seen = progress() if progress is not None else 0
        self._last_progress = loop.time()
        self._timer: TimerHandle | None = loop.call_later(limit, self._check)

    def touch(self) -> None:
        """Note that a piece of the body came, or went."""
        self._last_progress = self._loop.time()

    def stop(self) -> None:
        """Stop the timer: the body is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        now = self._loop.time()
        if self._progress is not None:
            seen = self._progress()
            if seen != self._seen:
                self._seen = seen
                self._last_progress = now
        left = self._last_progress + self._limit - now
        if left > 0:
            self._timer = self._loop.call_later(left, self._check)
        else:
            self._timer = None
            self._on_idle()
