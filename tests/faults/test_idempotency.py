"""What can go wrong around a key: callers, floods, and a store that is away, empty or wrong."""

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from random import Random

import pytest
from redis.asyncio import Redis

from tests.pipeline.idempotency.keyed_storms import (
    MANNERS,
    Storm,
    Till,
    assert_each_ran_once,
    in_every_store,
    opened,
)
from tests.pipeline.instances import everybody_sees_it
from tests.pipeline.outages import Outage, in_every_outage, stalled
from tests.support import (
    Response,
    RunningProxy,
    ScriptedUpstream,
    answer,
    eventually,
    hang,
    one_route,
    request,
    response,
    running,
    running_together,
    subprocess_proxy,
)
from tests.support.keys import KEY, Gate, is_replayed, new_key, post
from tests.support.leftovers import nothing_left
from tests.support.proxies import ServedBy
from tests.support.redis_server import RedisServer, redis_server, store_line
from tests.support.relay import relay
from tests.support.witness import Stopwatch

SOON = 0.2 + 0.5
"""Seconds within which nobody waits for a store that does not answer."""
HASTY = "timeout: 200ms"
ERRORS = "holdfast_store_errors_total"
EVICTIONS = "holdfast_store_evictions_total"


async def counted(proxy: ServedBy, result: str) -> float:
    return (await proxy.metrics()).total("holdfast_idempotency_total", result=result)


def three_routes(upstream: ScriptedUpstream, store: str, more: str = "") -> str:
    """Routes called like the two answers to a store that is away, and one without keys."""
    keyed = "".join(
        f"  - {{match: /{mode}, upstream: up, idempotency: {{on_store_error: {mode}, {more}}}}}\n"
        for mode in ("closed", "open")
    )
    return (
        f"{store}\nupstreams: {{up: {upstream.url}}}\n"
        f"routes:\n{keyed}  - {{match: /plain, upstream: up}}\n"
    )


def ran(upstream: ScriptedUpstream, target: str) -> int:
    return sum(seen.target == target for seen in upstream.requests)


async def timed(asking: Awaitable[Response]) -> tuple[Response, float]:
    watch = Stopwatch()
    return await asking, watch.seconds


def assert_is_refused_for_want_of_a_store(got: Response) -> None:
    assert (got.status, got.reason_word) == (503, "store")
    assert int(got.get("Retry-After") or 0) >= 1


# 27: the client resets while the upstream works.


@in_every_store
async def test_what_was_sent_runs_to_its_end_and_is_kept(store: str, tmp_path: Path) -> None:
    gate = Gate(response(201, b"done"))
    async with (
        opened(store, tmp_path) as top,
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "idempotency: true\nretry: true", top=top)) as proxy,
    ):
        upstream.script(gate.behaviour)
        async with proxy.client() as client:
            await client.send(request("POST", "/", KEY, body=b"pay"))
            await gate.reached.wait()
        await nothing_left_but_the_flight(proxy)
        gate.open()
        got = await post(proxy)
        assert (got.status, got.body, is_replayed(got)) == (201, b"done", True)
        assert len(upstream.requests) == 1


async def nothing_left_but_the_flight(proxy: RunningProxy) -> None:
    await eventually(lambda: proxy.client_connections == 0)
    assert proxy.status()["keys"] == {"in_flight": 1, "waiting": 0}


@in_every_store
async def test_but_nothing_is_tried_again_for_somebody_who_has_left(
    store: str, tmp_path: Path
) -> None:
    gate = Gate(response(503))
    route = "idempotency: true\nretry: {attempts: 5, backoff: {base: 1ms}}"
    async with (
        opened(store, tmp_path) as top,
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route, top=top)) as proxy,
    ):
        upstream.script(gate.behaviour)
        async with proxy.client() as client:
            await client.send(request("POST", "/", KEY, body=b"pay"))
            await gate.reached.wait()
        await nothing_left_but_the_flight(proxy)
        gate.open()
        await nothing_left(proxy)
        await eventually(lambda: proxy.status()["keys"] == {"in_flight": 0, "waiting": 0})
        assert len(upstream.requests) == 1
        got = await post(proxy)  # it was set free
        assert (got.status, is_replayed(got), len(upstream.requests)) == (200, False, 2)


