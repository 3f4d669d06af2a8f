"""Addresses to listen on: several, TLS, unix sockets."""

import socket
import ssl
import stat
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from proxy.server.connection import UNREAD_GRACE
from tests.support import (
    PATIENCE,
    Certificates,
    RawClient,
    ScriptedUpstream,
    answer_and_reset,
    both_loops,
    eventually,
    one_route,
    request,
    running,
)
from tests.support.witness import Stopwatch, soon


@both_loops
async def test_several_addresses_serve_the_same(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.sock"
    listen = f"listen: [127.0.0.1:0, 127.0.0.1:0, 'unix:{path}']"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, top=listen)) as proxy:
        first, second, third = proxy.bound
        assert first != second
        assert third == f"unix:{path}"
        for address in (first, second):
            async with RawClient(int(address.rpartition(":")[2])) as client:
                assert (await client.get()).status == 200
        async with RawClient(path=str(path)) as client:
            assert (await client.get()).status == 200
        log = await proxy.logged(3)
        assert [record["client"] for record in log] == ["127.0.0.1", "127.0.0.1", ""]


@both_loops
async def test_a_unix_socket_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.sock"
    listen = f"listen: unix:{path}"
    async with ScriptedUpstream() as upstream:
        async with running(one_route(upstream, top=listen)):
            assert stat.S_ISSOCK(path.stat().st_mode)
        assert not path.exists()


@both_loops
async def test_a_socket_that_an_earlier_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    assert path.exists()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=f"listen: unix:{path}")),
        RawClient(path=str(path)) as client,
    ):
        assert (await client.get()).status == 200


@both_loops
async def test_a_socket_on_which_somebody_listens_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.sock"
    with socket.socket(socket.AF_UNIX) as in_use:
        in_use.bind(str(path))
        in_use.listen()
        with pytest.raises(OSError, match="another process listens there"):
            async with running(one_route("http://127.0.0.1:9", top=f"listen: unix:{path}")):
                pass
        assert path.exists()


@both_loops
async def test_a_file_that_is_no_socket_is_left_alone_and_named(tmp_path: Path) -> None:
    path = tmp_path / "precious.txt"
    path.write_text("keep me")
    with pytest.raises(OSError, match=r"precious\.txt.*no socket"):
        async with running(one_route("http://127.0.0.1:9", top=f"listen: unix:{path}")):
            pass
    assert path.read_text() == "keep me"


async def test_one_address_that_cannot_be_opened_opens_none(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.sock"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listen = f"listen: ['unix:{path}', '127.0.0.1:{port}']"
        with pytest.raises(OSError, match="another process listens there"):
            async with running(one_route("http://127.0.0.1:9", top=listen)):
                pass
    assert not path.exists()


async def test_a_tls_handshake_has_a_deadline(tmp_path: Path) -> None:
    cert, key = Certificates(tmp_path).issue()
    top = (
        f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}\n"
        "limits: {header_timeout: 150ms}"
    )
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=top)) as proxy,
        RawClient(proxy.port) as client,
    ):
        began, watch = time.monotonic(), Stopwatch()
        await client.ended()
        assert time.monotonic() - began > 0.1
        assert watch.seconds < 2


async def test_plain_http_on_a_tls_port_gets_no_answer_and_harms_nobody(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    listen = f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, top=listen)) as proxy:
        async with RawClient(proxy.port) as client:
            await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await client.ended()
        async with proxy.client(tls=certificates.for_client()) as client:
            assert (await client.get()).status == 200
        assert len(upstream.requests) == 1


async def test_a_tls_client_sees_the_cut_of_a_body(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    listen = f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, top=listen)) as proxy:
        upstream.script(answer_and_reset(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart"))
        async with proxy.client(tls=certificates.for_client()) as client:
            response = await client.get()
            assert (response.body, response.complete) == (b"part", False)
            await client.ended()
        await eventually(lambda: proxy.client_connections == 0)


async def test_a_tls_client_that_never_confirms_the_end_is_not_waited_for_long(
    tmp_path: Path,
) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    listen = f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=listen)) as proxy,
        proxy.client(tls=certificates.for_client()) as client,
    ):
        client.wire.stall()
        await client.send(request("GET", "/", "Connection: close"))
        await proxy.logged(1)
        ended = eventually(lambda: proxy.client_connections == 0, within=UNREAD_GRACE + PATIENCE)
        await soon(ended, UNREAD_GRACE + 2)


async def test_http_2_is_not_agreed_upon(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    listen = f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}"
    context = certificates.for_client()
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=listen)) as proxy,
        proxy.client(tls=context) as client,
    ):
        found = client.wire.transport.get_extra_info("ssl_object")
        assert isinstance(found, ssl.SSLObject)
        assert found.selected_alpn_protocol() == "http/1.1"
        assert (await client.get()).status == 200


SURPLUS = 8
"""Handshakes beyond the limit that are let in, so that they can be told why not."""


@both_loops
async def test_tls_handshakes_count_as_connections(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    top = (
        f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}\n"
        "limits: {header_timeout: 500ms, connections: 5}"
    )
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=top)) as proxy,
        AsyncExitStack() as stack,
    ):
        server = proxy.app._listener.server
        silent = [await stack.enter_async_context(RawClient(proxy.port)) for _ in range(50)]
        # Connections beyond the limit are closed at once, the others after their time.
        await eventually(lambda: sum(c.wire.end is not None for c in silent) >= 50 - 5 - SURPLUS)
        assert server.handshakes <= 5 + SURPLUS
        await eventually(lambda: all(client.wire.end is not None for client in silent))
        await eventually(lambda: server.handshakes == 0)
        async with proxy.client(tls=certificates.for_client()) as client:
            assert (await client.get()).status == 200


@both_loops
async def test_a_tls_client_too_many_is_told_so(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    top = (
        f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}\n"
        "limits: {connections: 1}"
    )
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=top)) as proxy,
        proxy.client(tls=certificates.for_client()) as first,
    ):
        assert (await first.get()).status == 200
        async with proxy.client(tls=certificates.for_client()) as second:
            assert (await second.response()).status == 503
        assert (await first.get()).status == 200


@both_loops
async def test_handshakes_that_are_under_way_do_not_hold_up_the_end(tmp_path: Path) -> None:
    cert, key = Certificates(tmp_path).issue()
    top = f"listen: {{address: 127.0.0.1:0, tls: {{cert: {cert}, key: {key}}}}}"
    async with ScriptedUpstream() as upstream:
        watch = Stopwatch()
        async with running(one_route(upstream, top=top)) as proxy, RawClient(proxy.port) as client:
            await eventually(lambda: proxy.app._listener.server.handshakes == 1)
            await proxy.app.drain()
            await client.ended()
        assert watch.seconds < 5


async def test_tls_on_a_unix_socket(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    path = tmp_path / "holdfast.sock"
    listen = f"listen: {{address: 'unix:{path}', tls: {{cert: {cert}, key: {key}}}}}"
    async with ScriptedUpstream() as upstream:
        async with (
            running(one_route(upstream, top=listen)) as proxy,
            RawClient(path=str(path), tls=certificates.for_client()) as client,
        ):
            assert proxy.bound == [f"unix:{path}"]
            assert (await client.get()).status == 200
        assert not path.exists()
