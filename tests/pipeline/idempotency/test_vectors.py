"""The vectors of keyed requests, each walked on the wire."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    answer,
    chunked,
    eventually,
    hang,
    ok,
    one_route,
    response,
    running,
    running_together,
    subprocess_proxy,
)
from tests.support.clock import FakeClock
from tests.support.keys import KEY, Gate, is_replayed, keyed, new_key, post
from tests.support.ports import refusing_port
from tests.support.redis_server import free_port, redis_server
from tests.vectors.load import cases, group

Expected = dict[str, Any]
Walk = Callable[[Expected], Awaitable[None]]
WALKS: dict[str, Walk] = {}

CREATED = answer(response(201, b'{"id":1}'))


def walk(case: str) -> Callable[[Walk], Walk]:
    def register(function: Walk) -> Walk:
        WALKS[case] = function
        return function

    return register


@pytest.mark.parametrize("case", cases("idempotency_behaviour"))
async def test_the_vectors(case: dict[str, Any]) -> None:
    await WALKS[case["id"]](case["expect"])


def test_every_vector_is_walked() -> None:
    assert WALKS.keys() == {case["id"] for case in group("idempotency_behaviour")["cases"]}


@walk("ib-01")
async def missing_where_required(expect: Expected) -> None:
    async with keyed("{required: true}") as (upstream, proxy), proxy.client() as client:
        got = await client.request("POST", "/", body=b"pay")
        assert (got.status, got.get("Content-Type")) == (expect["status"], expect["content_type"])
        assert len(upstream.requests) == expect["upstream_calls"]


@walk("ib-02")
async def missing_where_optional(expect: Expected) -> None:
    async with keyed() as (upstream, proxy), proxy.client() as client:
        for _ in range(2):
            await client.request("POST", "/", body=b"pay")
        assert len(upstream.requests) == 2 * expect["upstream_calls"]


@walk("ib-03")
async def the_first(expect: Expected) -> None:
    async with keyed() as (upstream, proxy):
        upstream.script(CREATED)
        got = await post(proxy)
        assert (got.status, is_replayed(got)) == (expect["status"], expect["replayed_header"])
        assert len(upstream.requests) == expect["upstream_calls"]
        assert is_replayed(await post(proxy)) == expect["stored"]


@walk("ib-04")
async def again(expect: Expected) -> None:
    async with keyed() as (upstream, proxy):
        upstream.script(CREATED)
        first, second = [await post(proxy) for _ in range(2)]
        assert second.status == expect["status"]
        name, _, value = expect["replayed_header"].partition(": ")
        assert second.get(name) == value
        assert second.body == first.body
        assert len(upstream.requests) == 1 + expect["upstream_calls"]


@walk("ib-05")
async def in_flight_and_rejected(expect: Expected) -> None:
    gate = Gate()
    async with keyed("{in_flight: reject}") as (upstream, proxy):
        upstream.script(gate.behaviour)
        first = asyncio.create_task(post(proxy))
        await gate.reached.wait()
        second = await post(proxy)
        gate.open()
        await first
        assert (second.status, second.reason_word) == (expect["status"], "key_in_flight")
        assert int(second.get("Retry-After") or 0) >= 1
        assert len(upstream.requests) == 1 + expect["upstream_calls"]


@walk("ib-06")
async def in_flight_and_waited_for(expect: Expected) -> None:
    gate = Gate(response(201, b"first"))
    async with keyed() as (upstream, proxy):
        upstream.script(gate.behaviour)
        first = asyncio.create_task(post(proxy))
        await gate.reached.wait()
        second = asyncio.create_task(post(proxy))
        await eventually(lambda: proxy.waiting_for_keys == 1)
        gate.open()
        one, two = await first, await second
        assert (two.status, two.body) == (one.status, one.body) == (201, b"first")
        name, _, value = expect["replayed_header"].partition(": ")
        assert (one.get(name), two.get(name)) == (None, value)
        assert len(upstream.requests) == 1 + expect["upstream_calls"]


@walk("ib-07")
async def another_body(expect: Expected) -> None:
    async with keyed() as (upstream, proxy):
        await post(proxy)
        second = await post(proxy, body=b"pay more")
        assert (second.status, second.reason_word) == (expect["status"], "key_mismatch")
        assert len(upstream.requests) == 1 + expect["upstream_calls"]


@walk("ib-08")
async def another_body_meanwhile(expect: Expected) -> None:
    for settings in ("{in_flight: reject}", "{in_flight: wait}"):
        gate = Gate()
        async with keyed(settings) as (upstream, proxy):
            upstream.script(gate.behaviour)
            first = asyncio.create_task(post(proxy))
            await gate.reached.wait()
            second = await post(proxy, body=b"pay more")
            gate.open()
            await first
            assert second.status == expect["status"]
            assert len(upstream.requests) == 1 + expect["upstream_calls"]


@walk("ib-09")
async def another_caller(expect: Expected) -> None:
    async with keyed() as (upstream, proxy):
        await post(proxy, "Authorization: Bearer a")
        got = await post(proxy, "Authorization: Bearer b")
        assert is_replayed(got) == expect["replayed_header"]
        assert len(upstream.requests) == 1 + expect["upstream_calls"]


@walk("ib-10")
async def another_route(expect: Expected) -> None:
    async with ScriptedUpstream() as upstream:
        routes = "".join(
            f"  - {{match: /{name}, upstream: up, idempotency: true}}\n" for name in "ab"
        )
        async with running(f"upstreams: {{up: {upstream.url}}}\nroutes:\n{routes}") as proxy:
            await post(proxy, target="/a")
            assert not is_replayed(await post(proxy, target="/b"))
        assert len(upstream.requests) == 1 + expect["upstream_calls"]


@walk("ib-11")
async def another_query(expect: Expected) -> None:
    async with keyed() as (_, proxy):
        await post(proxy, target="/?x=1")
        assert (await post(proxy, target="/?x=2")).status == expect["status"]


@walk("ib-12")
async def another_spelling(expect: Expected) -> None:
    async with keyed() as (_, proxy):
        await post(proxy, body=b'{"a":1,"b":2}')
        assert (await post(proxy, body=b'{"b":2,"a":1}')).status == expect["status"]


@walk("ib-14")
async def after_its_time(expect: Expected) -> None:
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idempotency: {ttl: 1h}"), clock=clock) as proxy,
    ):
        await post(proxy)
        clock.advance(3599)
        assert is_replayed(await post(proxy))
        clock.advance(1)
        assert not is_replayed(await post(proxy))
        assert len(upstream.requests) == 1 + expect["upstream_calls"]
        assert is_replayed(await post(proxy)) == expect["stored"]


async def is_stored(status: int) -> bool:
    """Whether the second request gets the response of the first, and does not run."""
    async with keyed() as (upstream, proxy):
        upstream.script(answer(response(status, b"first")))
        assert (await post(proxy)).status == status
        second = await post(proxy)
        assert (len(upstream.requests) == 1) == is_replayed(second)
        assert second.body == (b"first" if is_replayed(second) else b"ok")
        return is_replayed(second)


@walk("ib-15")
async def a_definite_no(expect: Expected) -> None:
    assert await is_stored(400) == expect["stored"]


@walk("ib-16")
async def not_authenticated(expect: Expected) -> None:
    assert await is_stored(401) == expect["stored"]


async def end_of_retries(settings: str, *statuses: int, expect: Expected, calls: int = 2) -> None:
    for status in statuses:
        async with keyed(
            settings, "retry: {attempts: 2, backoff: {base: 1ms}}", options="honours_key: true"
        ) as (upstream, proxy):
            failure = answer(response(status, b"no", "Retry-After: 0"))
            upstream.script(*[failure] * calls)
            assert (await post(proxy)).status == status
            assert len(upstream.requests) == calls
            second = await post(proxy)
            assert is_replayed(second) == expect["stored"]
            if expect["lock"] == "released":
                assert (second.status, len(upstream.requests)) == (200, calls + 1)
            else:
                assert (second.status, second.reason_word) == (409, "outcome_unknown")
                assert second.status == expect["next_same_key"]
                assert len(upstream.requests) == calls


@walk("ib-17")
async def refused_for_good(expect: Expected) -> None:
    await end_of_retries("true", 429, expect=expect)


@walk("ib-18")
async def unavailable_for_good(expect: Expected) -> None:
    await end_of_retries("true", 503, expect=expect)


@walk("ib-19")
async def failed_and_released(expect: Expected) -> None:
    await end_of_retries("true", 500, expect=expect, calls=1)
    await end_of_retries("true", 502, 504, expect=expect)


@walk("ib-36")
async def failed_and_held(expect: Expected) -> None:
    await end_of_retries("{on_ambiguous: hold}", 500, expect=expect, calls=1)
    await end_of_retries("{on_ambiguous: hold}", 502, 504, expect=expect)


@walk("ib-20")
async def never_reached(expect: Expected) -> None:
    route = "idempotency: {on_ambiguous: hold}"
    with refusing_port() as port:
        config = one_route(f"http://127.0.0.1:{port}", route)
        async with running(config) as proxy:
            await refused_twice(proxy, expect)


async def refused_twice(proxy: RunningProxy, expect: Expected) -> None:
    for _ in range(2):  # the second runs as the first did
        got = await post(proxy)
        assert (got.status, got.reason_word) == (expect["status"], "connect")
    assert [line["idempotency"] for line in await proxy.logged(2)] == ["new", "new"]


@walk("ib-21")
async def nobody_knows(expect: Expected) -> None:
    async with keyed("{on_ambiguous: hold}", "timeout: 100ms") as (upstream, proxy):
        upstream.script(hang)
        assert (await post(proxy)).status == expect["status"]
        second = await post(proxy)
        assert (second.status, second.reason_word) == (expect["next_same_key"], "outcome_unknown")
        assert len(upstream.requests) == 1


@asynccontextmanager
async def killed_and_restarted(
    store: str, settings: str
) -> AsyncIterator[tuple[ScriptedUpstream, Any]]:
    """A second process, on the file of one that was killed in the middle of a request."""
    async with ScriptedUpstream() as upstream:
        config = one_route(upstream, f"idempotency: {settings}", top=store)
        gate = Gate()
        upstream.script(gate.behaviour)
        async with subprocess_proxy(config) as first, first.client() as client:
            await client.send(b"POST / HTTP/1.1\r\nHost: a\r\n")
            await client.send(f"{KEY}\r\nContent-Length: 3\r\n\r\npay".encode())
            await gate.reached.wait()
            first.signal(signal.SIGKILL)
            await first.exit_status()
        gate.open()
        async with subprocess_proxy(config) as second:
            yield upstream, second


@walk("ib-22")
async def killed_and_soon_again(expect: Expected) -> None:
    async with (
        redis_server() as server,
        killed_and_restarted(server.line(), "{in_flight: reject}") as (upstream, proxy),
    ):
        got = await post(proxy)
        assert (got.status, got.reason_word) == (expect["status"], "key_in_flight")
        assert len(upstream.requests) == 1 + expect["upstream_calls"]


@walk("ib-23")
async def killed_and_again_later(expect: Expected) -> None:
    async with (
        redis_server() as server,
        killed_and_restarted(server.line(), "{lease: 1s}") as (upstream, proxy),
    ):
        got = await post(proxy)  # waits for the end of the lease
        assert got.status == 200
        assert len(upstream.requests) == 1 + expect["upstream_calls"]


@walk("ib-24")
async def paused_beyond_its_lease(expect: Expected) -> None:
    gate = Gate(response(201, b"of A"))
    async with redis_server() as server, ScriptedUpstream() as upstream:
        config = one_route(upstream, "idempotency: {lease: 1s}", top=server.line())
        upstream.script(gate.behaviour, answer(response(201, b"of B")))
        async with subprocess_proxy(config) as one, subprocess_proxy(config) as other:
            of_a = asyncio.create_task(post(one))
            await gate.reached.wait()
            one.signal(signal.SIGSTOP)
            of_b = await post(other)
            one.signal(signal.SIGCONT)
            gate.open()
            assert [of_b.body, (await of_a).body] == [b"of B", b"of A"]
            kept = [await post(proxy) for proxy in (one, other)]
            assert expect["store_holds"] == "B result"
            assert {got.body for got in kept} == {b"of B"}
            metrics = await one.metrics()
            assert metrics.total("holdfast_idempotency_total", result="lease_lost") == 1


@walk("ib-25")
async def too_large(expect: Expected) -> None:
    async with keyed("{max_response: 1KiB}") as (upstream, proxy):
        upstream.script(answer(ok(b"x" * 1025)))
        first = await post(proxy)
        assert (first.status, len(first.body)) == (200, 1025)
        second = await post(proxy)
        assert (second.status, second.reason_word) == (409, "result_not_stored")
        assert len(upstream.requests) == 1
        assert expect["second"].startswith("409")


@walk("ib-26")
async def no_store_and_closed(expect: Expected) -> None:
    top = f"store: redis://127.0.0.1:{free_port()}"
    async with ScriptedUpstream() as upstream:
        config = one_route(upstream, "idempotency: true", top=top)
        async with subprocess_proxy(config) as proxy:
            got = await post(proxy)
            assert (got.status, got.reason_word) == (expect["status"], "store")
            assert int(got.get("Retry-After") or 0) >= 1
        assert len(upstream.requests) == expect["upstream_calls"]


@walk("ib-27")
async def no_store_and_open(expect: Expected) -> None:
    top = f"store: redis://127.0.0.1:{free_port()}"
    async with ScriptedUpstream() as upstream:
        config = one_route(upstream, "idempotency: {on_store_error: open}", top=top)
        async with subprocess_proxy(config) as proxy:
            assert (await post(proxy)).status == 200
            metrics = await proxy.metrics()
            assert metrics.total("holdfast_store_errors_total", operation="claim") == 1
            assert metrics.total("holdfast_idempotency_total", result="bypassed") == 1
        assert len(upstream.requests) == expect["upstream_calls"]


@walk("ib-28")
async def a_key_that_says_nothing(expect: Expected) -> None:
    async with keyed() as (upstream, proxy):
        for _ in range(2):
            got = await proxy.get("/", KEY)
            assert not is_replayed(got)
        assert len(upstream.requests) == 2 * expect["upstream_calls"]
        assert upstream.requests[0].get("Idempotency-Key") == KEY.partition(": ")[2]


@walk("ib-29")
async def the_client_leaves(expect: Expected) -> None:
    gate = Gate(response(201, b"first"))
    async with keyed() as (upstream, proxy):
        upstream.script(gate.behaviour)
        async with proxy.client() as client:
            await client.send(f"POST / HTTP/1.1\r\nHost: a\r\n{KEY}\r\n".encode())
            await client.send(b"Content-Length: 3\r\n\r\npay")
            await gate.reached.wait()
        await eventually(lambda: proxy.client_connections == 0)
        gate.open()
        await proxy.logged(1)
        second = await post(proxy)
        assert (second.status, second.body, is_replayed(second)) == (201, b"first", True)
        assert len(upstream.requests) == 1 + expect["upstream_calls"]


@walk("ib-30")
async def what_is_not_repeated(expect: Expected) -> None:
    fields = (
        "Set-Cookie: session=1",
        "Date: Tue, 17 Nov 2020 10:00:00 GMT",
        "Connection: keep-alive, X-Hop",
        "Keep-Alive: timeout=5",
        "X-Hop: 1",
        "Via: 1.1 inner",
        "Age: 3",
        "X-End: 2",
    )
    async with keyed() as (upstream, proxy):
        upstream.script(answer(ok(b"first", *fields)))
        first, second = [await post(proxy) for _ in range(2)]
        assert first.get("Set-Cookie") == "session=1"
        assert second.get("Set-Cookie") is None
        for name in (*expect["absent"], "Age", "X-Hop"):
            assert second.get(name) is None
        assert second.get("Date") == first.get("Date") == "Tue, 17 Nov 2020 10:00:00 GMT"
        assert (second.get("X-End"), second.all("Via")) == ("2", ["1.1 holdfast"])


@walk("ib-31")
async def once_chunked(expect: Expected) -> None:
    async with keyed() as (upstream, proxy):
        upstream.script(answer(chunked(b"one", b"two")))
        first, second = [await post(proxy) for _ in range(2)]
        assert (first.framing, first.body) == ("chunked", b"onetwo")
        assert (second.framing, second.body) == ("length", b"onetwo")
        assert "Content-Length" in expect["framing"]


@walk("ib-32")
async def a_replay_costs_nothing(expect: Expected) -> None:
    throttle = "throttle: {rate: 2/h, burst: 2, max_wait: 0s}\nretry: true"
    async with keyed(route=throttle) as (upstream, proxy):
        for _ in range(5):
            assert (await post(proxy)).status == 200
        assert (await post(proxy, new_key())).status == 200
        assert (await post(proxy, new_key())).status == 429
        assert len(upstream.requests) == 2
        passed = (await proxy.metrics()).total("holdfast_throttle_decisions_total", name="all")
        assert passed == 2 + 1 + expect["rate_limit_consumed"]


@walk("ib-33")
async def a_conflict_is_not_kept(expect: Expected) -> None:
    gate = Gate()
    async with keyed("{in_flight: reject}") as (upstream, proxy):
        upstream.script(gate.behaviour)
        first = asyncio.create_task(post(proxy))
        await gate.reached.wait()
        assert (await post(proxy)).status == 409
        gate.open()
        await first
        assert ((await post(proxy)).status == 409) == expect["stored"]


@walk("ib-34")
async def two_instances_at_once(expect: Expected) -> None:
    async with redis_server() as server, ScriptedUpstream() as upstream:
        top = f"store: {{url: 'redis://127.0.0.1:{server.port}', timeout: 2s}}"
        config = one_route(upstream, "idempotency: true", top=top)
        async with running_together(config, config) as proxies:
            got = await asyncio.gather(*(post(proxy) for proxy in proxies))
        assert [one.status for one in got] == [200, 200]
        assert sorted(map(is_replayed, got)) == [False, True]
        assert len(upstream.requests) == expect["upstream_calls"]


@walk("ib-35")
async def a_body_that_cannot_be_kept(expect: Expected) -> None:
    async with keyed(route="buffer: 1KiB") as (upstream, proxy):
        got = await post(proxy, body=b"x" * 1025)
        assert (got.status, got.reason_word) == (expect["status"], "body_too_large")
        async with proxy.client() as client:
            await client.send(f"POST / HTTP/1.1\r\nHost: a\r\n{KEY}\r\n".encode())
            await client.send(b"Transfer-Encoding: chunked\r\n\r\n")
            await client.send(b"401\r\n" + b"x" * 1025 + b"\r\n")
            assert (await client.response("POST")).status == expect["status"]
        assert len(upstream.requests) == expect["upstream_calls"]
        assert (await post(proxy, body=b"x" * 1024)).status == 200
