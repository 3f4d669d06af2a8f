"""Callers that use the same keys: none ever gets what is another's."""

import asyncio
from collections import Counter
from itertools import count
from pathlib import Path
from random import Random

import pytest

from tests.pipeline.idempotency.keyed_storms import opened
from tests.support import (
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    one_route,
    response,
    running_together,
)
from tests.support.depth import DEEP
from tests.support.keys import Gate, is_replayed, post

INTERLEAVINGS = 10_000 if DEEP else 300
AT_ONCE = 20
"""Interleavings that go on at the same time, each with a key of its own."""
CALLERS = (
    "Authorization: Bearer a",
    "Authorization: Bearer b",
    "Authorization: Bearer A",
    "X-Api-Key: Bearer a",
    "Cookie: none=of-these",
)
"""The last has no name; it, too, is another one."""

on_both = pytest.mark.parametrize(
    ("store", "instances"), [("memory", 1), ("redis", 2)], ids=["memory", "redis"]
)


class Secrets:
    """An upstream's behaviour: tells everybody who it is, and never the same twice."""

    def __init__(self) -> None:
        self._chance = Random(5)
        self._numbers = count(1)
        self.runs: Counter[tuple[str, str]] = Counter()
        """Executions, by key and caller."""

    async def __call__(self, visit: Visit) -> None:
        await visit.read_body()
        key, caller = visit.request.get("Idempotency-Key") or "", who_sent(visit)
        self.runs[key, caller] += 1
        if self._chance.random() < 0.7:
            await asyncio.sleep(self._chance.uniform(0.0, 0.003))
        body = f"{key} {caller} {next(self._numbers)}".encode()
        await visit.send(response(201, body, f"X-Owner: {caller.partition(': ')[2]}"))


def who_sent(visit: Visit) -> str:
    fields = [f"{name}: {value}" for name, value in visit.request.headers]
    (caller,) = [field for field in fields if field in CALLERS]
    return caller


async def interleave(proxies: list[RunningProxy], number: int) -> dict[str, list[Response]]:
    """Two callers or more with one key, in some order: what each of them got."""
    chance = Random(number)
    key = f"Idempotency-Key: key-{number}"
    got: dict[str, list[Response]] = {caller: [] for caller in chance.sample(CALLERS, 2)}
    if chance.random() < 0.2:
        got |= {caller: [] for caller in CALLERS}
    turns = [caller for caller in got for _ in range(chance.randint(1, 3))]
    chance.shuffle(turns)
    pause = chance.choice((0.0, 0.0005, 0.003))

    async def call(caller: str, proxy: RunningProxy) -> None:
        got[caller].append(await post(proxy, key, caller))

    async with asyncio.TaskGroup() as group:
        for caller in turns:
            group.create_task(call(caller, chance.choice(proxies)))
            await asyncio.sleep(chance.uniform(0.0, 2 * pause))
    return got


@on_both
@pytest.mark.timeout(900 if DEEP else 60)
async def test_they_are_kept_apart_however_they_come(
    store: str, instances: int, tmp_path: Path
) -> None:
    secrets = Secrets()
    async with opened(store, tmp_path) as top, ScriptedUpstream(secrets) as upstream:
        config = one_route(upstream, "idempotency: true", top=top)
        async with running_together(*[config] * instances) as proxies:
            for start in range(0, INTERLEAVINGS, AT_ONCE):
                numbers = range(start, start + AT_ONCE)
                walks = await asyncio.gather(*(interleave(proxies, number) for number in numbers))
                for number, walk in zip(numbers, walks, strict=True):
                    assert_each_has_its_own(number, walk)
    assert set(secrets.runs.values()) == {1}


def assert_each_has_its_own(number: int, walk: dict[str, list[Response]]) -> None:
    for caller, answers in walk.items():
        (body,) = {got.body for got in answers}
        assert body.startswith(f"key-{number} {caller} ".encode())
        assert {got.get("X-Owner") for got in answers} == {caller.partition(": ")[2]}
        assert sum(is_replayed(got) for got in answers) == len(answers) - 1


@on_both
async def test_nor_does_one_wait_for_another(store: str, instances: int, tmp_path: Path) -> None:
    gates = {caller: Gate(response(201, caller.encode())) for caller in CALLERS}

    async def behave(visit: Visit) -> None:
        await gates[who_sent(visit)].behaviour(visit)

    async with opened(store, tmp_path) as top, ScriptedUpstream(behave) as upstream:
        config = one_route(upstream, "idempotency: true", top=top)
        async with running_together(*[config] * instances) as proxies:
            asking = {
                caller: [asyncio.create_task(post(proxies[-1], caller)) for _ in range(3)]
                for caller in CALLERS
            }
            for gate in gates.values():
                await gate.reached.wait()
            for caller in reversed(CALLERS):
                gates[caller].open()
                assert {(await task).body for task in asking.pop(caller)} == {caller.encode()}
                assert not any(task.done() for tasks in asking.values() for task in tasks)
        assert len(upstream.requests) == len(CALLERS)
