"""Waits between two attempts, which a drain ends at once."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from proxy.core.exchange import Exchange
from proxy.core.ports import Refused
from proxy.policy.failure_answers import DRAINING
from proxy.policy.throttle.wait_queue import ThrottleCause

_GRAIN = 0.0015
"""Seconds by which uvloop may call too early: it rounds to milliseconds, on a clock that
counts whole ones."""


class RetryWaits:
    """All waits of the process: nothing of them is left when they are over."""

    __slots__ = ("_loop", "_queued", "_waiting", "is_over")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._queued: set[Exchange] = set()
        """Those in line for another attempt."""
        self.is_over = False
        """Whether no attempt is to follow another any more: the process is about to end."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._queued)

    async def wait(self, seconds: float) -> bool:
        """Wait, never for less; False if it was ended because no further attempt is to be made."""
        if self.is_over:
            return False
        awake: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(seconds + _GRAIN if seconds else 0.0, _wake, awake)
        self._waiting.add(awake)
        try:
            await awake
        finally:
            timer.cancel()
            self._waiting.discard(awake)
        return not self.is_over

    @contextmanager
    def watch(self, exchange: Exchange) -> Iterator[None]:
        """Meanwhile it stands in line for another attempt.

        Raises :class:`Refused` if there are none any more.
        """
        if self.is_over:
            raise Refused(DRAINING)
        self._queued.add(exchange)
        try:
            yield
        finally:
            self._queued.discard(exchange)

    def end(self) -> None:
        """Wake everybody: no further attempts."""
        self.is_over = True
        for awake in self._waiting:
            _wake(awake)
        for exchange in tuple(self._queued):
            if exchange.queue_entry is not None:
                exchange.queue_entry.give_up(ThrottleCause.DRAINING)


def _wake(awake: asyncio.Future[None]) -> None:
    if not awake.done():
        awake.set_result(None)
