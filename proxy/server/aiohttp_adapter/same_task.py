"""The event loop as aiohttp's ``start()`` sees it: a handler runs in the connection's task.

aiohttp gives every request a task of its own, to keep context variables apart. The proxy
has none, and the connection's task waits for that of its request anyway: to make
a task, to start it and to wake the other from it took 7,000 of the 200,000
instructions of a small GET (callgrind, Python 3.11).

From Python 3.12 on aiohttp makes tasks that start at once, by other means than the
loop's, and the loop is used unchanged: a request makes as many calls there as here
(``tests/weight``).
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

_T = TypeVar("_T")

IS_OF_USE = sys.version_info < (3, 12)


class SameTask:
    """Has all methods of a loop that ``start()`` calls."""

    __slots__ = ("call_at", "create_future", "time")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.call_at = loop.call_at
        self.create_future = loop.create_future
        self.time = loop.time

    def create_task(self, handler: Coroutine[Any, Any, _T]) -> Coroutine[Any, Any, _T]:
        """Return *handler* itself: awaited like a task, cancelled with the task that awaits it."""
        return handler


def same_task(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """Return *loop*, but without new tasks where that is of use."""
    return cast("asyncio.AbstractEventLoop", SameTask(loop)) if IS_OF_USE else loop
