"""Connections are dealt evenly, requests are served as by one process, numbers are those of all."""

import asyncio
import ssl
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from tests.support import PATIENCE, Certificates, RawClient, ScriptedUpstream, eventually, one_route
from tests.workers.crews import crew, open_files


async def test_connections_are_dealt_evenly_and_counted_together() -> None:
    async with (
        ScriptedUpstream() as upstream,
        crew(one_route(upstream, "retry: true"), 3) as running,
        AsyncExitStack() as stack,
    ):
        proxy = running.proxy
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(12)]
        for number in range(3):
            answers = await asyncio.gather(*(client.get(f"/{number}") for client in clients))
            assert [answer.status for answer in answers] == [200] * 12
        assert [worker.connections for worker in await running.workers()] == [4, 4, 4]
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_requests_total", route="all", code="200") == 36
        assert metrics.total("holdfast_request_duration_seconds_count", route="all") == 36
        assert metrics.total("holdfast_upstream_attempts_total", outcome="2xx") == 36
        assert metrics.total("holdfast_retry_verdicts_total", reason="success") == 36
        assert metrics.total("holdfast_workers") == 3
        assert metrics.total("holdfast_worker_restarts_total") == 0
        log = await proxy.logged(36)
        assert {record["client"] for record in log} == {"127.0.0.1"}
        # Who leaves makes room: the next ones go to where there are fewer.
        for client in clients[:4]:
            client.wire.reset()
        async with asyncio.timeout(PATIENCE):
            while sum(worker.connections for worker in await running.workers()) != 8:
                await asyncio.sleep(0)
        for _ in range(4):
            late = await stack.enter_async_context(proxy.client())
            assert (await late.get()).status == 200
        assert [worker.connections for worker in await running.workers()] == [4, 4, 4]


async def test_nothing_is_left_of_a_thousand_connections() -> None:
    async with ScriptedUpstream() as upstream, crew(one_route(upstream)) as running:
        proxy = running.proxy
        assert (await proxy.get()).status == 200
        supervisor, workers = proxy.process.pid, await running.pids()
        before = {pid: open_files(pid) for pid in (supervisor, *workers)}

        async def some(count: int) -> None:
            for _ in range(count):
                assert (await proxy.get()).status == 200

        await asyncio.gather(*(some(125) for _ in range(8)))
        await eventually(lambda: open_files(supervisor) <= before[supervisor])
        # Each keeps some connections to the upstream.
        await eventually(lambda: all(open_files(pid) <= before[pid] + 8 for pid in workers))
        assert (await proxy.metrics()).total("holdfast_requests_total") == 1001


async def test_workers_take_up_what_comes_by_tls_and_by_unix_sockets(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    path = tmp_path / "holdfast.sock"
    listen = (
        f"listen: [{{address: '127.0.0.1:0', tls: {{cert: {cert}, key: {key}}}}}, 'unix:{path}']"
    )
    async with ScriptedUpstream() as upstream:
        async with crew(one_route(upstream, top=listen)) as running:
            for _ in range(4):
                async with running.proxy.client(tls=certificates.for_client()) as client:
                    assert (await client.get("/tls")).status == 200
                async with RawClient(path=str(path)) as client:
                    assert (await client.get("/unix")).status == 200
            # Who does not speak TLS there harms nobody, and is not counted for ever.
            async with running.proxy.client() as client:
                with suppress(ConnectionError):
                    await client.send(b"GET / HTTP/1.1\r\n\r\n")
                await client.ended()
            untrusting = ssl.create_default_context()
            with suppress(ssl.SSLError):
                async with running.proxy.client(tls=untrusting):
                    pass
            await running.until_connected(0, 0)
            log = await running.proxy.logged(8)
            seen = {(record["path"], record["client"]) for record in log}
            assert seen == {("/tls", "127.0.0.1"), ("/unix", "")}
        assert not path.exists()
        assert {request.get("X-Forwarded-Proto") for request in upstream.requests} == {
            "https",
            "http",
        }
