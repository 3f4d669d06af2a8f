"""Two regions, of which the near one fails."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.examples.example import Example
from tests.support import (
    Behaviour,
    RunningProxy,
    ScriptedUpstream,
    answer,
    hang_up,
    ok,
    response,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.throttles import statuses

pytestmark = virtual_time


EXAMPLE = Example("two-regions.yaml")


@asynccontextmanager
async def stage() -> AsyncIterator[tuple[ScriptedUpstream, ScriptedUpstream, RunningProxy]]:
    async with ScriptedUpstream() as near, ScriptedUpstream() as far:
        near.usual, far.usual = answer(ok(b"near")), answer(ok(b"far"))
        overlay = f"upstreams: {{near: {{urls: [{near.url}]}}, far: {{urls: [{far.url}]}}}}"
        async with EXAMPLE.running(overlay, clock=FakeClock()) as proxy:
            yield near, far, proxy


async def test_the_near_region_serves() -> None:
    async with stage() as (_, far, proxy):
        assert (await proxy.get("/")).body == b"near"
        assert not far.requests


@pytest.mark.parametrize("failure", [hang_up, answer(response(500)), answer(response(503))])
async def test_while_it_fails_the_far_one_does(failure: Behaviour) -> None:
    async with stage() as (near, far, proxy):
        near.usual = failure
        assert (await proxy.get("/")).body == b"far"
        assert (len(near.requests), len(far.requests)) == (2, 1)


async def test_where_it_is_down_the_far_one_gets_posts_as_well() -> None:
    async with stage() as (near, far, proxy):
        await near.stop()
        async with proxy.client() as client:
            assert (await client.request("POST", "/orders", body=b"one")).body == b"far"
        assert far.requests[0].body == b"one"


async def test_what_may_have_run_runs_nowhere_else() -> None:
    async with stage() as (near, far, proxy), proxy.client() as client:
        near.usual = hang_up
        assert (await client.request("POST", "/orders", body=b"one")).status == 502
        assert (len(near.requests), len(far.requests)) == (1, 0)


async def test_once_the_breaker_is_open_everything_goes_to_the_far_one_at_once() -> None:
    async with stage() as (near, far, proxy):
        near.usual = answer(response(500))
        assert await statuses(proxy, 10) == [200] * 10
        seen = len(near.requests)
        async with proxy.client() as client:
            assert (await client.request("POST", "/orders", body=b"one")).body == b"far"
        assert len(near.requests) == seen
        assert far.requests[-1].method == "POST"


async def test_if_both_fail_the_caller_gets_the_far_one_s_failure() -> None:
    async with stage() as (near, far, proxy):
        near.usual, far.usual = hang_up, answer(response(503, b"far is ill, too"))
        got = await proxy.get("/")
        assert (got.status, got.body) == (503, b"far is ill, too")
