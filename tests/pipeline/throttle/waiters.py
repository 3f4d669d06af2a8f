"""Requests that only wait in queues, for tests of limiters, throttles and chains."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from proxy.core.exchange import Exchange

T = TypeVar("T")


def _never_called(*_: object, **__: object) -> None:
    raise AssertionError("nothing is relayed here")


def _begin_wait(exchange: Exchange, reason: str) -> None:
    assert not exchange.waiting_for, "it waits already"
    exchange.waiting_for = reason


def _end_wait(exchange: Exchange) -> None:
    exchange.waiting_for = ""


_Visitor = cast(
    "Callable[[], Exchange]",
    type(
        "_Visitor",
        (Exchange,),
        {
            **dict.fromkeys(Exchange.__abstractmethods__, _never_called),
            "begin_wait": _begin_wait,
            "end_wait": _end_wait,
            "client_ip": lambda exchange: exchange.peer,
        },
    ),
)


def visitor(*fields: tuple[bytes, bytes], target: str = "/", client_ip: str = "") -> Exchange:
    """A request with these header fields that has not made any attempt."""
    made = _Visitor()
    made.raw_headers = fields
    made.target = target
    made.peer = client_ip
    made.waiting_for = ""
    made.queue_entry = None
    made.attempts = []
    made.code = 0
    made.expired = made.attempt_expired = False
    made.stream = None
    return made


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
    async with asyncio.timeout(5):
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
