"""``key``: a bucket for each caller, one for all who cannot be told apart, and never too many."""

import asyncio
import random
from collections import Counter

import pytest

from tests.support import (
    Behaviour,
    ScriptedUpstream,
    Visit,
    ok,
    one_route,
    request,
    response,
    running,
    virtual_time,
)
from tests.support.clock import FakeClock
from tests.support.depth import DEEP
from tests.support.leftovers import nothing_left
from tests.support.throttles import ManualAnswers, in_queue, statuses, throttle

pytestmark = virtual_time


TRUSTING = "trusted_proxies: [127.0.0.1]"


def one_each(key: str, more: str = "max_wait: 0s") -> str:
    """Each caller may call once."""
    return f"throttle: {{rate: 1/h, key: '{key}', {more}}}"


Caller = tuple[str, ...]
"""A target and header fields."""


@pytest.mark.parametrize(
    ("key", "top", "callers"),
    [
        pytest.param(
            "header:X-Tenant",
            "",
            [("/", "X-Tenant: a"), ("/", "X-Tenant: b"), ("/?tenant=a", "X-Tenant: A")],
            id="by a header's value",
        ),
        pytest.param(
            "header:x-tenant",
            "",
            [("/", "X-TENANT: a"), ("/",)],
            id="a header's name has no case, and without it one is a caller too",
        ),
        pytest.param(
            "query:tenant",
            "",
            [("/?tenant=a",), ("/?tenant=b",), ("/?tenant=",), ("/?x=1&tenant=a%20b",)],
            id="by a query parameter",
        ),
        pytest.param(
            "client_ip",
            TRUSTING,
            [
                ("/", "X-Forwarded-For: 203.0.113.1"),
                ("/", "X-Forwarded-For: 203.0.113.2"),
                ("/", "X-Forwarded-For: 2001:db8::1"),
                ("/", "X-Forwarded-For: 2001:db8:0:1::1"),
                ("/", "X-Forwarded-For: fe80::1"),
                ("/", "X-Forwarded-For: fe80::2"),
                ("/",),
            ],
            id="by the address that a trusted proxy tells",
        ),
    ],
)
async def test_each_caller_has_its_own(key: str, top: str, callers: list[Caller]) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, one_each(key), top=top)) as proxy,
    ):
        for caller in callers:
            assert (await proxy.get(*caller)).status == 200, caller
        for caller in callers:
            assert (await proxy.get(*caller)).status == 429, caller
        assert len(upstream.requests) == len(callers)


@pytest.mark.parametrize(
    ("key", "callers"),
    [
        pytest.param(
            "header:X-Tenant",
            [("/",), ("/", "X-Other: a"), ("/?tenant=a",), ("/", "X-Tenant: ")],
            id="without the header, or with nothing in it",
        ),
        pytest.param(
            "query:tenant",
            [("/",), ("/?tenants=a",), ("/?tenant=",), ("/?tenant",), ("/", "X-Tenant: a")],
            id="without the parameter, or with nothing in it",
        ),
        pytest.param(
            "query:tenant",
            [("/?tenant=a+b",), ("/x?a=b&tenant=a%20b",), ("/?%74enant=a%20b",)],
            id="the same value, however it is spelled",
        ),
        pytest.param(
            "client_ip",
            [
                ("/", "X-Forwarded-For: 203.0.113.1"),
                ("/", "X-Forwarded-For: 203.0.113.2"),
                ("/", "Forwarded: for=203.0.113.3"),
            ],
            id="addresses that nobody trusted tells",
        ),
    ],
)
async def test_who_cannot_be_told_apart_shares_one(key: str, callers: list[Caller]) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, one_each(key))) as proxy,
    ):
        first, *others = callers
        assert (await proxy.get(*first)).status == 200
        for caller in others:
            assert (await proxy.get(*caller)).status == 429, caller
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("key", "spellings"),
    [
        pytest.param(
            "header:Authorization",
            ["Bearer a", "bearer a", "BEARER a", "Bearer  a", "bEARER \t a", "Bearer a "],
            id="the scheme of a credential has no case",
        ),
        pytest.param(
            "header:Proxy-Authorization", ["Basic YQ==", "basic YQ==", "BASIC   YQ=="], id="proxy"
        ),
    ],
)
async def test_a_caller_does_not_multiply_its_limit_by_spelling(
    key: str, spellings: list[str]
) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, one_each(key))) as proxy,
    ):
        name = key.partition(":")[2]
        got = [(await proxy.get("/", f"{name}: {spelling}")).status for spelling in spellings]
        assert got == [200] + [429] * (len(spellings) - 1)
        assert len(upstream.requests) == 1


