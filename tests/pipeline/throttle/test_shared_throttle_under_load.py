"""One limit over three proxies, with all of them busy: it holds, and it is used.

Each proxy is a process of its own, the store is a real server, and what counts is what the
upstream saw. The callers are more than the limit allows, so there is always somebody in line.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.pipeline.instances import crowd, everybody_sees_it, instances, sharing
from tests.pipeline.outages import Outage, in_every_outage
from tests.pipeline.throttle.timed_sends import read_sends
from tests.support import ProxyProcess, ScriptedUpstream
from tests.support.depth import DEEP
from tests.support.redis_server import SERVERS, program_name, redis_server
from tests.support.throttles import most_within
from tests.support.witness import Stopwatch

RATE, BURST = 200, 20
MOST = (RATE + BURST) * 1.02
"""Calls that the upstream may see in a second."""
LIMIT = f"throttle: {{rate: {RATE}/s, burst: {BURST}, max_wait: none}}"
INSTANCES = 3
HASTY = "timeout: 200ms"
"""Keys of a store that goes away."""


def arrivals(upstream: ScriptedUpstream, since: float, until: float) -> list[float]:
    return [request.at for request in upstream.requests if since <= request.at < until]


class Phase:
    """Some time of a test, and how much of it we, the *proxies* and their store got to run."""

    def __init__(
        self, upstream: ScriptedUpstream, proxies: Sequence[ProxyProcess], *pids: int
    ) -> None:
        self._upstream = upstream
        self._watch = Stopwatch(*(proxy.process.pid for proxy in proxies), *pids)
        self.began = time.monotonic()
        self.ended = self.seconds = 0.0

    def end(self) -> None:
        self.ended, self.seconds = time.monotonic(), self._watch.seconds

    def assert_limit_is_used(self) -> None:
        """While anybody got to run: a machine that has other things to do takes its part."""
        came = len(arrivals(self._upstream, self.began, self.ended))
        lasted = self.ended - self.began
        assert came >= 0.9 * RATE * self.seconds, f"in {self.seconds:.3f} s of {lasted:.3f} s"


def assert_limit_holds(sends: Path, upstream: ScriptedUpstream) -> None:
    """Check what was sent in a second, by the moments that the proxies counted.

    What comes while the upstream or a proxy does not get to run seems to come later than that.
    """
    counted = [send.counted for send in read_sends(sends)]
    assert len(counted) >= len(upstream.requests)
    assert most_within(counted, 1.0) <= MOST


@pytest.mark.parametrize("program", SERVERS, ids=program_name)
async def test_the_limit_holds_and_is_used_though_an_instance_is_killed(
    program: Path, tmp_path: Path
) -> None:
    sends = tmp_path / "sends"
    half = 10.0 if DEEP else 2.5
    async with (
        redis_server(program) as server,
        ScriptedUpstream() as upstream,
        instances(sharing(upstream, server.port, LIMIT), INSTANCES, sends) as proxies,
        crowd(proxies, 32) as callers,
    ):
        together = Phase(upstream, proxies, server.pid)
        await asyncio.sleep(half)
        together.end()
        proxies[0].signal(signal.SIGKILL)
        without = Phase(upstream, proxies[1:], server.pid)
        await asyncio.sleep(half)
        callers.end()
        without.end()
    assert callers.statuses == {200}
    assert callers.lost > 0
    assert_limit_holds(sends, upstream)
    together.assert_limit_is_used()
    without.assert_limit_is_used()
    # Nobody is left out while all are there.
    served = Counter(got.by for got in callers.answers if got.began < together.ended)
    assert min(served.values()) > 0.5 * max(served.values())


# The store is away for a while.


@in_every_outage
async def test_without_the_store_no_call_fails_or_takes_long_and_each_keeps_to_its_share(
    outage: Outage, tmp_path: Path
) -> None:
    sends = tmp_path / "sends"
    lasts = 5.0 if DEEP else 1.5
    async with (
        redis_server() as server,
        ScriptedUpstream() as upstream,
        instances(sharing(upstream, server.port, LIMIT, store=HASTY), INSTANCES, sends) as proxies,
        # So few that they hardly wait for each other: it takes 200 ms to give the store up.
        crowd(proxies, 9) as callers,
    ):
        await asyncio.sleep(1.5)  # after a second each has heard of the others
        async with outage(server):
            giving_up = Phase(upstream, proxies)
            await everybody_sees_it(proxies, "down")
            giving_up.end()
            down = Phase(upstream, proxies)
            await asyncio.sleep(lasts)
            down.end()
        await everybody_sees_it(proxies, "up")
        up = Phase(upstream, proxies, server.pid)
        await asyncio.sleep(1.5)
        callers.end()
        up.end()
    assert (callers.statuses, callers.lost) == ({200}, 0)
    assert callers.p99() < 0.3
    # Each has its share of the limit meanwhile, so it holds throughout.
    assert_limit_holds(sends, upstream)
    assert giving_up.seconds < 1
    down.assert_limit_is_used()
    up.assert_limit_is_used()
