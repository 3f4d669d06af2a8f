"""What the tests of the stores share: a store that runs, and callers in a closed loop."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from proxy.core.clock import Clock, SystemClock
from proxy.policy.settings import Rate, ThrottleSettings
from proxy.policy.settings.store import RedisSettings
from proxy.policy.throttle.limiter import Limiter
from proxy.policy.throttle.wait_queue import Reservation, Waiter, WaitQueue
from proxy.stores import LimiterStore
from proxy.stores.redis import OPERATIONS, RedisStore
from tests.support.redis_server import SERVERS, program_name
from tests.support.waiting import PATIENCE, eventually
from tests.support.witness import Stopwatch

on_every_server = pytest.mark.parametrize("program", SERVERS, ids=program_name)
"""Runs a test once for each server that is installed."""

CLOCK = SystemClock()


def per_second(count: int, burst: int | None = None, **others: object) -> ThrottleSettings:
    """Return a limit of *count* calls a second, with *others* of its settings."""
    return ThrottleSettings(rates=(Rate(count, 1.0),), burst=burst, **others)  # type: ignore[arg-type]  # as named there


class Tally:
    """Implements :class:`proxy.core.recorders.StoreRecorder`: counts."""

    def __init__(self, operations: tuple[str, ...] = OPERATIONS) -> None:
        """Expect *operations* only."""
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
    """Yield a store that was started, and check that it leaves nothing behind."""
    before = asyncio.all_tasks()
    store = RedisStore(settings, clock, tally or Tally())
    await store.start()
    try:
        yield store
    finally:
        await store.close()
        left = asyncio.all_tasks() - before
        assert not {task for task in left if task.get_name().startswith("store")}


class Callers:
    """Callers in a closed loop: each makes a call, and the next when that is over.

    Those that wait do so before a real queue, and not in it: they take the permits there are, ask
    when there is none, and try again when they are notified that there may be some, or at the time
    that ``wait`` says.
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
        self.pauses: list[float] = []
        """Ends of pauses of which the limiter has notified us."""
        self.changes = 0
        """How often permits changed."""
        self.is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self.calls: list[Reservation] = []
        """Calls under way, the oldest first."""
        self.bucket: WaitQueue[Waiter] = WaitQueue(
            settings, store.open_bucket(bucket, settings, self)
        )
        if callers:
            self.serve()

    @property
    def rates(self) -> Limiter:
        return self.bucket.rates

    @property
    def slots(self) -> Limiter:
        assert self.bucket.concurrency is not None
        return self.bucket.concurrency

    def has(self, count: int, now: float) -> bool:
        """Whether so many calls could go out."""
        free = self.bucket.concurrency is None or self.slots.wait(now, count) <= 0
        return free and self.rates.wait(now, count) <= 0

    def ask(self, now: float, waiting: int) -> bool:
        """Ask the store for what *waiting* calls need; whether it may answer something new."""
        if self.bucket.concurrency is not None and self.slots.wait(now, 1) > 0:
            return self.slots.ask(now, waiting)
        return self.rates.ask(now, waiting)

    def take(self, now: float) -> bool:
        """Let a call out, if that can be."""
        call = self.bucket.take(now)
        if call is not None:
            self.calls.append(call)
        return call is not None

    def finish(self) -> None:
        """End the oldest call."""
        self.calls.pop(0).close()

    def permits_changed(self) -> None:
        self.changes += 1
        self.serve()

    def permits_paused(self, until: float) -> None:
        self.pauses.append(until)

    def call(self, callers: int = 1) -> None:
        """Let *callers* more wait for a permit."""
        self.waiting += callers
        self.serve()

    def serve(self) -> None:
        if self.is_stopped:
            return
        loop = asyncio.get_running_loop()
        now = CLOCK.monotonic()
        while self.waiting and self.take(now):
            self.waiting -= 1
            self.under_way += 1
            self.sent.append(now)
            loop.call_later(self.lasts, self._over)
        if not self.waiting:
            return
        self.ask(now, self.waiting)
        if self._timer is not None:
            self._timer.cancel()
        has_slot = self.bucket.concurrency is None or self.slots.wait(now, 1) <= 0
        wait = self.rates.wait(now, 1) if has_slot else 1.0
        self._timer = loop.call_later(min(wait, 1.0), self.serve)

    def _over(self) -> None:
        self.under_way -= 1
        self.finish()
        self.call()

    def stop(self) -> None:
        """Send no more."""
        self.is_stopped = True
        if self._timer is not None:
            self._timer.cancel()


async def calls_out(line: Callers, count: int) -> None:
    """Wait until *count* calls have gone out."""
    await eventually(lambda: len(line.sent) >= count, what=f"call number {count}")


async def goes_out_at(rate: float, seconds: float, count: Callable[[], int], *pids: int) -> None:
    """Wait for so many *seconds* in a row in which calls go out at *rate* a second, or more.

    On a quiet machine those are the first ones. Where others have the cores, permits lapse before
    they are used: the time that they had them does not count, neither here nor in the processes
    *pids*.
    """
    end, reached = CLOCK.monotonic() + PATIENCE, 0.0
    while reached < rate:
        assert CLOCK.monotonic() < end, f"{reached:.1f} a second in the last {seconds} s"
        before, watch = count(), Stopwatch(*pids)
        await asyncio.sleep(seconds)
        reached = (count() - before) / max(watch.seconds, 0.1 * seconds)


def most_in(sent: list[float], window: float) -> int:
    """Return the most that went out in any such window."""
    sent = sorted(sent)
    first = most = 0
    for last, moment in enumerate(sent):
        while moment - sent[first] > window:
            first += 1
        most = max(most, last - first + 1)
    return most


def assert_within(sent: list[float], rate: float, burst: int) -> None:
    """Check that no second saw more than rate and burst allow, nor a part of it its share.

    What goes out in a moment was given in that moment, or within the life of a permit before it.
    """
    assert most_in(sent, 1.0) <= rate + burst - 1
    for window in (0.001, 0.01, 0.05, 0.1, 0.2, 0.5):
        assert most_in(sent, window) <= rate * (window + 0.03) + burst, f"in {window} s"
