"""One reload for all workers: rolled through without a failed request, or nothing changes."""

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from tests.support import Certificates, ScriptedUpstream, eventually, one_route
from tests.workers.crews import caller, crew

STATUS = "fallback: {status: 200, body: %s}\nheaders: {response: {set: {X-Version: %s}}}"


def version(upstream: ScriptedUpstream, number: int, top: str = "") -> str:
    route = f"headers: {{response: {{set: {{X-Version: v{number}}}}}}}"
    return one_route(upstream, route, top=f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{top}")


async def test_a_reload_is_rolled_through_while_requests_are_served() -> None:
    async with (
        ScriptedUpstream() as upstream,
        crew(version(upstream, 0)) as running,
        AsyncExitStack() as stack,
    ):
        proxy, stop = running.proxy, asyncio.Event()
        pids = await running.pids()
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(6)]
        calling = [asyncio.create_task(caller(client, stop)) for client in clients[:4]]
        for number in range(1, 6):
            proxy.config.write_text(version(upstream, number))
            assert (await proxy.admin("POST", "/-/reload")).status == 200
            # Whoever serves them, in each worker it is in force.
            answers = await asyncio.gather(*(client.get() for client in clients[4:]))
            assert [answer.get("X-Version") for answer in answers] == [f"v{number}"] * 2
        stop.set()
        assert not any(was_cut for _, was_cut in await asyncio.gather(*calling))
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_config_reloads_total", result="success") == 5
        assert metrics.total("holdfast_config_reloads_total", result="failure") == 0
        assert proxy.errors.count("configuration reloaded") == 5

        # A bad file changes nothing, and is told once.
        good = proxy.config.read_text()
        proxy.config.write_text(good + "nonsense: true\n")
        answer = await proxy.admin("POST", "/-/reload")
        assert answer.status == 422
        assert "nonsense: unknown key" in json.loads(answer.body)["faults"][0]
        # What needs a restart is refused.
        proxy.config.write_text(good.replace("127.0.0.1:0", "127.0.0.1:1", 1))
        proxy.signal(signal.SIGHUP)
        await eventually(lambda: running.says("reload refused: listen: changed"))
        assert (await clients[5].get()).get("X-Version") == "v5"
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_config_reloads_total", result="failure") == 2

        # Who takes a dead one's place serves what is in force, not what is in the file.
        os.kill(pids[0], signal.SIGKILL)
        await running.until("ready", "ready", but=pids[:1])
        for _ in range(4):
            client = await stack.enter_async_context(proxy.client())
            assert (await client.get()).get("X-Version") == "v5"
        assert json.loads((await proxy.admin("GET", "/config")).body)["workers"] == 2


async def test_what_a_worker_refuses_is_taken_back_by_all(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    listen = f"listen: {{address: '127.0.0.1:0', tls: {{cert: {cert}, key: {key}}}}}"

    def config(upstream: ScriptedUpstream, number: int) -> str:
        return version(upstream, number).replace("listen: 127.0.0.1:0", listen)

    async with ScriptedUpstream() as upstream, crew(config(upstream, 1)) as running:
        proxy, tls = running.proxy, certificates.for_client()
        workers = await running.workers()
        # One hangs for as long as another would need to say no.
        proxy.config.write_text(config(upstream, 2))
        os.kill(workers[1].pid, signal.SIGSTOP)
        reload = asyncio.create_task(proxy.admin("POST", "/-/reload"))
        os.kill(workers[1].pid, signal.SIGCONT)
        assert (await reload).status == 200
        async with proxy.client(tls=tls) as client:
            assert (await client.get()).get("X-Version") == "v2"
