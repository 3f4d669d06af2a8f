"""A key is its owner's for as long as the store says so, and nothing is sent after that.

How many executions there were is counted by the upstream: each of its 2xx is one.
"""

import asyncio
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest

from proxy.pipeline.idempotency.in_flight import InFlightKey
from tests.pipeline.idempotency.keyed_storms import opened
from tests.pipeline.instances import instances
from tests.support import (
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    one_route,
    response,
    running,
    running_together,
)
from tests.support.dead_letters import listed, replayed
from tests.support.keys import Gate, is_replayed, new_key, post
from tests.support.redis_server import PATIENT, RedisServer, redis_server

deep = pytest.mark.deep
in_every_store = pytest.mark.parametrize(
    "store",
    ["memory", pytest.param("sqlite", marks=deep), pytest.param("redis", marks=deep)],
)
in_lasting_stores = pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=deep)])

SOON = "idempotency: {lease: 1s, on_ambiguous: hold}\nretry: true"
LATER = response(429, b"", "Retry-After: 1")
"""Has not run; an attempt follows in a second."""


async def lost(proxies: list[RunningProxy]) -> float:
    """How often a key was another's when its owner had ended."""
    metrics = [await proxy.metrics() for proxy in proxies]
    return sum(one.total("holdfast_idempotency_total", result="lease_lost") for one in metrics)


def brought(got: Response) -> tuple[int, bytes, bool]:
    return got.status, got.body, is_replayed(got)


@asynccontextmanager
async def two_on_redis(
    upstream: ScriptedUpstream, route: str = SOON, keys: str = PATIENT
) -> AsyncIterator[tuple[RedisServer, list[RunningProxy]]]:
    """Two proxies that share a server."""
    async with redis_server() as server:
        config = one_route(upstream, route, top=server.line(keys))
        async with running_together(config, config) as proxies:
            yield server, proxies


def only_flight(proxy: RunningProxy) -> InFlightKey:
    (flight,) = proxy.app._in_flight_keys._by_name.values()
    return flight


async def forget(server: RedisServer) -> None:
    """Let the store lose its data."""
    async with server.client() as client:
        await client.flushall()


# Finding 6: an owner that has lost its key sends nothing any more.


async def test_a_key_that_was_forgotten_is_not_sent_with_again() -> None:
    async with ScriptedUpstream() as upstream, two_on_redis(upstream) as (server, proxies):
        upstream.script(answer(LATER))
        owner = asyncio.create_task(post(proxies[0]))
        await eventually(lambda: upstream.requests)
        await forget(server)
        got = await owner
        assert (got.status, got.reason_word) == (503, "store")
        assert got.get("Retry-After") == "1"
        assert len(upstream.requests) == 1
        assert await lost(proxies) == 1
        (record,) = await proxies[0].logged()
        assert [attempt["why"] for attempt in record["attempts"]] == ["not_repeatable"]
        assert (await post(proxies[1])).status == 200, "nobody has the key"


async def test_what_may_have_run_is_held_though_the_store_has_forgotten_it() -> None:
    route = "idempotency: {lease: 1s, on_ambiguous: hold}\nretry: {unsafe: always, attempts: 2}"
    async with ScriptedUpstream() as upstream, two_on_redis(upstream, route) as (server, proxies):
        upstream.script(answer(response(502, b"", "Retry-After: 1")))
        owner = asyncio.create_task(post(proxies[0]))
        await eventually(lambda: upstream.requests)
        await forget(server)
        assert (await owner).reason_word == "store"
        await eventually(lambda: len(proxies[0].app._in_flight_keys) == 0)
        for proxy in proxies:
            assert (await post(proxy)).reason_word == "outcome_unknown"
        assert len(upstream.requests) == 1


async def test_who_lost_its_key_gets_the_result_of_the_other() -> None:
    async with ScriptedUpstream() as upstream, two_on_redis(upstream) as (server, proxies):
        upstream.script(answer(LATER), answer(response(201, b"of the other")))
        owner = asyncio.create_task(post(proxies[0]))
        await eventually(lambda: upstream.requests)
        await forget(server)
        assert brought(await post(proxies[1])) == (201, b"of the other", False)
        assert brought(await owner) == (201, b"of the other", True)
        assert len(upstream.requests) == 2, "one that was refused, one that ran"


async def test_who_lost_its_key_waits_for_the_other() -> None:
    gate = Gate(response(201, b"of the other"))
    async with ScriptedUpstream() as upstream, two_on_redis(upstream) as (server, proxies):
        upstream.script(answer(LATER), gate.behaviour)
        owner = asyncio.create_task(post(proxies[0]))
        await eventually(lambda: upstream.requests)
        await forget(server)
        other = asyncio.create_task(post(proxies[1]))
        await eventually(lambda: proxies[0].waiting_for_keys == 1)
        gate.open()
        assert brought(await other) == (201, b"of the other", False)
        assert brought(await owner) == (201, b"of the other", True)
        assert len(upstream.requests) == 2


