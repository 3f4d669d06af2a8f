"""``max_connections``: wait for a free one, first come first served, and not for ever."""

import asyncio

import pytest

from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    hang,
    hang_up,
    now,
    ok,
    one_route,
    request,
    reset,
    running,
    virtual_time,
)
from tests.support.records import last_logged, outcomes

pytestmark = virtual_time


ONE = "max_connections: 1"


class Gate:
    """A behaviour that answers with its request's path, once the test says so."""

    def __init__(self) -> None:
        self._open = asyncio.Semaphore(0)

    def let_through(self, count: int = 1) -> None:
        for _ in range(count):
            self._open.release()

    async def __call__(self, visit: Visit) -> None:
        await self._open.acquire()
        await answer(ok(visit.request.target.encode()))(visit)


def in_flight(proxy: RunningProxy) -> int:
    routes: dict[str, dict[str, int]] = proxy.status()["routes"]  # type: ignore[assignment]  # JSON
    return routes["all"]["in_flight"]


async def test_no_free_connection_within_connect_timeout_is_503() -> None:
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, options=f"{ONE}\nconnect_timeout: 60ms")) as proxy,
        proxy.client() as first,
    ):
        await first.send(request("GET", "/first"))
        await upstream.seen()
        began = now()
        response = await proxy.get("/second")
        assert 0.045 <= now() - began < 2
        assert (response.status, response.reason_word) == (503, "busy")
        assert response.get("Retry-After") == "1"
        [record] = await proxy.logged(1)
        assert outcomes(record) == ["busy"]
        assert not record["attempts"][0]["sent"]
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_upstream_attempts_total", outcome="busy") == 1
        assert len(upstream.requests) == 1
        assert proxy.open_upstream_connections == 1


async def test_the_route_s_timeout_ends_the_wait_too() -> None:
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, "timeout: 60ms", options=ONE)) as proxy,
    ):
        first, second = await asyncio.gather(proxy.get("/first"), proxy.get("/second"))
        assert {first.status, second.status} == {504}


async def test_those_who_wait_are_served_in_the_order_of_their_coming() -> None:
    gate = Gate()
    async with (
        ScriptedUpstream(gate) as upstream,
        running(one_route(upstream, options=ONE)) as proxy,
    ):
        waiting = []
        for n in range(6):
            waiting.append(asyncio.create_task(proxy.get(f"/{n}")))
            await eventually(lambda n=n: in_flight(proxy) == n + 1)  # type: ignore[misc]  # mypy cannot infer a lambda's default
        await upstream.seen()
        gate.let_through(6)
        responses = await asyncio.gather(*waiting)
        assert [response.body for response in responses] == [b"/%d" % n for n in range(6)]
        assert [r.target for r in upstream.requests] == [f"/{n}" for n in range(6)]
        # The one connection was handed from each to the next.
        assert len(upstream.connections) == 1
        assert outcomes(await last_logged(proxy, 6)) == ["2xx"]


@pytest.mark.parametrize(
    ("method", "status", "attempts", "reused"),
    [
        pytest.param("GET", 200, ["reset", "2xx"], [True, False], id="GET is replaced once"),
        pytest.param("POST", 502, ["reset"], [True], id="POST is not"),
    ],
)
async def test_a_connection_that_was_handed_over_may_prove_stale(
    method: str, status: int, attempts: list[str], reused: list[bool]
) -> None:
    gate = Gate()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, options=ONE)) as proxy,
        proxy.client() as waiting,
    ):
        upstream.script(gate, hang_up)
        first = asyncio.create_task(proxy.get("/first"))
        await upstream.seen()
        await waiting.send(request(method, "/waiting", body=b"x" if method == "POST" else None))
        await eventually(lambda: in_flight(proxy) == 2)
        gate.let_through()
        assert (await first).status == 200
        assert (await waiting.response(method)).status == status
        record = await last_logged(proxy, 2)
        assert (record["path"], outcomes(record)) == ("/waiting", attempts)
        assert [attempt["reused"] for attempt in record["attempts"]] == reused
        assert upstream.requests[1].connection == 1


async def test_a_connection_that_ends_leaves_its_place_to_the_next() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, options=ONE)) as proxy,
    ):
        upstream.script(reset, reset, reset)
        responses = await asyncio.gather(*(proxy.get(f"/{n}") for n in range(6)))
        assert sorted(response.status for response in responses) == [200] * 3 + [502] * 3
        assert proxy.open_upstream_connections == 1


async def test_whoever_leaves_the_queue_gives_his_place_back() -> None:
    gate = Gate()
    async with (
        ScriptedUpstream(gate) as upstream,
        running(one_route(upstream, options=ONE)) as proxy,
    ):
        first = asyncio.create_task(proxy.get("/first"))
        await upstream.seen()
        async with proxy.client() as leaving:
            await leaving.send(request("GET", "/leaving"))
            await eventually(lambda: in_flight(proxy) == 2)
            last = asyncio.create_task(proxy.get("/last"))
            await eventually(lambda: in_flight(proxy) == 3)
            leaving.wire.reset()
            await eventually(lambda: in_flight(proxy) == 2)
        gate.let_through(2)
        assert [(await first).body, (await last).body] == [b"/first", b"/last"]
        assert [r.target for r in upstream.requests] == ["/first", "/last"]
        codes = [record["code"] for record in await proxy.logged(3)]
        assert sorted(codes) == [200, 200, 499]


async def test_leaving_in_the_very_moment_of_being_served_loses_nothing() -> None:
    gate = Gate()
    async with (
        ScriptedUpstream(gate) as upstream,
        running(one_route(upstream, options=ONE)) as proxy,
    ):
        for _ in range(20):
            first = asyncio.create_task(proxy.get("/first"))
            await eventually(lambda: in_flight(proxy) == 1)
            async with proxy.client() as leaving:
                await leaving.send(request("GET", "/leaving"))
                await eventually(lambda: in_flight(proxy) == 2)
                gate.let_through()
                leaving.wire.reset()
                assert (await first).body == b"/first"
            gate.let_through()
            await eventually(lambda: in_flight(proxy) == 0)
        # Whatever the race came to each time, the one place is still there.
        gate.let_through(50)
        assert (await proxy.get("/after")).status == 200
        assert proxy.open_upstream_connections <= 1


@pytest.mark.parametrize("idle_connections", [0, 1, 3])
async def test_no_more_than_idle_connections_are_kept(idle_connections: int) -> None:
    gate = Gate()
    async with (
        ScriptedUpstream(gate) as upstream,
        running(one_route(upstream, options=f"idle_connections: {idle_connections}")) as proxy,
    ):
        together = [asyncio.create_task(proxy.get(f"/{n}")) for n in range(5)]
        await upstream.seen(5)
        gate.let_through(5)
        await asyncio.gather(*together)
        await eventually(lambda: proxy.open_upstream_connections == idle_connections)
        assert proxy.idle_upstream_connections == idle_connections
