"""A worker dies, hangs, or cannot live: the others serve on, and no number goes back."""

import asyncio
import os
import signal
import time
from contextlib import AsyncExitStack
from itertools import pairwise

from proxy.runtime.workers.pool import _STEADY
from tests.runtime.workers.worker_pools import RunningPool, caller, ended, pool
from tests.support import (
    PATIENCE,
    Metrics,
    ScriptedUpstream,
    eventually,
    one_route,
    request,
    subprocess_proxy,
)
from tests.support.keys import Gate

COUNTERS = (
    "holdfast_requests_total",
    "holdfast_request_duration_seconds_count",
    "holdfast_request_duration_seconds_sum",
    "holdfast_upstream_attempts_total",
    "holdfast_worker_restarts_total",
    "process_cpu_seconds_total",
)


async def watch_counters(running: RunningPool, stop: asyncio.Event) -> int:
    """Scrape all the time; how often. Fails when a counter goes back."""
    last: Metrics | None = None
    scrapes = 0
    while not stop.is_set():
        metrics = await running.proxy.metrics()
        for name in COUNTERS:
            assert last is None or metrics.total(name) >= last.total(name), name
        last = metrics
        scrapes += 1
    return scrapes


async def test_a_killed_worker_takes_its_own_connections_along_and_nothing_else() -> None:
    moments = [time.monotonic()]
    async with (
        ScriptedUpstream() as upstream,
        pool(one_route(upstream, top="access_log: none")) as running,
        AsyncExitStack() as stack,
    ):
        stop = asyncio.Event()
        clients = [await stack.enter_async_context(running.proxy.client()) for _ in range(8)]
        calling = [asyncio.create_task(caller(client, stop)) for client in clients]
        watching = asyncio.create_task(watch_counters(running, stop))
        await eventually(lambda: len(upstream.requests) > 200)
        await running.until_connected(4, 4)
        victim, other = await running.workers()
        os.kill(victim.pid, signal.SIGKILL)
        moments.append(time.monotonic())
        workers = await running.until("ready", "ready", but=[victim.pid])
        assert workers[1].pid == other.pid
        # All that come next go to the one that has none.
        async with AsyncExitStack() as late:
            for _ in range(4):
                client = await late.enter_async_context(running.proxy.client())
                assert (await client.get()).status == 200
            await running.until_connected(4, 4)
        stop.set()
        results = await asyncio.gather(*calling)
        assert sum(was_cut_by_drain for _, was_cut_by_drain in results) == 4
        assert await watching > 3
        metrics = await running.proxy.metrics()
        assert metrics.total("holdfast_worker_restarts_total") == 1
        answered = sum(count for count, _ in results) + 4
        # What was asked for just before it was killed may be missing, and that is all.
        assert answered / 2 < metrics.total("holdfast_requests_total") <= answered + 8

        # Once more, sooner than it should.
        dead = [victim.pid, workers[0].pid]
        os.kill(dead[1], signal.SIGKILL)
        moments.append(time.monotonic())
        assert (await running.proxy.get()).status == 200, "by the other one"

        # And again, with the other one too: clients wait until there is somebody.
        workers = await running.until("ready", "ready", but=dead)
        dead.append(workers[0].pid)
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
        moments.append(time.monotonic())
        async with asyncio.timeout(PATIENCE):
            while b"no_worker" not in (await running.proxy.admin("GET", "/readyz")).body:  # noqa: ASYNC110 - it is far away
                await asyncio.sleep(0)
        async with running.proxy.client() as client:
            await client.send(request("GET", "/"))
            await running.until("ready", "ready", but=[*dead, *(worker.pid for worker in workers)])
            assert (await client.response()).status == 200
        # Each time later, as long as none lived long enough to count as well, on a busy machine.
        were_short = all(end - start < _STEADY for start, end in pairwise(moments))
        for pid, pause in zip(dead, ("", " in 0.1 s", " in 0.2 s"), strict=True):
            said = f"(process {pid}) was ended by SIGKILL: another takes its place"
            assert running.says(f'{said}{pause}"' if were_short else said)


async def test_a_worker_that_hangs_holds_up_nobody_else() -> None:
    def version(number: int) -> str:
        route = f"headers: {{response: {{set: {{X-Version: v{number}}}}}}}"
        return one_route(upstream, route, top="listen: 127.0.0.1:0\nadmin: 127.0.0.1:0")

    async with ScriptedUpstream() as upstream, pool(version(1), 3) as running:
        proxy = running.proxy
        for _ in range(6):
            assert (await proxy.get()).status == 200
        before = (await proxy.metrics()).total("holdfast_requests_total")
        stuck, slow, lively = await running.workers()
        for worker in (stuck, slow):
            os.kill(worker.pid, signal.SIGSTOP)
        await running.until("silent", "silent", "ready")
        assert running.says("s and gets no new connections")
        # What they told last is in the sum, and to ask takes no time.
        async with asyncio.timeout(PATIENCE):
            assert (await proxy.metrics()).total("holdfast_requests_total") == before
            assert (await proxy.admin("GET", "/readyz")).status == 200
            for _ in range(6):
                assert (await proxy.get()).status == 200
        os.kill(slow.pid, signal.SIGCONT)
        await running.until("silent", "ready", "ready")
        assert running.says("answers again")
        assert (await proxy.metrics()).total("holdfast_requests_total") == before + 6
        # Who does not even take a reload is replaced by one that begins with it.
        proxy.config.write_text(version(2))
        assert (await proxy.admin("POST", "/-/reload")).status == 200
        assert running.says("does not take the new configuration: killed")
        workers = await running.until("ready", "ready", "ready", but=[stuck.pid])
        assert [worker.pid for worker in workers[1:]] == [slow.pid, lively.pid]
        for _ in range(3):
            assert (await proxy.get()).get("X-Version") == "v2"


async def test_workers_drain_by_themselves_when_the_supervisor_is_gone() -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream), None, "--workers", "2") as proxy,
        proxy.client() as client,
    ):
        pids = await RunningPool(proxy).pids()
        gate = Gate()
        upstream.usual = gate.behaviour
        request = asyncio.create_task(client.get())
        await gate.reached.wait()
        proxy.process.kill()
        await eventually(lambda: proxy.errors.count("the supervisor is gone: draining") == 2)
        gate.open()
        assert (await request).status == 200
        await ended(pids)