async def test_and_what_has_no_key_is_abandoned() -> None:
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, "idempotency: true\nretry: true")) as proxy,
    ):
        for message in (request("GET", "/", KEY), request("POST", "/", body=b"pay")):
            async with proxy.client() as client:
                await client.send(message)
                await eventually(lambda: len(upstream.open_connections) == 1)
            await eventually(lambda: not upstream.open_connections)
        assert len(upstream.requests) == 2


# 33: the same key from many clients, on several proxies, with random hang-ups.


async def test_one_key_from_everybody_runs_once(tmp_path: Path) -> None:
    till = Till()
    async with opened("redis", tmp_path) as top, ScriptedUpstream(till) as upstream:
        config = one_route(upstream, "idempotency: true", top=top)
        async with running_together(config, config) as proxies:
            storm = Storm(proxies, ["the-one"], seed=33)
            await storm.rage(60)
            await storm.ask_each_once_more()
        assert_each_ran_once(till, storm, ["the-one"])


# 34: the same key with something else.


@in_every_store
async def test_another_body_is_refused_and_another_caller_or_route_is_apart(
    store: str, tmp_path: Path
) -> None:
    gate = Gate(response(201, b"first"))
    async with opened(store, tmp_path) as top, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        upstream.usual = answer(response(201, b"another"))
        async with running(three_routes(upstream, top)) as proxy:
            first = asyncio.create_task(post(proxy, "Authorization: a", target="/closed"))
            await gate.reached.wait()
            await the_others(proxy, replayed=False)
            gate.open()
            assert (await first).body == b"first"
            await the_others(proxy, replayed=True)
        assert len(upstream.requests) == 3


async def the_others(proxy: RunningProxy, *, replayed: bool) -> None:
    """What they get who have the key of a request, and are another one."""
    mine = "Authorization: a"
    for got in (
        await post(proxy, mine, body=b"other", target="/closed"),
        await post(proxy, mine, target="/closed?a=b"),
        await post(proxy, mine, "Content-Type: text/plain", target="/closed"),
        await post(proxy, mine, method="PATCH", target="/closed"),
    ):
        assert (got.status, got.reason_word) == (422, "key_mismatch")
    for got in (
        await post(proxy, "Authorization: b", target="/closed"),
        await post(proxy, mine, target="/open"),
    ):
        assert (got.status, got.body, is_replayed(got)) == (201, b"another", replayed)


# 35: a flood of distinct keys.


@pytest.mark.parametrize("bounds", ["entries: 20", "bytes: 16KiB"])
async def test_a_flood_of_keys_takes_no_more_room_than_there_is(bounds: str) -> None:
    till = Till()
    *keys, last = [f"key-{number}" for number in range(301)]
    top = f"store: {{url: memory, {bounds}}}"
    async with (
        ScriptedUpstream(till) as upstream,
        running(one_route(upstream, "idempotency: true", top=top)) as proxy,
    ):
        claims = proxy.app._in_flight_keys.store
        storm = Storm([proxy], [*keys, last], seed=35)
        most = 0
        for start in range(0, len(keys), 10):
            async with asyncio.TaskGroup() as group:
                for key in keys[start : start + 10]:
                    chance = Random(key)
                    manner = chance.choice(MANNERS[:2])
                    group.create_task(storm.call_one(proxy, key, manner, chance))
            most = max(most, len(claims))  # type: ignore[arg-type]  # that of memory has one
        assert till.runs.keys() == {key for key in keys if storm.answers[key]}
        assert set(till.runs.values()) == {1}
        assert most <= 40
        evicted = (await proxy.metrics()).total(EVICTIONS)
        # A result may go before its record, and each of them counts.
        assert evicted >= len(till.runs) - len(claims)  # type: ignore[arg-type]  # as above
        assert evicted > 200
        # What was kept last is still there.
        for _ in range(2):
            await storm.call_one(proxy, last, MANNERS[0], Random(0))
        assert is_replayed(storm.answers[last][-1])
        assert till.runs[last] == 1


