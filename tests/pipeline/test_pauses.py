"""Waits between two attempts."""

import time

import pytest

from proxy.pipeline.pauses import Pauses
from tests.support import both_loops


@both_loops
@pytest.mark.parametrize("milliseconds", [1, 1.4, 2.45, 3])
async def test_no_wait_is_shorter_than_was_asked_for(milliseconds: float) -> None:
    pauses = Pauses()
    for phase in range(40):
        # Somewhere inside one of the milliseconds that uvloop counts.
        begin = time.monotonic() + phase / 40_000
        while time.monotonic() < begin:
            pass
        began = time.monotonic()
        assert await pauses.wait(milliseconds / 1000)
        assert time.monotonic() - began >= milliseconds / 1000