@in_lasting_stores
async def test_an_instance_that_was_stopped_sends_nothing_after_its_lease(
    store: str, tmp_path: Path
) -> None:
    """The attack itself: stopped in the wait for a retry, while another one runs and keeps."""
    async with ScriptedUpstream() as upstream, opened(store, tmp_path) as top:
        config = one_route(upstream, "idempotency: {lease: 1s}\nretry: true", top=top)
        async with instances(config, 2) as (stopped, other):
            upstream.script(answer(response(429, b"", "Retry-After: 2")))
            upstream.script(answer(response(201, b"of the other")))
            owner = asyncio.create_task(post(stopped))
            await eventually(lambda: upstream.requests)
            stopped.signal(signal.SIGSTOP)
            try:
                got = await post(other)
                assert brought(got) == (201, b"of the other", False), "the lease has ended"
            finally:
                stopped.signal(signal.SIGCONT)
            assert brought(await owner) == (201, b"of the other", True)
        assert len(upstream.requests) == 2, "one that was refused, one that ran"


@deep
async def test_who_cannot_reach_the_store_sends_nothing_after_its_lease() -> None:
    async with (
        ScriptedUpstream() as upstream,
        two_on_redis(upstream, keys="timeout: 200ms") as (server, proxies),
    ):
        upstream.script(answer(response(429, b"", "Retry-After: 2")))
        owner = asyncio.create_task(post(proxies[0]))
        await eventually(lambda: upstream.requests)
        server.stall()
        got = await owner
        assert (got.status, got.reason_word) == (503, "store")
        server.resume()
        await eventually(lambda: len(proxies[0].app._in_flight_keys) == 0)
        assert len(upstream.requests) == 1
        await eventually(lambda: proxies[1].store_state == "up")
        assert (await post(proxies[1])).status == 200, "the store was told: it did not run"


async def test_the_first_attempt_is_asked_too(tmp_path: Path) -> None:
    gate = Gate()
    route = SOON + "\nthrottle: {concurrency: 1, max_wait: 10s}"
    async with ScriptedUpstream() as upstream, opened("sqlite", tmp_path) as top:
        upstream.script(gate.behaviour)
        async with running(one_route(upstream, route, top=top)) as proxy:
            before = asyncio.create_task(proxy.get())
            await gate.reached.wait()
            waiting = asyncio.create_task(post(proxy))
            await eventually(lambda: len(proxy.app._in_flight_keys) == 1)
            with sqlite3.connect(tmp_path / "keys.db") as db:
                db.execute("DELETE FROM keys")
            db.close()
            flight = only_flight(proxy)
            await eventually(lambda: flight.is_lost)
            gate.open()
            got = await waiting
            assert (got.status, got.reason_word) == (503, "store")
            assert (await before).status == 200
            assert await lost([proxy]) == 1
        assert len(upstream.requests) == 1


async def test_no_fallback_is_sent_with_a_key_that_was_lost() -> None:
    gate = Gate(response(503))
    async with (
        ScriptedUpstream() as upstream,
        ScriptedUpstream() as reserve,
        redis_server() as server,
    ):
        upstream.script(gate.behaviour)
        route = (
            "idempotency: {lease: 1s}\n    retry: {attempts: 1, unsafe: always}\n"
            "    fallback: {upstream: reserve}"
        )
        config = (
            f"{server.line()}\n"
            f"upstreams: {{up: {upstream.url}, reserve: {reserve.url}}}\n"
            f"routes:\n  - match: /**\n    upstream: up\n    {route}\n"
        )
        async with running(config) as proxy:
            owner = asyncio.create_task(post(proxy))
            await gate.reached.wait()
            await forget(server)
            flight = only_flight(proxy)
            await eventually(lambda: flight.is_lost)
            gate.open()
            got = await owner
            assert (got.status, got.reason_word) == (503, "store")
        assert reserve.requests == []


async def test_a_dead_letter_is_not_sent_with_a_key_that_was_lost() -> None:
    async with ScriptedUpstream() as upstream, redis_server() as server:
        upstream.script(answer(response(502)), answer(LATER))
        config = one_route(
            upstream,
            "idempotency: {lease: 1s}\nretry: true\ndead_letter: true",
            top=server.line(),
        )
        async with running(config) as proxy:
            assert (await post(proxy)).status == 502
            (letter,) = await listed(proxy)
            sending = asyncio.create_task(replayed(proxy, letter["id"], force=True))
            await eventually(lambda: len(upstream.requests) == 2)
            await forget(server)
            told = await sending
            assert (told["result"], told["error"]) == ("failed", "store")
            assert [one["id"] for one in await listed(proxy)] == [letter["id"]], "it stays"
        assert len(upstream.requests) == 2


# Finding 5: an owner is over after ttl.


def over_after(ttl: str, policy: str) -> str:
    return f"idempotency: {{ttl: {ttl}, lease: 1s, on_ambiguous: {policy}}}\nretry: true"


@asynccontextmanager
async def two_with(
    store: str, folder: Path, upstream: ScriptedUpstream, route: str
) -> AsyncIterator[list[RunningProxy]]:
    """Two proxies that share a store; with memory the same one twice."""
    async with opened(store, folder) as top:
        config = one_route(upstream, route, top=top)
        if store == "memory":
            async with running(config) as proxy:
                yield [proxy, proxy]
        else:
            async with running_together(config, config) as proxies:
                yield proxies


