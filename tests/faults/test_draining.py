"""SIGTERM with work under way: nothing is lost, nothing new is begun, and it ends."""

import asyncio
import signal
import socket
import time
from pathlib import Path

from proxy.net.unacked import unacked_bytes
from tests.support import (
    Certificates,
    End,
    ProxyProcess,
    RawClient,
    ScriptedUpstream,
    Visit,
    answer_and_hang,
    eventually,
    hang,
    ok,
    one_route,
    request,
    running,
    subprocess_proxy,
)
from tests.support.witness import Stopwatch, soon

UPLOAD = b"PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nfirst"


async def refuses_connections(proxy: ProxyProcess) -> bool:
    try:
        async with proxy.client():
            return False
    except ConnectionRefusedError:
        return True


async def test_what_is_under_way_ends_and_so_does_the_process() -> None:
    go_on = asyncio.Event()

    async def two_halves(visit: Visit) -> None:
        if visit.request.target == "/download":
            await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
            await go_on.wait()
            await visit.send(b"half")
        else:
            await visit.read_body()
            await visit.send(ok(visit.request.target.encode()))

    top = "drain_delay: 2s\ndrain_timeout: 20s"
    async with (
        ScriptedUpstream(two_halves) as upstream,
        subprocess_proxy(one_route(upstream, top=top)) as proxy,
        proxy.client() as idle,
        proxy.client() as uploading,
        proxy.client() as downloading,
    ):
        assert (await idle.get("/before")).get("Connection") is None
        await uploading.send(UPLOAD)
        await downloading.send(request("GET", "/download"))
        await downloading.wire.read_until(b"half")

        began, watch = time.monotonic(), Stopwatch()
        proxy.signal(signal.SIGTERM)
        while (await proxy.admin("GET", "/readyz")).status == 200:
            assert watch.seconds < 1.5
        assert (await proxy.admin("GET", "/healthz")).status == 200
        # Who has not heard of it yet is served for as long as drain_delay says.
        assert (await proxy.get("/late")).body == b"/late"

        await idle.ended()
        assert time.monotonic() - began > 1.95
        assert await refuses_connections(proxy)
        assert proxy.process.returncode is None

        await uploading.send(b"ing")
        response = await uploading.response("PUT")
        assert (response.body, response.get("Connection")) == (b"/upload", "close")
        assert await uploading.ended() is End.CLOSED
        go_on.set()
        assert await downloading.wire.read_until(b"half")
        assert await downloading.ended() is End.CLOSED
        assert await proxy.exit_status() == 0
        assert upstream.requests[1].body == b"firsting"
        codes = [record["code"] for record in proxy.log]
        assert codes == [200] * 4
        assert '"draining"' in proxy.errors
        assert "Traceback" not in proxy.errors


async def test_drain_timeout_cuts_what_is_left_and_exits_0_all_the_same() -> None:
    async with (
        ScriptedUpstream() as upstream,
        subprocess_proxy(one_route(upstream, top="drain_timeout: 200ms")) as proxy,
        proxy.client() as waiting,
        proxy.client() as downloading,
        proxy.client() as sending,
        RawClient(proxy.admin_port) as operator,
    ):
        upstream.script(hang, answer_and_hang(b"HTTP/1.1 200 OK\r\n\r\npart"))
        await operator.request("GET", "/healthz", "Host: localhost")
        await waiting.send(request("GET", "/waiting"))
        await upstream.seen(1)
        await downloading.send(request("GET", "/downloading"))
        await downloading.wire.read_until(b"part")
        await sending.send(b"GET / HTTP/1.1\r\nHo")
        began, watch = time.monotonic(), Stopwatch()
        proxy.signal(signal.SIGTERM)
        response = await waiting.response()
        assert (response.status, response.reason_word) == (503, "draining")
        assert response.get("Connection") == "close"
        assert await downloading.ended() is End.RESET
        await sending.ended()
        assert await proxy.exit_status() == 0
        assert time.monotonic() - began >= 0.2
        assert watch.seconds < 2.5
        codes = {record["path"]: record["code"] for record in proxy.log if record["attempts"]}
        assert codes == {"/waiting": 503, "/downloading": 200}
        assert "Traceback" not in proxy.errors


async def test_a_second_signal_ends_it_at_once() -> None:
    async with (
        ScriptedUpstream(hang) as upstream,
        subprocess_proxy(one_route(upstream, top="drain_timeout: 60s")) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("GET", "/"))
        await upstream.seen()
        proxy.signal(signal.SIGTERM)
        await eventually(lambda: '"draining"' in proxy.errors)
        watch = Stopwatch()
        proxy.signal(signal.SIGTERM)
        assert await proxy.exit_status() == 1
        assert watch.seconds < 1.5
        assert (await client.response()).reason_word == "draining"
        assert "a second time" in proxy.errors
        assert "Traceback" not in proxy.errors


async def test_a_client_whose_handshake_outlasts_the_listener_does_not_hold_it_up(
    tmp_path: Path,
) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    trusting = certificates.for_client()
    listen = f"listen: {{address: '127.0.0.1:0', tls: {{cert: {cert}, key: {key}}}}}"
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, top=f"{listen}\ndrain_timeout: 60s")) as proxy,
    ):
        late = socket.create_connection(("127.0.0.1", proxy.port))
        # Connected after the late one, and served: so the late one was accepted as well.
        async with proxy.client(tls=trusting) as client:
            await client.send(request("GET", "/"))
            await upstream.seen()
            draining = asyncio.create_task(proxy.app.drain())
            await asyncio.sleep(0)
            _, writer = await asyncio.open_connection(
                sock=late, ssl=trusting, server_hostname="localhost"
            )
            upstream.connections[0].wire.write(ok())
            assert (await client.response()).status == 200
            await soon(draining, 5)
            writer.close()


async def test_an_idle_tls_client_that_says_nothing_does_not_hold_it_up(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    listen = f"listen: {{address: '127.0.0.1:0', tls: {{cert: {cert}, key: {key}}}}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=f"{listen}\ndrain_timeout: 60s")) as proxy,
        proxy.client(tls=certificates.for_client()) as client,
    ):
        assert (await client.get()).status == 200
        client.wire.stall()  # it does not even read that we are going
        [connection] = proxy.app._listener.server.connections
        await eventually(lambda: not unacked_bytes(connection.transport), what="having it all")
        await soon(proxy.app.drain(), 2)
