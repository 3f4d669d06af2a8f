"""Reloads while deliveries are open: routes by name, at the moment of sending."""

import asyncio
from pathlib import Path

import pytest

from tests.support import (
    REFUSES_503,
    RunningProxy,
    ScriptedUpstream,
    answer,
    ok,
    one_route,
    response,
    running,
    virtual_time,
)
from tests.support.handed_off import HONOURED, ended, hand_off, send, state_of

pytestmark = [virtual_time, pytest.mark.usefixtures("files_at_once")]

OPTIONS = f"{HONOURED}\n{REFUSES_503}"
SLOW = "hand_off: {retry: {backoff: [10m]}}"
unavailable = answer(response(503))


async def reload(proxy: RunningProxy, config: str) -> None:
    usual = [
        line
        for line in proxy.config.read_text().splitlines()
        if line.startswith(("listen", "admin", "access_log", "drain_timeout"))
    ]
    proxy.config.write_text("\n".join((*usual, config)))
    assert await proxy.app.reload() is not None


async def test_the_next_wait_is_by_the_new_schedule() -> None:
    async with (
        ScriptedUpstream(usual=answer(response(500))) as upstream,
        running(one_route(upstream, SLOW, options=OPTIONS)) as proxy,
    ):
        name = await hand_off(proxy)
        await asyncio.sleep(1)
        await reload(
            proxy, one_route(upstream, "hand_off: {retry: {backoff: [1m]}}", options=OPTIONS)
        )
        await asyncio.sleep(500)
        assert len(upstream.requests) == 1, "the wait that has begun stays as it is"
        await asyncio.sleep(300)
        assert len(upstream.requests) >= 3
        upstream.usual = answer(ok())
        assert (await ended(proxy, name, within=200))["state"] == "delivered"


@pytest.mark.parametrize("how", ["renamed", "switched off"])
async def test_without_its_route_it_waits_and_goes_on_when_the_route_is_back(how: str) -> None:
    async with ScriptedUpstream(usual=answer(response(500))) as upstream:
        before = one_route(upstream, "hand_off: {retry: {backoff: [1m]}}", options=OPTIONS)
        if how == "renamed":
            after = before.replace("name: all", "name: another")
        else:
            after = one_route(upstream, "", options=OPTIONS)
        async with running(before) as proxy:
            name = await hand_off(proxy)
            await asyncio.sleep(1)
            await reload(proxy, after)
            sent = len(upstream.requests)
            upstream.usual = answer(ok())
            await asyncio.sleep(1000)
            assert len(upstream.requests) == sent
            shown = await proxy.admin("GET", f"/deliveries/{name}")
            assert b'"no_route"' in shown.body
            assert (await send(proxy)).status == 200
            await reload(proxy, before)
            assert (await ended(proxy, name, within=60))["state"] == "delivered"


async def test_what_was_left_is_given_up_though_no_route_hands_off(tmp_path: Path) -> None:
    top = f"state_dir: {tmp_path}/state"
    async with ScriptedUpstream(usual=answer(response(500))) as upstream:
        hands_off = "hand_off: {give_up_after: 1h, retry: {backoff: [10m]}}"
        async with running(one_route(upstream, hands_off, options=OPTIONS, top=top)) as proxy:
            name = await hand_off(proxy)
            await asyncio.sleep(1)
        async with running(one_route(upstream, "", options=OPTIONS, top=top)) as proxy:
            await asyncio.sleep(4000)
            shown = await proxy.admin("GET", f"/deliveries/{name}")
            assert b'"gave_up"' in shown.body
        async with running(one_route(upstream, hands_off, options=OPTIONS, top=top)) as proxy:
            assert (await state_of(proxy, name))["why"] == "gave_up"


async def test_another_upstream_gets_only_what_may_go_there() -> None:
    async with (
        ScriptedUpstream(usual=unavailable) as old,
        ScriptedUpstream() as new,
        running(one_route(old, SLOW, options=HONOURED)) as proxy,
    ):
        ran = await hand_off(proxy)  # a 503 that proves nothing: the key is known there alone
        put = await hand_off(proxy, method="PUT")
        await asyncio.sleep(1)
        await reload(proxy, one_route(new, SLOW, options=HONOURED))
        assert (await ended(proxy, put, within=2000))["state"] == "delivered"
        found = await ended(proxy, ran, within=2000)
        assert (found["state"], found["why"]) == ("failed", "uncertain")
        assert [one.method for one in new.requests] == ["PUT"]
