"""Requests with a key under attack: slow readers, large responses, odd clients, little time."""

import asyncio
import gc
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from proxy.server.exchange import ClientExchange
from tests.support import (
    Behaviour,
    End,
    answer,
    answer_and_close,
    chunked,
    eventually,
    hang,
    now,
    ok,
    real_time,
    request,
    response,
    virtual_time,
)
from tests.support.keys import KEY, Gate, is_replayed, keyed, new_key, post
from tests.support.leftovers import nothing_left

pytestmark = virtual_time


PAY = request("POST", "/", KEY, body=b"pay")


# Clients that take their time.


async def read_slowly(port: int, sent: bytes, *, seconds: float) -> bytes:
    """Send, and read the response to its end, for about that long; then no more."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
    try:
        await loop.sock_connect(sock, ("127.0.0.1", port))
        await loop.sock_sendall(sock, sent)
        got = bytearray()
        until = loop.time() + seconds
        while data := await loop.sock_recv(sock, 4096 if loop.time() < until else 1 << 20):
            got += data
            if loop.time() < until:
                await asyncio.sleep(0.01)
            _, end, body = bytes(got[:2000]).partition(b"\r\n\r\n")
            if end and len(got) - len(got[:2000]) + len(body) >= LARGE:
                break
        return bytes(got)
    finally:
        sock.close()


LARGE = 6 << 20


@real_time  # of sockets, with the buffers of a kernel
@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize(
    "head",
    [
        pytest.param("POST / HTTP/1.1\r\n", id="kept alive"),
        pytest.param("POST / HTTP/1.1\r\nConnection: close\r\n", id="closed"),
        pytest.param("POST / HTTP/1.0\r\n", id="1.0"),
    ],
)
async def test_who_reads_slowly_gets_every_byte(
    head: str,
    replay: bool,  # noqa: FBT001 - pytest's way
) -> None:
    # Longer than a connection may be idle between two requests.
    async with keyed("{max_response: 8MiB}", top="limits: {keepalive: 1s}") as (upstream, proxy):
        upstream.script(answer(ok(b"x" * LARGE)))
        if replay:
            await post(proxy)
        sent = f"{head}Host: a\r\n{KEY}\r\nContent-Length: 3\r\n\r\npay".encode()
        got = await read_slowly(proxy.port, sent, seconds=1.2)
        assert got.endswith(b"\r\n\r\n" + b"x" * LARGE)
        assert len(upstream.requests) == 1
        await nothing_left(proxy)
        assert {line["code"] for line in await proxy.logged(1 + replay)} == {200}


@pytest.mark.parametrize("replay", [False, True])
async def test_who_does_not_read_at_all_is_cut_off_in_the_end(
    replay: bool,  # noqa: FBT001 - pytest's way
) -> None:
    async with keyed("{max_response: 8MiB}", "idle_timeout: 100ms") as (upstream, proxy):
        upstream.script(answer(ok(b"x" * LARGE)))
        if replay:
            await post(proxy)
        async with proxy.client(receive_buffer=4096) as client:
            client.wire.stall()
            await client.send(request("POST", "/", KEY, body=b"pay"))
            lines = await proxy.logged(1 + replay)
            assert lines[-1]["code"] == 499
        await nothing_left(proxy)
        assert is_replayed(await post(proxy))
        assert len(upstream.requests) == 1


# Sizes and shapes.


SIZE = 1500


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(lambda body: answer(ok(body)), id="with a length"),
        pytest.param(lambda body: answer(ok(body)[:300], ok(body)[300:]), id="in two"),
        pytest.param(lambda body: answer(chunked(body)), id="in a chunk"),
        pytest.param(lambda body: answer(chunked(body[:9], body[9:])), id="in two chunks"),
        pytest.param(
            lambda body: answer(chunked(body, last=False), b"0\r\n\r\n"), id="with a late end"
        ),
        pytest.param(
            lambda body: answer_and_close(b"HTTP/1.1 200 OK\r\n\r\n", body), id="until it closes"
        ),
    ],
)
async def test_what_just_fits_is_kept_and_a_byte_more_is_not(
    behaviour: Callable[[bytes], Behaviour], extra: int
) -> None:
    body = b"x" * (SIZE + extra)
    async with keyed(f"{{max_response: {SIZE}B}}") as (upstream, proxy):
        upstream.script(behaviour(body))
        first = await post(proxy)
        assert (first.body, first.complete) == (body, True)
        second = await post(proxy)
        if extra:
            assert (second.status, second.reason_word) == (409, "result_not_stored")
        else:
            assert (second.body, is_replayed(second)) == (body, True)
        assert len(upstream.requests) == 1
        await nothing_left(proxy)


async def test_interim_responses_are_no_part_of_a_result() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    async with keyed() as (upstream, proxy):
        upstream.script(answer(b"HTTP/1.1 100 Continue\r\n\r\n", hints, ok(b"done")))
        for _ in range(2):
            got = await post(proxy)
            assert (got.body, got.interim, got.get("Link")) == (b"done", [], None)
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "line", [b"HTTP/1.1 200 ", b"HTTP/1.1 299 Odd: it\x80is", b"HTTP/1.0 201 Old"]
)
async def test_odd_status_lines_are_replayed_as_they_were_relayed(line: bytes) -> None:
    async with keyed() as (upstream, proxy):
        upstream.script(answer_and_close(line + b"\r\nContent-Length: 2\r\n\r\nok"))
        first, second = [await post(proxy) for _ in range(2)]
        assert (first.status, first.reason, first.body) == (
            second.status,
            second.reason,
            second.body,
        )
        assert is_replayed(second)


async def test_a_304_is_kept_where_its_number_is_named() -> None:
    async with keyed("{keep: [304]}") as (upstream, proxy):
        upstream.script(answer(b"HTTP/1.1 304 Not Modified\r\nETag: 7\r\n\r\n"))
        first, second = [await post(proxy) for _ in range(2)]
        assert (first.status, second.status, second.get("ETag")) == (304, 304, "7")
        assert is_replayed(second)


# Odd clients.


async def test_the_same_request_twice_in_one_go() -> None:
    async with keyed() as (upstream, proxy), proxy.client() as client:
        await client.send(PAY * 5)
        answers = await client.responses(["POST"] * 5)
        assert [is_replayed(one) for one in answers] == [False] + [True] * 4
        assert len(upstream.requests) == 1


async def test_the_same_request_in_one_go_on_many_connections() -> None:
    async with (
        keyed(route="throttle: {concurrency: 1, max_wait: 10s}", options="max_connections: 1") as (
            upstream,
            proxy,
        ),
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(proxy.client()) for _ in range(20)]
        keys = [new_key() for _ in range(10)]
        for number, client in enumerate(clients):
            order = keys[number % 10 :] + keys[: number % 10]  # each begins with another one
            await client.send(b"".join(request("POST", "/", key, body=b"pay") for key in order))
        for client in clients:
            answers = await client.responses(["POST"] * 10)
            assert {one.status for one in answers} == {200}
        assert len(upstream.requests) == 10
        await nothing_left(proxy)


async def test_who_asks_first_is_refused_before_it_sends() -> None:
    async with keyed("{required: true}", "buffer: 10B") as (upstream, proxy):
        for fields, word in (
            (("Idempotency-Key: a b",), "key_invalid"),
            ((), "key_missing"),
            ((KEY,), "body_too_large"),
        ):
            async with proxy.client() as client:
                expects = (*fields, "Expect: 100-continue", "Content-Length: 11")
                got = await client.request("POST", "/", *expects)
                assert (got.interim, got.reason_word) == ([], word)
                assert await client.ended() is End.CLOSED
        assert not upstream.requests
        await nothing_left(proxy)


# Little time.


async def test_the_first_one_s_time_is_up_and_those_who_waited_hear_of_it() -> None:
    async with keyed(route="timeout: 200ms") as (upstream, proxy):
        upstream.script(hang)
        first, second = await asyncio.gather(post(proxy), post(proxy))
        assert {first.status, second.status} <= {504, 409}
        assert 504 in {first.status, second.status}
        assert len(upstream.requests) == 1
        await nothing_left(proxy)


async def test_who_has_less_time_than_the_first_one_is_told_to_come_back() -> None:
    gate = Gate()
    async with keyed(route="timeout: none") as (upstream, proxy):
        upstream.script(gate.behaviour)
        first = asyncio.create_task(post(proxy))
        await gate.reached.wait()
        for grant in ("50ms", "0ms"):
            got = await post(proxy, f"Holdfast-Timeout: {grant}")
            assert (got.status, got.reason_word) == (409, "key_in_flight")
            assert int(got.get("Retry-After") or 0) >= 1
        without_limit = asyncio.create_task(post(proxy))
        await eventually(lambda: proxy.waiting_for_keys == 1)
        gate.open()
        assert is_replayed(await without_limit)
        assert not is_replayed(await first)
        await nothing_left(proxy)


async def test_who_takes_over_late_keeps_to_the_time_it_has_left() -> None:
    backoff = "retry: {backoff: {strategy: constant, base: 1400ms, jitter: none}}"
    refused = "refused: [421, 425, 429, 503]"
    async with keyed(route=f"{backoff}\ntimeout: 2s", options=refused) as (upstream, proxy):
        upstream.script(answer(response(503)))
        upstream.usual = hang
        async with proxy.client() as owner, proxy.client() as waiter:
            await owner.send(PAY)
            await upstream.seen()
            began = now()
            await waiter.send(PAY)
            await eventually(lambda: proxy.waiting_for_keys == 1)
            await asyncio.sleep(1.0)
            later = asyncio.create_task(post(proxy, new_key()))
            await upstream.seen(2)
            owner.wire.reset()
            assert (await waiter.response("POST")).status == 504
            assert 1.9 < now() - began < 2.8
            assert (await later).status == 504
        await nothing_left(proxy)


# Reloads.


@pytest.mark.parametrize(
    "settings",
    ["false", "{lease: 5s, ttl: 1h}", "{in_flight: reject}", "{scope: ['header:X-Other']}"],
)
async def test_a_reload_changes_nothing_for_those_who_wait(settings: str) -> None:
    gate = Gate()
    async with keyed(route="throttle: {concurrency: 1, max_wait: 10s}") as (upstream, proxy):
        upstream.script(gate.behaviour)
        async with proxy.client() as other, proxy.client() as owner, proxy.client() as waiter:
            await other.send(request("POST", "/", new_key(), body=b"pay"))
            await gate.reached.wait()
            await owner.send(PAY)
            await eventually(lambda: len(proxy.app._in_flight_keys) == 2)
            await waiter.send(PAY)
            await eventually(lambda: proxy.waiting_for_keys == 1)
            text = proxy.config.read_text()
            proxy.config.write_text(text.replace("idempotency: true", f"idempotency: {settings}"))
            assert (await proxy.admin("POST", "/-/reload")).status == 200
            owner.wire.reset()
            await eventually(lambda: proxy.waiting_for_keys == 0)
            gate.open()
            got = await waiter.response("POST")
            assert (got.status, is_replayed(got)) == (200, False)
            assert (await other.response("POST")).status == 200
        await nothing_left(proxy)
        assert len(upstream.requests) == 2


# What is left, and what is told.


@pytest.mark.parametrize("fields", [(), ("Connection: close",)])
async def test_no_exchange_waits_for_the_collector(fields: tuple[str, ...]) -> None:
    def exchanges() -> int:
        return sum(isinstance(thing, ClientExchange) for thing in gc.get_objects())

    async with keyed() as (_, proxy):
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                key = new_key()
                for _ in range(2):
                    await post(proxy, key, *fields)
            await nothing_left(proxy, clients=0)
            assert exchanges() < 5
        finally:
            gc.enable()


def stored(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.iterdir()]


@real_time  # letters are in a file
async def test_neither_key_nor_credential_nor_body_is_told_to_anybody(tmp_path: Path) -> None:
    secrets = ("key-1f6b", "token-2c7d", "body-3a8e")
    top = f"store: {{url: 'sqlite:{tmp_path}/keys.db', timeout: 5s}}"
    async with keyed(route="timeout: 300ms", top=top) as (upstream, proxy):
        fields = ("Idempotency-Key: key-1f6b", "Authorization: Bearer token-2c7d")
        upstream.script(hang)
        answers = [
            await post(proxy, *fields, body=body) for body in (b"body-3a8e",) * 3 + (b"other",)
        ]
        told = [
            *(one.raw_head + one.body for one in answers),
            *[(await proxy.admin("GET", page)).body for page in ("/status", "/metrics")],
            *stored(tmp_path),
            str(await proxy.logged(4)).encode(),
        ]
        for secret in secrets:
            assert not [text for text in told if secret.encode() in text]