async def test_a_network_of_ipv6_is_one_caller() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, one_each("client_ip"), top=TRUSTING)) as proxy,
    ):
        addresses = ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:ffff:ffff:ffff"]
        got = [(await proxy.get("/", f"X-Forwarded-For: {one}")).status for one in addresses]
        assert got == [200, 429, 429]
        mapped = ["192.0.2.1", "::ffff:192.0.2.1"]
        got = [(await proxy.get("/", f"X-Forwarded-For: {one}")).status for one in mapped]
        assert got == [200, 429]


@pytest.mark.parametrize("of", ["route", "upstream"])
@pytest.mark.parametrize(
    ("key", "callers"),
    [
        pytest.param(
            "header:X-Api-Key",
            [
                ("/", "X-Api-Key: K", "X-Api-Key: junk"),
                ("/", "X-Api-Key: junk", "X-Other: a", "x-api-key: K"),
                ("/", "X-Api-Key: K", "X-Api-Key: K"),
                ("/", "X-Api-Key: K", "X-Api-Key: "),
            ],
            id="a second line",
        ),
        pytest.param(
            "query:key",
            [("/?key=junk&key=K",), ("/?key=K&key=K",), ("/?key=K&%6bey=j",), ("/?key&key=K",)],
            id="a second parameter",
        ),
    ],
)
async def test_who_says_twice_who_it_is_gets_400(of: str, key: str, callers: list[Caller]) -> None:
    throttled = one_each(key)
    options = {"options" if of == "upstream" else "route": throttled}
    async with ScriptedUpstream() as upstream, running(one_route(upstream, **options)) as proxy:
        for caller in callers:
            refused = await proxy.get(*caller)
            assert (refused.status, refused.reason_word) == (400, "bad_request"), caller
            assert "this route goes by its value" in refused.problem["detail"]
        assert not upstream.requests
        # Others may come in several lines, and who says it once is served.
        plain = ("/?x=1&x=2&key=a", "X-Api-Key: a", "X-Other: a", "X-Other: b")
        assert (await proxy.get(*plain)).status == 200


async def test_of_a_list_of_addresses_the_one_before_the_trusted_proxies_counts() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, one_each("client_ip"), top=TRUSTING)) as proxy,
    ):
        # What a client claims about itself comes first, and is not believed.
        claims = [f"X-Forwarded-For: 192.0.2.{n}, 203.0.113.1" for n in range(5)]
        got = [(await proxy.get("/", claim)).status for claim in claims]
        assert got == [200] + [429] * 4


async def test_the_key_is_read_as_it_arrived_whatever_the_route_makes_of_it() -> None:
    edits = "headers: {request: {set: {X-Tenant: all}}}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, f"{one_each('header:X-Tenant')}\n{edits}")) as proxy,
    ):
        assert (await proxy.get("/", "X-Tenant: a")).status == 200
        assert (await proxy.get("/", "X-Tenant: b")).status == 200
        assert (await proxy.get("/", "X-Tenant: a")).status == 429
        assert [seen.get("X-Tenant") for seen in upstream.requests] == ["all", "all"]


async def test_one_caller_in_queue_does_not_keep_another_waiting() -> None:
    route = "throttle: {rate: 5/s, burst: 1, key: 'header:X-Tenant'}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as waiting,
    ):
        await proxy.get("/", "X-Tenant: a")
        await waiting.send(request("GET", "/waiting", "X-Tenant: a"))
        await in_queue(proxy, 1)
        assert (await proxy.get("/", "X-Tenant: b")).status == 200
        assert waiting.is_silent
        assert (await waiting.response()).status == 200
        assert upstream.requests[-1].target == "/waiting"


async def test_one_caller_in_queue_for_the_upstream_keeps_nobody_else_of_the_route_waiting() -> (
    None
):
    route = "throttle: {rate: 20/s, burst: 1}"
    options = "throttle: {concurrency: 1, key: 'header:X-Tenant'}"
    manual = ManualAnswers()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, options=options)) as proxy,
        proxy.client() as waiting,
    ):
        upstream.script(manual)
        first = asyncio.create_task(proxy.get("/first", "X-Tenant: a"))
        await upstream.seen()
        await waiting.send(request("GET", "/waiting", "X-Tenant: a"))
        await in_queue(proxy, 1, "upstream", "scripted")
        assert (await proxy.get("/other", "X-Tenant: b")).status == 200
        assert waiting.is_silent
        manual.let_through()
        assert (await first).status == 200
        assert (await waiting.response()).status == 200
        await nothing_left(proxy)


