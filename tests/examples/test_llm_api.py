"""An LLM API: streams, hints of all kinds, and a limit for each key."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.examples.example import Example
from tests.support import (
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    hang_up,
    ok,
    request,
    response,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.records import last_logged
from tests.support.throttles import in_queue, throttle

pytestmark = virtual_time


EXAMPLE = Example("llm-api.yaml")

ALICE, BOB = "Authorization: Bearer alice", "Authorization: Bearer bob"
PROMPT = b'{"model": "m", "stream": true}'
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def stage(
    clock: FakeClock | None = None,
) -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    async with ScriptedUpstream() as api:
        overlay = f"upstreams: {{llm: {{urls: [{api.url}]}}}}"
        async with EXAMPLE.running(overlay, clock=clock) as proxy:
            yield api, proxy


async def ask(proxy: RunningProxy, *fields: str) -> Response:
    async with proxy.client() as client:
        return await client.request("POST", "/v1/messages", *(fields or (ALICE,)), body=PROMPT)


async def test_each_event_of_a_stream_arrives_when_it_is_sent() -> None:
    received = asyncio.Event()

    async def tokens(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(EVENTS)
        for number in range(3):
            await visit.send(b"9\r\ndata: %d\n\n\r\n" % number)
            async with asyncio.timeout(2):
                await received.wait()
            received.clear()
        await visit.send(b"0\r\n\r\n")

    async with stage() as (api, proxy), proxy.client() as client:
        api.script(tokens)
        await client.send(request("POST", "/v1/messages", ALICE, body=PROMPT))
        assert b"text/event-stream" in await client.wire.read_until(b"\r\n\r\n")
        for number in range(3):
            event = await client.wire.read_until(b"\n\n\r\n")
            assert event == b"9\r\ndata: %d\n\n\r\n" % number
            received.set()
        assert await client.wire.read_exactly(5) == b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("hints", "least"),
    [
        pytest.param(["retry-after-ms: 40"], 40, id="milliseconds"),
        pytest.param(
            ["x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 60ms"],
            60,
            id="requests",
        ),
        pytest.param(
            ["x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 50ms"], 50, id="tokens"
        ),
    ],
)
async def test_a_429_is_sent_again_when_it_says(hints: list[str], least: int) -> None:
    clock = FakeClock()
    clock.chance = 0.0  # no back-off of ours is longer than the hint
    async with stage(clock) as (api, proxy):
        api.script(answer(response(429, b"slow down", *hints)))
        assert (await ask(proxy)).status == 200
        _, again = (await last_logged(proxy))["attempts"]
        assert again["wait_for"] == "hint"
        assert again["wait_ms"] >= least
        first, second = api.requests
        assert (first.body, second.body) == (PROMPT, PROMPT)


async def test_overloaded_means_not_done_so_a_post_is_sent_again() -> None:
    async with stage() as (api, proxy):
        api.script(answer(response(529, b"overloaded", "retry-after-ms: 1")))
        assert (await ask(proxy)).status == 200
        assert len(api.requests) == 2


async def test_what_may_have_run_is_not_paid_for_twice() -> None:
    async with stage() as (api, proxy):
        api.script(hang_up)
        assert (await ask(proxy)).status == 502
        assert len(api.requests) == 1
        assert (await last_logged(proxy))["attempts"][0]["why"] == "not_repeatable"


async def test_all_callers_with_the_same_key_wait_after_a_429_and_no_others() -> None:
    clock = FakeClock()
    async with stage(clock) as (api, proxy), proxy.client() as client:
        api.script(answer(response(429, b"", "retry-after-ms: 300")), answer(ok(b"bob's")))
        clock.stop()  # her pause does not end before all were seen
        await client.send(request("POST", "/v1/messages", ALICE, body=PROMPT))
        await eventually(lambda: throttle(proxy, "route", "llm")["paused"] == 1)
        assert (await ask(proxy, BOB)).body == b"bob's"
        another = asyncio.create_task(ask(proxy, ALICE))
        await in_queue(proxy, 1, "route", "llm")
        clock.go_on()
        assert [(await client.response("POST")).status, (await another).status] == [200, 200]
        refused, _, *later = api.requests
        assert min(seen.at - refused.at for seen in later) >= 0.299


async def test_each_key_has_600_requests_a_minute_and_a_few_of_them_at_once() -> None:
    async with stage() as (api, proxy):
        crowd = [ask(proxy, key) for key in (ALICE, BOB) for _ in range(25)]
        assert {got.status for got in await asyncio.gather(*crowd)} == {200}
        for key in ("alice", "bob"):
            times = [r.at for r in api.requests if r.get("Authorization") == f"Bearer {key}"]
            times.sort()
            assert times[24] - times[0] >= 1.2  # after thirteen one every 102 ms
