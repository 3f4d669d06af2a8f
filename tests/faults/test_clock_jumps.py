"""Somebody sets the machine's date: nothing but dates depends on it."""

import pytest

from tests.support import ScriptedUpstream, hang, now, one_route, running, virtual_time, wall
from tests.support.clock import FakeClock
from tests.support.records import last_logged, outcomes

pytestmark = virtual_time


HOUR = 3600.0


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["an hour forward", "an hour back"])
async def test_waits_and_pools_do_not_notice(jump: float) -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "timeout: 100ms"), clock=clock) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).status == 200
        clock.set_wall_wrong_by(jump)
        assert (await client.get()).status == 200
        # No connection was thought too old, and none too young.
        assert len(upstream.connections) == 1
        upstream.usual = hang
        began = now()
        assert (await client.get()).status == 504
        assert 0.09 < now() - began < 1
        record = await last_logged(proxy, 3)
        assert outcomes(record) == ["timeout"]
        assert 90 < record["duration_ms"] < 1000


async def test_the_log_tells_the_time_that_the_machine_tells() -> None:
    clock = FakeClock()
    clock.set_wall_wrong_by(-wall() + 86_400 * 365)
    async with ScriptedUpstream() as upstream, running(one_route(upstream), clock=clock) as proxy:
        await proxy.get()
        [record] = await proxy.logged()
        assert record["time"].startswith("1971-01-01T00:00:")
