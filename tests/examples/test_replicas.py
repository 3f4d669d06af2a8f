"""Three replicas, of which one is down or sick."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.examples.example import Example
from tests.support import RunningProxy, ScriptedUpstream, answer, eventually, response, virtual_time
from tests.support.clock import FakeClock
from tests.support.throttles import statuses

pytestmark = virtual_time


EXAMPLE = Example("replicas.yaml")

SICK = answer(response(503, b"sick"))


@asynccontextmanager
async def stage(
    clock: FakeClock | None = None,
) -> AsyncIterator[tuple[list[ScriptedUpstream], RunningProxy]]:
    async with ScriptedUpstream() as one, ScriptedUpstream() as two, ScriptedUpstream() as three:
        replicas = [one, two, three]
        urls = ", ".join(replica.url for replica in replicas)
        overlay = f"upstreams: {{catalog: {{urls: [{urls}]}}}}"
        async with EXAMPLE.running(overlay, clock=clock) as proxy:
            yield replicas, proxy


async def test_requests_go_round() -> None:
    async with stage() as (replicas, proxy):
        assert await statuses(proxy, 6) == [200] * 6
        assert [len(replica.requests) for replica in replicas] == [2, 2, 2]


async def test_nobody_notices_a_replica_that_is_down() -> None:
    async with stage() as (replicas, proxy):
        await replicas[0].stop()
        assert await statuses(proxy, 12) == [200] * 12


async def test_a_sick_replica_is_left_alone_then_probed_and_taken_back() -> None:
    clock = FakeClock()
    async with stage(clock) as (replicas, proxy):
        sick = replicas[0]
        sick.usual = SICK
        assert await statuses(proxy, 60) == [200] * 60
        before = len(sick.requests)
        assert before == 10  # min_requests
        assert await statuses(proxy, 10) == [200] * 10
        assert len(sick.requests) == before
        sick.usual = answer(response(200))
        clock.advance(15)
        assert await statuses(proxy, 20) == [200] * 20
        assert len(sick.requests) > before + 3


async def test_if_all_are_open_callers_are_told_when_to_come_back() -> None:
    async with stage(FakeClock()) as (replicas, proxy):
        for replica in replicas:
            replica.usual = SICK
        await statuses(proxy, 40)
        got = await proxy.get("/")
        assert (got.status, got.reason_word) == (503, "breaker_open")
        assert 1 <= int(got.get("Retry-After") or 0) <= 15
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_breaker_state", upstream="catalog") == 2
        await eventually(lambda: proxy.client_connections == 0)
