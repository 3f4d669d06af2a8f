"""Tenants with different plans."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.examples.example import Example
from tests.support import RunningProxy, ScriptedUpstream, hang_up, virtual_time
from tests.support.throttles import statuses

pytestmark = virtual_time


EXAMPLE = Example("tenants.yaml")


@asynccontextmanager
async def stage() -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    async with (
        ScriptedUpstream() as api,
        EXAMPLE.running(f"upstreams: {{api: {api.url}}}") as proxy,
    ):
        yield api, proxy


async def ask(proxy: RunningProxy, count: int, tenant: str, *fields: str) -> list[int]:
    return await statuses(proxy, count, "/", f"X-Tenant: {tenant}", *fields)


async def test_who_has_no_plan_gets_ten_calls_at_once_and_is_told_to_come_back() -> None:
    async with stage() as (api, proxy):
        assert await ask(proxy, 11, "small") == [200] * 10 + [429]
        assert len(api.requests) == 10
        got = await proxy.get("/", "X-Tenant: small", "X-Plan: free")
        assert (got.status, got.get("Retry-After")) == (429, "1")


async def test_a_tenant_does_not_use_up_what_belongs_to_another() -> None:
    async with stage() as (_, proxy):
        assert (await ask(proxy, 11, "one"))[-1] == 429
        assert await ask(proxy, 10, "other") == [200] * 10


async def test_who_pays_gets_more() -> None:
    async with stage() as (_, proxy):
        assert await ask(proxy, 60, "medium", "X-Plan: pro") == [200] * 60
        assert await ask(proxy, 200, "large", "X-Plan: enterprise") == [200] * 200
        assert {line["route"] for line in await proxy.logged(260)} == {"pro", "enterprise"}


async def test_who_pays_is_retried() -> None:
    async with stage() as (api, proxy):
        plans = {"free": (502, 1), "pro": (200, 2), "enterprise": (200, 2)}
        for plan, (status, calls) in plans.items():
            api.requests.clear()
            api.script(hang_up)
            assert await ask(proxy, 1, "one", f"X-Plan: {plan}") == [status]
            assert len(api.requests) == calls


async def test_beyond_its_burst_a_paying_tenant_waits_in_queue() -> None:
    async with stage() as (_, proxy):
        crowd = [ask(proxy, 1, "medium", "X-Plan: pro") for _ in range(160)]
        assert await asyncio.gather(*crowd) == [[200]] * 160
        metrics = await proxy.metrics()
        delayed = metrics.total("holdfast_throttle_decisions_total", name="pro", decision="delayed")
        assert delayed >= 1
