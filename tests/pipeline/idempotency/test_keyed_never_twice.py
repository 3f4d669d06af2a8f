"""One key, one execution: random duplicates and faults over all stores, judged from outside.

While the scripts run the store is away now and then, the disk is full, the date is set forward and
back, and nothing runs for a while.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from tests.pipeline.idempotency.keyed_judge import Facts, complaints, may_have_run
from tests.pipeline.idempotency.keyed_scripts import (
    BODY,
    QUICK,
    TIMEOUT,
    Caller,
    Script,
    Stage,
    random_script,
)
from tests.pipeline.idempotency.keyed_troubles import STORES, now, troubled
from tests.support import PATIENCE, RunningProxy, WireEnded, eventually, request, running_together
from tests.support.clock import FakeClock

AT_ONCE = 120
MANY = 8_400
"""Scripts of one deep run; each of the runs has others."""
RUNS = 2
MOST_ROUNDS = 5
EXTRA = 10_000_000
"""Where the numbers of further scripts begin: no other run has them."""


def runs() -> Iterator[object]:
    """Which scripts are played on which store: a few, and many others on each."""
    for store in STORES:
        quick = pytest.mark.timeout(240)
        yield pytest.param(store, 0, QUICK, marks=quick, id=f"{store}-{QUICK}")
    first = QUICK
    marks = [pytest.mark.deep, pytest.mark.timeout(600)]
    for run in range(RUNS):
        for store in STORES:
            yield pytest.param(store, first, MANY, marks=marks, id=f"{store}-{MANY}-{run}")
            first += MANY


@pytest.mark.parametrize(("store", "first", "count"), list(runs()))
async def test_a_key_runs_once_whatever_happens(
    store: str, first: int, count: int, tmp_path: Path
) -> None:
    stage, clock = Stage(), FakeClock()
    async with AsyncExitStack() as stack:
        ground = await stack.enter_async_context(STORES[store](tmp_path))
        await stack.enter_async_context(stage.upstream)
        configs = [stage.config(ground.line)] * ground.instances
        proxies = await stack.enter_async_context(running_together(*configs, clock=clock))
        seed = f"{store} {first}"
        async with troubled(ground, proxies, clock, seed):
            numbers = range(first, first + count)
            for _ in range(MOST_ROUNDS):
                await play_together(proxies, stage, numbers, ground.there)
                if has_met_all(stage.scripts.values()):
                    break
                # A busy machine may miss a situation that hangs on milliseconds: a few more.
                numbers = range(numbers.stop + EXTRA, numbers.stop + EXTRA + QUICK)
        facts = Facts(ground.hardships)
        for proxy in proxies:
            await gather(proxy, facts)
            # That its store did not answer is logged, as it should be.
            proxy.complaints[:] = [line for line in proxy.complaints if "store" not in line]
    scripts = stage.scripts.values()
    assert len(scripts) >= count
    wrong = [f"{what}: {script}" for script in scripts for what in complaints(script, facts)]
    assert not wrong, f"{len(wrong)} complaints\n" + "\n".join(wrong[:5])
    assert has_met_all(scripts), situations_met(scripts)


async def play_together(
    proxies: list[RunningProxy], stage: Stage, numbers: range, there: asyncio.Event
) -> None:
    """Play these scripts, many at a time."""
    async with asyncio.TaskGroup() as group:
        for begin in numbers[:AT_ONCE]:
            some = range(begin, numbers.stop, AT_ONCE)
            group.create_task(play_all(proxies, stage, some, there))


async def gather(proxy: RunningProxy, facts: Facts) -> None:
    """What the proxy logged, once all that it does has ended: some owners went on alone."""
    await eventually(
        lambda: len(proxy.app._in_flight_keys) == proxy.client_connections == 0,
        within=TIMEOUT + PATIENCE,
    )
    for record in await proxy.logged():
        facts.attempts[record["request_id"]] = record["attempts"]


async def play_all(
    proxies: list[RunningProxy], stage: Stage, numbers: range, there: asyncio.Event
) -> None:
    """Play one script after the other; few begin while the store is not *there*: they get a 503."""
    for number in numbers:
        if number % 10:
            await there.wait()
        script = random_script(number, len(proxies))
        stage.scripts[script.target] = script
        for comes_again in (False, True):
            async with asyncio.TaskGroup() as group:
                for caller in script.callers:
                    if caller.comes_again is comes_again:
                        group.create_task(call(proxies[caller.instance], script, caller))


async def call(proxy: RunningProxy, script: Script, caller: Caller) -> None:
    """One caller's part, over a connection of its own."""
    await asyncio.sleep(caller.after)
    async with proxy.client() as client:
        script.sent[caller.name] = now()
        name = f"X-Request-Id: {caller.name}"
        await client.send(request("POST", script.target, script.key, name, body=BODY))
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
    "longer than its ttl",
    "longer than its lease",
}


def has_met_all(scripts: Collection[Script]) -> bool:
    """Whether each situation was met, and most scripts got past a store that was not there."""
    reached = sum(bool(script.arrivals) for script in scripts)
    return reached > 0.6 * len(scripts) and situations_met(scripts).keys() >= EXPECTED


def situations_met(scripts: Collection[Script]) -> Counter[str]:
    return Counter(situation for script in scripts for situation in situations(script))


def situations(script: Script) -> Iterator[str]:
    policy, arrivals, seen = script.policy, script.arrivals, script.seen
    good = [response for response in seen if 200 <= response.status < 300]
    if len(arrivals) == 1 and len(good) > 1:
        yield "ran once, and several got it"
    if any(response.status == 409 and "proxy-status" in response.names for response in seen):
        yield "held"
    for before, _ in pairwise(arrivals):
        if may_have_run(policy, before.fate.status):
            yield "released, and ran again"
        elif before.fate.status in policy.refused:
            yield "refused, and ran again"
    if arrivals and any(caller.leaves_after is not None for caller in script.callers):
        yield "left, and ran all the same"
    for arrival in arrivals:
        if policy.slow and arrival.over - arrival.at > policy.ttl:
            yield "longer than its ttl"
        if policy.slow and arrival.over - arrival.at > policy.lease:
            yield "longer than its lease"
