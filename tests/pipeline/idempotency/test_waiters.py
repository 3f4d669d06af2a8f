"""A waiter gets the owner's result promptly, and asks the store seldom meanwhile."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from tests.pipeline.idempotency.keyed_storms import in_every_store, in_lasting_stores, opened
from tests.support import (
    PATIENCE,
    ProxyProcess,
    Response,
    RunningProxy,
    ScriptedUpstream,
    one_route,
    response,
    running,
    running_together,
    subprocess_proxy,
)
from tests.support.depth import DEEP
from tests.support.keys import Gate, is_replayed, new_key, post
from tests.support.proxies import ServedBy
from tests.support.redis_server import redis_server
from tests.support.witness import Stopwatch

ROUNDS = 5
NEAR, FAR = 0.05, 0.25
"""Seconds from the first one's answer to that of the last who waited."""
CROWD = 500
OPERATIONS = "holdfast_store_operation_duration_seconds_count"


async def waiting(proxy: ServedBy) -> int:
    told: dict[str, int] = json.loads((await proxy.admin("GET", "/status")).body)["keys"]
    return told["waiting"]


async def all_wait(proxy: ServedBy, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while await waiting(proxy) != count:  # noqa: ASYNC110 - it is far away
            await asyncio.sleep(0.02)


@asynccontextmanager
async def in_flight(
    upstream: ScriptedUpstream, first: ServedBy, other: ServedBy, waiters: int
) -> AsyncIterator[tuple[Gate, "asyncio.Task[Response]", Sequence["asyncio.Task[Response]"]]]:
    """A key that is in flight on *first*, and so many on *other* who wait for it."""
    gate, key = Gate(response(201, b"done")), new_key()
    upstream.script(gate.behaviour)
    async with asyncio.TaskGroup() as group:
        owner = group.create_task(post(first, key))
        await gate.reached.wait()
        tasks = [group.create_task(post(other, key)) for _ in range(waiters)]
        await all_wait(other, waiters)
        yield gate, owner, tasks
    for task in tasks:
        got = task.result()
        assert (got.status, got.body, is_replayed(got)) == (201, b"done", True)


def stopwatch(other: ServedBy) -> Stopwatch:
    """Of what this process does, and that of *other*, if it has one of its own."""
    return Stopwatch(*([other.process.pid] if isinstance(other, ProxyProcess) else []))


async def seconds_to_wake(
    upstream: ScriptedUpstream, first: ServedBy, other: ServedBy, after: float
) -> float:
    """How long the last of ten waits after the first one's answer, given *after* some time."""
    async with in_flight(upstream, first, other, 10) as (gate, owner, tasks):
        await asyncio.sleep(after)
        gate.open()
        await owner
        watch = stopwatch(other)
        await asyncio.wait(tasks)
        return watch.seconds


async def usual_wait(upstream: ScriptedUpstream, first: ServedBy, other: ServedBy) -> float:
    # At various times, so that none of them has just asked.
    return median(
        [await seconds_to_wake(upstream, first, other, number * 0.05) for number in range(ROUNDS)]
    )


@in_every_store
async def test_in_one_process(store: str, tmp_path: Path) -> None:
    async with (
        opened(store, tmp_path) as top,
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idempotency: true", top=top)) as proxy,
    ):
        assert await usual_wait(upstream, proxy, proxy) < NEAR
        assert len(upstream.requests) == ROUNDS


@asynccontextmanager
async def two_processes(
    store: str, folder: Path
) -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy, ProxyProcess]]:
    """An upstream, a proxy in this process, and one in another."""
    async with opened(store, folder) as top, ScriptedUpstream() as upstream:
        config = one_route(upstream, "idempotency: true", top=top)
        async with running(config) as near, subprocess_proxy(config) as far:
            yield upstream, near, far


@in_lasting_stores
async def test_in_another_process(store: str, tmp_path: Path) -> None:
    async with two_processes(store, tmp_path) as (upstream, near, far):
        assert await usual_wait(upstream, near, far) < FAR
        assert len(upstream.requests) == ROUNDS
        await a_key_that_was_set_free_wakes_them_as_well(upstream, near, far)


async def a_key_that_was_set_free_wakes_them_as_well(
    upstream: ScriptedUpstream, near: ServedBy, far: ServedBy
) -> None:
    gate, key = Gate(response(429, b"no", "Retry-After: 7")), new_key()
    upstream.requests.clear()
    upstream.script(gate.behaviour)
    owner = asyncio.create_task(post(near, key))
    await gate.reached.wait()
    behind = [asyncio.create_task(post(far, key)) for _ in range(10)]
    await all_wait(far, 10)
    gate.open()
    assert (await owner).status == 429
    watch = stopwatch(far)
    for got in await asyncio.gather(*behind):
        assert (got.status, got.body, got.get("Retry-After")) == (429, b"no", "7")
    assert watch.seconds < 2 * FAR
    assert len(upstream.requests) == 1
    assert (await post(far, key)).status == 200  # it runs anew


@in_lasting_stores
async def test_a_crowd_that_waits_asks_seldom(store: str, tmp_path: Path) -> None:
    seconds = 3.0 if DEEP else 1.2
    async with two_processes(store, tmp_path) as (upstream, near, far):
        async with in_flight(upstream, near, far, CROWD) as (gate, owner, tasks):
            before, began = (await far.metrics()).total(OPERATIONS), time.monotonic()
            await asyncio.sleep(seconds)
            after, ended = (await far.metrics()).total(OPERATIONS), time.monotonic()
            assert (after - before) / CROWD / (ended - began) < 3
            gate.open()
            await owner
            watch = stopwatch(far)
            await asyncio.wait(tasks)
            assert watch.seconds < 5
        assert len(upstream.requests) == 1


async def test_a_crowd_that_waits_holds_no_connection_to_the_store() -> None:
    async with redis_server() as server, ScriptedUpstream() as upstream:
        config = one_route(upstream, "idempotency: true", top=server.line())
        async with (
            running_together(config, config) as (first, other),
            server.client() as client,
            in_flight(upstream, first, other, 100) as (gate, _, _),
        ):
            assert len(await client.client_list()) <= 2 * 2 + 1
            gate.open()
