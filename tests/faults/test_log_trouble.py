"""Nowhere to write the access log: lines are dropped and counted, serving goes on."""

import asyncio
import os

import pytest

from tests.support import ScriptedUpstream, one_route, subprocess_proxy
from tests.support.waiting import PATIENCE
from tests.support.witness import Stopwatch


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("exec >/dev/full", id="the disk is full"),
        pytest.param("exec >&-", id="there is no stdout"),
    ],
)
async def test_lines_that_cannot_be_written_are_counted(first: str) -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream), first=first) as proxy,
        proxy.client() as client,
    ):
        for _ in range(20):
            assert (await client.get()).status == 200
        async with asyncio.timeout(PATIENCE):
            dropped = 0.0
            while dropped < 20:
                dropped = (await proxy.metrics()).total("holdfast_access_log_dropped_total")
        assert dropped == 20
        assert (await client.get()).status == 200
        assert "Traceback" not in proxy.errors


async def test_a_pipe_that_nobody_reads_holds_up_nobody() -> None:
    reading, writing = os.pipe()
    try:
        async with (
            ScriptedUpstream() as upstream,
            # Opens the pipe anew: the process has an end of its own.
            subprocess_proxy(
                one_route(upstream), first=f"exec >/proc/{os.getpid()}/fd/{writing}"
            ) as proxy,
            proxy.client() as client,
        ):
            slowest = 0.0
            # More than the pipe's 64 KiB hold.
            for _ in range(400):
                watch = Stopwatch(proxy.process.pid)
                assert (await client.get("/" + "a" * 200)).status == 200
                slowest = max(slowest, watch.seconds)
            assert slowest < 0.5
            assert (await proxy.admin("GET", "/healthz")).status == 200
            # Its reader goes for good.
            os.close(reading)
            reading = -1
            assert (await client.get()).status == 200
    finally:
        os.close(writing)
        if reading >= 0:
            os.close(reading)
