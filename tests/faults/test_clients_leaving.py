"""The client goes away: everything done for it stops, at once and wherever it was."""

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from statistics import quantiles

import pytest

from tests.support import (
    RawClient,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer_and_hang,
    both_loops,
    eventually,
    hang,
    ok,
    one_route,
    request,
    running,
    stall,
)
from tests.support.names import Names
from tests.support.ports import black_hole
from tests.support.records import last_logged, outcomes
from tests.support.witness import Stopwatch

AT_ONCE = 0.05
UPLOAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n"
EXPECT = (
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n"
    b"X-Request-Id: expecting\r\n\r\n"
)
PARTIAL = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\npart"


async def nothing_goes_on(proxy: RunningProxy) -> None:
    """No request in flight, no connection in use: soon enough to be called at once."""

    def is_quiet() -> bool:
        routes: dict[str, dict[str, int]] = proxy.status()["routes"]  # type: ignore[assignment]  # JSON
        return (
            routes["all"]["in_flight"] == 0
            and proxy.open_upstream_connections == proxy.idle_upstream_connections
            and proxy.client_connections == 0
        )

    watch = Stopwatch()
    await eventually(is_quiet)
    assert watch.seconds < 1


async def assert_left(proxy: RunningProxy, phase: str, attempts: list[str]) -> None:
    record = await last_logged(proxy)
    assert (record["code"], outcomes(record)) == (499, attempts)
    metrics = await proxy.metrics()
    assert metrics.total("holdfast_client_disconnects_total", phase=phase) == 1
    assert metrics.total("holdfast_client_disconnects_total") == 1


async def upload_begun(client: RawClient, upstream: ScriptedUpstream) -> None:
    await client.send(UPLOAD + b"part")
    await eventually(lambda: upstream.received > 100)


async def upload_stuck(client: RawClient, upstream: ScriptedUpstream) -> None:
    upstream.usual = stall
    await client.send(UPLOAD)
    client.wire.write(bytes(50_000_000))
    await eventually(lambda: upstream.requests)
    # Until nothing moves any more: everybody's buffers are full.
    before, left = 0, -1
    while before != left:
        before = left
        await asyncio.sleep(0.03)
        left = client.wire.transport.get_write_buffer_size()
    assert left


async def continue_awaited(client: RawClient, upstream: ScriptedUpstream) -> None:
    await client.send(EXPECT)
    await client.interim()
    assert upstream.requests


async def head_awaited(client: RawClient, upstream: ScriptedUpstream) -> None:
    upstream.usual = hang
    await client.send(request("POST", "/", body=b"whole"))
    await upstream.seen()


async def download_begun(client: RawClient, upstream: ScriptedUpstream) -> None:
    upstream.usual = answer_and_hang(PARTIAL)
    await client.send(request("GET", "/"))
    await client.wire.read_until(b"part")


async def download_stuck(client: RawClient, upstream: ScriptedUpstream) -> None:
    async def pour(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(1000):
            await visit.send(bytes(100_000))

    upstream.usual = pour
    await client.send(request("GET", "/"))
    await client.wire.something()
    client.wire.stall()
    await asyncio.sleep(0.05)


Stage = Callable[[RawClient, ScriptedUpstream], Awaitable[None]]


@both_loops
@pytest.mark.parametrize(
    ("stage", "phase"),
    [
        pytest.param(upload_begun, "body", id="inside its upload"),
        pytest.param(continue_awaited, "body", id="between 100 Continue and its upload"),
        pytest.param(head_awaited, "upstream", id="while the upstream works"),
        pytest.param(download_begun, "response", id="inside its download"),
        pytest.param(download_stuck, "response", id="while it did not read"),
    ],
)
@pytest.mark.parametrize("leave", ["reset", "close"])
async def test_leaving_ends_the_request_at_the_upstream(
    stage: Stage, phase: str, leave: str
) -> None:
    async with (
        ScriptedUpstream(receive_buffer=4096) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        await stage(client, upstream)
        if leave == "reset":
            client.wire.reset()
        else:
            await client.wire.close_and_wait()
        await nothing_goes_on(proxy)
        assert proxy.open_upstream_connections == 0
        await assert_left(proxy, phase, ["cancelled"])
        assert len(upstream.requests) == 1
        await upstream.stop()


@both_loops
@pytest.mark.parametrize("leave", ["reset", "close"])
async def test_leaving_unheard_while_the_upload_is_held_back_is_bounded_by_the_timeout(
    leave: str,
) -> None:
    # Nobody reads from the client then, so nobody hears it go.
    async with (
        ScriptedUpstream(receive_buffer=4096) as upstream,
        running(one_route(upstream, "timeout: 300ms")) as proxy,
        proxy.client() as client,
    ):
        await upload_stuck(client, upstream)
        if leave == "reset":
            client.wire.reset()
        else:
            await client.wire.close_and_wait()
        await nothing_goes_on(proxy)
        assert proxy.open_upstream_connections == 0
        assert outcomes(await last_logged(proxy)) == ["timeout"]
        await upstream.stop()


async def test_leaving_while_a_connection_is_being_made() -> None:
    with black_hole() as port:
        async with running(one_route(f"http://127.0.0.1:{port}")) as proxy:
            async with proxy.client() as client:
                await client.send(request("GET", "/"))
                await eventually(lambda: proxy.open_upstream_connections == 1)
            await nothing_goes_on(proxy)
            assert proxy.open_upstream_connections == 0
            await assert_left(proxy, "upstream", ["cancelled"])


async def test_leaving_while_tls_is_being_agreed_upon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        async with running(one_route(url)) as proxy:
            async with proxy.client() as client:
                await client.send(request("GET", "/"))
                await eventually(lambda: proxy.open_upstream_connections == 1)
                await asyncio.sleep(0.01)
            await nothing_goes_on(proxy)
            await assert_left(proxy, "upstream", ["cancelled"])


async def test_leaving_while_the_name_is_looked_up_leaves_the_look_up_to_others() -> None:
    names = Names(slow=["127.0.0.1"])
    names.fall_silent()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(f"http://slow:{upstream.port}")) as proxy,
        proxy.client() as leaving,
        proxy.client() as staying,
    ):
        await leaving.send(request("GET", "/leaving"))
        await eventually(lambda: names.asked)
        await staying.send(request("GET", "/staying"))
        leaving.wire.reset()
        [record] = await proxy.logged()
        assert (record["code"], outcomes(record)) == (499, ["cancelled"])
        names.speak()
        assert (await staying.response()).status == 200
        assert [r.target for r in upstream.requests] == ["/staying"]


