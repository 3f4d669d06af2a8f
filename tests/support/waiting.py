"""Waiting for what must happen, never for how long it might take."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 20.0
"""Seconds after which something that should have happened never will, however busy the machine is.

It is a deadline, and no expectation: what has to happen soon is measured, with a ``Stopwatch``.
"""

T = TypeVar("T")


async def eventually(
    predicate: Callable[[], T], *, within: float = PATIENCE, what: str = "it"
) -> T:
    """The first true value of *predicate*, asked every millisecond; a failure if there is none."""
    try:
        async with asyncio.timeout(within):
            while not (value := predicate()):  # noqa: ASYNC110 - it may be anything
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"{what} did not happen within {within} s") from None
    return value
