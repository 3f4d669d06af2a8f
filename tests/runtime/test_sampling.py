"""A process that serves samples its counters by itself, alone or with workers."""

import asyncio
import json
from typing import Any

import pytest

from tests.support import ScriptedUpstream, one_route, subprocess_proxy


@pytest.mark.deep
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_the_window_stays_at_a_minute(workers: str) -> None:
    """Requests before the last minute are in the totals, and no longer in the window."""
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream), None, "--workers", workers) as proxy,
    ):

        async def status() -> dict[str, Any]:
            found: dict[str, Any] = json.loads((await proxy.admin("GET", "/status")).body)
            return found

        for _ in range(5):
            assert (await proxy.get("/")).status == 200
        first = await status()
        assert first["last_minute"]["routes"]["all"]["requests"] == {"2xx": 5}
        assert first["last_minute"]["seconds"] <= first["uptime_seconds"]
        while first["uptime_seconds"] < 70:  # of real time, which is what is tested
            await asyncio.sleep(1)
            first = await status()
        assert (await proxy.get("/")).status == 200
        last = await status()
        # A busy machine may take a sample late.
        assert 55 < last["last_minute"]["seconds"] < 68
        assert last["last_minute"]["routes"]["all"]["requests"] == {"2xx": 1}
        assert last["routes"]["all"]["requests"] == {"2xx": 6}
