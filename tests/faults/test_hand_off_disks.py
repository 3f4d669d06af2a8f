"""Disks that are full, slow or gone: never a hopeful 202, and credentials do not stay on them."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from proxy.stores.dead_letters.file import FILE
from tests.support import (
    PATIENCE,
    ProxyProcess,
    ScriptedUpstream,
    answer,
    eventually,
    hang_up,
    now,
    ok,
    one_route,
    response,
    running,
    subprocess_proxy,
)
from tests.support.disks import small_disk
from tests.support.handed_off import ASYNC, HONOURED, delivery_id, ended, hand_off, send
from tests.support.letters import locked
from tests.support.witness import Stopwatch

ALWAYS = "idempotency: {required: true}\nhand_off: {when: always}"


def key(number: int) -> str:
    return f"Idempotency-Key: k{number}"


async def test_a_disk_that_does_not_answer_gets_503_in_time_and_comes_back() -> None:
    async with ScriptedUpstream() as upstream:
        config = one_route(upstream, ALWAYS) + "  - {name: live, match: /x, upstream: scripted}\n"
        config = config.replace("match: /**", "match: POST /**")
        async with running(config) as proxy:
            with locked(proxy.config.parent / "state"):
                watch = Stopwatch()
                given = await send(proxy, key(1))
                assert (given.status, given.get("Holdfast-Delivery")) == (503, None)
                assert watch.seconds < 8
                assert (await proxy.get("/x")).status == 200, "live routes are unharmed"
                assert (await send(proxy, key(2))).status == 503
            over = now() + PATIENCE
            while (again := await send(proxy, key(1))).status != 202:
                assert now() < over, "it does not come back by itself"
                await asyncio.sleep(0.1)
            assert (await ended(proxy, delivery_id(again)))["state"] == "delivered"
        assert len([one for one in upstream.requests if one.method == "POST"]) == 1


async def _retried(proxy: ProxyProcess, name: str) -> int:
    async with proxy.client() as client:
        given = await client.request("POST", f"/.holdfast/deliveries/{name}/retry", body=b"")
    return given.status


@pytest.mark.deep
async def test_a_full_disk_gets_503_and_loses_nothing(tmp_path: Path) -> None:
    async with ScriptedUpstream(usual=answer(response(429, b"", "Retry-After: 3600"))) as upstream:
        with small_disk(tmp_path / "disk", 3 * 1024**2) as disk:
            config = one_route(upstream, ALWAYS, top=f"state_dir: {disk}/state")
            async with subprocess_proxy(config) as proxy:
                names, status = [], 202
                for number in range(200):
                    given = await send(proxy, key(number), body=os.urandom(60_000))
                    status = given.status
                    if status != 202:
                        break
                    names.append(delivery_id(given))
                assert status == 503
                assert len(names) > 5
                proxy.signal(signal.SIGKILL)
                await proxy.process.wait()
            upstream.usual = answer(ok())
            async with subprocess_proxy(config) as proxy:
                for name in names:
                    over = now() + PATIENCE
                    while await _retried(proxy, name) not in {202, 409}:
                        assert now() < over, "there is space for what frees some"
                        await asyncio.sleep(0.1)
                for name in names:
                    assert (await ended(proxy, name))["state"] == "delivered"
                assert (await send(proxy, key(5000), body=b"x")).status == 202


@pytest.mark.parametrize("end", ["delivered", "failed"])
async def test_credentials_are_gone_from_the_disk_at_the_end(end: str, tmp_path: Path) -> None:
    secret = "s3cret-" + "0123456789abcdef" * 4
    route = "dead_letter: true\nhand_off: {credentials: store}"
    async with ScriptedUpstream() as upstream:
        config = one_route(upstream, route, top=f"state_dir: {tmp_path}/state", options=HONOURED)
        async with running(config) as proxy:
            upstream.usual = hang_up
            name = await hand_off(proxy, f"Authorization: Bearer {secret}")
            await eventually(lambda: upstream.requests)
            assert upstream.requests[0].get("Authorization") == f"Bearer {secret}"
            upstream.usual = answer(ok() if end == "delivered" else response(404))
            assert (await ended(proxy, name))["state"] == end
            shown = await proxy.admin("GET", f"/deliveries/{name}")
            assert secret.encode() not in shown.body
        folder = tmp_path / "state"
        assert (folder / FILE).stat().st_mode & 0o077 == 0
        for file in folder.iterdir():
            if file.is_file():
                assert secret.encode() not in file.read_bytes(), file.name


async def test_who_asks_for_credentials_at_rest_to_be_refused_finds_none(tmp_path: Path) -> None:
    secret = "s3cret-" + "fedcba9876543210" * 4
    async with (
        ScriptedUpstream(usual=hang_up) as upstream,
        running(
            one_route(upstream, "hand_off: {credentials: drop}", top=f"state_dir: {tmp_path}/s")
        ) as proxy,
    ):
        given = await send(proxy, ASYNC, f"Authorization: Bearer {secret}", f"Cookie: {secret}")
        assert given.status == 202
        await eventually(lambda: upstream.requests)
        for file in (tmp_path / "s").iterdir():
            if file.is_file():
                assert secret.encode() not in file.read_bytes(), file.name
