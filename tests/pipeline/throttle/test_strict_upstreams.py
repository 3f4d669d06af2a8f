"""Over real sockets: what arrives at an upstream is never more than was written, and nearly that.

The upstream counts by its own clock. A machine that is busy may deliver one call later than
another by more than the margin; no sender can answer for that. So it is known of each call when its
permit was counted: a second with too many arrivals counts unless the calls in it were under way for
times that differ by more than the margin; and permits are counted, too, without any such excuse.
Nor can a limit be used while nobody gets to run: a :class:`Witness` knows for how long that was
here, and a :class:`Stopwatch` in the other processes.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.pipeline.instances import Crowd, everybody_sees_it
from tests.pipeline.throttle.timed_sends import PROGRAM, read_sends
from tests.support import (
    ScriptedUpstream,
    answer,
    now,
    response,
    running,
    subprocess_proxy,
    virtual_time,
)
from tests.support.proxies import ROOT, ProxyProcess
from tests.support.redis_server import PATIENT, redis_server
from tests.support.upstream import Visit, ok
from tests.support.witness import Stopwatch, Witness

RATES = (10, 20, 100, 1000)
SECONDS = 20.0
MARGIN = 0.02


@dataclass
class Counted:
    """What is known of the calls of one rate: when each had its permit, and when it arrived."""

    sent: dict[str, float] = field(default_factory=dict)
    arrived: dict[str, float] = field(default_factory=dict)

    def most_sent(self) -> int:
        """In any second, by the sender's clock."""
        return _most(sorted(self.sent.values()))

    def beyond(self, limit: int) -> list[str]:
        """Seconds in which more arrived, though all were under way for about as long."""
        calls = sorted(self.arrived, key=self.arrived.__getitem__)
        found = []
        for first in range(len(calls) - limit):
            within = calls[first : first + limit + 1]
            took = [self.arrived[call] - self.sent[call] for call in within]
            span = self.arrived[within[-1]] - self.arrived[within[0]]
            if span <= 1.0 and max(took) - min(took) < MARGIN:
                found.append(f"{limit + 1} in {span:.4f} s from {within[0]} on")
        return found

    def used(self, limit: int, began: float, ended: float, stalled: float) -> float:
        """Which part of the limit arrived after the first second."""
        came = sum(began + 1 <= moment < ended for moment in self.arrived.values())
        return (came + 1) / (limit * max(ended - began - 1 - stalled, 0.1))


def _most(moments: list[float]) -> int:
    most = first = 0
    for last, moment in enumerate(moments):
        while moment - moments[first] > 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most


@asynccontextmanager
async def counting(into: dict[int, Counted]) -> AsyncIterator[tuple[int, int]]:
    """The port and the process of an upstream that counts; what it counted is known afterwards."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.pipeline.counting_upstream"),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline()), process.pid
        told, _ = await process.communicate(b"")
        for line in told.decode().splitlines():
            moment, _, target = line.partition(" ")
            rate, call = _named(target)
            into[rate].arrived[call] = float(moment)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _named(target: str) -> tuple[int, str]:
    """The rate of the route, and the number of the call."""
    rate, call = target[1:].split("/")
    return int(rate), call


def policy(port: int, store: str) -> str:
    routes = "".join(
        f"  - {{name: r{rate}, match: /{rate}/**, upstream: a,"
        f" throttle: {{rate: {rate}/s, max_wait: none}}}}\n"
        for rate in RATES
    )
    return f"store: {store}\nupstreams: {{a: 'http://127.0.0.1:{port}'}}\nroutes:\n{routes}"


class Numbered(Crowd):
    """Callers each of whose calls has a number of its own."""

    async def call(self, by: int, rate: int, name: str) -> None:
        number = 0
        async with self._proxies[by].client() as client:
            while not self._is_over:
                number += 1
                got = await client.get(f"/{rate}/{name}.{number}")
                assert got.status == 200


@pytest.mark.alone
@pytest.mark.deep
@pytest.mark.parametrize(
    ("instances", "least"),
    [pytest.param(1, 0.95, id="one instance"), pytest.param(3, 0.9, id="three on redis")],
)
async def test_no_second_sees_more_than_was_written(
    instances: int, least: float, tmp_path: Path
) -> None:
    counts: dict[int, Counted] = defaultdict(Counted)
    files = [tmp_path / f"sent{number}" for number in range(instances)]
    async with AsyncExitStack() as stack:
        port, *pids = await stack.enter_async_context(counting(counts))
        store = "memory"
        if instances > 1:
            server = await stack.enter_async_context(redis_server())
            pids.append(server.pid)
            store = f"{{url: 'redis://127.0.0.1:{server.port}', {PATIENT}}}"
        proxies: list[ProxyProcess] = [
            await stack.enter_async_context(
                subprocess_proxy(policy(port, store), program=(PROGRAM, str(file)))
            )
            for file in files
        ]
        if instances > 1:
            await everybody_sees_it(proxies, "up")
        crowd = Numbered(proxies, "")
        witness = Witness()
        pids += [proxy.process.pid for proxy in proxies]
        began, watch = now(), Stopwatch(*pids)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(witness.watch())
            for by in range(instances):
                for rate in RATES:
                    for caller in range(3 + rate // 50 // instances):
                        group.create_task(crowd.call(by, rate, f"{by}-{caller}"))
            await asyncio.sleep(SECONDS)
            crowd.end()
            ended, lasted = now(), watch.seconds
            watching.cancel()
        for file in files:
            for send in read_sends(file):
                rate, call = _named(send.target)
                counts[rate].sent[call] = send.counted
    for rate in RATES:
        counted = counts[rate]
        assert counted.sent.keys() == counted.arrived.keys()
        assert counted.most_sent() <= rate
        assert not counted.beyond(rate)
        stalled = max(witness.stalled(began, ended), ended - began - lasted)
        used = counted.used(rate, began, ended, stalled)
        assert used >= least, f"{used:.3f} of {rate}/s, {stalled:.3f} s stalled"


class Strict:
    """Refuses what is more than 20 in any second, and says to come back in one."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []
        self.refused = 0

    async def __call__(self, visit: Visit) -> None:
        arrived = now()
        recent = [moment for moment in self.arrivals if arrived - moment <= 1.0]
        if len(recent) >= 20:
            self.refused += 1
            await answer(response(429, b"", "Retry-After: 1"))(visit)
        else:
            self.arrivals.append(arrived)
            await answer(ok(b"found"))(visit)


@virtual_time
@pytest.mark.parametrize("algorithm", ["gcra", "window"])
async def test_80_calls_for_an_api_that_is_limited_to_20_a_second(algorithm: str) -> None:
    """Tried as a new user did (margin aside: here everything shares one loop)."""
    strict = Strict()
    config = (
        "upstreams: {{search: {{urls: ['http://127.0.0.1:{port}'],"
        " throttle: {{rate: 20/s, algorithm: {algorithm}, margin: 100ms}}}}}}\n"
        "routes: [{{match: GET /search, upstream: search, timeout: 10s, retry: true}}]\n"
    )
    async with (
        ScriptedUpstream(strict) as upstream,
        running(config.format(port=upstream.port, algorithm=algorithm)) as proxy,
    ):
        answers = await asyncio.gather(*(proxy.get("/search") for _ in range(80)))
        assert {got.status for got in answers} == {200}
        assert (len(strict.arrivals), strict.refused) == (80, 0)
