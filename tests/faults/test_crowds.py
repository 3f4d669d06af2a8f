"""Many at once: nobody gets another's answer, and nothing is left behind."""

import asyncio
import random

from tests.support import (
    ScriptedUpstream,
    Visit,
    chunked,
    eventually,
    ok,
    one_route,
    request,
    running,
)


async def echo(visit: Visit) -> None:
    """Answer with what was sent, in one of several framings, a moment later."""
    body = visit.request.target.encode() + b" " + await visit.read_body()
    await asyncio.sleep(random.random() * 0.01)
    if visit.number % 3 == 0:
        await visit.send(chunked(body[: len(body) // 2], body[len(body) // 2 :]))
    elif visit.number % 3 == 1:
        await visit.send(ok(body))
    else:
        answer = ok(body)
        await visit.send(answer[:-5], answer[-5:])


async def test_three_hundred_at_once_get_their_own_answers() -> None:
    async with ScriptedUpstream(echo) as upstream, running(one_route(upstream)) as proxy:

        async def one(n: int) -> None:
            body = b"%d " % n * random.randint(1, 5000)
            async with proxy.client() as client:
                for turn in range(2):
                    response = await client.request("POST", f"/{n}/{turn}", body=body)
                    assert response.body == b"/%d/%d " % (n, turn) + body

        await asyncio.gather(*(one(n) for n in range(300)))
        assert len(upstream.requests) == 600
        assert proxy.open_upstream_connections == proxy.idle_upstream_connections


async def test_four_hundred_of_which_half_hang_up_leave_nothing_behind() -> None:
    async with (
        ScriptedUpstream(echo) as upstream,
        running(one_route(upstream, options="max_connections: 50")) as proxy,
    ):

        async def stay(n: int) -> None:
            async with proxy.client() as client:
                response = await client.request("PUT", f"/{n}", body=b"x" * n)
                assert response.body == b"/%d " % n + b"x" * n

        async def hang_up(n: int) -> None:
            async with proxy.client() as client:
                await client.send(request("PUT", f"/{n}", body=b"x" * n)[: 60 + n])
                await asyncio.sleep(random.random() * 0.03)
                client.wire.reset()

        await asyncio.gather(*((stay if n % 2 else hang_up)(n) for n in range(400)))
        await eventually(lambda: proxy.client_connections == 0)
        await eventually(lambda: proxy.open_upstream_connections == proxy.idle_upstream_connections)
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_requests_in_flight") == 0
        assert metrics.total("holdfast_requests_total", code="200") >= 200
        left = metrics.total("holdfast_requests_total", code="499")
        assert metrics.total("holdfast_client_disconnects_total") == left
        upstream.violations.clear()  # requests that broke off are what this is about
