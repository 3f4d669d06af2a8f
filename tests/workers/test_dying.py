"""A worker dies, hangs, or cannot live: the others serve on, and no number goes back."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack

from tests.support import Metrics, ScriptedUpstream, eventually, one_route, subprocess_proxy
from tests.support.keys import Gate
from tests.workers.crews import Crew, caller, crew, ended

COUNTERS = (
    "holdfast_requests_total",
    "holdfast_request_duration_seconds_count",
    "holdfast_request_duration_seconds_sum",
    "holdfast_upstream_attempts_total",
    "holdfast_worker_restarts_total",
    "process_cpu_seconds_total",
)


async def watch_counters(running: Crew, stop: asyncio.Event) -> int:
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
    async with (
        ScriptedUpstream() as upstream,
        crew(one_route(upstream, top="access_log: none")) as running,
        AsyncExitStack() as stack,
    ):
        stop = asyncio.Event()
        clients = [await stack.enter_async_context(running.proxy.client()) for _ in range(8)]
        calling = [asyncio.create_task(caller(client, stop)) for client in clients]
        watching = asyncio.create_task(watch_counters(running, stop))
        await eventually(lambda: len(upstream.requests) > 200)
        victim, other = await running.workers()
        assert (victim.connections, other.connections) == (4, 4)
        os.kill(victim.pid, signal.SIGKILL)
        workers = await running.until("ready", "ready", but=[victim.pid])
        assert workers[1].pid == other.pid
        # All that come next go to the one that has none.
        async with AsyncExitStack() as late:
            for _ in range(4):
                client = await late.enter_async_context(running.proxy.client())
                assert (await client.get()).status == 200
            assert [worker.connections for worker in await running.workers()] == [4, 4]
        stop.set()
        results = await asyncio.gather(*calling)
        assert sum(was_cut for _, was_cut in results) == 4
        assert await watching > 3
        metrics = await running.proxy.metrics()
        assert metrics.total("holdfast_worker_restarts_total") == 1
        answered = sum(count for count, _ in results) + 4
        # Scrapes came all the time, so next to nothing is lost.
        assert answered - 200 < metrics.total("holdfast_requests_total") <= answered + 8
        assert running.says(f"(process {victim.pid}) was ended by SIGKILL: another takes its place")


async def test_a_worker_that_hangs_holds_up_nobody_else() -> None:
    async with ScriptedUpstream() as upstream, crew(one_route(upstream)) as running:
        for _ in range(6):
            assert (await running.proxy.get()).status == 200
        before = (await running.proxy.metrics()).total("holdfast_requests_total")
        hanging, other = await running.workers()
        os.kill(hanging.pid, signal.SIGSTOP)
        try:
            await running.until("silent", "ready")
            # What it told last is in the sum, and to ask takes no time.
            async with asyncio.timeout(2):
                assert (await running.proxy.metrics()).total("holdfast_requests_total") == before
            assert (await running.proxy.admin("GET", "/readyz")).status == 200
            for _ in range(6):
                async with asyncio.timeout(2):
                    assert (await running.proxy.get()).status == 200
        finally:
            os.kill(hanging.pid, signal.SIGCONT)
        workers = await running.until("ready", "ready")
        assert [worker.pid for worker in workers] == [hanging.pid, other.pid]
        assert running.says("has not answered for")
        assert running.says("answers again")
        assert (await running.proxy.metrics()).total("holdfast_requests_total") == before + 6


async def test_one_that_dies_again_and_again_is_replaced_after_ever_longer_pauses() -> None:
    async with ScriptedUpstream() as upstream, crew(one_route(upstream)) as running:
        dead: list[int] = []
        for _ in range(4):
            workers = await running.until("ready", "ready", but=dead)
            dead.append(workers[1].pid)
            os.kill(workers[1].pid, signal.SIGKILL)
            # The other one serves all the time.
            assert (await running.proxy.get()).status == 200
        await running.until("ready", "ready", but=dead)
        log = running.proxy.errors
        for pid, pause in zip(dead, ("", " in 0.1 s", " in 0.2 s", " in 0.4 s"), strict=True):
            assert f'{pid}) was ended by SIGKILL: another takes its place{pause}"' in log
        metrics = await running.proxy.metrics()
        assert metrics.total("holdfast_worker_restarts_total") == 4


async def test_without_any_worker_clients_wait_and_readiness_says_so() -> None:
    async with ScriptedUpstream() as upstream, crew(one_route(upstream)) as running:
        pids = await running.pids()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        async with running.proxy.client() as client:
            # Nobody is there yet to take it; it is served as soon as there is.
            assert (await client.get()).status == 200
        await running.until("ready", "ready", but=pids)


async def test_workers_drain_by_themselves_when_the_supervisor_is_gone() -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream), None, "--workers", "2") as proxy,
        proxy.client() as client,
    ):
        pids = await Crew(proxy).pids()
        gate = Gate()
        upstream.usual = gate.behaviour
        request = asyncio.create_task(client.get())
        await gate.reached.wait()
        proxy.process.kill()
        await eventually(lambda: proxy.errors.count("the supervisor is gone: draining") == 2)
        gate.open()
        assert (await request).status == 200
        await ended(pids)