async def test_what_is_in_flight_is_never_given_up() -> None:
    gate = Gate(response(201, b"done"))
    keys = [new_key() for _ in range(3)]
    top = "store: {url: memory, entries: 3}"
    async with (
        ScriptedUpstream(gate.behaviour) as upstream,
        running(one_route(upstream, "idempotency: true", top=top)) as proxy,
    ):
        owners = [asyncio.create_task(post(proxy, key)) for key in keys]
        await upstream.seen(3)
        for _ in range(5):
            assert_is_refused_for_want_of_a_store(await post(proxy, new_key()))
        duplicate = asyncio.create_task(post(proxy, keys[0]))  # needs no room
        await eventually(lambda: proxy.waiting_for_keys == 1)
        assert len(upstream.requests) == 3
        gate.open()
        assert [(await owner).status for owner in owners] == [201] * 3
        assert is_replayed(await duplicate)
        assert (await proxy.metrics()).total(EVICTIONS) == 0
        assert (await post(proxy, new_key())).status == 201  # instead of what has ended
        assert (await proxy.metrics()).total(EVICTIONS) == 1


# 36: Redis is stopped, refuses, or is slow.


async def away_and_back(
    upstream: ScriptedUpstream, proxy: RunningProxy, away: AbstractAsyncContextManager[None]
) -> None:
    """Use keys before, while and after the store is away."""
    modes = ("closed", "open")
    for mode in modes:
        assert (await post(proxy, target=f"/{mode}")).status == 200
    upstream.requests.clear()
    missed = {mode: new_key() for mode in modes}
    async with away:
        # The first ones find out.
        answers = await asyncio.gather(
            *(timed(post(proxy, missed[mode], target=f"/{mode}")) for mode in modes),
            timed(proxy.get("/plain")),
        )
        assert max(took for _, took in answers) < SOON
        assert_is_refused_for_want_of_a_store(answers[0][0])
        assert [got.status for got, _ in answers[1:]] == [200, 200]
        await everybody_sees_it([proxy], "down")
        watch = Stopwatch()
        for _ in range(20):
            assert_is_refused_for_want_of_a_store(await post(proxy, target="/closed"))
            assert (await post(proxy, target="/open")).status == 200
            assert (await proxy.get("/plain")).status == 200
        assert watch.seconds < 2, "each waited for the store"
        assert (ran(upstream, "/closed"), ran(upstream, "/open")) == (0, 21)
        assert await counted(proxy, "bypassed") == 21
        assert (await proxy.metrics()).total(ERRORS, operation="claim") >= 42
    await everybody_sees_it([proxy], "up")
    upstream.requests.clear()
    for mode in modes:
        # Whatever the store was told of it meanwhile, nobody has this key now.
        first, took = await timed(post(proxy, missed[mode], target=f"/{mode}"))
        assert (first.status, is_replayed(first)) == (200, False)
        assert took < 3
        assert is_replayed(await post(proxy, missed[mode], target=f"/{mode}"))
        assert ran(upstream, f"/{mode}") == 1
    assert await counted(proxy, "bypassed") == 21


@in_every_outage
async def test_a_store_that_is_away(outage: Outage) -> None:
    async with redis_server() as server, ScriptedUpstream() as upstream:
        store = server.line(HASTY)
        async with running(three_routes(upstream, store)) as proxy:
            await away_and_back(upstream, proxy, outage(server))
            await nothing_left(proxy)


async def test_a_store_that_is_too_slow() -> None:
    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        way._delay = 0.4
        yield
        way._delay = 0.0

    async with redis_server() as server, relay(server.port) as way, ScriptedUpstream() as upstream:
        store = store_line(way.port, HASTY)
        async with running(three_routes(upstream, store)) as proxy:
            await away_and_back(upstream, proxy, slow())
            await nothing_left(proxy)


async def test_a_client_that_leaves_while_the_store_is_asked_leaves_no_claim_behind() -> None:
    async with redis_server() as server, ScriptedUpstream() as upstream:
        store = server.line()
        async with running(three_routes(upstream, store)) as proxy:
            await post(proxy, new_key(), target="/closed")  # now the server knows the scripts
            async with stalled(server):
                async with proxy.client() as client:
                    await client.send(request("POST", "/closed", KEY, body=b"pay"))
                    await eventually(lambda: proxy.status()["routes"]["/closed"]["in_flight"])  # type: ignore[index]  # JSON
                    # Meanwhile who needs no store does not wait for it.
                    assert (await proxy.get("/plain")).status == 200
                    assert client.is_silent
                await nothing_left(proxy, clients=0)
            got, took = await timed(post(proxy, target="/closed"))
            assert (got.status, is_replayed(got)) == (200, False)
            assert took < 2, "it has waited for one who is gone"
            assert ran(upstream, "/closed") == 2


