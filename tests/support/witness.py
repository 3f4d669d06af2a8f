"""For how long nobody got to run: what no proxy can answer for."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

_TICK = 0.002

T = TypeVar("T")


def waited_for_a_core(pid: int | None = None) -> float:
    """Seconds that a process was ready to run and another one had the core, since it began.

    Of its main thread, which has the event loop; of our own process, if no other is named. Where
    the system does not count it, it is none.
    """
    with suppress(OSError, IndexError):
        counted = Path(f"/proc/{pid or os.getpid()}/schedstat").read_text()
        return int(counted.split()[1]) / 1e9
    return 0.0


def slowdown() -> float:
    """How many times longer work takes now than on a machine that does nothing else: 1 or more."""
    began, used = time.perf_counter(), time.process_time()
    while time.process_time() < used + 0.1:
        pass
    return max((time.perf_counter() - began) / (time.process_time() - used), 1.0)


class Stopwatch:
    """Measures what something took, without the time that others had the cores.

    A bound on its seconds holds on a busy machine too, and is no wider on a quiet one: who sleeps,
    blocks or computes is still measured in full. Other processes that have to get to run for it,
    such as a proxy of its own, are named with their *pids*.
    """

    def __init__(self, *pids: int) -> None:
        # In this order, here and below: who is interrupted in between takes off too much, by that.
        self._stalled = {pid: waited_for_a_core(pid) for pid in (os.getpid(), *pids)}
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since it was made; of a process that has ended nothing is taken off."""
        passed = time.monotonic() - self._began
        waits = [waited_for_a_core(pid) - before for pid, before in self._stalled.items()]
        return max(passed - sum(wait for wait in waits if wait > 0.0), 0.0)


async def soon(awaited: Awaitable[T], within: float) -> T:
    """What *awaited* brings, which has to come in less than so many seconds of a Stopwatch."""
    watch = Stopwatch()
    brought = await awaited
    assert watch.seconds < within, f"it took {watch.seconds:.3f} s"
    return brought


class Witness:
    """Knows for how long others kept the machine so busy that timers were late."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []

    def stalled(self, since: float, until: float) -> float:
        """Seconds of that time."""
        return sum(late for moment, late in self._late if since <= moment < until)

    @property
    def longest(self) -> float:
        """The longest time in one piece."""
        return max((late for _, late in self._late), default=0.0)

    async def watch(self) -> None:
        while True:
            due = time.monotonic() + _TICK
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            if now - due > 0.005:  # what is earlier costs nothing
                self._late.append((now, now - due))


@asynccontextmanager
async def witness() -> AsyncIterator[Witness]:
    """Watches for as long as this lasts."""
    watching = Witness()
    task = asyncio.create_task(watching.watch())
    try:
        yield watching
    finally:
        task.cancel()
