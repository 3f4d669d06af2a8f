"""Many callers with the same keys, most of whom leave: each key runs once, and all get the same.

``HOLDFAST_FUZZ=deep`` makes it two hundred callers with fifty keys, several times.
"""

import json
from pathlib import Path

import pytest

from tests.pipeline.idempotency.keyed_storms import (
    Storm,
    Till,
    assert_each_ran_once,
    in_every_store,
    opened,
)
from tests.pipeline.instances import instances
from tests.support import ScriptedUpstream, eventually, one_route, running
from tests.support.depth import DEEP
from tests.support.keys import is_replayed
from tests.support.proxies import ServedBy

CALLERS, KEYS = (200, 50) if DEEP else (40, 12)
ROUTE = "idempotency: true"
IN_QUEUE = "throttle: {concurrency: 2, max_wait: none}\nidempotency: true"
"""An owner that leaves the throttle's queue has sent nothing: another request goes on."""
LONG = 600 if DEEP else 60

with_several_seeds = pytest.mark.parametrize("seed", range(5 if DEEP else 1))


async def results(proxies: list[ServedBy]) -> dict[str, float]:
    """How often a key meant what, on all of them together."""
    words = ("new", "replayed", "joined", "lease_lost", "bypassed")
    metrics = [await proxy.metrics() for proxy in proxies]
    return {
        word: sum(one.total("holdfast_idempotency_total", result=word) for one in metrics)
        for word in words
    }


async def keys_of(proxy: ServedBy) -> dict[str, int]:
    """What ``/status`` tells of keys."""
    told: dict[str, int] = json.loads((await proxy.admin("GET", "/status")).body)["keys"]
    return told


@with_several_seeds
@in_every_store
@pytest.mark.parametrize("route", [ROUTE, IN_QUEUE], ids=["at once", "in the queue"])
@pytest.mark.timeout(LONG)
async def test_one_instance(store: str, route: str, seed: int, tmp_path: Path) -> None:
    till = Till(seed)
    keys = [f"{store}-{number}" for number in range(KEYS)]
    async with (
        opened(store, tmp_path) as top,
        ScriptedUpstream(till) as upstream,
        running(one_route(upstream, route, top=top)) as proxy,
    ):
        storm = Storm([proxy], keys, seed)
        await storm.rage(CALLERS)
        await storm.ask_each_once_more()
        await eventually(lambda: proxy.status()["keys"] == {"in_flight": 0, "waiting": 0})
        told = await results([proxy])
    assert_each_ran_once(till, storm, keys)
    assert storm.cut_off == 0
    assert storm.left > CALLERS * KEYS / 3, "too few have left for this to mean anything"
    assert all(is_replayed(storm.answers[key][-1]) for key in keys)
    assert (told["lease_lost"], told["bypassed"]) == (0, 0)
    assert told["joined"] > 0
    assert told["replayed"] > 0


@with_several_seeds
@pytest.mark.parametrize(
    ("store", "count", "route"),
    [
        pytest.param("redis", 3, ROUTE, id="three on one Redis"),
        pytest.param("sqlite", 2, IN_QUEUE, id="two on one file"),
    ],
)
@pytest.mark.timeout(LONG)
async def test_several_instances_on_one_store(
    store: str, count: int, route: str, seed: int, tmp_path: Path
) -> None:
    till = Till(seed)
    keys = [f"shared-{number}" for number in range(KEYS)]
    async with (
        opened(store, tmp_path) as top,
        ScriptedUpstream(till) as upstream,
        instances(one_route(upstream, route, top=top), count) as proxies,
    ):
        storm = Storm(proxies, keys, seed)
        await storm.rage(CALLERS)
        await storm.ask_each_once_more()
        told = await results(list(proxies))
        for proxy in proxies:
            assert await keys_of(proxy) == {"in_flight": 0, "waiting": 0}
    assert_each_ran_once(till, storm, keys)
    assert storm.cut_off == 0
    assert (told["lease_lost"], told["bypassed"]) == (0, 0)
    assert told["joined"] > 0
