"""What the tests of the stores stand on: a store that runs, and a line of callers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.core.clock import Clock, SystemClock
from proxy.policy.settings import Rate, RedisSettings, ThrottleSettings
from proxy.policy.throttle.limiter import Limiter
from proxy.stores import LimiterStore
from proxy.stores.redis import OPERATIONS, RedisStore
from tests.support.redis_server import SERVERS, program_name
from tests.support.waiting import eventually

on_every_server = pytest.mark.parametrize("program", SERVERS, ids=program_name)
"""Runs a test once for each server that there is."""

CLOCK = SystemClock()


def per_second(count: int, burst: int | None = None, **others: object) -> ThrottleSettings:
    """So many calls a second, and what else is said."""
    return ThrottleSettings(rates=(Rate(count, 1.0),), burst=burst, **others)  # type: ignore[arg-type]  # as named there


class Tally:
    """Implements :class:`proxy.core.recorders.StoreRecorder`: counts."""

    def __init__(self, operations: tuple[str, ...] = OPERATIONS) -> None:
        """*operations* are those that there are."""
        self._operations = operations
        self.answered: Counter[str] = Counter()
        self.unanswered: Counter[str] = Counter()

    def operated(self, operation: str, seconds: float) -> None:
        assert operation in self._operations
        assert seconds >= 0
        self.answered[operation] += 1

    def failed(self, operation: str) -> None:
        assert operation in self._operations
        self.unanswered[operation] += 1


@asynccontextmanager
async def running_store(
    settings: RedisSettings, *, tally: Tally | None = None, clock: Clock = CLOCK
) -> AsyncIterator[RedisStore]:
    """A store that was started, and that leaves nothing behind."""
    before = asyncio.all_tasks()
    store = RedisStore(settings, clock, tally or Tally())
    await store.start()
    try:
        yield store
    finally:
        await store.close()
        left = asyncio.all_tasks() - before
        assert not {task for task in left if task.get_name().startswith("store")}


class Line:
    """Callers in a closed loop: each makes a call, and the next when that is over.

    It does what a bucket does: takes what there is, asks when there is none, and comes back
    when it was told that there may be some, or at the time that ``wait`` says.
    """

    def __init__(
        self,
        store: LimiterStore,
        settings: ThrottleSettings,
        *,
        callers: int = 0,
        lasts: float = 0.0,
        bucket: str = "route:line",
    ) -> None:
        self.lasts = lasts
        self.waiting = callers
        self.under_way = 0
        self.sent: list[float] = []
        """When calls went out."""
        self.retry_waits: list[float] = []
        """Ends of pauses that we were told of."""
        self.told = 0
        """How often permits changed."""
        self.is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._calls: set[asyncio.TimerHandle] = set()
        self.permits: Limiter = store.limiter(bucket, settings, self)
        if callers:
            self.serve()

    def permits_changed(self) -> None:
        self.told += 1
        self.serve()

    def permits_paused(self, until: float) -> None:
        self.retry_waits.append(until)

    def call(self, callers: int = 1) -> None:
        """So many more get in line."""
        self.waiting += callers
        self.serve()

    def serve(self) -> None:
        if self.is_stopped:
            return
        loop = asyncio.get_running_loop()
        now = CLOCK.monotonic()
        while self.waiting and self.permits.take(now, 0):
            self.waiting -= 1
            self.under_way += 1
            self.sent.append(now)
            loop.call_later(self.lasts, self._over)
        if not self.waiting:
            return
        self.permits.ask(now, self.waiting)
        if self._timer is not None:
            self._timer.cancel()
        wait = self.permits.wait(now, 1) if self.permits.has_room() else 1.0
        self._timer = loop.call_later(min(wait, 1.0), self.serve)

    def _over(self) -> None:
        self.under_way -= 1
        self.permits.vacate()
        self.call()

    def stop(self) -> None:
        """Send no more."""
        self.is_stopped = True
        if self._timer is not None:
            self._timer.cancel()


async def calls_out(line: Line, count: int) -> None:
    """Wait until so many calls have gone out."""
    await eventually(lambda: len(line.sent) >= count, what=f"call number {count}")


def most_in(sent: list[float], window: float) -> int:
    """The most that went out in any such window."""
    sent = sorted(sent)
    first = most = 0
    for last, moment in enumerate(sent):
        while moment - sent[first] > window:
            first += 1
        most = max(most, last - first + 1)
    return most


def assert_within(sent: list[float], rate: float, burst: int) -> None:
    """No second saw more than rate and burst allow, and nothing shorter more than its part.

    What goes out in a moment was given in that moment, or within the life of a permit before it.
    """
    assert most_in(sent, 1.0) <= rate + burst - 1
    for window in (0.001, 0.01, 0.05, 0.1, 0.2, 0.5):
        assert most_in(sent, window) <= rate * (window + 0.03) + burst, f"in {window} s"