# 37, 38: Redis forgets what is in flight.


@asynccontextmanager
async def two_on_one_redis(
    upstream: ScriptedUpstream,
) -> AsyncIterator[tuple[RedisServer, list[RunningProxy]]]:
    async with redis_server() as server:
        store = server.line()
        config = one_route(upstream, "idempotency: true", top=store)
        async with running_together(config, config) as proxies:
            yield server, proxies


async def test_an_owner_whose_store_was_flushed_answers_its_client() -> None:
    gate = Gate(response(201, b"first"))
    async with ScriptedUpstream() as upstream, two_on_one_redis(upstream) as (server, proxies):
        upstream.script(gate.behaviour)
        owner = asyncio.create_task(post(proxies[0]))
        await gate.reached.wait()
        beside = asyncio.create_task(post(proxies[0]))
        await eventually(lambda: proxies[0].waiting_for_keys == 1)
        async with server.client() as client:
            await client.flushall()
        gate.open()
        assert [(got.status, got.body) for got in (await owner, await beside)] == [
            (201, b"first"),
            (201, b"first"),
        ]
        assert await counted(proxies[0], "lease_lost") == 1
        later = await post(proxies[0])  # as docs/explanation/promises.md says
        assert (later.body, is_replayed(later)) == (b"ok", False)
        assert [is_replayed(await post(proxy)) for proxy in proxies] == [True, True]
        assert len(upstream.requests) == 2


async def test_a_claim_that_a_failover_has_lost_costs_one_execution_at_most() -> None:
    gates = [Gate(response(201, b"of A")), Gate(response(201, b"of B"))]
    async with ScriptedUpstream() as upstream, two_on_one_redis(upstream) as (server, proxies):
        upstream.script(*(gate.behaviour for gate in gates))
        of_a = [asyncio.create_task(post(proxies[0]))]
        await gates[0].reached.wait()
        async with server.client() as client:
            (key,) = await client.keys("holdfast:key:*")
            await client.delete(key)
        of_b = [asyncio.create_task(post(proxies[1])) for _ in range(5)]
        await gates[1].reached.wait()
        of_a += [asyncio.create_task(post(proxies[0])) for _ in range(5)]
        await eventually(lambda: [proxy.waiting_for_keys for proxy in proxies] == [5, 4])
        gates[0].open()
        assert {(await got).body for got in of_a} == {b"of A"}
        # B is not disturbed by what A has to say about a key that is not its own any more.
        assert not any(task.done() for task in of_b)
        gates[1].open()
        assert {(await got).body for got in of_b} == {b"of B"}
        assert {(await post(proxy)).body for proxy in proxies} == {b"of B"}
        assert [await counted(proxy, "lease_lost") for proxy in proxies] == [1, 0]
        assert len(upstream.requests) == 2


# 39: what the store has of a key makes no sense.

RedisSpoiler = Callable[["Redis", str, str], Awaitable[object]]
"""Is told the key to spoil, and another one."""


async def another_type(client: "Redis", key: str, _: str) -> None:
    await client.delete(key)
    await client.set(key, b"cos\nsystem\n(S'true'\ntR.")


async def half_a_result(client: "Redis", key: str, _: str) -> None:
    result = await client.hget(key, "result")
    await client.hset(key, "result", result[:-1])  # type: ignore[index]  # it is there


async def the_result_of_another(client: "Redis", key: str, other: str) -> None:
    await client.hset(key, "result", await client.hget(other, "result"))


def with_field(name: str, value: bytes) -> RedisSpoiler:
    async def spoil(client: "Redis", key: str, _: str) -> None:
        await client.hset(key, name, value)

    return spoil


