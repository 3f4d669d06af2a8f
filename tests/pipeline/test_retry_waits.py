"""Waits between two attempts: over in time, ended by a drain, and nothing left of any."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from proxy.pipeline.retry_waits import RetryWaits
from tests.support import both_loops, eventually, now, virtual_time

pytestmark = virtual_time


LONG = 3600.0


@both_loops
@pytest.mark.parametrize("milliseconds", [1, 1.4, 2.45, 3])
async def test_no_wait_is_shorter_than_was_asked_for(milliseconds: float) -> None:
    retry_waits = RetryWaits()
    for phase in range(40):
        # Somewhere inside one of the milliseconds that uvloop counts.
        begin = now() + phase / 40_000
        while now() < begin:
            pass
        began = now()
        assert await retry_waits.wait(milliseconds / 1000)
        assert now() - began >= milliseconds / 1000


async def begun(wait: Coroutine[Any, Any, bool]) -> "asyncio.Task[bool]":
    """A wait that is under way."""
    task = asyncio.create_task(wait)
    await asyncio.sleep(0)
    return task


async def test_they_are_over_when_their_time_is_whatever_the_order() -> None:
    retry_waits = RetryWaits()
    done: list[float] = []

    async def wait(seconds: float) -> None:
        assert await retry_waits.wait(seconds)
        done.append(seconds)

    await asyncio.gather(*(wait(seconds) for seconds in (0.03, 0.01, 0.02, 0.0)))
    assert done == [0.0, 0.01, 0.02, 0.03]
    assert len(retry_waits) == 0


async def test_no_time_at_all_is_still_a_turn_of_the_loop() -> None:
    retry_waits = RetryWaits()
    waiting = await begun(retry_waits.wait(0.0))
    assert await waiting is True


async def test_the_end_wakes_everybody_at_once() -> None:
    retry_waits = RetryWaits()
    waiting = [await begun(retry_waits.wait(LONG)) for _ in range(100)]
    assert len(retry_waits) == 100
    retry_waits.end()
    assert await asyncio.gather(*waiting) == [False] * 100
    assert len(retry_waits) == 0


async def test_after_the_end_nobody_waits() -> None:
    retry_waits = RetryWaits()
    retry_waits.end()
    assert retry_waits.is_over
    assert await retry_waits.wait(LONG) is False
    assert await retry_waits.wait(0.0) is False
    assert len(retry_waits) == 0


async def test_ending_twice_is_ending_once() -> None:
    retry_waits = RetryWaits()
    waiting = await begun(retry_waits.wait(LONG))
    retry_waits.end()
    retry_waits.end()
    assert await waiting is False


@both_loops
async def test_one_that_is_cancelled_leaves_nothing_and_the_others_alone() -> None:
    retry_waits = RetryWaits()
    leaving, staying = await begun(retry_waits.wait(LONG)), await begun(retry_waits.wait(0.02))
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert len(retry_waits) == 1
    assert await staying is True
    assert len(retry_waits) == 0


async def test_one_that_is_cancelled_as_its_time_comes_leaves_nothing() -> None:
    retry_waits = RetryWaits()
    for microseconds in range(0, 4000, 40):
        waiting = await begun(retry_waits.wait(0.001))
        asyncio.get_running_loop().call_later(microseconds / 1_000_000, waiting.cancel)
        await asyncio.wait([waiting])
        assert waiting.cancelled() or waiting.result() is True
        assert len(retry_waits) == 0


async def test_one_that_ends_as_it_is_cancelled_is_cancelled() -> None:
    retry_waits = RetryWaits()
    waiting = await begun(retry_waits.wait(LONG))
    waiting.cancel()
    retry_waits.end()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await eventually(lambda: len(retry_waits) == 0)