@in_every_store
async def test_a_request_longer_than_ttl_is_not_run_beside_itself(
    store: str, tmp_path: Path
) -> None:
    gate = Gate(response(201, b"late"))
    async with (
        ScriptedUpstream() as upstream,
        two_with(store, tmp_path, upstream, over_after("2s", "hold")) as (first, second),
    ):
        upstream.script(gate.behaviour)
        owner = asyncio.create_task(post(first))
        await gate.reached.wait()
        beside = asyncio.create_task(post(second))
        assert (await beside).reason_word == "outcome_unknown", "who waited hears it"
        assert (await post(first)).reason_word == "outcome_unknown"
        gate.open()
        assert brought(await owner) == (201, b"late", False), "its own client gets the response"
        assert len(first.app._in_flight_keys) == 0
        assert await lost([first]) == 0
        assert len(upstream.requests) == 1


@in_every_store
async def test_a_response_longer_than_ttl_goes_on_and_is_not_kept(
    store: str, tmp_path: Path
) -> None:
    go_on = asyncio.Event()

    async def slowly(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
        await go_on.wait()
        await visit.send(b"half")

    async with (
        ScriptedUpstream() as upstream,
        two_with(store, tmp_path, upstream, over_after("2s", "hold")) as (first, second),
    ):
        upstream.script(slowly)
        owner = asyncio.create_task(post(first))
        await eventually(lambda: upstream.requests)
        for proxy in (second, first):
            got = await post(proxy)
            assert (got.status, got.reason_word) == (409, "result_not_stored")
        go_on.set()
        assert (await owner).body == b"halfhalf"
        assert len(upstream.requests) == 1


@in_every_store
async def test_no_attempt_follows_after_ttl(store: str, tmp_path: Path) -> None:
    async with (
        ScriptedUpstream() as upstream,
        two_with(store, tmp_path, upstream, over_after("300ms", "hold")) as (first, second),
    ):
        upstream.script(answer(LATER))
        got = await post(first)
        assert (got.status, got.reason_word) == (503, "store")
        assert len(upstream.requests) == 1
        await eventually(lambda: len(first.app._in_flight_keys) == 0)
        assert (await post(second)).status == 200, "it had not run: the key is free"


async def test_nor_does_one_of_a_request_that_began_after_another_was_over() -> None:
    """A third of the lease is longer than its whole time."""
    route = "idempotency: {lease: 30s, ttl: 300ms}\nretry: true"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, route)) as proxy:
        upstream.script(answer(LATER), answer(LATER))
        for number in (1, 2):
            assert (await post(proxy, new_key())).reason_word == "store"
            assert len(upstream.requests) == number


@pytest.mark.parametrize("policy", ["release", "hold"])
async def test_a_wait_for_the_first_attempt_that_is_longer_than_ttl(policy: str) -> None:
    route = over_after("300ms", policy) + "\nthrottle: {rate: 1/s, max_wait: 10s}"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
    ):
        assert (await post(proxy, new_key())).status == 200
        got = await post(proxy)
        assert (got.status, got.reason_word) == (503, "store")
        assert len(upstream.requests) == 1


# All of it at once, for longer.


@deep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["sqlite", "redis"])
async def test_instances_that_are_stopped_at_random_run_nothing_twice(
    store: str, tmp_path: Path
) -> None:
    chance, ran, seen = Random(14), Counter[str](), set[str]()

    async def till(visit: Visit) -> None:
        """Refuse a key at first, and run it from then on."""
        await visit.read_body()
        key = visit.request.get("Idempotency-Key") or ""
        if key not in seen:
            seen.add(key)
            await visit.send(response(429, b"", f"Retry-After: {chance.choice((1, 2))}"))
            return
        ran[key] += 1
        await visit.send(response(201, b"%d" % ran[key]))

    def has_seen(count: int) -> bool:
        return len(seen) >= count

    async with ScriptedUpstream(till) as upstream, opened(store, tmp_path) as top:
        route = "idempotency: {lease: 1s}\nretry: {attempts: 4}\ntimeout: 20s"
        async with instances(one_route(upstream, route, top=top), 2) as proxies:
            for number in range(6):
                stopped, other = proxies[number % 2], proxies[1 - number % 2]
                keys = [new_key() for _ in range(10)]
                first = [asyncio.create_task(post(stopped, key)) for key in keys]
                await eventually(partial(has_seen, number * 10 + 10))
                await asyncio.sleep(chance.random() * 0.5)
                stopped.signal(signal.SIGSTOP)
                try:
                    got = await asyncio.gather(*(post(other, key) for key in keys))
                    assert {one.status for one in got} <= {201, 503}, "the file may be locked"
                finally:
                    stopped.signal(signal.SIGCONT)
                for one in await asyncio.gather(*first):
                    assert one.status in {201, 503}
    assert len(ran) > 40
    assert set(ran.values()) == {1}