def without_field(name: str) -> RedisSpoiler:
    async def spoil(client: "Redis", key: str, _: str) -> None:
        await client.hdel(key, name)

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(another_type, id="another type"),
        pytest.param(with_field("v", b"2"), id="another version"),
        pytest.param(with_field("state", b"lost"), id="no state that is known"),
        pytest.param(with_field("result", b"2R" + b"x" * 40), id="a result of another version"),
        pytest.param(with_field("result", b""), id="an empty result"),
        pytest.param(with_field("result", b"\x80\x04K\x01."), id="a pickle"),
        pytest.param(half_a_result, id="half a result"),
        pytest.param(the_result_of_another, id="the result of another key"),
        pytest.param(without_field("result"), id="no result"),
        pytest.param(without_field("owner"), id="no owner"),
    ],
)
async def test_a_spoiled_record_in_redis_is_never_served(spoil: RedisSpoiler) -> None:
    async with redis_server() as server, ScriptedUpstream() as upstream:
        store = server.line()

        async def spoil_all(keys: dict[str, str]) -> None:
            async with Redis(host="127.0.0.1", port=server.port, protocol=2) as client:
                for mode in ("closed", "open"):
                    await spoil(
                        client, f"holdfast:key:{keys[mode]}", f"holdfast:key:{keys['other']}"
                    )

        await assert_spoiled_records_are_never_served(upstream, store, spoil_all)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("version = 2", id="another version"),
        pytest.param("state = 'lost'", id="no state that is known"),
        pytest.param("fingerprint = 'text'", id="another type"),
        pytest.param("expires = 1e999", id="for ever"),
        pytest.param("result = substr(result, 1, length(result) - 1)", id="half a result"),
        pytest.param("result = x''", id="an empty result"),
        pytest.param(
            "result = (SELECT result FROM keys ORDER BY created DESC LIMIT 1)",
            id="the result of another key",
        ),
    ],
)
async def test_a_spoiled_record_in_a_file_is_never_served(change: str, tmp_path: Path) -> None:
    async def spoil_all(_: dict[str, str]) -> None:
        with closing(sqlite3.connect(tmp_path / "keys.db")) as db:
            db.execute(f"UPDATE keys SET {change}")  # noqa: S608 - a constant
            db.commit()

    async with opened("sqlite", tmp_path) as store, ScriptedUpstream() as upstream:
        await assert_spoiled_records_are_never_served(upstream, store, spoil_all)


async def assert_spoiled_records_are_never_served(
    upstream: ScriptedUpstream,
    store: str,
    spoil_all: Callable[[dict[str, str]], Awaitable[None]],
) -> None:
    """*spoil_all* is told the names of the records, by route, and that of an ``other``."""
    async with running(three_routes(upstream, store)) as proxy:
        for mode in ("closed", "open"):
            assert (await post(proxy, target=f"/{mode}")).status == 200
        await post(proxy, "Authorization: another", target="/closed")
        names = [line["record"] for line in await proxy.logged(3)]
        await spoil_all(dict(zip(("closed", "open", "other"), names, strict=True)))
        errors = (await proxy.metrics()).total(ERRORS, operation="claim")
        for _ in range(3):
            assert_is_refused_for_want_of_a_store(await post(proxy, target="/closed"))
            got = await post(proxy, target="/open")
            assert (got.status, is_replayed(got)) == (200, False)
        assert (ran(upstream, "/closed"), ran(upstream, "/open")) == (2, 4)
        assert await counted(proxy, "bypassed") == 3
        assert (await proxy.metrics()).total(ERRORS, operation="claim") == errors + 6
        # It is about these keys, and no others.
        for mode in ("closed", "open"):
            key = new_key()
            assert (await post(proxy, key, target=f"/{mode}")).status == 200
            assert is_replayed(await post(proxy, key, target=f"/{mode}"))
        watch = Stopwatch()
    assert watch.seconds < 1, "it could not let go of what cannot be mended"


