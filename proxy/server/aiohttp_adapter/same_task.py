"""The event loop as aiohttp's ``start()`` sees it: a handler runs in the connection's task.

aiohttp gives every request a task of its own, to keep context variables apart. We
have none, and the connection's task waits for that of its request anyway: to make
it, to start it and to wake the one from the other took 7,000 of the 200,000
instructions of a small GET (callgrind, Python 3.11).

From Python 3.12 on aiohttp makes tasks that start at once, by other means than the
loop's, and all stays as it is.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

_T = TypeVar("_T")

IS_OF_USE = sys.version_info < (3, 12)


class SameTask:
    """All that ``start()`` asks of a loop."""

    __slots__ = ("call_at", "create_future", "time")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.call_at = loop.call_at
        self.create_future = loop.create_future
        self.time = loop.time

    def create_task(self, handler: Coroutine[Any, Any, _T]) -> Coroutine[Any, Any, _T]:
        """Not a task: awaited like one, and cancelled with the one that awaits it."""
        return handler


def same_task(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """*loop*, less the tasks, where that is of use."""
    return cast("asyncio.AbstractEventLoop", SameTask(loop)) if IS_OF_USE else loop
