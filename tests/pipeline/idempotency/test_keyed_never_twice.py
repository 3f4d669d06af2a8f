"""One key, one execution: random duplicates and faults over all stores, judged from outside.

The judge knows what the upstream read and said, and the one window of *What is promised* that
these scripts can enter: `on_ambiguous: release` after a failure that may have run. It shares no
code with the proxy.
"""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from tests.pipeline.idempotency.keyed_scripts import (
    ATTEMPT_TIMEOUT,
    BODY,
    QUICK,
    Arrival,
    Caller,
    Policy,
    Script,
    Stage,
    random_script,
)
from tests.support import RunningProxy, WireEnded, request, running_together
from tests.support.redis_server import redis_server

AT_ONCE = 150


# The judge.

NOT_KEPT = {304, 401, 403, 407, 408, 409, 421, 425, 429}
"""Statuses below 500 after which the key is free: nothing was done."""
NOT_IMPLEMENTED = {501, 505}


def was_kept(arrival: Arrival) -> bool:
    """Whether the upstream gave a whole answer that is the result for good."""
    return arrival.fate.whole and is_final(arrival)


def is_final(arrival: Arrival) -> bool:
    """Whether nothing may run afterwards: cut short it cannot be replayed, but it has run."""
    return 200 <= arrival.fate.status < 500 and arrival.fate.status not in NOT_KEPT


def may_have_run(policy: Policy, arrival: Arrival) -> bool:
    """Whether nobody knows if the call had an effect."""
    status = arrival.fate.status
    if status in policy.refused or status in NOT_KEPT or status in NOT_IMPLEMENTED:
        return False
    return status == 0 or status >= 500


def complaints(script: Script) -> Iterator[str]:
    """What is wrong with what the upstream saw of a key, and with what its callers got."""
    policy = script.policy
    for before, after in pairwise(script.arrivals):
        if is_final(before):
            yield f"a call after {before.fate.status}"
        if policy.ambiguous == "hold" and not policy.honours_key and may_have_run(policy, before):
            yield "a call after one that may have run, though the key is held"
        gave_up = after.at - before.at > 0.9 * ATTEMPT_TIMEOUT
        is_over = 0 < before.over <= after.at
        if not is_over and not gave_up:
            yield "two calls at once"
    yield from wrong_answers(script)


def wrong_answers(script: Script) -> Iterator[str]:
    """Every caller who got an upstream's answer got one of this key's, and all the same one."""
    said = {(a.fate.status, a.receipt.rjust(7, b"-")) for a in script.arrivals}
    kept = {(a.fate.status, a.receipt.rjust(7, b"-")) for a in script.arrivals if was_kept(a)}
    for response in script.seen:
        if "proxy-status" in response.names:
            continue
        if response.status in {204, 205}:
            if response.body:
                yield "a body where none may be"
            continue
        if not response.complete:
            continue
        receipt = response.body.removeprefix(b"receipt ")[:7]
        if (response.status, receipt) not in said:
            yield f"somebody else's answer: {response.status} {response.body[:40]!r}"
        if response.status < 400 and kept and (response.status, receipt) not in kept:
            yield "a result that was not kept"


# Stores, and what is done to them.

Trouble = Callable[[Random], Coroutine[None, None, None]]


async def no_trouble(_: Random) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def _memory(_: Path) -> AsyncIterator[tuple[str, int, Trouble]]:
    yield "store: {url: memory, entries: 1000000, bytes: 512MiB}", 1, no_trouble


@asynccontextmanager
async def _sqlite(folder: Path) -> AsyncIterator[tuple[str, int, Trouble]]:
    """Now and then another process has the file for longer than the store waits for it."""
    path = folder / "keys.db"

    def lock(seconds: float) -> None:
        # In a process of its own: SQLite's locks are those of the process.
        program = (
            "import sqlite3, sys, time\n"
            "db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=1)\n"
            "db.execute('BEGIN IMMEDIATE'); time.sleep(float(sys.argv[2])); db.execute('ROLLBACK')"
        )
        subprocess.run(
            [sys.executable, "-c", program, str(path), str(seconds)], check=False, timeout=10
        )

    async def trouble(chance: Random) -> None:
        while True:
            await asyncio.sleep(chance.uniform(0.5, 1.5))
            await asyncio.to_thread(lock, chance.choice((0.05, 0.3)))

    yield f"store: {{url: 'sqlite:{path}', timeout: 200ms}}", 2, trouble


