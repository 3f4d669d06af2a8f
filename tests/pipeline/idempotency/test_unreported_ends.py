"""A result that the store could not take stays with its owner until the store accepts it."""

import asyncio
import logging
import resource
import signal
import sqlite3
from pathlib import Path

import pytest

from proxy.pipeline.idempotency import in_flight
from tests.pipeline.idempotency.keyed_storms import opened
from tests.pipeline.instances import everybody_sees_it, instances
from tests.pipeline.outages import stalled
from tests.support import (
    ProxyProcess,
    ScriptedUpstream,
    answer,
    eventually,
    one_route,
    response,
    running,
    running_together,
)
from tests.support.keys import Gate, is_replayed, new_key, post
from tests.support.redis_server import redis_server

LARGE = b"x" * 300_000
HASTY = "timeout: 200ms"
"""Keys of a store that hangs for a while."""


def allow_files_of(proxy: ProxyProcess, size: int) -> None:
    """No file that the process writes may grow beyond *size* bytes: as if the disk were full."""
    resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def change_file(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "keys.db") as db:
        db.execute(statement)
    db.close()


# Finding 4.


async def test_a_result_that_does_not_fit_on_the_disk_does_not_run_again(tmp_path: Path) -> None:
    """The attack itself: claims are small and pass, the result is large and does not."""
    async with ScriptedUpstream() as upstream, opened("sqlite", tmp_path) as top:
        upstream.script(answer(response(201, LARGE)), answer(response(201, b"again")))
        config = one_route(upstream, "idempotency: {lease: 1s}", top=top)
        async with instances(config, 2) as (full, other):
            allow_files_of(full, 200_000)
            assert (await post(full)).body == LARGE, "its client gets it"
            await asyncio.sleep(1.1)  # the lease of an owner that said nothing has ended
            for proxy in (full, other):
                got = await post(proxy)
                assert (got.status, got.reason_word) == (409, "result_not_stored")
        assert len(upstream.requests) == 1


async def test_a_result_is_told_once_there_is_room_on_the_disk(tmp_path: Path) -> None:
    gate = Gate(response(201, b"the first"))
    async with ScriptedUpstream() as upstream, opened("sqlite", tmp_path) as top:
        upstream.script(gate.behaviour)
        config = one_route(upstream, "idempotency: {lease: 2s}", top=top)
        async with instances(config, 2) as (full, other):
            owner = asyncio.create_task(post(full))
            await gate.reached.wait()
            allow_files_of(full, 1)  # nothing can be written, be it ever so small
            gate.open()
            assert (await owner).body == b"the first"
            got = await post(full)
            assert (got.status, got.body, is_replayed(got)) == (201, b"the first", True)
            assert (await post(full, new_key())).reason_word == "store"
            allow_files_of(full, resource.RLIM_INFINITY)
            got = await post(other)
            if got.status == 409:
                # Room came between the two words: the result did not fit, that it ran did.
                assert got.reason_word == "result_not_stored"
            else:
                assert (got.status, got.body, is_replayed(got)) == (201, b"the first", True)
        assert len(upstream.requests) == 1


async def test_the_lease_goes_on_while_the_store_cannot_be_told(tmp_path: Path) -> None:
    """A store that takes all but results, and does not say that it is for want of room."""
    gate = Gate(response(201, b"the first"))
    async with ScriptedUpstream() as upstream, opened("sqlite", tmp_path) as top:
        upstream.script(gate.behaviour)
        config = one_route(upstream, "idempotency: {lease: 1s, in_flight: reject}", top=top)
        async with running_together(config, config) as (first, other):
            owner = asyncio.create_task(post(first))
            await gate.reached.wait()
            change_file(
                tmp_path,
                "CREATE TRIGGER no_result BEFORE INSERT ON keys WHEN NEW.state = 'done' "
                "BEGIN SELECT RAISE(ABORT, 'not now'); END",
            )
            gate.open()
            assert (await owner).body == b"the first"
            for _ in range(2):
                await asyncio.sleep(0.7)
                assert is_replayed(await post(first)), "its owner has the result"
                assert (await post(other)).reason_word == "key_in_flight"
            change_file(tmp_path, "DROP TRIGGER no_result")
            await eventually(lambda: len(first.app._in_flight_keys) == 0)
            got = await post(other)
            assert (got.status, got.body, is_replayed(got)) == (201, b"the first", True)
            assert first.app._listener.server.replay_memory.used == 0
        assert len(upstream.requests) == 1


