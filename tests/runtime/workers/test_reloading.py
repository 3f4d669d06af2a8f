"""One reload for all workers: rolled through without a failed request, or nothing changes."""

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from proxy.stores.dead_letters import FILE
from tests.runtime.workers.worker_pools import caller, pool
from tests.support import ScriptedUpstream, eventually, one_route


def version(upstream: ScriptedUpstream, number: int, top: str = "") -> str:
    route = f"headers: {{response: {{set: {{X-Version: v{number}}}}}}}"
    return one_route(upstream, route, top=f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{top}")


async def test_a_reload_is_rolled_through_while_requests_are_served() -> None:
    async with (
        ScriptedUpstream() as upstream,
        pool(version(upstream, 0)) as running,
        AsyncExitStack() as stack,
    ):
        proxy, stop = running.proxy, asyncio.Event()
        pids = await running.pids()
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(6)]
        calling = [asyncio.create_task(caller(client, stop)) for client in clients[:4]]
        for number in range(1, 6):
            proxy.config.write_text(version(upstream, number))
            answer = await proxy.admin("POST", "/-/reload")
            assert answer.status == 200
            assert json.loads(answer.body)["changes"][0] == {
                "path": "routes.all.headers.response.set.X-Version",
                "change": "changed",
                "from": f"v{number - 1}",
                "to": f"v{number}",
            }
            # Whoever serves them, in each worker it is in force.
            answers = await asyncio.gather(*(client.get() for client in clients[4:]))
            assert [answer.get("X-Version") for answer in answers] == [f"v{number}"] * 2
        stop.set()
        assert not any(was_cut_by_drain for _, was_cut_by_drain in await asyncio.gather(*calling))
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


async def test_what_one_worker_refuses_is_taken_back_by_the_others(tmp_path: Path) -> None:
    state = tmp_path / "state"
    top = f"state_dir: {state}"

    def with_dead_letters(upstream: ScriptedUpstream, number: int) -> str:
        return version(upstream, number, top) + "    dead_letter: true\n"

    async with ScriptedUpstream() as upstream, pool(with_dead_letters(upstream, 1)) as running:
        proxy = running.proxy
        proxy.config.write_text(version(upstream, 2, top))
        assert (await proxy.admin("POST", "/-/reload")).status == 200
        # Who comes now cannot open the file that the first has open, but need not either.
        state.rename(tmp_path / "elsewhere")
        (state / FILE).mkdir(parents=True)
        first, second = await running.pids()
        os.kill(second, signal.SIGKILL)
        await running.until("ready", "ready", but=[second])
        proxy.config.write_text(with_dead_letters(upstream, 3))
        answer = await proxy.admin("POST", "/-/reload")
        assert answer.status == 422
        assert json.loads(answer.body)["faults"][0].startswith("dead_letter: ")
        async with AsyncExitStack() as stack:
            for _ in range(4):
                client = await stack.enter_async_context(proxy.client())
                assert (await client.get()).get("X-Version") == "v2"
        assert (await running.pids())[0] == first
