"""Tests in virtual time: the same kit, the same proxy, and waits that cost nothing."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from proxy.core.virtual_time import START, START_OF_WALL, VirtualClock, VirtualLoop

SEED = 1
"""Of all chance in virtual time, unless a test chooses its own clock."""


class TestLoop(VirtualLoop):
    """A virtual loop on which files may be read.

    What a real loop gives to a thread, such as reading the configuration for a reload, is done at
    once: it takes no virtual time, and always the same.
    """

    __test__ = False

    def run_in_executor(  # type: ignore[override]  # what of its arguments has a meaning here
        self, executor: None, func: Callable[..., Any], *args: object
    ) -> asyncio.Future[Any]:
        assert executor is None
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - as a thread would
            done.set_exception(error)
        return done


def virtual_loop() -> VirtualLoop | None:
    """The running loop, if there is one and its time is virtual."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop if isinstance(loop, VirtualLoop) else None


def in_virtual_time() -> bool:
    """Whether the running loop's time is virtual."""
    return virtual_loop() is not None


def virtual_clock(seed: int = SEED) -> VirtualClock:
    """A clock of the running loop; its chance is that of *seed*."""
    loop = virtual_loop()
    assert loop is not None, "not in virtual time"
    return VirtualClock(loop, random.Random(seed).random)


def now() -> float:
    """Seconds to measure with: of the running loop if its time is virtual, else of the machine."""
    loop = virtual_loop()
    return time.monotonic() if loop is None else loop.time()


def wall() -> float:
    """The date, as the proxy's clock has it: virtual if the running loop's time is."""
    loop = virtual_loop()
    return time.time() if loop is None else START_OF_WALL + loop.time() - START
