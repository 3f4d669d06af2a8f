"""Clocks that are set while the process lives: waits keep their length, and nothing is lost."""

import asyncio

import pytest

from tests.support import (
    ScriptedUpstream,
    Visit,
    answer,
    now,
    ok,
    one_route,
    response,
    running,
    virtual_time,
)
from tests.support.handed_off import HONOURED, ended, hand_off, state_of
from tests.support.virtual import virtual_clock

pytestmark = [virtual_time, pytest.mark.usefixtures("files_at_once")]

DAY = 86_400.0


@pytest.mark.parametrize("step", [DAY, -DAY, 3600.0, -3600.0], ids=str)
async def test_waits_keep_their_length(step: float) -> None:
    clock = virtual_clock()
    wall, ahead = clock.wall, 0.0
    clock.wall = lambda: wall() + ahead  # type: ignore[method-assign]  # whoever sets it
    times: list[float] = []

    async def fail(visit: Visit) -> None:
        await visit.read_body()
        times.append(now())
        await visit.send(response(500))

    route = "hand_off: {give_up_after: 12h, retry: {backoff: [10m]}}"
    async with (
        ScriptedUpstream(usual=fail) as upstream,
        running(one_route(upstream, route, options=HONOURED), clock=clock) as proxy,
    ):
        names = [await hand_off(proxy) for _ in range(5)]
        await asyncio.sleep(300)
        ahead = step
        await asyncio.sleep(170)  # the wait of 10 min may be a fifth shorter
        assert len(times) == 5, "nothing fires in a burst"
        await asyncio.sleep(300)
        assert len(times) == 10, "nothing is delayed"
        for name in names:
            assert (await state_of(proxy, name))["state"] == "retrying", "nor given up"
        upstream.usual = answer(ok())
        for name in names:
            assert (await ended(proxy, name, within=2000))["state"] == "delivered"


async def test_a_key_is_as_old_as_it_is_though_the_clock_is_set_back() -> None:
    """An upstream remembers a key for an hour: two hours later it would do the work again."""
    clock = virtual_clock()
    wall, ahead = clock.wall, 0.0
    clock.wall = lambda: wall() + ahead  # type: ignore[method-assign]  # whoever sets it
    route = "hand_off: {timeout: 5s, retry: {backoff: [25m]}}"
    async with (
        ScriptedUpstream(usual=answer(response(500))) as upstream,
        running(one_route(upstream, route, options="honours_key: {for: 1h}"), clock=clock) as proxy,
    ):
        name = await hand_off(proxy)
        began = now()
        await asyncio.sleep(100)
        ahead = -DAY
        await asyncio.sleep(2 * 3600)
        found = await state_of(proxy, name)
        assert (found["state"], found["why"]) == ("failed", "key_expired")
        assert now() - began > 3600
        assert len(upstream.requests) <= 3
