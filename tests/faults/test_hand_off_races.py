"""Races: an operator against the dispatcher, and clients that leave."""

import asyncio
from pathlib import Path

import pytest

from tests.support import (
    ScriptedUpstream,
    Visit,
    ok,
    one_route,
    running,
)
from tests.support.delivery_admin import delivery_page
from tests.support.depth import DEEP
from tests.support.handed_off import ASYNC, KEY, delivery_id, ended, hand_off, send
from tests.support.letters import locked

RACES = 1000 if DEEP else 60


async def test_a_cancelled_one_is_never_sent() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "hand_off: true")) as proxy,
    ):
        cancelled, refused = set[str](), set[str]()
        for number in range(RACES):
            name = await hand_off(proxy, f"X-Number: {number}")
            for _ in range(number % 7):
                await asyncio.sleep(0)
            given = await proxy.admin("DELETE", f"/deliveries/{name}")
            assert given.status in {200, 409}, given.body
            (cancelled if given.status == 200 else refused).add(name)
        for name in refused:
            assert (await ended(proxy, name))["state"] == "delivered"
        for name in cancelled:
            assert (await ended(proxy, name))["state"] == "cancelled"
        assert len(upstream.requests) == len(refused)


@pytest.mark.parametrize("prefer", ["respond-async", "respond-async, wait=5"])
@pytest.mark.parametrize("is_keyed", [False, True])
async def test_a_client_that_leaves_before_its_answer_is_delivered_once(
    prefer: str, tmp_path: Path, *, is_keyed: bool
) -> None:
    async def slow(visit: Visit) -> None:
        await visit.read_body()
        await asyncio.sleep(0.3)
        await visit.send(ok())

    keys = (KEY,) if is_keyed else ()
    async with (
        ScriptedUpstream(usual=slow) as upstream,
        running(
            one_route(
                upstream, "idempotency: true\nhand_off: true", top=f"state_dir: {tmp_path}/state"
            )
        ) as proxy,
    ):
        async with proxy.client() as client:
            with locked(tmp_path / "state"):
                asking = asyncio.ensure_future(
                    client.request("POST", "/", f"Prefer: {prefer}", *keys, body=b"x")
                )
                await asyncio.sleep(0.1)
                asking.cancel()
        if is_keyed:
            again = await send(proxy, ASYNC, KEY, target="/", body=b"x")
            assert again.status == 202
            await ended(proxy, delivery_id(again))
        rows = await delivery_page(proxy)
        assert len(rows) <= 1
        for row in rows:
            assert (await ended(proxy, row["id"]))["state"] == "delivered"
        assert len(upstream.requests) == len(rows)
        if is_keyed:
            assert len(upstream.requests) == 1
