"""For how long nobody got to run: what no proxy can answer for."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_TICK = 0.002


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
