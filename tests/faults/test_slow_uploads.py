"""Request bodies that come drop by drop: a rate that they must keep to, while we wait for them."""

import asyncio

import pytest

from tests.server.replaying import kept_by
from tests.support import (
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    ok,
    one_route,
    request,
    running,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.records import last_logged, outcomes

pytestmark = virtual_time


WINDOW = 30.0


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that counts is the clock's; how often it is looked at is not."""
    monkeypatch.setattr("proxy.server.body.streaming.SAMPLE_EVERY", 0.01)


async def some_looks() -> None:
    """Long enough for several looks at the rate."""
    await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("route", "fields", "start"),
    [
        pytest.param("", ("Content-Length: 99",), b"slow", id="sent on as it comes"),
        pytest.param("retry: true", ("Content-Length: 99",), b"slow", id="kept for a retry"),
        pytest.param("", ("Transfer-Encoding: chunked",), b"4\r\nslow\r\n", id="in chunks"),
        pytest.param(
            "idempotency: true",
            ("Content-Length: 99", "Idempotency-Key: k"),
            b"slow",
            id="with a key",
        ),
        pytest.param("", ("Content-Length: 99",), b"", id="not a byte"),
    ],
)
async def test_a_body_below_the_rate_is_408(
    route: str, fields: tuple[str, ...], start: bytes
) -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"idle_timeout: none\n{route}"), clock=clock) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("POST", "/", *fields))
        for byte in start:
            await client.send(bytes([byte]))
            await asyncio.sleep(0.01)
        await some_looks()
        clock.advance(WINDOW - 5)
        await some_looks()
        assert client.is_silent
        clock.advance(5)
        response = await client.response("POST")
        assert (response.status, response.reason_word) == (408, "slow_client")
        assert response.get("Connection") == "close"
        await eventually(lambda: proxy.open_upstream_connections == 0)
        assert kept_by(proxy) == 0
        assert not any(r.complete for r in upstream.requests)
        lines = await last_logged(proxy)
        assert outcomes(lines) == (["cancelled"] if lines["attempts"] else [])


async def test_a_body_that_keeps_to_the_rate_may_take_as_long_as_it_likes() -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "timeout: 1s"), clock=clock) as proxy,
        proxy.client() as client,
    ):
        size = 10 * 6_000  # each within 12 s: ten of them pass here, the rest by the machine
        await client.send(request("POST", "/", f"Content-Length: {size}"))
        for _ in range(10):
            await some_looks()
            clock.advance(10)
            await client.send(bytes(6_000))
        assert (await client.response("POST")).status == 200
        assert len((await upstream.seen()).body) == size


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        pytest.param("{body_rate: none}", 200, id="none"),
        pytest.param("{body_rate: 1B/s}", 200, id="a lower one"),
        pytest.param("{body_rate: 1KiB/s}", 408, id="a higher one"),
    ],
)
async def test_the_rate_is_the_one_in_the_file(limits: str, status: int) -> None:
    clock = FakeClock()
    top = f"limits: {limits}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, top=top), clock=clock) as proxy,
        proxy.client() as client,
    ):
        await client.send(request("POST", "/", "Content-Length: 20000"), bytes(16_000))
        await some_looks()
        clock.advance(WINDOW)
        await some_looks()
        await client.send(bytes(4_000))
        assert (await client.response("POST")).status == status


async def test_time_in_which_the_upstream_is_behind_is_not_the_clients() -> None:
    body = bytes(20_000_000)  # more than all buffers on the way can hold
    clock, go_on = FakeClock(), asyncio.Event()

    async def read_later(visit: Visit) -> None:
        visit.wire.stall()
        await go_on.wait()
        visit.wire.go_on()
        await answer(ok())(visit)

    async with (
        ScriptedUpstream(read_later, receive_buffer=4096) as upstream,
        running(one_route(upstream, "timeout: none"), clock=clock) as proxy,
        proxy.client() as client,
    ):
        sending = asyncio.create_task(
            client.send(request("POST", "/", f"Content-Length: {len(body)}"), body)
        )
        await eventually(lambda: len(upstream.requests) == 1)
        for _ in range(5):
            await some_looks()
            clock.advance(WINDOW)
        await some_looks()
        go_on.set()
        await sending
        assert (await client.response("POST")).status == 200


async def test_time_in_queue_is_not_the_clients() -> None:
    clock, go_on = FakeClock(), asyncio.Event()

    async def wait(visit: Visit) -> None:
        await visit.read_body()
        await go_on.wait()
        await visit.send(ok())

    route = "timeout: none\nthrottle: {concurrency: 1, max_wait: none}"
    async with (
        ScriptedUpstream(wait) as upstream,
        running(one_route(upstream, route), clock=clock) as proxy,
        proxy.client() as first,
        proxy.client() as second,
    ):
        await first.send(request("GET", "/"))
        await eventually(lambda: len(upstream.requests) == 1)
        await second.send(request("POST", "/", "Content-Length: 9", "Expect: 100-continue"))
        await eventually(lambda: proxy.client_connections == 2)
        await some_looks()
        clock.advance(2 * WINDOW)
        await some_looks()
        go_on.set()
        assert (await first.response()).status == 200
        assert (await second.interim()).status == 100
        await second.send(b"123456789")
        assert (await second.response("POST")).status == 200
