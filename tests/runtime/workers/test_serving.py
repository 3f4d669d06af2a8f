"""Connections are spread evenly, requests served as by one process, numbers are those of all."""

import asyncio
import ssl
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from tests.runtime.workers.worker_pools import RunningPool, open_files, pool
from tests.support import Certificates, RawClient, ScriptedUpstream, eventually, one_route


async def test_several_workers_serve_like_one(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    path = tmp_path / "holdfast.sock"
    tls = f"{{address: '127.0.0.1:0', tls: {{cert: {cert}, key: {key}}}}}"
    listen = f"listen: ['127.0.0.1:0', {tls}, 'unix:{path}']"
    async with ScriptedUpstream() as upstream:
        async with pool(one_route(upstream, "retry: true", top=listen), 3) as running:
            await connections_are_spread_evenly(running)
            await numbers_are_those_of_all(running)
            await who_leaves_makes_room(running)
            await tls_and_unix_sockets_work_as_well(running, certificates, path)
            await nothing_is_left_of_a_thousand_connections(running)
        assert not path.exists()
        assert {request.get("X-Forwarded-Proto") for request in upstream.requests} == {
            "https",
            "http",
        }


async def connections_are_spread_evenly(running: RunningPool) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(running.proxy.client()) for _ in range(12)]
        for number in range(3):
            answers = await asyncio.gather(*(client.get(f"/{number}") for client in clients))
            assert [answer.status for answer in answers] == [200] * 12
        assert [worker.connections for worker in await running.workers()] == [4, 4, 4]


async def numbers_are_those_of_all(running: RunningPool) -> None:
    metrics = await running.proxy.metrics()
    assert metrics.total("holdfast_requests_total", route="all", code="200") == 36
    assert metrics.total("holdfast_request_duration_seconds_count", route="all") == 36
    assert metrics.total("holdfast_upstream_attempts_total", outcome="2xx") == 36
    assert metrics.total("holdfast_retry_verdicts_total", reason="success") == 36
    assert metrics.total("holdfast_workers") == 3
    assert metrics.total("holdfast_worker_restarts_total") == 0
    status = await running.status()
    assert status["routes"]["all"]["requests"] == {"2xx": 36}
    lately = status["last_minute"]
    assert lately["routes"]["all"]["requests"] == {"2xx": 36}
    assert lately["seconds"] <= status["uptime_seconds"]
    assert status["store"] == {"url": "memory"}
    assert status["trouble"] == []
    log = await running.proxy.logged(36)
    assert {record["client"] for record in log} == {"127.0.0.1"}


async def who_leaves_makes_room(running: RunningPool) -> None:
    """The next ones go to where there are fewer."""
    await running.until_connected(0, 0, 0)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(running.proxy.client()) for _ in range(9)]
        await running.until_connected(3, 3, 3)
        # Distributed in turn: these are all of one worker, whichever had its turn first.
        for client in clients[::3]:
            client.wire.reset()
        await running.until_connected(0, 3, 3, in_any_order=True)
        for _ in range(3):
            client = await stack.enter_async_context(running.proxy.client())
            assert (await client.get()).status == 200
        await running.until_connected(3, 3, 3)


async def tls_and_unix_sockets_work_as_well(
    running: RunningPool, certificates: Certificates, path: Path
) -> None:
    port = int(running.proxy.bound[1].rpartition(":")[2])
    for _ in range(3):
        async with RawClient(port, tls=certificates.for_client()) as client:
            assert (await client.get("/tls")).status == 200
        async with RawClient(path=str(path)) as client:
            assert (await client.get("/unix")).status == 200
    # Who does not speak TLS there harms nobody, and is not counted for ever.
    async with RawClient(port) as client:
        with suppress(ConnectionError):
            await client.send(b"GET / HTTP/1.1\r\n\r\n")
        await client.ended()
    with suppress(ssl.SSLError):
        async with RawClient(port, tls=ssl.create_default_context()):
            pass
    await running.until_connected(0, 0, 0)
    log = await running.proxy.logged(36 + 3 + 6)
    seen = {(record["path"], record["client"]) for record in log[39:]}
    assert seen == {("/tls", "127.0.0.1"), ("/unix", "")}


async def nothing_is_left_of_a_thousand_connections(running: RunningPool) -> None:
    proxy, workers = running.proxy, await running.pids()
    held = {pid: open_files(pid) for pid in (proxy.process.pid, *workers)}

    async def some(count: int) -> None:
        for _ in range(count):
            assert (await proxy.get()).status == 200

    await asyncio.gather(*(some(125) for _ in range(8)))
    await eventually(lambda: open_files(proxy.process.pid) <= held[proxy.process.pid])
    # Each keeps some connections to the upstream.
    await eventually(lambda: all(open_files(pid) <= held[pid] + 8 for pid in workers))
    assert (await proxy.metrics()).total("holdfast_requests_total") == 1000 + 36 + 3 + 6