@asynccontextmanager
async def _redis(_: Path) -> AsyncIterator[tuple[str, int, Trouble]]:
    """Now and then the server does not answer, for less than a lease."""
    async with redis_server() as server:

        async def trouble(chance: Random) -> None:
            while True:
                await asyncio.sleep(chance.uniform(0.5, 1.5))
                server.stall()
                try:
                    await asyncio.sleep(chance.choice((0.05, 0.3)))
                finally:
                    server.resume()

        yield f"store: {{url: 'redis://127.0.0.1:{server.port}', timeout: 200ms}}", 2, trouble


STORES = {"memory": _memory, "sqlite": _sqlite, "redis": _redis}


# The show.


@pytest.mark.parametrize(
    "count", [QUICK, pytest.param(8_000, marks=[pytest.mark.deep, pytest.mark.timeout(600)])]
)
@pytest.mark.parametrize("store", STORES)
async def test_a_key_runs_once_whatever_happens(store: str, count: int, tmp_path: Path) -> None:
    stage = Stage()
    async with AsyncExitStack() as stack:
        line, instances, trouble = await stack.enter_async_context(STORES[store](tmp_path))
        await stack.enter_async_context(stage.upstream)
        configs = [stage.config(line)] * instances
        proxies = await stack.enter_async_context(running_together(*configs))
        troubling = asyncio.create_task(trouble(Random(store)))
        try:
            async with asyncio.TaskGroup() as group:
                for first in range(AT_ONCE):
                    numbers = range(first, count, AT_ONCE)
                    group.create_task(play_all(proxies, stage, numbers))
        finally:
            troubling.cancel()
            with suppress(asyncio.CancelledError):
                await troubling
        for proxy in proxies:
            # That its store did not answer is logged, as it should be.
            proxy.complaints[:] = [line for line in proxy.complaints if "store" not in line]
    scripts = stage.scripts.values()
    wrong = [f"{what}: {script}" for script in scripts for what in complaints(script)]
    assert not wrong, f"{len(wrong)} complaints\n" + "\n".join(wrong[:5])
    met = Counter(situation for script in scripts for situation in situations(script))
    assert met.keys() >= EXPECTED, met


async def play_all(proxies: list[RunningProxy], stage: Stage, numbers: range) -> None:
    for number in numbers:
        script = random_script(number, len(proxies))
        stage.scripts[script.target] = script
        async with asyncio.TaskGroup() as group:
            for caller in script.callers:
                group.create_task(call(proxies[caller.instance], script, caller))


async def call(proxy: RunningProxy, script: Script, caller: Caller) -> None:
    """One caller's part, over a connection of its own."""
    await asyncio.sleep(caller.after)
    async with proxy.client() as client:
        await client.send(request("POST", script.target, script.key, body=BODY))
        if caller.leaves_after is not None:
            await asyncio.sleep(caller.leaves_after)
            return
        await client.wire.something()
        with suppress(WireEnded):
            script.seen.append(await client.response("POST"))


# What must have been met, or else nothing was tried.

EXPECTED = {
    "ran once, and several got it",
    "held",
    "released, and ran again",
    "refused, and ran again",
    "left, and ran all the same",
}


def situations(script: Script) -> Iterator[str]:
    policy, arrivals, seen = script.policy, script.arrivals, script.seen
    good = [response for response in seen if 200 <= response.status < 300]
    if len(arrivals) == 1 and len(good) > 1:
        yield "ran once, and several got it"
    if any(response.status == 409 and "proxy-status" in response.names for response in seen):
        yield "held"
    for before, _ in pairwise(arrivals):
        if may_have_run(policy, before):
            yield "released, and ran again"
        elif before.fate.status in policy.refused:
            yield "refused, and ran again"
    if arrivals and any(caller.leaves_after is not None for caller in script.callers):
        yield "left, and ran all the same"
