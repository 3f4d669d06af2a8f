"""Which of several addresses a request goes to."""

import time
from contextlib import AsyncExitStack

import pytest

from tests.support import ScriptedUpstream, eventually, hang, one_route, request, running
from tests.support.clock import FakeClock
from tests.support.names import Names
from tests.support.ports import refusing_port
from tests.support.records import last_logged, outcomes


async def spread(balance: str, requests: int) -> list[int]:
    """How many of *requests* each of three upstreams gets."""
    async with AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(ScriptedUpstream()) for _ in range(3)]
        urls = ", ".join(upstream.url for upstream in upstreams)
        proxy = await stack.enter_async_context(
            running(one_route(urls, options=f"balance: {balance}"))
        )
        async with proxy.client() as client:
            for _ in range(requests):
                assert (await client.get()).status == 200
        return [len(upstream.requests) for upstream in upstreams]


async def test_round_robin_takes_one_after_the_other() -> None:
    assert await spread("round_robin", 9) == [3, 3, 3]


async def test_first_takes_the_first() -> None:
    assert await spread("first", 9) == [9, 0, 0]


@pytest.mark.parametrize("balance", ["round_robin", "first"])
async def test_an_address_that_just_failed_is_skipped_for_a_while(balance: str) -> None:
    clock = FakeClock()
    with refusing_port() as port:
        async with ScriptedUpstream() as upstream:
            urls = f"http://127.0.0.1:{port}, {upstream.url}"
            config = one_route(urls, options=f"balance: {balance}")
            async with running(config, clock=clock) as proxy, proxy.client() as client:

                async def statuses(count: int) -> list[int]:
                    return [(await client.get()).status for _ in range(count)]

                # It is met once, and then left alone.
                assert sorted(await statuses(6)) == [200] * 5 + [502]
                clock.advance(6)
                assert sorted(await statuses(6)) == [200] * 5 + [502]


async def test_when_all_have_failed_one_is_tried_all_the_same() -> None:
    with refusing_port() as one, refusing_port() as other:
        urls = f"http://127.0.0.1:{one}, http://127.0.0.1:{other}"
        async with running(one_route(urls)) as proxy, proxy.client() as client:
            for _ in range(4):
                assert (await client.get()).reason_word == "connect"
            addresses = {record["attempts"][0]["address"] for record in await proxy.logged(4)}
            assert addresses == {f"127.0.0.1:{one}", f"127.0.0.1:{other}"}


@pytest.mark.parametrize(
    "addresses",
    [
        pytest.param(["::1", "127.0.0.1"], id="the dead one first"),
        pytest.param(["127.0.0.1", "::1"], id="the dead one last"),
    ],
)
async def test_a_name_with_a_dead_address_serves_its_callers_all_the_same(
    addresses: list[str],
) -> None:
    Names(both=addresses)
    async with ScriptedUpstream() as upstream:
        async with running(one_route(f"http://both:{upstream.port}")) as proxy:
            for _ in range(4):
                assert (await proxy.get()).status == 200
            record = await last_logged(proxy, 4)
            assert outcomes(record) == ["2xx"]
            assert record["attempts"][0]["address"] == f"127.0.0.1:{upstream.port}"
        assert {r.get("Host") for r in upstream.requests} == {f"both:{upstream.port}"}


async def test_a_changed_address_is_used_after_half_a_minute() -> None:
    clock = FakeClock()
    names = Names(moving=["127.0.0.1"])
    async with ScriptedUpstream() as upstream:
        config = one_route(f"http://moving:{upstream.port}")
        async with running(config, clock=clock) as proxy, proxy.client() as client:
            assert (await client.get()).status == 200
            names.set("moving", "::1")
            clock.advance(29)
            assert (await client.get()).status == 200
            assert names.asked == ["moving"]
            clock.advance(2)
            # This one does not wait for the answer that it asks for.
            assert (await client.get()).status == 200
            await eventually(lambda: names.asked == ["moving"] * 2)
            assert (await client.get()).reason_word == "connect"
            # Connections to the address that is gone are gone too.
            assert proxy.open_upstream_connections == 0


async def test_a_failed_connect_asks_for_the_name_again() -> None:
    names = Names(moving=["::1"])
    async with ScriptedUpstream() as upstream:
        clock = FakeClock()
        config = one_route(f"http://moving:{upstream.port}")
        async with running(config, clock=clock) as proxy:
            clock.advance(2)
            assert (await proxy.get()).status == 502
            names.set("moving", "127.0.0.1")
            clock.advance(2)
            assert (await proxy.get()).status == 502
            await eventually(lambda: len(names.asked) == 2)
            assert (await proxy.get()).status == 200


async def test_a_look_up_that_fails_leaves_the_last_answer_in_force() -> None:
    clock = FakeClock()
    names = Names(fading=["127.0.0.1"])
    async with ScriptedUpstream() as upstream:
        config = one_route(f"http://fading:{upstream.port}")
        async with running(config, clock=clock) as proxy, proxy.client() as client:
            assert (await client.get()).status == 200
            names.set("fading")
            for asked in range(2, 5):
                clock.advance(31)
                assert (await client.get()).status == 200
                await eventually(lambda asked=asked: len(names.asked) == asked)  # type: ignore[misc]  # mypy cannot infer a lambda's default


async def test_a_literal_address_is_never_looked_up() -> None:
    names = Names()
    clock = FakeClock()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream), clock=clock) as proxy,
    ):
        assert (await proxy.get()).status == 200
        clock.advance(60)
        assert (await proxy.get()).status == 200
    assert names.asked == []


async def test_where_one_address_of_a_name_is_busy_another_serves() -> None:
    Names(crowded=["127.0.0.1", "::ffff:127.0.0.1"])
    async with ScriptedUpstream() as upstream:
        upstream.script(hang)
        options = "balance: first\nmax_connections: 1\nconnect_timeout: 100ms"
        config = one_route(f"http://crowded:{upstream.port}", options=options)
        async with running(config) as proxy, proxy.client() as first:
            await first.send(request("GET", "/first"))
            await upstream.seen()
            assert (await proxy.get("/second")).status == 200
            [record] = await proxy.logged(1)
            assert record["attempts"][0]["address"].startswith("[::ffff:127.0.0.1]")


async def test_a_name_is_busy_once_all_its_addresses_were_for_the_whole_connect_timeout() -> None:
    Names(crowded=["127.0.0.1", "::ffff:127.0.0.1"])
    async with ScriptedUpstream(hang) as upstream:
        options = "max_connections: 1\nconnect_timeout: 100ms"
        config = one_route(f"http://crowded:{upstream.port}", options=options)
        async with running(config) as proxy, proxy.client() as first, proxy.client() as second:
            await first.send(request("GET", "/first"))
            await upstream.seen()
            await second.send(request("GET", "/second"))
            await upstream.seen(2)
            began = time.monotonic()
            response = await proxy.get("/third")
            assert (response.status, response.reason_word) == (503, "busy")
            assert time.monotonic() - began >= 0.09
