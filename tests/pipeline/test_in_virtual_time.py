"""The whole proxy in virtual time: many seconds of retries in a moment, and always the same."""

import asyncio
import random

from proxy.core.virtual_time import START
from tests.support import ScriptedUpstream, Visit, now, ok, one_route, response, running
from tests.support.virtual import TestLoop, virtual_clock

ROUTE = """
timeout: none
retry: {attempts: 4, backoff: {base: 1s, max: 10s, jitter: full}}
throttle: {rate: 1/s, burst: 5, max_wait: 1h, max_queue: 2000}
"""


async def record_of(seed: int, requests: int) -> tuple[float, list[object]]:
    """The virtual seconds that throttled GETs took, and all that can be said about them."""
    chance = random.Random(seed)

    async def fails_every_third_time(visit: Visit) -> None:
        if chance.random() < 1 / 3:
            hint = [] if chance.random() < 0.5 else ["Retry-After: 2"]
            await visit.send(response(503, b"", *hint))
        else:
            await visit.send(ok(visit.request.target.encode()))

    async with (
        ScriptedUpstream(fails_every_third_time) as upstream,
        running(
            one_route(upstream, ROUTE, options="budget: false"), clock=virtual_clock(seed)
        ) as proxy,
    ):
        answers = []

        async def one(number: int) -> None:
            async with proxy.client() as client:
                client.wire.patience = 1e6
                got = await client.get(f"/{number}")
            answers.append((number, now(), got.status, got.body, got.get("Holdfast-Attempts")))

        await asyncio.gather(*(one(number) for number in range(requests)))
        took = now() - START
        log = await proxy.logged(requests)
        for line in log:
            del line["request_id"]
        arrived = [(seen.target, seen.at) for seen in upstream.requests]
        return took, [answers, log, arrived, proxy.status()]


def run(seed: int, requests: int) -> tuple[float, list[object]]:
    with asyncio.Runner(loop_factory=TestLoop) as runner:
        return runner.run(record_of(seed, requests))


def test_a_thousand_retried_and_throttled_gets_are_the_same_ones_in_each_run() -> None:
    took, record = run(seed=3, requests=1000)
    assert took > 1000
    assert record == run(seed=3, requests=1000)[1]


def test_another_seed_is_another_course() -> None:
    assert run(seed=3, requests=50)[1] != run(seed=4, requests=50)[1]
