"""Deliveries under load, with restarts, outages and kill -9: every id is accounted for."""

import asyncio
from pathlib import Path
from time import monotonic

import pytest

from tests.faults.soak import soak
from tests.support import ScriptedUpstream, Visit, ok, one_route, reset, subprocess_proxy
from tests.support.handed_off import ASYNC, HONOURED

CALLERS = 16


async def test_a_few_seconds_with_a_kill() -> None:
    found = await soak(4, rate=60, restart_every=2)
    assert found.restarts["kill -9"] >= 1
    assert len(found.accepted) > 20


@pytest.mark.deep
@pytest.mark.timeout(900)
async def test_five_minutes_with_a_restart_every_ten_seconds() -> None:
    found = await soak(300)
    assert sum(found.restarts.values()) >= 20
    assert len(found.accepted) > 10_000


@pytest.mark.deep
@pytest.mark.timeout(600)
async def test_an_outage_of_a_minute_with_10000_waiting(tmp_path: Path) -> None:
    is_down, tries, limit = True, list[float](), 500

    async def serve(visit: Visit) -> None:
        await visit.read_body()
        if visit.request.method == "GET":
            await visit.send(ok())
            return
        tries.append(monotonic())
        await (reset(visit) if is_down else visit.send(ok()))

    route = f"throttle: {{rate: {limit}/s, max_wait: 30s}}\nhand_off: true"
    async with ScriptedUpstream(usual=serve) as upstream:
        top = f"state_dir: {tmp_path}/state\naccess_log: none"
        config = one_route(upstream, route, top=top, options=HONOURED)
        async with subprocess_proxy(config) as proxy:
            numbers = iter(range(10_000))

            async def caller() -> None:
                async with proxy.client() as client:
                    for _ in numbers:
                        given = await client.request("POST", "/", ASYNC, body=b"x" * 1000)
                        assert given.status == 202

            await asyncio.gather(*(caller() for _ in range(CALLERS)))
            await asyncio.sleep(60)
            # A canary after 1, 2, 4 … s: at most 8 in the time that this may have taken.
            assert len(tries) <= 10 + 5 + 8, len(tries)
            before, is_down = len(tries), False
            over = monotonic() + 300
            while len(tries) - before < 10_000:
                assert monotonic() < over, f"{len(tries) - before} are delivered"
                await asyncio.sleep(0.5)
            after = tries[before:]
            # As the upstream sees it: what is sent in a second may arrive in a little less.
            for n in range(len(after) - 2 * limit):
                assert after[n + 2 * limit] - after[n] > 0.8
            await asyncio.sleep(1)
            metrics = await proxy.metrics()
            assert metrics.total("holdfast_deliveries_ended_total", result="delivered") == 10_000
