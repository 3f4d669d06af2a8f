"""A key that an upstream honours: good for a while, and at the URL that got it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support import (
    Behaviour,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    hang_up,
    ok,
    real_time,
    response,
    running,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.dead_letters import replay, replayed
from tests.support.keys import post
from tests.support.ports import refusing_port
from tests.support.records import last_logged

pytestmark = virtual_time


QUICK = "backoff: {base: 1ms, max: 1ms}"
unavailable = answer(response(503))


@asynccontextmanager
async def two(
    promise: str = "true",
    retry: str = "attempts: 4",
    *,
    balance: str = "first",
    options: str = "",
    route: str = "",
    clock: FakeClock | None = None,
) -> AsyncIterator[tuple[RunningProxy, ScriptedUpstream, ScriptedUpstream]]:
    """A proxy before two URLs, the first of which gets the first attempt unless they *balance*."""
    retries = f", retry: {{{retry}, {QUICK}}}" if retry else ""
    async with ScriptedUpstream() as first, ScriptedUpstream() as second:
        config = (
            f"upstreams:\n  up: {{urls: [{first.url}, {second.url}], balance: {balance}, "
            f"honours_key: {promise}{options}}}\nroutes:\n"
            f"  - {{match: /**, upstream: up{retries}{route}}}\n"
        )
        async with running(config, clock=clock) as proxy:
            yield proxy, first, second


async def whys(proxy: RunningProxy) -> list[str]:
    return [attempt["why"] for attempt in (await last_logged(proxy))["attempts"]]


@pytest.mark.parametrize("failure", [unavailable, hang_up])
async def test_what_may_have_run_is_sent_to_no_other_url(failure: object) -> None:
    async with two() as (proxy, first, second):
        first.script(failure, failure)  # type: ignore[arg-type]  # behaviours
        given = await post(proxy)
        assert (given.status, given.get("Holdfast-Attempts")) == (200, "3")
        assert (len(first.requests), len(second.requests)) == (3, 0)


async def test_unless_all_of_them_know_its_key() -> None:
    async with two("{shared: true}") as (proxy, first, second):
        first.script(unavailable)
        assert (await post(proxy)).status == 200
        assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_what_did_not_run_goes_anywhere() -> None:
    async with two() as (proxy, first, second):
        first.script(answer(response(429, b"", "Retry-After: 0")))
        assert (await post(proxy)).status == 200
        assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_a_method_that_may_run_twice_goes_anywhere() -> None:
    async with two() as (proxy, first, second):
        first.script(unavailable)
        assert (await post(proxy, method="PUT")).status == 200
        assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_it_stays_there_when_nobody_is_there_any_more() -> None:
    async with two() as (proxy, first, second):

        async def leave(visit: Visit) -> None:
            await visit.read_body()
            assert first._server is not None
            first._server.close()
            await visit.send(response(503, b"", "Connection: close"))

        first.script(leave)
        given = await post(proxy)
        assert (given.status, given.reason_word) == (502, "connect")
        assert await whys(proxy) == ["retried"] * 3 + ["attempts_exhausted"]
        assert (len(first.requests), len(second.requests)) == (1, 0)


async def test_with_its_breaker_open_it_is_not_sent_at_all() -> None:
    breaker = ", breaker: {min_requests: 1}"
    async with two(options=breaker) as (proxy, first, second):
        first.script(unavailable)
        given = await post(proxy)
        assert (given.status, given.get("Holdfast-Attempts")) == (503, None)
        assert await whys(proxy) == ["breaker_open"]
        assert (len(first.requests), len(second.requests)) == (1, 0)


async def test_a_stale_connection_is_replaced_where_it_was() -> None:
    async with two() as (proxy, first, second):
        assert (await post(proxy, "Idempotency-Key: warm")).status == 200
        first.script(hang_up)  # over the connection that was kept
        given = await post(proxy)
        assert given.status == 200
        assert (len(first.requests), len(second.requests)) == (3, 0)
        record = (await proxy.logged(2))[1]
        assert [attempt["reused"] for attempt in record["attempts"]] == [True, False]


async def test_nor_is_it_replaced_once_its_key_may_be_forgotten() -> None:
    """The throttle would admit it half a second later, and it must begin within a tenth of one."""
    throttled = ", throttle: 2/s"
    async with two("{for: 1s}", "attempts: 4, attempt_timeout: 900ms", route=throttled) as (
        proxy,
        first,
        _,
    ):
        assert (await post(proxy, "Idempotency-Key: warm")).status == 200
        first.script(hang_up)
        given = await post(proxy)
        assert (given.status, given.reason_word) == (502, "reset")
        assert len(first.requests) == 2


async def test_a_key_is_good_for_a_while() -> None:
    clock = FakeClock()
    promise, retry = "{for: 60s}", "attempts: 4, attempt_timeout: 10s"

    async with two(promise, retry, clock=clock) as (proxy, first, _):

        def late(seconds: float) -> Behaviour:
            async def behave(visit: Visit) -> None:
                await visit.read_body()
                clock.advance(seconds)
                await visit.send(response(503))

            return behave

        first.script(late(5.0), late(5.0), late(41.0))
        given = await post(proxy)
        assert (given.status, given.get("Holdfast-Attempts")) == (503, "3")
        assert await whys(proxy) == ["retried", "retried", "key_expired"]
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_retry_verdicts_total", reason="key_expired") == 1


@pytest.mark.parametrize("status", [500, 503, 429])
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_what_the_upstream_replays_is_final(status: int, method: str) -> None:
    async with two(retry="attempts: 4, on: [default, 500]") as (proxy, first, second):
        first.script(answer(response(status, b"as before", "Idempotent-Replayed: true")))
        given = await post(proxy, method=method)
        assert (given.status, given.body) == (status, b"as before")
        assert await whys(proxy) == ["final_answer"]
        assert len(first.requests) + len(second.requests) == 1


async def test_amazons_hint_is_in_milliseconds() -> None:
    async with two() as (proxy, first, _):
        first.script(answer(response(503, b"", "x-amz-retry-after: 30")))
        assert (await post(proxy)).status == 200
        _, second = (await last_logged(proxy))["attempts"]
        assert second["wait_for"] == "hint"
        assert 30 <= second["wait_ms"] < 300


# Letters.


async def dead_lettered(proxy: RunningProxy) -> str:
    return (await post(proxy)).get("Holdfast-Dead-Letter") or ""


@real_time  # letters are in a file
@pytest.mark.parametrize("throttle", ["", ", throttle: 100/s"], ids=["free", "throttled"])
@pytest.mark.parametrize("retry", ["", "attempts: 1", "attempts: 2"])
async def test_a_letter_goes_where_its_key_is_known(retry: str, throttle: str) -> None:
    route = f", dead_letter: true{throttle}"
    async with two(retry=retry, balance="round_robin", route=route) as (proxy, *both):
        for one in both:
            one.usual = unavailable
        dead_letter_id = await dead_lettered(proxy)
        knows, other = sorted(both, key=lambda one: -len(one.requests))
        sent = len(knows.requests)
        assert (await replay(proxy, dead_letter_id)).status == 409, "it may have run"
        for one in both:
            one.usual = answer(ok())
        # In turn it would be the other one's:
        assert (await replayed(proxy, dead_letter_id, force=True))["result"] == "succeeded"
        assert (len(knows.requests), len(other.requests)) == (sent + 1, 0)


@real_time  # letters are in a file
async def test_a_letter_whose_key_is_forgotten_is_sent_once() -> None:
    clock = FakeClock()
    route = ", dead_letter: true"
    async with two("{for: 1h}", "attempts: 3", route=route, clock=clock) as (proxy, first, second):
        first.usual = second.usual = unavailable
        dead_letter_id = await dead_lettered(proxy)
        assert len(first.requests) == 3
        clock.advance(3600)
        found = await replayed(proxy, dead_letter_id, force=True)
        assert (found["result"], found["attempts"]) == ("failed", 1)
        answered = await proxy.admin("GET", f"/dead-letters/{dead_letter_id}")
        run = json.loads(answered.body)["runs"][-1]
        assert [attempt["why"] for attempt in run["attempts"]] == ["key_expired"]


async def test_a_dead_url_is_left_for_another_while_nothing_was_sent() -> None:
    async with ScriptedUpstream() as second:
        with refusing_port() as port:
            config = (
                f"upstreams:\n  up: {{urls: ['http://127.0.0.1:{port}', {second.url}], "
                f"balance: first, honours_key: true}}\nroutes:\n"
                f"  - {{match: /**, upstream: up, retry: {{{QUICK}}}}}\n"
            )
            async with running(config) as proxy:
                assert (await post(proxy)).status == 200
        assert len(second.requests) == 1
