"""Unknown callers fill the room for keys: known callers keep theirs, and find room for more."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import (
    Response,
    ScriptedUpstream,
    Visit,
    eventually,
    hang_up,
    one_route,
    response,
    running,
)
from tests.support.keys import is_replayed, keyed, new_key, post
from tests.support.proxies import ServedBy
from tests.support.redis_server import PATIENT, redis_server

VICTIM, STRANGER = "Authorization: Bearer victim", "Authorization: Bearer stranger"
PAGE = bytes(100_000)


async def pay(visit: Visit) -> None:
    """An upstream: a page for strangers, a receipt for all others."""
    await visit.read_body()
    is_stranger = visit.request.get("Authorization") == "Bearer stranger"
    await visit.send(response(201, PAGE if is_stranger else b"receipt"))


async def crowd(proxy: ServedBy, count: int, *fields: str) -> list[Response]:
    """So many requests with a new key each, one after the other."""
    return [await post(proxy, new_key(), *fields) for _ in range(count)]


async def test_a_stranger_s_results_cost_nobody_else_a_key() -> None:
    async with keyed(top="store: {url: memory, bytes: 2MiB}") as (upstream, proxy):
        upstream.usual = pay
        keys = [new_key() for _ in range(3)]
        for key in keys:
            assert (await post(proxy, key, VICTIM)).status == 201
        first = new_key()
        assert (await post(proxy, first, STRANGER)).status == 201
        assert {got.status for got in await crowd(proxy, 70, STRANGER)} == {201}
        runs = len(upstream.requests)
        for key in keys:
            got = await post(proxy, key, VICTIM)
            assert (got.status, got.body, is_replayed(got)) == (201, b"receipt", True)
        got = await post(proxy, first, STRANGER)
        assert (got.status, got.reason_word) == (409, "result_not_stored"), "it does not run again"
        assert len(upstream.requests) == runs


async def test_a_stranger_s_held_keys_leave_half_of_the_room() -> None:
    """Each of them may have run, as those do that a client's own haste ends."""
    top = "store: {url: memory, entries: 20}"
    async with keyed("{on_ambiguous: hold}", top=top) as (upstream, proxy):
        upstream.usual = pay
        key = new_key()
        assert (await post(proxy, key, VICTIM)).status == 201
        upstream.usual = hang_up
        held = await crowd(proxy, 30, STRANGER)
        assert {got.status for got in held[:10]} == {502}
        assert {(got.status, got.reason_word) for got in held[10:]} == {(503, "store")}
        upstream.usual = pay
        assert is_replayed(await post(proxy, key, VICTIM))
        assert {got.status for got in await crowd(proxy, 30, VICTIM)} == {201}


async def test_who_is_new_is_counted_by_its_address() -> None:
    """Made-up names share the room of whoever makes them up."""
    top = "store: {url: memory, entries: 20}"
    async with keyed("{on_ambiguous: hold}", top=top) as (upstream, proxy):
        upstream.usual = pay
        assert (await post(proxy, new_key(), VICTIM)).status == 201
        upstream.usual = hang_up
        got = [
            await post(proxy, new_key(), f"Authorization: Bearer {number}") for number in range(15)
        ]
        assert [one.status for one in got] == [502] * 10 + [503] * 5


async def forbid(visit: Visit) -> None:
    """An upstream that refuses everybody, at length."""
    await visit.read_body()
    await visit.send(response(403, PAGE))


@pytest.mark.parametrize("store", ["sqlite", "redis"])
async def test_failures_leave_nothing_behind_where_nobody_waits(store: str, tmp_path: Path) -> None:
    async with redis_server() as server, ScriptedUpstream(forbid) as upstream:
        file = tmp_path / "keys.db"
        url = f"redis://127.0.0.1:{server.port}" if store == "redis" else f"sqlite:{file}"
        top = f"store: {{url: '{url}', {PATIENT}}}"
        config = one_route(upstream, "idempotency: true", top=top)
        async with running(config) as proxy:
            assert {got.status for got in await crowd(proxy, 20)} == {403}
            assert {len(got.body) for got in await crowd(proxy, 2)} == {len(PAGE)}
            if store == "redis":
                async with server.client() as client:
                    kept = await client.keys("holdfast:key:*") + await client.keys("*left*")
                    assert kept == []
            else:
                with closing(sqlite3.connect(file)) as db:
                    for table in ("keys", "outcomes"):
                        assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)  # noqa: S608 - our own words
        assert len(upstream.requests) == 22


@pytest.mark.parametrize("store", ["sqlite", "redis"])
async def test_no_address_is_in_the_store(store: str, tmp_path: Path) -> None:
    async with redis_server() as server, ScriptedUpstream(hang_up) as upstream:
        file = tmp_path / "keys.db"
        url = f"redis://127.0.0.1:{server.port}" if store == "redis" else f"sqlite:{file}"
        route = "idempotency: {on_ambiguous: hold}"
        top = f"store: {{url: '{url}', {PATIENT}}}"
        async with running(one_route(upstream, route, top=top)) as proxy:
            assert (await post(proxy)).status == 502
            if store == "redis":
                async with server.client() as client:
                    sets = await client.keys("holdfast:open:*")
                    records = [
                        await client.hget(key, "caller") for key in await client.keys("*:key:*")
                    ]
                    assert len(sets) == len(records) == 1
                    told = f"{sets} {records}"
            else:
                with closing(sqlite3.connect(file)) as db:
                    told = str(db.execute("SELECT caller FROM keys").fetchall())
                    assert len(told) > 16
            assert "127.0.0.1" not in told


async def keys_of(proxy: ServedBy) -> dict[str, float]:
    answer = await proxy.admin("GET", "/status")
    told: dict[str, float] = json.loads(answer.body)["known_keys"]
    return told


async def test_what_fills_the_room_is_in_status() -> None:
    async with keyed("{on_ambiguous: hold}") as (upstream, proxy):
        upstream.usual = pay
        assert (await post(proxy, new_key(), VICTIM)).status == 201
        upstream.usual = hang_up
        await post(proxy, new_key(), VICTIM)
        began = asyncio.get_running_loop().time()
        keys = await keys_of(proxy)
        assert (keys["count"], keys["held"]) == (2, 1)
        assert 0.0 <= keys["oldest_seconds"] < 5.0
        await eventually(lambda: asyncio.get_running_loop().time() > began + 0.05)
        assert (await keys_of(proxy))["oldest_seconds"] > keys["oldest_seconds"]