async def test_leaving_inside_the_head_is_no_request_at_all() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            await client.send(b"GET / HTTP/1.1\r\nHo")
            await eventually(lambda: proxy.client_connections == 1)
        await eventually(lambda: proxy.client_connections == 0)
        assert proxy.log == []
        assert upstream.connections == []


async def test_leaving_a_tunnel_is_its_usual_end() -> None:
    switch = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    async with (
        ScriptedUpstream(answer_and_hang(switch)) as upstream,
        running(one_route(upstream)) as proxy,
    ):
        async with proxy.client() as client:
            await client.send(request("GET", "/", "Connection: Upgrade", "Upgrade: websocket"))
            assert (await client.response()).status == 101
        await nothing_goes_on(proxy)
        assert proxy.open_upstream_connections == 0
        record = await last_logged(proxy)
        assert record["code"] == 101
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_client_disconnects_total") == 0


async def test_pipelined_requests_of_a_client_that_left_are_not_begun() -> None:
    async with ScriptedUpstream(hang) as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            await client.send(request("GET", "/1") + request("GET", "/2") + request("GET", "/3"))
            await upstream.seen()
        await nothing_goes_on(proxy)
        assert [r.target for r in upstream.requests] == ["/1"]


async def test_half_closing_after_the_request_is_not_leaving() -> None:
    async def slow(visit: Visit) -> None:
        await asyncio.sleep(0.05)
        await visit.send(ok(b"here you are"))

    async with ScriptedUpstream(slow) as upstream, running(one_route(upstream)) as proxy:
        async with proxy.client() as client:
            await client.send(request("GET", "/"))
            await upstream.seen()
            client.wire.half_close()
            # Both readings are found in the wild: go on, or take it for leaving. What must
            # not happen is that the request hangs.
            await client.ended()
        await last_logged(proxy)


async def test_the_upstream_hears_of_it_within_50_ms() -> None:
    left_at: dict[str, Stopwatch] = {}
    heard: list[float] = []

    async def work(visit: Visit) -> None:
        await visit.until_the_peer_leaves()
        heard.append(left_at[visit.request.target].seconds)

    async with ScriptedUpstream(work) as upstream, running(one_route(upstream)) as proxy:
        for n in range(40):
            async with proxy.client() as client:
                await client.send(request("GET", f"/{n}"))
                await upstream.seen(n + 1)
                left_at[f"/{n}"] = Stopwatch()
                client.wire.reset()
                await eventually(lambda n=n: len(heard) == n + 1)  # type: ignore[misc]  # mypy cannot infer a lambda's default
        assert quantiles(heard, n=20)[-1] < AT_ONCE
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_client_disconnects_total", phase="upstream") == 40
        assert metrics.total("holdfast_requests_total", code="499") == 40


async def test_a_bad_upload_after_the_answer_has_begun_cuts_the_answer() -> None:
    async def answer_while_reading(visit: Visit) -> None:
        await visit.send(PARTIAL)
        await visit.until_the_peer_leaves()

    async with (
        ScriptedUpstream(answer_while_reading) as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        await client.send(head + b"1\r\na\r\n")
        await client.wire.read_until(b"part")
        await client.send(b"no chunk\r\n")
        await client.ended()
        await nothing_goes_on(proxy)
        record = await last_logged(proxy)
        assert record["code"] == 200
        assert outcomes(record) in (["cancelled"], ["truncated"])


async def test_a_request_can_wait_though_there_is_no_descriptor_left() -> None:
    config = "throttle: 5/s"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, config)) as proxy,
        proxy.client() as client,
    ):
        assert (await client.get()).status == 200
        least = os.dup(0)
        os.close(least)
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))
        try:
            waited = await client.get()  # over the connections that are there
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert waited.status == 200
