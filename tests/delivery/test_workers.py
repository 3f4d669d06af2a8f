"""Several workers: one delivers, all accept, and each answers who asks."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.support import (
    PATIENCE,
    ProxyProcess,
    ScriptedUpstream,
    Visit,
    WireEnded,
    answer,
    now,
    ok,
    one_route,
    response,
    subprocess_proxy,
)
from tests.support.delivery_admin import delivery_page, retry
from tests.support.handed_off import ASYNC, HONOURED, KEY, delivery_id, ended, hand_off, send

ROUTE = "dead_letter: true\nidempotency: true\nhand_off: {retry: {backoff: [100ms]}}"


def config(upstream: ScriptedUpstream, folder: Path) -> str:
    top = f"state_dir: {folder}/state\nstore: 'sqlite:{folder}/keys.db'"
    return one_route(upstream, ROUTE, top=top, options=HONOURED)


async def test_whoever_accepts_it_is_delivered_at_once_and_waited_for(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(config(upstream, tmp_path), None, "--workers", "2") as proxy,
    ):
        # Connections are dealt out to both.
        given = await asyncio.gather(
            *(send(proxy, "Prefer: respond-async, wait=10") for _ in range(20))
        )
        assert [one.status for one in given] == [200] * 20
        names = await asyncio.gather(*(hand_off(proxy) for _ in range(20)))
        for name in names:
            assert (await ended(proxy, name))["state"] == "delivered"
        assert len(upstream.requests) == 40
        keyed = await asyncio.gather(*(send(proxy, ASYNC, KEY) for _ in range(20)))
        assert {one.status for one in keyed} == {202}
        assert len({delivery_id(one) for one in keyed}) == 1
        for name in {delivery_id(one) for one in keyed}:
            await ended(proxy, name)
        assert len(upstream.requests) == 41


async def test_a_worker_that_is_killed_is_followed_by_another(tmp_path: Path) -> None:
    hung = 0

    async def hang_once(visit: Visit) -> None:
        nonlocal hung
        await visit.read_body()
        if not hung:
            hung += 1
            await asyncio.sleep(60)
        await visit.send(ok())

    async with (
        ScriptedUpstream(usual=hang_once) as upstream,
        subprocess_proxy(config(upstream, tmp_path), None, "--workers", "2") as proxy,
    ):
        stuck = await hand_off(proxy)
        over = now() + PATIENCE
        while not hung:
            assert now() < over
            await asyncio.sleep(0.01)
        owner = _process_with_the_lock(tmp_path / "state")
        os.kill(owner, signal.SIGKILL)
        for _ in range(10):
            name = await _until_accepted(proxy)
            assert (await ended(proxy, name))["state"] == "delivered"
        assert (await ended(proxy, stuck))["state"] == "delivered", "sent again under its key"


async def test_any_worker_retries(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(usual=answer(response(404))) as upstream,
        subprocess_proxy(config(upstream, tmp_path), None, "--workers", "2") as proxy,
    ):
        names = [await hand_off(proxy) for _ in range(6)]
        for name in names:
            assert (await ended(proxy, name))["state"] == "failed"
        upstream.usual = answer(ok())
        for name in names:
            assert (await retry(proxy, name)).status == 200
            assert (await ended(proxy, name))["state"] == "delivered"
        assert {one["state"] for one in await delivery_page(proxy)} == {"delivered"}


def _process_with_the_lock(folder: Path) -> int:
    """The process that delivers, by the kernel's list of locks."""
    lock = next(folder.glob("*-deliver")).stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        parts = line.split()
        if parts[1] == "FLOCK" and parts[5].rpartition(":")[2] == str(lock):
            return int(parts[4])
    raise AssertionError("no process has the lock")


async def _until_accepted(proxy: ProxyProcess) -> str:
    over = now() + PATIENCE
    while True:
        with suppress(OSError, WireEnded):  # by the worker that was killed
            return await hand_off(proxy)
        assert now() < over
        await asyncio.sleep(0.05)
