"""Memory for bodies, where one caller would like to have all of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self

import pytest

from tests.server.replaying import kept_by
from tests.support import (
    RawClient,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    ok,
    one_route,
    request,
    response,
    running,
)
from tests.support.clock import FakeClock

SIZE = 10_000
LIMIT = 10 * SIZE
TOP = f"limits: {{replay_memory: {LIMIT}B}}"
KEYED = "idempotency: true"
RETRIED = "retry: {backoff: {base: 1ms, max: 1ms}}"

STRANGER, NEIGHBOUR = "127.0.0.2", "127.0.0.3"


class Crowd:
    """Uploads of one caller that lack their last byte."""

    def __init__(self, proxy: RunningProxy, source: str, field: str = "") -> None:
        self._proxy = proxy
        self._source = source
        self._field = field
        self._stack = AsyncExitStack()
        self.clients: list[RawClient] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def begin(self, count: int, method: str = "POST") -> None:
        expected = kept_by(self._proxy) + count * (SIZE - 1)
        for _ in range(count):
            client = await self._stack.enter_async_context(self._proxy.client(source=self._source))
            number = len(self.clients)
            fields = [f"Idempotency-Key: {self._source}-{number}", f"Content-Length: {SIZE}"]
            fields += [self._field] if self._field else []
            await client.send(request(method, f"/{number}", *fields) + bytes(SIZE - 1))
            self.clients.append(client)
        await eventually(lambda: kept_by(self._proxy) >= expected)


@asynccontextmanager
async def stage(route: str, top: str = TOP) -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, top=top)) as proxy,
    ):
        yield upstream, proxy


async def post(proxy: RunningProxy, key: str, size: int = SIZE, source: str = "127.0.0.1") -> int:
    async with proxy.client(source=source) as client:
        field = f"Idempotency-Key: {key}"
        return (await client.request("POST", "/", field, body=bytes(size))).status


async def test_one_caller_alone_may_have_all_of_it() -> None:
    async with stage(KEYED) as (_, proxy), Crowd(proxy, STRANGER) as crowd:
        await crowd.begin(9)
        assert await post(proxy, "k", source=STRANGER) == 200
        assert await post(proxy, "l", 2 * SIZE, source=STRANGER) == 503
        assert all(client.is_silent for client in crowd.clients)


async def test_ones_own_uploads_that_come_too_slowly_give_way() -> None:
    """Behind one address there may be many; a body that has stopped is in the way of all."""
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, KEYED, top=TOP), clock=clock) as proxy,
        Crowd(proxy, STRANGER) as crowd,
    ):
        await crowd.begin(10)
        assert await post(proxy, "k", source=STRANGER) == 503
        # They brought nearly all of it at once, and next to nothing since then.
        await asyncio.sleep(1.1)
        clock.advance(1.5)
        assert await post(proxy, "l", source=STRANGER) == 200
        assert (await crowd.clients[0].response("POST")).status == 503
        assert all(client.is_silent for client in crowd.clients[1:])


async def test_uploads_that_never_end_do_not_keep_another_caller_out() -> None:
    async with stage(KEYED) as (upstream, proxy), Crowd(proxy, STRANGER) as crowd:
        await crowd.begin(10)
        assert kept_by(proxy) > LIMIT - SIZE
        for number in range(20):
            assert await post(proxy, f"k{number}") == 200
        assert len(upstream.requests) == 20
        # It cost the oldest of them, and no more than were in the way.
        refused = await crowd.clients[0].response("POST")
        assert (refused.status, refused.problem["type"]) == (503, "urn:holdfast:problem:overload")
        assert refused.get("Retry-After") is not None
        assert all(client.is_silent for client in crowd.clients[1:])


async def test_beside_others_one_caller_gets_half() -> None:
    async with (
        stage(KEYED) as (_, proxy),
        Crowd(proxy, STRANGER) as stranger,
        Crowd(proxy, NEIGHBOUR) as neighbour,
    ):
        await neighbour.begin(1)
        await stranger.begin(5)
        assert await post(proxy, "k", source=STRANGER) == 503
        assert await post(proxy, "k", source=NEIGHBOUR) == 200
        assert await post(proxy, "k") == 200
        assert all(c.is_silent for c in stranger.clients + neighbour.clients)


async def test_two_who_share_it_between_them_make_room_for_a_third() -> None:
    async with (
        stage(KEYED) as (_, proxy),
        Crowd(proxy, STRANGER) as stranger,
        Crowd(proxy, NEIGHBOUR) as neighbour,
    ):
        await neighbour.begin(5)
        await stranger.begin(5)
        assert await post(proxy, "k") == 200
        silent = [c.is_silent for c in stranger.clients + neighbour.clients]
        assert silent.count(False) == 1


async def test_an_upload_that_gives_way_goes_on_but_is_not_sent_again() -> None:
    """Without a key a body is kept for another attempt, and goes on to the upstream meanwhile."""
    arrived = asyncio.Event()

    async def fail(visit: Visit) -> None:
        await visit.read_body()
        arrived.set()
        await visit.send(response(503, b"not now"))

    async with stage(RETRIED) as (upstream, proxy), Crowd(proxy, STRANGER) as crowd:
        upstream.script(*[fail] * 10)
        await crowd.begin(10, "PUT")
        async with proxy.client() as client:
            upstream.script(answer(response(503)), answer(ok(b"second")))
            assert (await client.request("PUT", "/", body=bytes(SIZE))).body == b"second"
        await crowd.clients[0].send(b"x")
        assert (await crowd.clients[0].response("PUT")).status == 503
        await crowd.clients[1].send(b"x")
        assert (await crowd.clients[1].response("PUT")).status == 200
        await eventually(lambda: len(proxy.log) >= 3)
        assert [a["why"] for line in proxy.log for a in line["attempts"]] == [
            *("retried", "recovered"),
            "buffer_full",
            *("retried", "recovered"),
        ]


async def test_bodies_that_are_complete_stay() -> None:
    gate = asyncio.Event()

    async def wait(visit: Visit) -> None:
        await visit.read_body()
        await gate.wait()
        await visit.send(ok())

    async with stage(KEYED) as (upstream, proxy):
        upstream.script(*[wait] * 10)
        waiting = [
            asyncio.create_task(post(proxy, f"s{number}", source=STRANGER)) for number in range(10)
        ]
        await eventually(lambda: len(upstream.requests) == 10)
        assert await post(proxy, "k") == 503
        gate.set()
        assert [await task for task in waiting] == [200] * 10
        assert await post(proxy, "k") == 200


@pytest.mark.parametrize(
    ("trusted", "served"), [pytest.param("127.0.0.2", 200, id="trusted"), ("10.0.0.0/8", 503)]
)
async def test_a_proxy_that_is_trusted_tells_callers_apart(trusted: str, served: int) -> None:
    top = f"{TOP}\ntrusted_proxies: [{trusted}]"
    async with (
        stage(KEYED, top) as (_, proxy),
        Crowd(proxy, STRANGER, "X-Forwarded-For: 192.0.2.1") as crowd,
        proxy.client(source=STRANGER) as client,
    ):
        await crowd.begin(10)
        fields = ("X-Forwarded-For: 192.0.2.2", "Idempotency-Key: k")
        got = await client.request("POST", "/", *fields, body=bytes(SIZE))
        assert got.status == served
