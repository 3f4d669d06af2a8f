"""Requests that only wait in queues, for tests of limiters, throttles and chains."""

import asyncio
import gc
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from proxy.core.exchange import Exchange
from tests.support.exchanges import UnservedExchange
from tests.support.waiting import PATIENCE

T = TypeVar("T")


def visitor(*fields: tuple[bytes, bytes], target: str = "/", client_ip: str = "") -> Exchange:
    """A request with these header fields that has not made any attempt."""
    return UnservedExchange("GET", target, fields, peer=client_ip)


async def begun(wait: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """A wait that is under way."""
    task = asyncio.create_task(wait)
    await asyncio.sleep(0)
    return task


async def cancelled(task: "asyncio.Task[Any]") -> None:
    """Cancel it, and see to it that it minds."""
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def gather(*waits: Awaitable[T]) -> list[T]:
    """The results of all, which must not take long."""
    async with asyncio.timeout(PATIENCE):
        return await asyncio.gather(*waits)


def timers() -> int:
    """How many timers of the running loop are pending."""
    loop = asyncio.get_running_loop()
    scheduled = getattr(loop, "_scheduled", None)
    if scheduled is None:  # uvloop does not tell
        scheduled = [made for made in gc.get_objects() if type(made).__name__ == "TimerHandle"]
    return sum(not timer.cancelled() for timer in scheduled)


class Decisions:
    """What a throttle decided (core.ThrottleRecorder)."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.waits: list[float] = []

    def admitted(self) -> None:
        self.told.append("passed")

    def delayed(self, seconds: float) -> None:
        self.told.append("delayed")
        self.waits.append(seconds)

    def refused(self) -> None:
        self.told.append("refused")
