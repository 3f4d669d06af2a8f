"""The waits of requests between two attempts, which a drain ends at once."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from proxy.core.exchange import Exchange
from proxy.core.ports import Refused
from proxy.policy.failure_answers import DRAINING
from proxy.policy.throttle.wait_queue import ThrottleCause

GRAIN = 0.0015
"""Seconds by which uvloop may fire a timer too early: it rounds to milliseconds, on a clock
that counts whole ones."""


class RetryWaits:
    """All requests of the process that wait for their next attempt."""

    def __init__(self, grain: float = GRAIN) -> None:
        """*grain* is the seconds by which the loop may fire a timer too early."""
        self._grain = grain
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._queued: set[Exchange] = set()
        """Exchanges that wait in a throttle's queue for another attempt."""
        self.is_over = False
        """Whether no attempt may follow another any more: the process is about to end."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._queued)

    async def wait(self, seconds: float) -> bool:
        """Wait for at least *seconds*; False if a drain forbids the next attempt."""
        if self.is_over:
            return False
        awake: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(seconds + self._grain if seconds else 0.0, _wake, awake)
        self._waiting.add(awake)
        try:
            await awake
        finally:
            timer.cancel()
            self._waiting.discard(awake)
        return not self.is_over

    @contextmanager
    def watch(self, exchange: Exchange) -> Iterator[None]:
        """Count *exchange* as waiting in a throttle's queue for another attempt meanwhile.

        Raises :class:`Refused` if a drain forbids further attempts.
        """
        if self.is_over:
            raise Refused(DRAINING)
        self._queued.add(exchange)
        try:
            yield
        finally:
            self._queued.discard(exchange)

    def end(self) -> None:
        """Wake all waiting requests, and let no attempt follow another any more."""
        self.is_over = True
        for awake in self._waiting:
            _wake(awake)
        for exchange in tuple(self._queued):
            if exchange.queue_entry is not None:
                exchange.queue_entry.give_up(ThrottleCause.DRAINING)


def _wake(awake: asyncio.Future[None]) -> None:
    if not awake.done():
        awake.set_result(None)
