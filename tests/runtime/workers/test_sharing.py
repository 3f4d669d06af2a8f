"""What workers share: limits and keys in a store, dead letters in a file."""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from pathlib import Path

from tests.runtime.workers.worker_pools import RunningPool, pool
from tests.support import PATIENCE, ScriptedUpstream, answer, eventually, ok, response
from tests.support.keys import KEY, Gate
from tests.support.proxies import LogRecord
from tests.support.redis_server import PATIENT, redis_server


def config(upstream: ScriptedUpstream, store: str, limit: str = "false", state: str = ".") -> str:
    """A route for each policy; ``throttle`` is as *limit* says."""
    return f"""\
store: {{url: '{store}', {PATIENT}}}
state_dir: {state}
upstreams: {{a: "{upstream.url}"}}
routes:
  - {{match: /limited, upstream: a, throttle: {limit}}}
  - {{match: /keyed, upstream: a, idempotency: true}}
  - {{match: /lettered, upstream: a, dead_letter: true, retry: {{attempts: 1}}}}
  - {{match: /later, upstream: a, dead_letter: true, hand_off: true}}
"""


async def test_limits_and_keys_in_redis_are_those_of_all_workers(tmp_path: Path) -> None:
    limit = "{rate: 20/s, burst: 5, max_wait: 0s}"
    async with redis_server() as redis, ScriptedUpstream() as upstream:
        store = f"redis://127.0.0.1:{redis.port}"
        async with pool(config(upstream, store, limit, str(tmp_path / "state"))) as running:
            await one_limit_holds(running)
            await a_key_runs_once(running, upstream)


async def test_keys_and_letters_in_files_are_those_of_all_workers(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'keys.db'}"
    async with (
        ScriptedUpstream() as upstream,
        pool(config(upstream, store, state=str(tmp_path / "state"))) as running,
    ):
        await a_key_runs_once(running, upstream)
        await dead_letters_and_attempts_are_found(running, upstream)
        await deliveries_of_all_are_found_and_sent(running, upstream)


async def one_limit_holds(running: RunningPool) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(running.proxy.client()) for _ in range(4)]
        began = time.monotonic()
        statuses: list[int] = []
        # More than the burst, for at least a second: a busy machine takes longer.
        while time.monotonic() < began + 1.0 or statuses.count(200) < 10:
            answers = await asyncio.gather(*(client.get("/limited") for client in clients))
            statuses += [answer.status for answer in answers]
        allowed = 20 * (time.monotonic() - began) + 5
        assert [worker.connections for worker in await running.workers()] == [2, 2]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) <= allowed
    metrics = await running.proxy.metrics()
    decided = {
        decision: metrics.total("holdfast_throttle_decisions_total", decision=decision)
        for decision in ("passed", "delayed", "refused")
    }
    assert decided["passed"] + decided["delayed"] == statuses.count(200)
    assert decided["refused"] == statuses.count(429)


async def a_key_runs_once(running: RunningPool, upstream: ScriptedUpstream) -> None:
    """The same key on several connections, hence on both workers, while the first one runs."""
    gate, before = Gate(ok(b"done")), len(upstream.requests)
    upstream.usual = gate.behaviour
    await running.until_connected(0, 0)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(running.proxy.client()) for _ in range(6)]
        sent = [
            asyncio.create_task(client.request("POST", "/keyed", KEY, body=b"pay"))
            for client in clients
        ]
        await gate.reached.wait()
        await running.until_connected(3, 3)
        gate.open()
        answers = await asyncio.gather(*sent)
        again = await clients[-1].request("POST", "/keyed", KEY, body=b"pay")
    assert [(answer.status, answer.body) for answer in answers] == [(200, b"done")] * 6
    assert again.get("Idempotent-Replayed") == "true"
    assert len(upstream.requests) == before + 1
    metrics = await running.proxy.metrics()
    assert metrics.total("holdfast_idempotency_total", result="new") == 1
    assert metrics.total("holdfast_idempotency_total") == 7

    def lines() -> list[LogRecord]:
        return [line for line in running.proxy.log if line["route"] == "/keyed"]

    await eventually(lambda: len(lines()) == 7, what="the line of each of them")
    record = lines()[0]["record"]
    shown = await running.proxy.admin("GET", f"/keys/{record}")
    assert json.loads(shown.body)["state"] == "done"
    listed = await running.proxy.admin("GET", "/keys?state=done")
    assert [key["record"] for key in json.loads(listed.body)["keys"]] == [record]
    assert (await running.proxy.admin("DELETE", f"/keys/{record}")).status == 200
    assert (await running.proxy.admin("GET", f"/keys/{record}")).status == 404


async def dead_letters_and_attempts_are_found(
    running: RunningPool, upstream: ScriptedUpstream
) -> None:
    proxy = running.proxy
    upstream.usual = answer(response(429))
    letters = set()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(4)]
        for client in clients:
            failed = await client.request(
                "POST", "/lettered", "X-Request-Id: order-4711", body=b"letter"
            )
            letters.add(failed.get("Holdfast-Dead-Letter"))
    assert len(letters) == 4
    listed = json.loads((await proxy.admin("GET", "/dead-letters")).body)["letters"]
    assert {letter["id"] for letter in listed} == letters
    found = json.loads((await proxy.admin("GET", "/attempts?request_id=order-4711")).body)
    times = [shown["time"] for shown in found["requests"]]
    assert (len(times), times) == (4, sorted(times))
    assert (await proxy.admin("GET", "/attempts?request_id=unheard-of")).status == 404
    upstream.usual = answer(ok())
    for letter in sorted(filter(None, letters)):
        replayed = await proxy.admin("POST", f"/dead-letters/{letter}/replay")
        assert json.loads(replayed.body)["result"] == "succeeded"
    dropped = await proxy.admin("DELETE", "/dead-letters?all=true")
    assert json.loads(dropped.body)["letters"] == 0
    metrics = await proxy.metrics()
    assert metrics.total("holdfast_dead_letters_total", route="/lettered") == 4
    assert metrics.total("holdfast_dead_letter_replays_total", result="succeeded") == 4


async def deliveries_of_all_are_found_and_sent(
    running: RunningPool, upstream: ScriptedUpstream
) -> None:
    """Each worker accepts, one delivers, and any one answers the operator."""
    proxy = running.proxy
    upstream.usual = answer(response(429))
    accepted = set()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(4)]
        for client in clients:
            given = await client.request("POST", "/later", "Prefer: respond-async", body=b"later")
            assert given.status == 202
            accepted.add(given.get("Holdfast-Delivery"))

    async def states() -> dict[str, str]:
        found = json.loads((await proxy.admin("GET", "/deliveries?route=/later")).body)
        return {each["id"]: each["state"] for each in found["deliveries"]}

    assert (await states()).keys() == accepted
    first, *others = sorted(filter(None, accepted))
    async with asyncio.timeout(PATIENCE):
        while (await proxy.admin("DELETE", f"/deliveries/{first}")).status != 200:
            assert (await states())[first] in {"sending", "retrying", "waiting"}
        upstream.usual = answer(ok())
        while set((await states()).values()) != {"cancelled", "delivered"}:
            for name in others:
                await proxy.admin("POST", f"/deliveries/{name}/retry")
            await asyncio.sleep(0.05)
    assert (await states())[first] == "cancelled"
    status = json.loads((await proxy.admin("GET", "/status")).body)["deliveries"]
    assert status["routes"]["/later"]["open"] == 0
