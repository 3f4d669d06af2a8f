"""What the loops of real time promise about timers, which virtual time only imitates.

Stage tests run in virtual time, where a timer is exact. On uvloop it may come a little early,
and everything late: these few tests stay in real time, and look at what the stages rely on.
"""

import asyncio
import time

from proxy.core.clock import SystemClock
from proxy.pipeline.retry_waits import RetryWaits
from tests.support import both_loops

EARLY = 0.002
"""Seconds by which uvloop fires at most too early: it counts whole milliseconds, from a time that
it reads once in a turn."""
WAITS = [0.0, 0.0004, 0.001, 0.0017, 0.003, 0.0102, 0.0199]


@both_loops
async def test_a_timer_comes_hardly_early_and_in_order() -> None:
    loop = asyncio.get_running_loop()
    began = time.monotonic()
    fired: list[tuple[float, float]] = []
    all_fired = loop.create_future()

    def note(wait: float) -> None:
        fired.append((wait, time.monotonic() - began))
        if len(fired) == len(WAITS):
            all_fired.set_result(None)

    for wait in reversed(WAITS):
        loop.call_later(wait, note, wait)
    await all_fired
    assert all(after >= wait - EARLY for wait, after in fired)
    # Those within one millisecond come in any order.
    assert [wait for wait, _ in fired if wait >= 0.003] == WAITS[-3:]


@both_loops
async def test_the_wait_before_a_retry_is_never_short() -> None:
    clock = SystemClock()
    waits = RetryWaits()
    for seconds in WAITS:
        began = clock.monotonic()
        assert await waits.wait(seconds)
        assert clock.monotonic() - began >= seconds


@both_loops
async def test_a_cancelled_timer_does_not_come() -> None:
    loop = asyncio.get_running_loop()
    fired: list[str] = []
    loop.call_later(0.001, fired.append, "cancelled").cancel()
    await asyncio.sleep(0.02)
    assert fired == []
