"""Upstreams whose TLS goes wrong: in the handshake, in a body, at the end.

The peer is made of ``ssl.MemoryBIO`` and a plain socket, so that it can do what no TLS library
does by itself: end without saying so, break a record, send an alert in the middle of a body.
"""

import asyncio
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.support import (
    PATIENCE,
    Certificates,
    End,
    RawClient,
    Response,
    RunningProxy,
    Wire,
    WireEnded,
    both_loops,
    chunked,
    eventually,
    ok,
    one_route,
    request,
    running,
)
from tests.support.leftovers import nothing_left
from tests.support.records import last_logged, outcomes
from tests.support.redis_server import free_port
from tests.support.tools import tool

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
"""Of a response that ends with its connection."""
INTERNAL_ERROR = 80
"""A TLS alert (RFC 8446 6)."""


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


class TlsPeer:
    """One connection of an upstream, whose records pass through the test's hands."""

    def __init__(self, wire: Wire, context: ssl.SSLContext) -> None:
        self.wire = wire
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def shake_hands(self, *, by: int = 65536, pause: float = 0.0) -> None:
        """Complete the handshake; what is ours goes out *by* so many bytes, with pauses."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush(by, pause)
                await self._feed()
            else:
                await self._flush(by, pause)
                return

    async def request(self) -> bytes:
        """The head of the next request."""
        read = b""
        while b"\r\n\r\n" not in read:
            try:
                read += self._tls.read(65536)
            except ssl.SSLWantReadError:
                await self._feed()
        return read

    async def say(self, data: bytes) -> None:
        """Send *data*, encrypted."""
        self._tls.write(data)
        await self._flush()

    def records(self, data: bytes) -> bytes:
        """The records that *data* would be sent as."""
        self._tls.write(data)
        return self._outgoing.read()

    def notify(self) -> None:
        """Say that nothing more will be sent: close_notify."""
        with suppress(ssl.SSLError):  # it waits for the peer to say so too
            self._tls.unwrap()
        self.wire.write(self._outgoing.read())

    async def _feed(self) -> None:
        data = await self.wire.read()
        if not data:
            raise WireEnded(self.wire.end or End.CLOSED, b"")
        self._incoming.write(data)

    async def _flush(self, by: int = 65536, pause: float = 0.0) -> None:
        data = self._outgoing.read()
        for start in range(0, len(data), by):
            self.wire.write(data[start : start + by])
            await asyncio.sleep(pause)


Part = Callable[[TlsPeer], Awaitable[None]]


class TlsUpstream:
    """Plays one part for each connection, in turn; the last one for all others."""

    def __init__(self, context: ssl.SSLContext, *parts: Part) -> None:
        self._context = context
        self._parts = list(parts)
        self.wires: list[Wire] = []
        self.requests: list[bytes] = []
        """The heads of all requests, in their order."""
        self.port = 0

    def accept(self) -> Wire:
        part = self._parts[min(len(self.wires), len(self._parts) - 1)]
        wire = Wire()
        self.wires.append(wire)
        self._tasks.append(asyncio.get_running_loop().create_task(self._play(wire, part)))
        return wire

    async def _play(self, wire: Wire, part: Part) -> None:
        await wire.connected.wait()
        with suppress(WireEnded, ssl.SSLError):
            await part(TlsPeer(wire, self._context))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._tasks: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self.accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for wire in self.wires:
                await wire.close_and_wait()


@asynccontextmanager
async def proxied(
    certificates: Certificates, *parts: Part, route: str = "", options: str = ""
) -> AsyncIterator[tuple[RunningProxy, TlsUpstream]]:
    """A proxy in front of an upstream that plays *parts*."""
    upstream = TlsUpstream(certificates.for_server(), *parts)
    async with upstream.running():
        tls = f"tls: {{ca: {certificates.ca}}}\n{options}"
        config = one_route(f"https://127.0.0.1:{upstream.port}", route, options=tls)
        async with running(config) as proxy:
            yield proxy, upstream
            await nothing_left(proxy)


def answering(then: Callable[[TlsPeer], Awaitable[None]], *, head: bytes = b"") -> Part:
    """A part: a proper handshake, a request, *head*, and *then* something."""

    async def play(peer: TlsPeer) -> None:
        await peer.shake_hands()
        await peer.request()
        if head:
            await peer.say(head)
            # asyncio's TLS drops what came in one read with an error.
            await asyncio.sleep(0.01)
        await then(peer)

    return play


async def serve(peer: TlsPeer) -> None:
    """A part: as it should be, for as many requests as come."""
    await peer.shake_hands()
    while True:
        await peer.request()
        await peer.say(ok(b"good"))


# Ends.


async def close_properly(peer: TlsPeer) -> None:
    peer.notify()
    peer.wire.close()


async def close_without_notify(peer: TlsPeer) -> None:
    peer.wire.close()


async def reset(peer: TlsPeer) -> None:
    await asyncio.sleep(0.01)  # what was sent before is read first
    peer.wire.reset()


async def send_an_alert(peer: TlsPeer) -> None:
    """As a record in the clear, which nobody can take for an encrypted one."""
    peer.wire.write(struct.pack(">BHHBB", 21, 0x0303, 2, 2, INTERNAL_ERROR))
    await peer.wire.ended()


async def break_a_record(peer: TlsPeer) -> None:
    record = bytearray(peer.records(b"more"))
    record[-1] ^= 1
    peer.wire.write(bytes(record))
    await peer.wire.ended()


async def send_garbage(peer: TlsPeer) -> None:
    peer.wire.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    await peer.wire.ended()


async def send_half_a_record(peer: TlsPeer) -> None:
    record = peer.records(b"m" * 100)
    peer.wire.write(record[:-50])
    await asyncio.sleep(0.01)
    peer.wire.close()


IMPROPER = [
    pytest.param(close_without_notify, id="FIN without close_notify"),
    pytest.param(reset, id="RST"),
    pytest.param(send_an_alert, id="an alert in the clear"),
    pytest.param(break_a_record, id="a record that was tampered with"),
    pytest.param(send_garbage, id="no TLS any more"),
    pytest.param(send_half_a_record, id="half a record"),
]
ENDS = [pytest.param(close_properly, id="close_notify and FIN"), *IMPROPER]


async def got(client: RawClient) -> Response | None:
    """The response, or None if it broke off before its head was complete."""
    try:
        return await client.response()
    except WireEnded:
        return None


@both_loops
async def test_a_body_that_ends_with_close_notify_is_complete(certificates: Certificates) -> None:
    part = answering(close_properly, head=HEAD + b"all of it")
    async with proxied(certificates, part) as (proxy, _):
        response = await proxy.get()
        assert (response.status, response.body, response.complete) == (200, b"all of it", True)
        assert outcomes(await last_logged(proxy)) == ["2xx"]


@both_loops
@pytest.mark.parametrize("end", IMPROPER)
async def test_a_body_that_ends_without_close_notify_is_truncated(
    certificates: Certificates, end: Part
) -> None:
    """Anybody on the way can end a TCP connection: only the notice says that this was all."""
    part = answering(end, head=HEAD + b"part of it")
    async with proxied(certificates, part) as (proxy, _):
        async with proxy.client() as client:
            await client.send(request("GET", "/"))
            response = await got(client)
            assert response is not None
            assert not response.complete
            assert b"part of it".startswith(response.body)
            assert await client.ended() is End.RESET
        assert outcomes(await last_logged(proxy)) == ["truncated"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "whole", [pytest.param(ok(b"all"), id="length"), pytest.param(chunked(b"all"), id="chunks")]
)
async def test_a_body_that_tells_its_end_is_complete_however_the_connection_ends(
    certificates: Certificates, end: Part, whole: bytes
) -> None:
    part = answering(end, head=whole)
    async with proxied(certificates, part, serve) as (proxy, upstream), proxy.client() as client:
        first = await client.get()
        assert (first.status, first.body, first.complete) == (200, b"all", True)
        await eventually(lambda: proxy.open_upstream_connections == 0)
        second = await client.get()
        assert (second.status, second.body) == (200, b"good")
        assert outcomes(await last_logged(proxy, 2)) == ["2xx"]
        assert len(upstream.wires) == 2


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "part_of",
    [
        pytest.param(ok(b"all of it")[:-3], id="length"),
        pytest.param(chunked(b"all of it", last=False), id="chunks"),
    ],
)
async def test_a_body_cut_short_is_truncated_even_if_its_end_is_said_properly(
    certificates: Certificates, end: Part, part_of: bytes
) -> None:
    async with proxied(certificates, answering(end, head=part_of)) as (proxy, _):
        async with proxy.client() as client:
            await client.send(request("GET", "/"))
            response = await got(client)
            assert response is None or not response.complete
            assert await client.ended() is End.RESET
        assert outcomes(await last_logged(proxy)) == ["truncated"]


@pytest.mark.parametrize("end", ENDS)
async def test_an_end_before_the_head_is_a_reset_and_a_post_is_not_sent_again(
    certificates: Certificates, end: Part
) -> None:
    retry = "retry: {backoff: {base: 1ms}}"
    parts = (answering(end), serve)
    async with proxied(certificates, *parts, route=retry) as (proxy, upstream):
        async with proxy.client() as client:
            response = await client.request("POST", "/", body=b"pay")
        assert (response.status, response.reason_word) == (502, "reset")
        assert outcomes(await last_logged(proxy)) == ["reset"]
        assert len(upstream.wires) == 1
        # What may be repeated is: on a connection that works.
        assert (await proxy.get()).body == b"good"


@pytest.mark.parametrize("end", ENDS)
async def test_an_idle_connection_that_ends_harms_nobody(
    certificates: Certificates, end: Part
) -> None:
    async def play(peer: TlsPeer) -> None:
        await peer.shake_hands()
        await peer.request()
        await peer.say(ok())
        await ends.wait()
        await end(peer)

    ends = asyncio.Event()
    async with proxied(certificates, play, serve) as (proxy, _), proxy.client() as client:
        assert (await client.get()).status == 200
        assert proxy.idle_upstream_connections == 1
        ends.set()
        await eventually(lambda: proxy.open_upstream_connections == 0)
        seen = await client.request("POST", "/", body=b"pay")
        assert (seen.status, seen.body) == (200, b"good")


# A peer that ends its own direction, and leaves ours open.


async def test_a_connection_half_closed_by_its_peer_is_not_used_again(
    certificates: Certificates,
) -> None:
    async def play(peer: TlsPeer) -> None:
        await peer.shake_hands()
        await peer.request()
        await peer.say(ok(b"last"))
        peer.notify()
        await peer.wire.ended()

    async with proxied(certificates, play, serve) as (proxy, _), proxy.client() as client:
        assert (await client.get()).body == b"last"
        await eventually(lambda: proxy.open_upstream_connections == 0)
        seen = await client.request("POST", "/", body=b"pay")
        assert (seen.status, seen.body) == (200, b"good")


async def test_an_upload_into_a_connection_half_closed_by_its_peer_is_a_reset(
    certificates: Certificates,
) -> None:
    async def play(peer: TlsPeer) -> None:
        await peer.shake_hands()
        await peer.request()
        peer.notify()
        await peer.wire.ended()

    async with proxied(certificates, play) as (proxy, _), proxy.client() as client:
        await client.send(request("POST", "/", "Content-Length: 9999") + b"some of it")
        assert (await client.response("POST")).reason_word == "reset"
        assert outcomes(await last_logged(proxy)) == ["reset"]


# Handshakes.


async def fall_silent(peer: TlsPeer) -> None:
    await peer.wire.something()
    await asyncio.Event().wait()


async def say_garbage(peer: TlsPeer) -> None:
    await peer.wire.something()
    peer.wire.write(b"\x16\x03\x03\x00\x05hello" * 10)
    await peer.wire.ended()


async def refuse(peer: TlsPeer) -> None:
    await peer.wire.something()
    peer.wire.write(struct.pack(">BHHBB", 21, 0x0303, 2, 2, INTERNAL_ERROR))
    peer.wire.close()


async def hang_up(peer: TlsPeer) -> None:
    await peer.wire.something()
    peer.wire.close()


async def break_off(peer: TlsPeer) -> None:
    await peer.wire.something()
    peer.wire.reset()


async def trickle(peer: TlsPeer) -> None:
    """Never silent, and never done."""
    await peer.shake_hands(by=1, pause=0.02)


@pytest.mark.parametrize(
    "handshake",
    [
        pytest.param(fall_silent, id="silence"),
        pytest.param(trickle, id="a byte at a time"),
        pytest.param(say_garbage, id="garbage"),
        pytest.param(refuse, id="an alert"),
        pytest.param(hang_up, id="FIN"),
        pytest.param(break_off, id="RST"),
    ],
)
async def test_a_handshake_that_fails_is_a_failed_connect_and_any_request_goes_elsewhere(
    certificates: Certificates, handshake: Part
) -> None:
    retry = "retry: {backoff: {base: 1ms}}"
    options = "connect_timeout: 300ms"
    parts = (handshake, serve)
    async with proxied(certificates, *parts, route=retry, options=options) as (proxy, upstream):
        async with proxy.client() as client:
            response = await client.request("POST", "/", body=b"pay")
        assert (response.status, response.body) == (200, b"good")
        record = await last_logged(proxy)
        assert outcomes(record) == ["connect", "2xx"]
        assert [attempt["sent"] for attempt in record["attempts"]] == [False, True]
        assert len(upstream.wires) == 2


async def test_a_slow_handshake_within_connect_timeout_is_waited_for(
    certificates: Certificates,
) -> None:
    async def play(peer: TlsPeer) -> None:
        await peer.shake_hands(by=400, pause=0.02)
        await peer.request()
        await peer.say(ok(b"good"))

    async with proxied(certificates, play) as (proxy, _):
        assert (await proxy.get()).body == b"good"


async def test_a_client_that_leaves_during_a_handshake_leaves_nothing(
    certificates: Certificates,
) -> None:
    async with proxied(certificates, fall_silent) as (proxy, upstream):
        async with proxy.client() as client:
            await client.send(request("GET", "/"))
            await eventually(lambda: upstream.wires)
        await nothing_left(proxy, clients=0)
        await eventually(lambda: proxy.open_upstream_connections == 0)


# What only OpenSSL's own server can be told to do.


@asynccontextmanager
async def openssl_server(
    certificates: Certificates, *options: str
) -> AsyncIterator[tuple[subprocess.Popen[bytes], int]]:
    cert, key = certificates.issue()
    port = free_port()
    process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [tool("openssl"), "s_server", "-accept", str(port), "-cert", cert, "-key", key, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert process.stdout is not None
        await asyncio.to_thread(_read_until, process, b"ACCEPT")
        yield process, port
    finally:
        process.kill()
        process.communicate()


def _read_until(process: subprocess.Popen[bytes], marker: bytes) -> None:
    assert process.stdout is not None
    read = b""
    while marker not in read:
        byte = process.stdout.read(1)
        assert byte, read
        read += byte


def _say(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


@pytest.mark.parametrize(
    ("options", "command"),
    [
        pytest.param(("-tls1_3",), b"k\n", id="TLS 1.3: key update"),
        pytest.param(("-tls1_3",), b"K\n", id="TLS 1.3: key update that wants ours too"),
        pytest.param(("-tls1_2", "-legacy_renegotiation"), b"r\n", id="TLS 1.2: renegotiation"),
    ],
)
async def test_new_keys_in_the_middle_of_a_body(
    certificates: Certificates, options: tuple[str, ...], command: bytes
) -> None:
    """Either the body goes on, or it ends as truncated: nothing hangs, and nothing is lost."""
    async with openssl_server(certificates, *options) as (process, port):
        tls = f"tls: {{ca: {certificates.ca}}}"
        config = one_route(f"https://127.0.0.1:{port}", "idle_timeout: 2s", options=tls)
        async with running(config) as proxy, proxy.client() as client:
            await client.send(request("GET", "/"))
            await asyncio.to_thread(_read_until, process, b"X-Request-Id")
            # Its own line ends are those of a terminal; a head needs none of ours.
            _say(process, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
            await asyncio.wait_for(client.wire.read_until(b"hello"), PATIENCE)
            _say(process, command)
            _say(process, b"3\r\n you\r\n0\r\n\r\n")
            rest = b""
            while b"0\r\n\r\n" not in rest and (data := await client.wire.read()):
                rest += data
            ended = client.wire.end
            (record,) = await proxy.logged()
        assert (outcomes(record), ended) in [(["2xx"], None), (["truncated"], End.RESET)]
