"""How connections are kept, used again and given up."""

import asyncio
from pathlib import Path

import pytest

from tests.support import (
    Certificates,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    ok,
    one_route,
    running,
)
from tests.support.clock import FakeClock


class Together:
    """A behaviour that answers nobody until *count* have asked."""

    def __init__(self, count: int) -> None:
        self._all_here = asyncio.Barrier(count)

    async def __call__(self, visit: Visit) -> None:
        await visit.read_body()
        await self._all_here.wait()
        await visit.send(ok())


async def test_one_after_the_other_share_one_connection() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        for _ in range(5):
            await proxy.get()
        assert len(upstream.connections) == 1
        assert (proxy.open_upstream_connections, proxy.idle_upstream_connections) == (1, 1)


async def test_the_one_used_last_is_used_first_so_that_the_others_grow_old() -> None:
    async with ScriptedUpstream(Together(3)) as upstream, running(one_route(upstream)) as proxy:
        await asyncio.gather(*(proxy.get(f"/{n}") for n in range(3)))
        upstream.usual = answer(ok())
        for _ in range(5):
            await proxy.get("/later")
        later = {r.connection for r in upstream.requests if r.target == "/later"}
        assert len(later) == 1


async def test_idle_connections_are_closed_after_keepalive_without_any_request() -> None:
    async with (
        ScriptedUpstream(Together(3)) as upstream,
        running(one_route(upstream, options="keepalive: 60ms")) as proxy,
    ):
        await asyncio.gather(*(proxy.get() for _ in range(3)))
        assert proxy.idle_upstream_connections == 3
        await eventually(lambda: proxy.open_upstream_connections == 0, within=2)
        await eventually(lambda: upstream.open_connections == [])


async def test_an_idle_one_too_old_for_a_post_makes_way_for_a_new_one() -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, options="max_connections: 1"), clock=clock) as proxy,
        proxy.client() as client,
    ):
        await client.get()
        clock.advance(2)
        assert (await client.request("POST", "/", body=b"x")).status == 200
        assert [r.connection for r in upstream.requests] == [1, 2]
        assert proxy.open_upstream_connections == 1


async def test_a_response_that_says_close_is_believed() -> None:
    async with (
        ScriptedUpstream(answer(ok(b"bye", "Connection: close"))) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).get("Connection") is None
        await eventually(lambda: proxy.open_upstream_connections == 0)
        assert (await client.get()).body == b"bye"
        assert len(upstream.connections) == 2


async def test_http_1_0_responses_are_not_followed_by_another_on_their_connection() -> None:
    old = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nold"
    async with (
        ScriptedUpstream(answer(old)) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        assert [(await client.get()).body for _ in range(2)] == [b"old", b"old"]
        assert len(upstream.connections) == 2


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\n", b"body"],
            id="close, and a counted body",
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbo", b"dy"],
            id="close, and a counted body that has begun",
        ),
        pytest.param(
            [
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"4\r\nbody\r\n0\r\n\r\n",
            ],
            id="close, and chunks",
        ),
        pytest.param(
            [b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\n", b"body"],
            id="HTTP/1.0, and a counted body",
        ),
    ],
)
async def test_close_is_believed_also_when_the_body_comes_later(pieces: list[bytes]) -> None:
    async with (
        ScriptedUpstream(answer(*pieces)) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        for connections in (1, 2):
            assert (await client.get()).body == b"body"
            assert proxy.idle_upstream_connections == 0
            assert len(upstream.connections) == connections
        await eventually(lambda: upstream.open_connections == [])


async def test_a_tls_peer_that_never_confirms_the_end_is_in_nobodys_way(tmp_path: Path) -> None:
    clock, certificates = FakeClock(), Certificates(tmp_path)
    options = f"max_connections: 1\nconnect_timeout: 1s\ntls: {{ca: {certificates.ca}}}"
    async with (
        ScriptedUpstream(tls=certificates.for_server()) as upstream,
        running(one_route(upstream, options=options), clock=clock) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).status == 200
        # It reads no more, so it will not see our close_notify.
        upstream.connections[0].wire.stall()
        clock.advance(2)
        assert (await client.request("POST", "/", body=b"x")).status == 200
        assert [r.connection for r in upstream.requests] == [1, 2]
        assert proxy.open_upstream_connections == 1


async def test_each_address_has_its_own_limit() -> None:
    together = Together(4)
    async with (
        ScriptedUpstream(together) as one,
        ScriptedUpstream(together) as other,
        running(one_route(f"{one.url}, {other.url}", options="max_connections: 2")) as proxy,
    ):
        responses = await asyncio.gather(*(proxy.get() for _ in range(4)))
        assert [response.status for response in responses] == [200] * 4
        assert (len(one.requests), len(other.requests)) == (2, 2)