async def test_results_beyond_the_memory_for_them_are_not_kept() -> None:
    gate = Gate(response(201, LARGE))
    async with redis_server() as server, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        top = f"{server.line(HASTY)}\nlimits: {{replay_memory: 200KiB}}"
        config = one_route(upstream, "idempotency: true\nbuffer: 64KiB", top=top)
        async with running_together(config, config) as proxies:
            owner = asyncio.create_task(post(proxies[0]))
            await gate.reached.wait()
            beside = asyncio.create_task(post(proxies[0]))
            await eventually(lambda: proxies[0].waiting_for_keys == 1)
            async with stalled(server):
                gate.open()
                for got in await asyncio.gather(owner, beside):
                    assert got.body == LARGE, "who was there gets it"
                assert (await post(proxies[0])).reason_word == "result_not_stored"
            await everybody_sees_it(proxies, "up")
            await eventually(lambda: len(proxies[0].app._in_flight_keys) == 0)
            for proxy in proxies:
                assert (await post(proxy)).reason_word == "result_not_stored"
            assert proxies[0].app._listener.server.replay_memory.used == 0
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("body", [b"", LARGE], ids=["", "beyond the memory for it"])
async def test_a_key_that_was_set_free_is_waited_for_until_the_store_knows(body: bytes) -> None:
    gate = Gate(response(421, body))  # it did not run
    async with redis_server() as server, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        route = "idempotency: {on_ambiguous: hold}\nbuffer: 64KiB"
        top = f"{server.line(HASTY)}\nlimits: {{replay_memory: 200KiB}}"
        config = one_route(upstream, route, top=top)
        async with running(config) as proxy:
            owner = asyncio.create_task(post(proxy))
            await gate.reached.wait()
            async with stalled(server):
                gate.open()
                assert (await owner).status == 421
                behind = asyncio.create_task(post(proxy))
                await eventually(lambda: proxy.waiting_for_keys == 1)
            got = await behind
            assert (got.status, is_replayed(got)) == (200, False)
        assert len(upstream.requests) == 2


async def test_too_many_untold_ends_and_no_key_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight, "_MOST_UNREPORTED", 2)
    gate = Gate(response(201, b"the first"))
    async with redis_server() as server, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour, gate.behaviour)
        config = one_route(upstream, "idempotency: true", top=server.line())
        async with running(config) as proxy:
            owners = [asyncio.create_task(post(proxy, *key)) for key in ((), (new_key(),))]
            await eventually(lambda: len(upstream.requests) == 2)
            async with server.client() as client:
                keys = await client.keys("holdfast:key:*")
                assert len(keys) == 2
                for number, key in enumerate(keys):
                    await client.rename(key, f"elsewhere-{number}")
                    await client.set(key, "no record: the end cannot be told")
                gate.open()
                for owner in owners:
                    assert (await owner).body == b"the first"
                assert (await post(proxy, new_key())).reason_word == "store"
                assert is_replayed(await post(proxy)), "what is known here is given"
                for number, key in enumerate(keys):
                    await client.rename(f"elsewhere-{number}", key)
            await eventually(lambda: proxy.app._in_flight_keys.unreported == 0)
            assert (await post(proxy, new_key())).status == 200
            assert is_replayed(await post(proxy))


async def test_what_could_not_be_told_at_the_end_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    gate = Gate(response(201, b"the first"))
    async with redis_server() as server, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        top = f"{server.line(HASTY)}\ndrain_timeout: 300ms"
        async with running(one_route(upstream, "idempotency: true", top=top)) as proxy:
            owner = asyncio.create_task(post(proxy))
            await gate.reached.wait()
            server.stall()
            gate.open()
            await owner
            (name,) = proxy.app._in_flight_keys._by_name
        server.resume()
    assert any(
        "the outcomes of 1 requests with keys could not be written" in text and name in text
        for text in (record.getMessage() for record in caplog.records)
    )


@pytest.mark.deep
async def test_a_process_that_ends_at_once_tells_what_it_can(tmp_path: Path) -> None:
    gate = Gate(response(201, b"the first"))
    async with ScriptedUpstream() as upstream, opened("sqlite", tmp_path) as top:
        upstream.script(gate.behaviour)
        config = one_route(upstream, "idempotency: {lease: 5s}", top=top)
        async with instances(config, 2) as (full, other):
            owner = asyncio.create_task(post(full))
            await gate.reached.wait()
            allow_files_of(full, 1)
            gate.open()
            assert (await owner).body == b"the first"
            await asyncio.sleep(1.0)  # it has tried more than once
            allow_files_of(full, resource.RLIM_INFINITY)
            for number in (signal.SIGTERM, signal.SIGTERM):
                full.signal(number)
            await full.exit_status()
            got = await post(other)
            assert (got.status, got.body, is_replayed(got)) == (201, b"the first", True)
        assert len(upstream.requests) == 1