async def test_a_record_that_is_spoiled_in_flight_does_not_keep_its_client_waiting() -> None:
    gate = Gate(response(201, b"done"))
    async with redis_server() as server, ScriptedUpstream() as upstream:
        upstream.script(gate.behaviour)
        store = server.line()
        config = one_route(upstream, "idempotency: true", top=f"{store}\ndrain_timeout: 300ms")
        async with running(config) as proxy:
            owner = asyncio.create_task(post(proxy))
            await gate.reached.wait()
            async with server.client() as client:
                (key,) = await client.keys("holdfast:key:*")
                await another_type(client, str(key), "")
            gate.open()
            assert (await owner).body == b"done"
            got = await post(proxy)
            assert (got.body, is_replayed(got)) == (b"done", True), "its owner still has it"
            assert (await proxy.metrics()).total(ERRORS, operation="settle") >= 1
            async with server.client() as client:  # a person has seen to it
                await client.delete(key)
            await eventually(lambda: len(proxy.app._in_flight_keys) == 0)
            assert (await post(proxy)).status == 200
            told = await proxy.metrics()
            assert told.total("holdfast_idempotency_total", result="lease_lost") == 1
        assert len(upstream.requests) == 2


# 41: killed between the upstream's answer and the store.


def both_policies(upstream: ScriptedUpstream, store: str) -> str:
    """Routes called like what becomes of a key whose owner is gone."""
    routes = "".join(
        f"  - {{match: /{policy}, upstream: up,"
        f" idempotency: {{lease: 1s, on_ambiguous: {policy}}}}}\n"
        for policy in ("release", "hold")
    )
    return f"{store}\nupstreams: {{up: {upstream.url}}}\nroutes:\n{routes}"


async def be_killed_before_it_could_tell(
    upstream: ScriptedUpstream, config: str, away: Callable[[], None]
) -> None:
    """A process has its answers, and is killed while it tells a store that is *away*."""
    gate = Gate(response(201, b"of the first"))
    upstream.script(gate.behaviour, gate.behaviour)
    async with (
        subprocess_proxy(config) as proxy,
        proxy.client() as releasing,
        proxy.client() as holding,
    ):
        await releasing.send(request("POST", "/release", KEY, body=b"pay"))
        await holding.send(request("POST", "/hold", KEY, body=b"pay"))
        await upstream.seen(2)
        away()
        gate.open()
        await asyncio.sleep(0.1)  # it has the answers, and nobody can see that
        assert releasing.is_silent, "told before the store knew"
        assert holding.is_silent, "told before the store knew"
        proxy.signal(signal.SIGKILL)
        await proxy.exit_status()


async def assert_nobody_knows(upstream: ScriptedUpstream, proxy: ServedBy) -> None:
    """Where it is in flight until the lease ends, and then as was chosen."""
    watch = Stopwatch()
    released, held = await asyncio.gather(*(post(proxy, target=t) for t in ("/release", "/hold")))
    assert watch.seconds < 2.5
    assert (released.body, is_replayed(released)) == (b"ok", False)
    assert is_replayed(await post(proxy, target="/release"))
    assert (held.status, held.reason_word) == (409, "outcome_unknown")
    assert (ran(upstream, "/release"), ran(upstream, "/hold")) == (2, 1)


async def test_killed_before_redis_knew() -> None:
    async with (
        redis_server() as server,
        relay(server.port) as way,
        ScriptedUpstream() as upstream,
    ):
        through, direct = (
            both_policies(upstream, store_line(port)) for port in (way.port, server.port)
        )
        await be_killed_before_it_could_tell(upstream, through, way.go_dead)
        async with running(direct) as proxy:
            await assert_nobody_knows(upstream, proxy)


async def test_killed_before_the_file_knew(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as store, ScriptedUpstream() as upstream:
        config = both_policies(upstream, store)
        with closing(sqlite3.connect(tmp_path / "keys.db", isolation_level=None)) as db:

            def lock() -> None:
                db.execute("BEGIN IMMEDIATE")

            await be_killed_before_it_could_tell(upstream, config, lock)
        async with running(config) as proxy:
            await assert_nobody_knows(upstream, proxy)


async def test_killed_with_all_that_memory_knew() -> None:
    async with ScriptedUpstream() as upstream:
        config = one_route(upstream, "idempotency: true", top="store: memory")
        async with subprocess_proxy(config) as first:
            await post(first)
            assert is_replayed(await post(first))
            first.signal(signal.SIGKILL)
            await first.exit_status()
        async with running(config) as second:
            assert not is_replayed(await post(second))
        assert len(upstream.requests) == 2
