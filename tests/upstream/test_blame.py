"""What a breaker must not hold against an address: the faults of others."""

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from tests.support import (
    Certificates,
    ScriptedUpstream,
    Visit,
    Wire,
    answer_and_close,
    ok,
    one_route,
    running,
    subprocess_proxy,
)

FEW = 4
BREAKER = f"breaker: {{min_requests: {FEW}, failure_ratio: 0.5}}"


async def test_clients_that_stop_in_the_middle_of_their_bodies() -> None:
    async def impatient(visit: Visit) -> None:
        try:
            async with asyncio.timeout(0.02):
                await visit.read_body()
        except TimeoutError:
            visit.wire.reset()
        else:
            await visit.send(ok())

    async with (
        ScriptedUpstream(impatient) as upstream,
        running(one_route(upstream, "retry: true", options=BREAKER)) as proxy,
    ):
        for _ in range(FEW):
            async with proxy.client() as client:
                await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
                assert (await client.response("POST")).reason_word == "reset"
        assert (await proxy.get()).status == 200
        assert (await proxy.metrics()).total("holdfast_breaker_state") == 0
        upstream.violations.clear()  # half a body is what this is about


async def test_a_place_that_came_too_late_to_dial(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)

    async def slow_handshake(wire: Wire) -> None:
        wire.stall()
        await asyncio.sleep(0.06)
        wire.go_on()

    async def slow_work(visit: Visit) -> None:
        await asyncio.sleep(0.12)
        await answer_and_close(ok())(visit)

    tls = f"tls: {{ca: {certificates.ca}}}"
    options = f"max_connections: 1\nconnect_timeout: 200ms\n{tls}\n{BREAKER}"
    async with ScriptedUpstream(slow_work, tls=certificates.for_server("127.0.0.1")) as upstream:
        upstream.greet(*[slow_handshake] * 20)
        async with running(one_route(upstream, "retry: {attempts: 1}", options=options)) as proxy:
            for _ in range(FEW):
                both = await asyncio.gather(proxy.get(), proxy.get())
                assert {answer.status for answer in both} <= {200, 503}
            outcomes = {a["outcome"] for line in await proxy.logged(8) for a in line["attempts"]}
            assert outcomes <= {"2xx", "busy"}
            assert (await proxy.metrics()).total("holdfast_breaker_state") == 0


async def test_our_own_lack_of_descriptors() -> None:
    options = "keepalive: 1ms\nbreaker: {min_requests: 3, open_for: 1h}"
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(
            one_route(upstream, "retry: {attempts: 1}", options=options), first="ulimit -n 40"
        ) as proxy,
        proxy.client() as early,
    ):
        assert (await early.get()).status == 200
        async with AsyncExitStack() as stack:
            for _ in range(60):
                with suppress(OSError):
                    await stack.enter_async_context(proxy.client())
            statuses = [(await early.get()).status for _ in range(6)]
            assert statuses[-4:] == [502] * 4
        async with asyncio.timeout(5):
            while (await early.get()).status != 200:
                pass
