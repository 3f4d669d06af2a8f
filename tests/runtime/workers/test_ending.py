"""SIGTERM to the supervisor: requests under way end, all processes do, and none before its time."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack

from tests.runtime.workers.worker_pools import ended, pool
from tests.support import End, ScriptedUpstream, eventually, one_route, request
from tests.support.keys import Gate


async def test_requests_under_way_end_before_the_workers_do() -> None:
    async with (
        ScriptedUpstream() as upstream,
        pool(one_route(upstream, top="drain_delay: 300ms")) as running,
        AsyncExitStack() as stack,
    ):
        proxy, gate = running.proxy, Gate()
        workers = await running.workers()
        # Neither of these means a worker: a terminal, or systemd, may send them to all.
        for worker in workers:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(worker.pid, number)
        idle = await stack.enter_async_context(proxy.client())
        assert (await idle.get()).status == 200
        upstream.usual = gate.behaviour
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(4)]
        requests = [asyncio.create_task(client.get()) for client in clients]
        await eventually(lambda: len(upstream.requests) == 5)
        assert await running.pids() == [worker.pid for worker in workers]
        proxy.signal(signal.SIGTERM)
        await eventually(lambda: running.says('"draining"'))
        # For the length of drain_delay all goes on.
        late = await stack.enter_async_context(proxy.client())
        requests.append(asyncio.create_task(late.get()))
        await eventually(lambda: len(upstream.requests) == 6)
        assert (await proxy.admin("GET", "/readyz")).status == 503
        assert await idle.ended() is End.CLOSED
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_requests_in_flight", route="all") == 5
        gate.open()
        answers = await asyncio.gather(*requests)
        assert [answer.status for answer in answers] == [200] * 5
        assert {answer.get("Connection") for answer in answers} == {"close"}
        assert await proxy.exit_status() == 0
        await ended(worker.pid for worker in workers)


async def test_a_second_signal_ends_all_at_once_even_one_that_hangs() -> None:
    async with ScriptedUpstream() as upstream, pool(one_route(upstream)) as running:
        proxy, gate = running.proxy, Gate()
        pids = await running.pids()
        upstream.usual = gate.behaviour
        async with AsyncExitStack() as stack:
            for _ in pids:
                client = await stack.enter_async_context(proxy.client())
                await client.send(request("GET", "/"))
            await eventually(lambda: len(upstream.requests) == 2)
            os.kill(pids[0], signal.SIGSTOP)
            proxy.signal(signal.SIGTERM)
            await eventually(lambda: running.says('"draining"'))
            proxy.signal(signal.SIGTERM)
            # The one that can ends at once; the other one is not waited for much longer.
            await ended(pids[1:])
            assert await proxy.exit_status() == 1
        assert running.says(f"(process {pids[0]}) does not end: killed")
        await ended(pids)
        gate.open()
