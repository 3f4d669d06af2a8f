"""The store goes away, or forgets, while keys are in use: no client gets another's result.

A key runs a second time only where that was chosen (``on_store_error: open``, and counted) or
where the store has forgotten that it ran.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from tests.pipeline.idempotency.keyed_storms import Storm, Till, opened
from tests.pipeline.instances import everybody_sees_it
from tests.pipeline.outages import Outage, killed, stalled
from tests.support import (
    PATIENCE,
    Response,
    RunningProxy,
    ScriptedUpstream,
    answer,
    eventually,
    one_route,
    response,
    running,
    running_together,
)
from tests.support.depth import DEEP
from tests.support.keys import Gate, is_replayed, new_key, post
from tests.support.leftovers import nothing_left
from tests.support.redis_server import RedisServer, redis_server, store_line
from tests.support.relay import relay
from tests.support.witness import Stopwatch

CALLERS, KEYS, BREATH = (200, 50, 0.1) if DEEP else (16, 40, 0.02)
DEADLINE = 5.0
TIMEOUT = 0.2
"""Seconds that the store is given."""
SOON = TIMEOUT + 0.5
"""Seconds within which nobody waits for a store that does not answer."""
OPERATIONS = "holdfast_store_operation_duration_seconds_count"
HASTY = f"timeout: {TIMEOUT * 1000:.0f}ms"


@asynccontextmanager
async def flushed(server: RedisServer) -> AsyncIterator[None]:
    """Have the store forget everything, without going away."""
    async with server.client() as client:
        await client.flushall()
    yield


async def counted(proxies: list[RunningProxy], result: str) -> float:
    metrics = [await proxy.metrics() for proxy in proxies]
    return sum(one.total("holdfast_idempotency_total", result=result) for one in metrics)


def is_receipt(got: Response) -> bool:
    return got.get("Content-Type") != "application/problem+json"


@pytest.mark.parametrize("seed", range(8 if DEEP else 1))
@pytest.mark.parametrize("mode", ["closed", "open"])
@pytest.mark.parametrize(
    ("outage", "forgets"),
    [
        pytest.param(flushed, True, id="it is flushed"),
        pytest.param(stalled, False, id="it hangs"),
        pytest.param(killed, True, id="it is killed"),
    ],
)
@pytest.mark.timeout(600 if DEEP else 60)
async def test_in_the_middle_of_a_storm(
    outage: Outage,
    forgets: bool,  # noqa: FBT001 - pytest's way
    mode: str,
    seed: int,
) -> None:
    till = Till(seed)
    keys = [f"key-{number}" for number in range(KEYS)]
    async with redis_server() as server, ScriptedUpstream(till) as upstream:
        config = one_route(
            upstream,
            f"timeout: {DEADLINE}s\nidempotency: {{on_store_error: {mode}}}",
            top=f"{server.line(HASTY)}\nlimits: {{connections: 1000}}",
        )
        async with running_together(config, config, config) as proxies:
            storm = Storm(proxies, keys, seed)
            raging = asyncio.create_task(storm.rage(CALLERS, breath=BREATH))
            await eventually(lambda: till.runs.total() >= KEYS / 3)
            async with outage(server):
                await asyncio.sleep(2 * TIMEOUT)
            assert not raging.done(), "the storm was over before the outage"
            await raging
            await everybody_sees_it(proxies, "up")
            await storm.ask_each_once_more()
            ran = till.runs.copy()
            bypassed = await counted(proxies, "bypassed")
            for proxy in proxies:
                await nothing_left(proxy)
                assert proxy.status()["keys"] == {"in_flight": 0, "waiting": 0}
            # From now on all of them know, and say the same.
            storm_after = Storm(proxies, keys, seed)
            await storm_after.ask_each_once_more()
    assert till.runs == ran
    for key in keys:
        assert len(storm_after.outcomes(key, lambda _: True)) == 1
        assert all(map(is_replayed, storm_after.answers[key]))
        # Never another key's, nor one that nobody gave.
        assert storm.outcomes(key, is_receipt) <= till.receipts[key]
        others = [got for got in storm.answers[key] if not is_receipt(got)]
        assert {(got.status, got.reason_word) for got in others} <= {(503, "store")}
        assert mode == "closed" or not others
    assert storm.cut_off == 0
    assert storm.slowest < DEADLINE + 1
    refused = sum(got.status == 503 for answers in storm.answers.values() for got in answers)
    if outage is not flushed:
        assert refused + bypassed > 0, "nobody has noticed"
    # Once, and once more if the store has forgotten; besides, what went past it on purpose.
    allowed = 2 if forgets else 1
    if mode == "closed":
        assert bypassed == 0
        assert max(till.runs.values()) <= allowed
    else:
        assert till.runs.total() <= allowed * KEYS + bypassed
    assert set(till.runs) == set(keys)


# It goes away in the very moment between the upstream's answer and the end of the key.


async def test_redis_hangs_when_the_result_is_to_be_kept() -> None:
    gate = Gate(response(201, b"the first"))
    async with redis_server() as server, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        config = one_route(upstream, "idempotency: true", top=server.line(HASTY))
        async with running_together(config, config) as proxies:
            owner = asyncio.create_task(post(proxies[0]))
            await gate.reached.wait()
            beside = asyncio.create_task(post(proxies[0]))
            await eventually(lambda: proxies[0].waiting_for_keys == 1)
            async with stalled(server):
                gate.open()
                began, watch = time.monotonic(), Stopwatch()
                for got in await asyncio.gather(owner, beside):
                    assert (got.status, got.body) == (201, b"the first")
                assert time.monotonic() - began > TIMEOUT * 0.9
                assert watch.seconds < SOON
                got = await post(proxies[0])
                assert (got.status, got.body, is_replayed(got)) == (201, b"the first", True)
                assert (await post(proxies[1])).reason_word == "store", "it cannot know"
            await everybody_sees_it(proxies, "up")
            for proxy in proxies:
                got = await post(proxy)
                assert (got.status, got.body, is_replayed(got)) == (201, b"the first", True)
            assert await counted(proxies, "lease_lost") == 0
        assert len(upstream.requests) == 1


async def test_a_result_that_cannot_be_fetched_does_not_make_it_run_again() -> None:
    """The server lets nobody else in: the connection for large results cannot be made."""
    large = bytes(100_000)
    async with redis_server() as server, ScriptedUpstream() as upstream:
        upstream.script(answer(response(201, large)))
        route = "idempotency: {on_store_error: open}"
        config = one_route(upstream, route, top=server.line())
        async with running_together(config, config) as proxies, server.client() as client:
            assert (await post(proxies[0])).status == 201
            usual = (await client.config_get("maxclients"))["maxclients"]
            connected = await client.info("clients")
            await client.config_set("maxclients", connected["connected_clients"])
            got = await post(proxies[1])
            assert (got.status, got.reason_word) == (503, "store")
            await client.config_set("maxclients", usual or 10_000)
            await asyncio.sleep(0.3)  # it is not tried again at once
            got = await post(proxies[1])
            assert (got.status, got.body, is_replayed(got)) == (201, large, True)
            assert await counted(proxies, "bypassed") == 0
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("mode", ["closed", "open"])
async def test_who_knows_that_the_first_is_under_way_waits_for_it_though_redis_hangs(
    mode: str,
) -> None:
    gate = Gate(response(201, b"the first"))
    async with redis_server() as server, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        route = f"idempotency: {{on_store_error: {mode}}}"
        config = one_route(upstream, route, top=server.line(HASTY))
        async with running_together(config, config) as (first, second):
            owner = asyncio.create_task(post(first))
            await gate.reached.wait()
            waiters = [asyncio.create_task(post(second)) for _ in range(5)]
            await eventually(lambda: second.waiting_for_keys == 5)
            await eventually(lambda: second.app._in_flight_keys.store._watched)  # type: ignore[attr-defined]  # of Redis
            # Each has asked twice, before and after it began to listen, and heard that it is busy.
            async with asyncio.timeout(PATIENCE):
                while (await second.metrics()).total(OPERATIONS, operation="claim") < 10:  # noqa: ASYNC110 - it is far away
                    await asyncio.sleep(0.005)
            server.stall()
            await asyncio.sleep(3 * TIMEOUT)
            assert not any(waiter.done() for waiter in waiters)
            gate.open()
            assert (await owner).body == b"the first"
            server.resume()
            for got in await asyncio.gather(*waiters):
                assert (got.status, got.body, is_replayed(got)) == (201, b"the first", True)
        assert len(upstream.requests) == 1


async def test_what_is_yet_to_be_told_is_told_before_the_end() -> None:
    gate = Gate(response(201, b"the first"))
    async with redis_server() as server, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        top = f"{server.line(HASTY)}\ndrain_timeout: 5s"
        config = one_route(upstream, "idempotency: true", top=top)
        async with running(config) as first:
            owner = asyncio.create_task(post(first))
            await gate.reached.wait()
            server.stall()
            gate.open()
            assert (await owner).body == b"the first"
            # Back when it has begun to end.
            asyncio.get_running_loop().call_later(0.1, server.resume)
            watch = Stopwatch()
        assert watch.seconds < 4
        async with running(config) as second:
            got = await post(second)
            assert (got.status, got.body, is_replayed(got)) == (201, b"the first", True)
        assert len(upstream.requests) == 1


async def test_what_is_told_to_redis_is_lost_on_the_way() -> None:
    gate = Gate(response(201, b"the first"))
    async with redis_server() as server, relay(server.port) as way, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        near, far = (
            one_route(upstream, "idempotency: true", top=store_line(port, HASTY))
            for port in (way.port, server.port)
        )
        async with running_together(near, far) as (one, other):
            owner = asyncio.create_task(post(one))
            await gate.reached.wait()
            behind = asyncio.create_task(post(other))
            await eventually(lambda: other.waiting_for_keys == 1)
            way.go_dead()
            gate.open()
            watch = Stopwatch()
            assert (await owner).body == b"the first"
            assert watch.seconds < SOON
            # Who waits elsewhere goes on waiting: nobody has told it anything.
            assert not behind.done()
            way._is_dead = False
            got = await behind
            assert (got.status, got.body, is_replayed(got)) == (201, b"the first", True)
            assert is_replayed(await post(one))
        assert len(upstream.requests) == 1


async def test_a_file_is_locked_when_the_result_is_to_be_kept(tmp_path: Path) -> None:
    gate = Gate(response(201, b"the first"))
    async with (
        opened("sqlite", tmp_path, HASTY) as top,
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idempotency: true", top=top)) as proxy,
    ):
        upstream.script(gate.behaviour)
        owner = asyncio.create_task(post(proxy))
        await gate.reached.wait()
        with closing(sqlite3.connect(tmp_path / "keys.db", isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            gate.open()
            began, watch = time.monotonic(), Stopwatch()
            assert (await owner).body == b"the first"
            assert time.monotonic() - began > TIMEOUT * 0.5
            assert watch.seconds < SOON
            got = await post(proxy)
            assert (got.status, got.body, is_replayed(got)) == (201, b"the first", True)
            assert (await post(proxy, new_key())).reason_word == "store"
        await eventually(lambda: len(proxy.app._in_flight_keys) == 0)
        got = await post(proxy)
        assert (got.status, got.body, is_replayed(got)) == (201, b"the first", True)
        assert len(upstream.requests) == 1
