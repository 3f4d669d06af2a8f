"""One limit over three proxies, with all of them busy: it holds, and it is used.

Each proxy is a process of its own, the store is a real server, and what counts is what the
upstream saw. The callers are more than the limit allows, so there is always somebody in line.
"""

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.pipeline.instances import crowd, everybody_sees_it, instances, sharing
from tests.pipeline.outages import Outage, in_every_outage
from tests.support import ScriptedUpstream
from tests.support.depth import DEEP
from tests.support.redis_server import SERVERS, program_name, redis_server
from tests.support.throttles import most_within
from tests.support.witness import Witness, witness

RATE, BURST = 200, 20
MOST = (RATE + BURST) * 1.02
"""Calls that the upstream may see in a second."""
LIMIT = f"throttle: {{rate: {RATE}/s, burst: {BURST}, max_wait: none}}"
INSTANCES = 3


def arrivals(upstream: ScriptedUpstream, since: float, until: float) -> list[float]:
    return [request.at for request in upstream.requests if since <= request.at < until]


def assert_limit_is_used(
    upstream: ScriptedUpstream, seen: Witness, since: float, until: float
) -> None:
    """While anybody got to run: a machine that has other things to do takes its part."""
    came = len(arrivals(upstream, since, until))
    stalled = seen.stalled(since, until)
    assert came >= 0.9 * RATE * (until - since - stalled), f"{stalled:.3f} s stalled"


@pytest.mark.parametrize("program", SERVERS, ids=program_name)
async def test_the_limit_holds_and_is_used_though_an_instance_is_killed(program: Path) -> None:
    half = 10.0 if DEEP else 2.5
    async with (
        redis_server(program) as server,
        ScriptedUpstream() as upstream,
        instances(sharing(upstream, server.port, LIMIT), INSTANCES) as proxies,
        witness() as seen,
        crowd(proxies, 32) as callers,
    ):
        began = time.monotonic()
        await asyncio.sleep(half)
        proxies[0].signal(signal.SIGKILL)
        killed = time.monotonic()
        await asyncio.sleep(half)
        callers.end()
        ended = time.monotonic()
    assert callers.statuses == {200}
    assert callers.lost > 0
    assert most_within([request.at for request in upstream.requests], 1.0) <= MOST
    assert_limit_is_used(upstream, seen, began, killed)
    assert_limit_is_used(upstream, seen, killed, ended)
    # Nobody is left out while all are there.
    served = Counter(got.by for got in callers.answers if got.began < killed)
    assert min(served.values()) > 0.5 * max(served.values())


# The store is away for a while.


@in_every_outage
async def test_without_the_store_no_call_fails_or_takes_long_and_each_keeps_to_its_share(
    outage: Outage,
) -> None:
    lasts = 5.0 if DEEP else 1.5
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        instances(sharing(upstream, server.port, LIMIT), INSTANCES) as proxies,
        # So few that they hardly wait for each other: it takes 200 ms to give the store up.
        crowd(proxies, 9) as callers,
        witness() as seen,
    ):
        await asyncio.sleep(1.5)  # after a second each has heard of the others
        async with outage(server):
            gone = time.monotonic()
            await everybody_sees_it(proxies, "down")
            down = time.monotonic()
            await asyncio.sleep(lasts)
        back = time.monotonic()
        await everybody_sees_it(proxies, "up")
        up = time.monotonic()
        await asyncio.sleep(1.5)
        callers.end()
        ended = time.monotonic()
    assert (callers.statuses, callers.lost) == ({200}, 0)
    assert callers.p99() < 0.3 + seen.longest
    # Each has its share of the limit meanwhile, so it holds throughout.
    assert most_within([request.at for request in upstream.requests], 1.0) <= MOST
    assert down - gone < 1
    assert_limit_is_used(upstream, seen, down, back)
    assert_limit_is_used(upstream, seen, up, ended)
