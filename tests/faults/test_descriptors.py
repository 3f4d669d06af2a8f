"""No file descriptors left: no busy loop, and everything works again once there are some."""

import asyncio
import os
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from tests.support import ScriptedUpstream, WireEnded, one_route, subprocess_proxy
from tests.support.waiting import PATIENCE

LIMIT = 40


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_running_out_of_descriptors_is_survived() -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream), first=f"ulimit -n {LIMIT}") as proxy,
    ):
        async with proxy.client() as early:
            assert (await early.get()).status == 200
            async with AsyncExitStack() as stack:
                for _ in range(LIMIT + 20):
                    with suppress(OSError):
                        await stack.enter_async_context(proxy.client())
                await asyncio.sleep(0.2)
                before, began = cpu_seconds(proxy.process.pid), time.monotonic()
                await asyncio.sleep(0.5)
                used = cpu_seconds(proxy.process.pid) - before
                assert used < 0.2 * (time.monotonic() - began)
                # Who is connected already is served over the connection that is kept.
                assert (await early.get()).status == 200
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(OSError, WireEnded):
                    if (await proxy.get()).status == 200:
                        break
                await asyncio.sleep(0.01)
        assert (await proxy.admin("GET", "/readyz")).status == 200
        assert "Traceback" not in proxy.errors
        assert upstream.requests
