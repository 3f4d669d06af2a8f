"""Waits between two attempts: over in time, ended by a drain, and nothing left of any."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from proxy.pipeline.retry_waits import RetryWaits
from tests.support import both_loops, eventually

LONG = 3600.0


@both_loops
@pytest.mark.parametrize("milliseconds", [1, 1.4, 2.45, 3])
async def test_no_wait_is_shorter_than_was_asked_for(milliseconds: float) -> None:
    pauses = RetryWaits()
    for phase in range(40):
        # Somewhere inside one of the milliseconds that uvloop counts.
        begin = time.monotonic() + phase / 40_000
        while time.monotonic() < begin:
            pass
        began = time.monotonic()
        assert await pauses.wait(milliseconds / 1000)
        assert time.monotonic() - began >= milliseconds / 1000


async def begun(wait: Coroutine[Any, Any, bool]) -> "asyncio.Task[bool]":
    """A wait that is under way."""
    task = asyncio.create_task(wait)
    await asyncio.sleep(0)
    return task


async def test_they_are_over_when_their_time_is_whatever_the_order() -> None:
    pauses = RetryWaits()
    done: list[float] = []

    async def wait(seconds: float) -> None:
        assert await pauses.wait(seconds)
        done.append(seconds)

    await asyncio.gather(*(wait(seconds) for seconds in (0.03, 0.01, 0.02, 0.0)))
    assert done == [0.0, 0.01, 0.02, 0.03]
    assert len(pauses) == 0


async def test_no_time_at_all_is_still_a_turn_of_the_loop() -> None:
    pauses = RetryWaits()
    waiting = await begun(pauses.wait(0.0))
    assert await waiting is True


async def test_the_end_wakes_everybody_at_once() -> None:
    pauses = RetryWaits()
    waiting = [await begun(pauses.wait(LONG)) for _ in range(100)]
    assert len(pauses) == 100
    pauses.end()
    assert await asyncio.gather(*waiting) == [False] * 100
    assert len(pauses) == 0


async def test_after_the_end_nobody_waits() -> None:
    pauses = RetryWaits()
    pauses.end()
    assert pauses.is_over
    assert await pauses.wait(LONG) is False
    assert await pauses.wait(0.0) is False
    assert len(pauses) == 0


async def test_ending_twice_is_ending_once() -> None:
    pauses = RetryWaits()
    waiting = await begun(pauses.wait(LONG))
    pauses.end()
    pauses.end()
    assert await waiting is False


@both_loops
async def test_one_that_is_cancelled_leaves_nothing_and_the_others_alone() -> None:
    pauses = RetryWaits()
    leaving, staying = await begun(pauses.wait(LONG)), await begun(pauses.wait(0.02))
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert len(pauses) == 1
    assert await staying is True
    assert len(pauses) == 0


async def test_one_that_is_cancelled_as_its_time_comes_leaves_nothing() -> None:
    pauses = RetryWaits()
    for microseconds in range(0, 4000, 40):
        waiting = await begun(pauses.wait(0.001))
        asyncio.get_running_loop().call_later(microseconds / 1_000_000, waiting.cancel)
        await asyncio.wait([waiting])
        assert waiting.cancelled() or waiting.result() is True
        assert len(pauses) == 0


async def test_one_that_ends_as_it_is_cancelled_is_cancelled() -> None:
    pauses = RetryWaits()
    waiting = await begun(pauses.wait(LONG))
    waiting.cancel()
    pauses.end()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await eventually(lambda: len(pauses) == 0)