async def test_beyond_max_keys_new_callers_share_256_buckets() -> None:
    route = one_each("header:X-Tenant", "max_wait: 0s, max_keys: 2")
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        for own in ("a", "b"):
            assert await statuses(proxy, 2, "/", f"X-Tenant: {own}") == [200, 429]
        async with proxy.client() as client:
            raw = [request("GET", "/", f"X-Tenant: {number}") for number in range(1000)]
            await client.send(b"".join(raw))
            passed = sum(got.status == 200 for got in await client.responses(["GET"] * 1000))
        assert passed == throttle(proxy)["buckets"] - 3, "each of the shared ones lets one out"
        assert 200 < passed <= 256
        assert (await proxy.get()).status == 200, "who has no value has nothing to do with it"


def accepts(*keys: str) -> Behaviour:
    """An upstream that knows these keys, and no others."""

    async def behave(visit: Visit) -> None:
        is_known = visit.request.get("X-Api-Key") in keys
        await visit.send(ok() if is_known else response(401))

    return behave


async def test_made_up_callers_do_not_starve_those_who_come_back() -> None:
    clock = FakeClock()
    route = "throttle: {rate: 60/h, burst: 1, key: 'header:X-Api-Key', max_wait: 0s, max_keys: 20}"
    victims = [f"X-Api-Key: victim-{number}" for number in range(5)]
    known = accepts(*(victim.partition(": ")[2] for victim in victims))
    async with (
        ScriptedUpstream(known) as upstream,
        running(one_route(upstream, route, top="access_log: none"), clock=clock) as proxy,
        proxy.client() as client,
    ):
        for victim in victims:
            assert (await client.get("/", victim)).status == 200
        for _ in range(5):
            clock.advance(65)
            # More than there are buckets, own and shared ones together.
            raw = [
                request("GET", "/", f"X-Api-Key: {random.getrandbits(64):x}") for _ in range(1000)
            ]
            await client.send(b"".join(raw))
            attacks = Counter(got.status for got in await client.responses(["GET"] * 1000))
            assert set(attacks) == {401, 429}
            for victim in victims:
                assert (await client.get("/", victim)).status == 200
                assert (await client.get("/", victim)).status == 429, "its limit holds as before"


async def test_a_caller_that_nobody_would_miss_makes_room_for_another() -> None:
    clock = FakeClock()
    route = "throttle: {rate: 1/m, key: 'header:X-Tenant', max_wait: 0s, max_keys: 2}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route), clock=clock) as proxy,
    ):
        for caller in ("a", "b"):
            assert await statuses(proxy, 2, "/", f"X-Tenant: {caller}") == [200, 429]
        clock.advance(61)
        for caller in ("c", "d"):
            assert await statuses(proxy, 2, "/", f"X-Tenant: {caller}") == [200, 429]
        assert throttle(proxy)["buckets"] == 3


async def test_a_caller_with_a_call_under_way_is_not_forgotten() -> None:
    route = "throttle: {concurrency: 1, key: 'header:X-Tenant', max_wait: 0s, max_keys: 1}"
    manual = ManualAnswers()
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        upstream.script(manual)
        first = asyncio.create_task(proxy.get("/", "X-Tenant: a"))
        await upstream.seen()
        assert (await proxy.get("/", "X-Tenant: b")).status == 200
        assert (await proxy.get("/", "X-Tenant: a")).status == 429
        manual.let_through()
        assert (await first).status == 200
        await nothing_left(proxy)


@pytest.mark.timeout(120)
async def test_however_many_callers_come_there_are_never_too_many_buckets() -> None:
    most, calls = (10_000, 20_000) if DEEP else (400, 2_000)
    route = one_each("header:X-Tenant", f"max_wait: 0s, max_keys: {most}")
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, top="access_log: none")) as proxy,
        proxy.client() as client,
    ):
        passed = 0
        for _ in range(calls // 100):
            batch = [
                request("GET", "/", f"X-Tenant: {random.getrandbits(64):x}") for _ in range(100)
            ]
            await client.send(b"".join(batch))
            passed += sum(got.status == 200 for got in await client.responses(["GET"] * 100))
        buckets = throttle(proxy)["buckets"]
        assert most + 200 < buckets <= most + 1 + 256
        assert passed == buckets - 1 == len(upstream.requests)


async def test_values_are_nowhere_to_be_read() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, one_each("header:X-Api-Key"))) as proxy,
    ):
        told = [await proxy.get("/", "X-Api-Key: s3cr3t") for _ in range(2)]
        assert [got.status for got in told] == [200, 429]
        told += [await proxy.admin("GET", path) for path in ("/status", "/metrics", "/config")]
        assert not any(b"s3cr3t" in got.raw_head + got.body for got in told)
        assert "s3cr3t" not in str(await proxy.logged(2))
        assert "s3cr3t" not in repr(list(proxy.app._generation.throttles.values()))
