"""Stores for keyed scripts, and what is done to them and to the clocks while the scripts run.

What is done is noted, so that a judge can tell which windows were open when.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.pipeline.idempotency.keyed_judge import Hardships, Span
from tests.pipeline.idempotency.keyed_scripts import ATTEMPT_TIMEOUT, SHORT_LEASE
from tests.support import RunningProxy
from tests.support.clock import FakeClock
from tests.support.disks import fill, small_disk_if_possible
from tests.support.redis_server import redis_server

HOUR = 3600.0

Trouble = Callable[[Random], Coroutine[None, None, None]]


@dataclass
class Ground:
    """A store that the instances share."""

    line: str
    """What the file says about it."""
    instances: int
    hardships: Hardships
    troubles: list[Trouble] = field(default_factory=list)
    there: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the store answers."""

    def __post_init__(self) -> None:
        self.there.set()


def now() -> float:
    """Seconds of the clock that leases and times to live are counted by.

    Not of the loop's, which stands still during a turn of the loop: on a busy machine an arrival
    would seem to come before it did.
    """
    return time.monotonic()


# Stores.


@asynccontextmanager
async def memory(_: Path) -> AsyncIterator[Ground]:
    """Nothing can happen to it."""
    line = "store: {url: memory, entries: 1000000, bytes: 512MiB}"
    yield Ground(line, 1, Hardships(leases_end=False))


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Ground]:
    """Now and then somebody else has the file, or the disk is full."""
    with small_disk_if_possible(folder / "disk", 64 * 1024**2) as no_small_disk:
        path = folder / "disk" / "keys.db"
        hardships = Hardships()

        async def trouble(chance: Random) -> None:
            while True:
                ground.there.set()
                await asyncio.sleep(chance.uniform(1.5, 4.0))
                ground.there.clear()
                if chance.random() < 0.6 or no_small_disk:
                    await _locked(path, hardships.cut_off, _outage(chance))
                else:
                    await _full(path.parent, hardships.hard, chance.uniform(0.4, 0.9))

        line = f"store: {{url: 'sqlite:{path}', timeout: 200ms}}"
        ground = Ground(line, 2, hardships, [trouble])
        yield ground


async def _locked(path: Path, spans: list[Span], seconds: float) -> None:
    db = sqlite3.connect(path, isolation_level=None, timeout=1, check_same_thread=False)
    try:
        with suppress(sqlite3.OperationalError):
            await asyncio.to_thread(db.execute, "BEGIN IMMEDIATE")
            since = now()
            await asyncio.sleep(seconds)
            spans.append((since, now()))
    finally:
        db.close()


async def _full(disk: Path, spans: list[Span], seconds: float) -> None:
    since = now()
    filler = await asyncio.to_thread(fill, disk)
    try:
        await asyncio.sleep(seconds)
    finally:
        filler.unlink()
        spans.append((since, now()))


@asynccontextmanager
async def redis(_: Path) -> AsyncIterator[Ground]:
    """Now and then the server does not answer. All times are its own."""
    async with redis_server() as server:
        hardships = Hardships(date_counts=False)

        async def trouble(chance: Random) -> None:
            while True:
                ground.there.set()
                await asyncio.sleep(chance.uniform(1.5, 4.0))
                ground.there.clear()
                server.stall()
                since = now()
                try:
                    await asyncio.sleep(_outage(chance))
                finally:
                    hardships.cut_off.append((since, now()))
                    server.resume()

        line = f"store: {{url: 'redis://127.0.0.1:{server.port}', timeout: 200ms}}"
        ground = Ground(line, 2, hardships, [trouble])
        yield ground


def _outage(chance: Random) -> float:
    """Seconds: mostly shorter than a lease, now and then longer than the short one."""
    return chance.choice((0.05, 0.05, *(0.3,) * 5, 2.2 * SHORT_LEASE))


STORES = {"memory": memory, "sqlite": sqlite, "redis": redis}


# Clocks.


async def _set_dates(clock: FakeClock, hardships: Hardships, chance: Random) -> None:
    """Set the date, forward and back: mostly by less than a ``ttl``, now and then by more."""
    while True:
        await asyncio.sleep(chance.uniform(0.05, 0.3))
        error = chance.choice((0.0, HOUR, -HOUR)) + chance.choice((0.0,) * 49 + (25 * HOUR,))
        hardships.dates.append((now(), error))
        clock.set_wall_wrong_by(error)


async def _stand_still(chance: Random) -> None:
    """Seldom, let nothing run for longer than an attempt may take: not even its upstream."""
    while True:
        await asyncio.sleep(chance.uniform(10.0, 20.0))
        time.sleep(ATTEMPT_TIMEOUT * 1.05)  # noqa: ASYNC251 - it is what this is about


async def _notice(spans: list[Span]) -> None:
    """Note when nothing ran, on purpose or because the machine is busy."""
    last = now()
    while True:
        await asyncio.sleep(0.02)
        if now() - last > 0.2:
            spans.append((last, now()))
        last = now()


async def _notice_links(proxies: Sequence[RunningProxy], spans: list[Span]) -> None:
    """Note when an instance takes its store for down: it renews nothing before it looks again."""
    while True:
        since = now()
        await asyncio.sleep(0.02)
        if any(proxy.store_state == "down" for proxy in proxies):
            spans.append((since, now()))


@asynccontextmanager
async def troubled(
    ground: Ground, proxies: Sequence[RunningProxy], clock: FakeClock, seed: str
) -> AsyncIterator[None]:
    """Let everything happen that can, for as long as this lasts."""
    chance, hardships = Random(seed), ground.hardships
    works: list[Awaitable[None]] = [
        _set_dates(clock, hardships, Random(f"dates {seed}")),
        _stand_still(Random(f"still {seed}")),
        _notice(hardships.hard),
        _notice_links(proxies, hardships.down),
        *(trouble(chance) for trouble in ground.troubles),
    ]
    async with AsyncExitStack() as stack:
        for work in works:
            task = asyncio.ensure_future(work)
            stack.push_async_callback(_ended, task)
        yield
    ground.there.set()


async def _ended(task: "asyncio.Future[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
