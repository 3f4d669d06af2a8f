"""Idempotency keys on a server that stalls, forgets, or holds what is not ours."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from proxy.policy.idempotency.record import ClaimAnswer
from proxy.stores import IdempotencyStore, StoreError
from tests.stores.key_stores import NAME, TTL, ask, done, freed
from tests.stores.running_stores import Tally, on_every_server, running_store
from tests.support import both_loops
from tests.support.redis_server import SERVERS, RedisServer, redis_server
from tests.support.relay import relay
from tests.support.waiting import eventually
from tests.support.witness import Stopwatch

KEY = f"holdfast:key:{NAME}"
SOON = 0.6
"""Seconds: 200 ms, and what a busy machine adds to them."""


async def of_all_calls(keys: IdempotencyStore) -> tuple[object, ...]:
    """How a call of each kind ends."""
    return await asyncio.gather(
        keys.claim(ask("two")),
        keys.settle(NAME, "one", done(b"x")),
        keys.renew(NAME, "one", 1.0, TTL),
        keys.show(NAME),
        keys.drop(NAME),
        return_exceptions=True,
    )


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[Redis]:
    async with server.client() as client:
        await client.flushall()
        yield client


@on_every_server
@both_loops
async def test_a_server_that_stalls_is_an_error_in_time_and_then_at_once(program: Path) -> None:
    tally = Tally()
    async with (
        redis_server(program) as server,
        running_store(server.settings(timeout=0.2), tally=tally) as store,
    ):
        await store.idempotency.claim(ask("one"))
        server.stall()
        watch = Stopwatch()
        for result in await of_all_calls(store.idempotency):
            assert isinstance(result, StoreError)
            assert "no answer within 200 ms" in str(result)
        assert watch.seconds < SOON
        watch = Stopwatch()
        for result in await of_all_calls(store.idempotency):
            assert isinstance(result, StoreError)
            assert str(result) == "the store is down"
        assert watch.seconds < 0.2
        assert {name: tally.unanswered[name] for name in ("claim", "settle", "renew", "admin")} == {
            "claim": 2,
            "settle": 2,
            "renew": 2,
            "admin": 4,
        }
        server.resume()
        await eventually(lambda: store.state == "up")
        found = await store.idempotency.claim(ask("three"))
        assert found.answer is ClaimAnswer.DONE or found.owner == "one", "or it was never read"


@on_every_server
async def test_who_never_heard_of_a_claim_has_not_got_it(program: Path) -> None:
    """The server reads it when nobody waits any more; a key that is held must not stay so."""
    async with (
        redis_server(program) as server,
        relay(server.port) as wire,
        running_store(server.settings(port=wire.port, timeout=0.2)) as store,
        server.client() as client,
    ):
        await store.idempotency.claim(ask("one", "another"))  # the server knows the script
        wire.go_deaf()
        with pytest.raises(StoreError, match="no answer"):
            await store.idempotency.claim(ask("one"))
        assert await client.exists(KEY) == 1
        wire.hear()
        await eventually(lambda: store.state == "up")
        await store.idempotency.show("another")  # comes after
        assert await client.exists(KEY) == 0


async def test_a_server_that_goes_away_is_an_error_at_once() -> None:
    async with redis_server() as server, running_store(server.settings()) as store:
        server.stall()
        waiting = asyncio.create_task(store.idempotency.claim(ask()))
        await asyncio.sleep(0.02)
        await server.stop()
        with pytest.raises(StoreError):
            await waiting
        with pytest.raises(StoreError, match="down"):
            await store.idempotency.claim(ask())
        await server.start()
        await eventually(lambda: store.state == "up")
        assert (await store.idempotency.claim(ask())).answer is ClaimAnswer.NEW


async def test_the_end_is_an_error_for_those_who_wait() -> None:
    async with redis_server() as server:
        async with running_store(server.settings(timeout=0.2)) as store:
            await store.idempotency.claim(ask())
            server.stall()
            waiting = asyncio.create_task(store.idempotency.claim(ask("two")))
            await asyncio.sleep(0)
        with pytest.raises(StoreError):
            await waiting
        with pytest.raises(StoreError):
            await store.idempotency.claim(ask())
        server.resume()


async def test_a_server_that_forgets(server: RedisServer, client: Redis) -> None:
    async with running_store(server.settings()) as store:
        await store.idempotency.claim(ask("one"))
        await client.flushall()
        assert not await store.idempotency.renew(NAME, "one", 1.0, TTL)
        assert not await store.idempotency.settle(NAME, "one", done(b"result"))
        assert await store.idempotency.show(NAME) is None, (
            "a result that was lost is not brought back"
        )
        assert (await store.idempotency.claim(ask("two"))).answer is ClaimAnswer.NEW


async def test_scripts_that_the_server_has_forgotten(server: RedisServer, client: Redis) -> None:
    async with running_store(server.settings()) as store:
        for _ in range(2):
            await client.script_flush()
            assert (await store.idempotency.claim(ask())).answer is ClaimAnswer.NEW
            await client.script_flush()
            assert await store.idempotency.settle(NAME, "one", freed())


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"v": "2"}, id="another version"),
        pytest.param({"v": ""}, id="no version"),
        pytest.param({"state": "asleep"}, id="an unknown state"),
        pytest.param({"state": "done"}, id="done without a result"),
        pytest.param({"lease": "soon"}, id="a lease that is no number"),
        pytest.param({"lease": "inf"}, id="a lease that never ends"),
        pytest.param({"lease": "-5"}, id="a lease that is none"),
    ],
)
async def test_a_record_that_makes_no_sense_is_an_error(
    fields: dict[str, str], server: RedisServer, client: Redis
) -> None:
    tally = Tally()
    async with running_store(server.settings(), tally=tally) as store:
        await store.idempotency.claim(ask("one"))
        for field, value in fields.items():
            await client.hset(KEY, field, value)
        with pytest.raises(StoreError, match="is invalid, or of another version"):
            await store.idempotency.claim(ask("two"))
        assert tally.unanswered["claim"] == 1
        assert store.state == "up", "it concerns that key alone"
        assert (await store.idempotency.claim(ask("two", "another"))).answer is ClaimAnswer.NEW


@pytest.mark.parametrize(
    "rubbish",
    [
        pytest.param(("SET", KEY, "x"), id="a string"),
        pytest.param(("RPUSH", KEY, "x"), id="a list"),
        pytest.param(("HSET", KEY, "x", "y"), id="somebody else's hash"),
    ],
)
async def test_what_is_no_record_is_an_error(
    rubbish: tuple[str, ...], server: RedisServer, client: Redis
) -> None:
    await client.execute_command(*rubbish)  # type: ignore[no-untyped-call]  # has no types
    async with running_store(server.settings()) as store:
        for result in await of_all_calls(store.idempotency):
            assert isinstance(result, StoreError)
        assert store.state == "up"
        assert await client.exists(KEY)
        await client.rpush("holdfast:left:zero", "x")
        with pytest.raises(StoreError):
            await store.idempotency.claim(ask("two", "another", waited_for="zero"))
        assert (await store.idempotency.claim(ask("two", "another"))).answer is ClaimAnswer.NEW


async def test_how_long_it_is_kept(server: RedisServer, client: Redis) -> None:
    async with running_store(server.settings()) as store:
        await store.idempotency.claim(ask("one", lease=500.0, ttl=5000.0))
        assert 5_490_000 < await client.pttl(KEY) <= 5_500_000, "its lease, and ttl from its end"
        await store.idempotency.renew(NAME, "one", 100.0, 5000.0)
        assert 5_090_000 < await client.pttl(KEY) <= 5_100_000
        await store.idempotency.settle(NAME, "one", done(b"", 9000.0))
        assert 8_990_000 < await client.pttl(KEY) <= 9_000_000
        await store.idempotency.claim(ask("one", "another"))
        await store.idempotency.claim(ask("two", "another"))
        await store.idempotency.settle("another", "one", freed(b"failure"))
        assert 9_000 < await client.pttl("holdfast:left:one") <= 10_000
        assert await client.keys("*another*") == []


async def test_what_is_left_behind_has_a_bound(server: RedisServer, client: Redis) -> None:
    page = bytes(1024**2)
    async with running_store(server.settings()) as store:
        for number in range(20):
            name = owner = str(number)
            await store.idempotency.claim(ask(owner, name))
            assert (await store.idempotency.claim(ask("two", name))).answer is ClaimAnswer.BUSY
            assert await store.idempotency.settle(name, owner, freed(page))
        assert len(await client.keys("holdfast:left:*")) == 16
        assert 8_000 < await client.pttl("holdfast:left_bytes") <= 10_000


async def test_news_only_where_somebody_waits(server: RedisServer, client: Redis) -> None:
    async with running_store(server.settings()) as store, client.pubsub() as channel:
        await channel.subscribe("holdfast:keys")
        await channel.get_message(timeout=1)
        for ending in (freed(b"x"), freed(), done(b"x")):
            await store.idempotency.claim(ask("one"))
            await store.idempotency.settle(NAME, "one", ending)
        assert await channel.get_message(timeout=0.05) is None
        await store.idempotency.claim(ask("one", "wanted"))
        await store.idempotency.claim(ask("two", "wanted"))
        await store.idempotency.settle("wanted", "one", freed())
        message = await channel.get_message(timeout=1)
        assert message is not None
        assert message["data"] == "wanted"
        await store.idempotency.claim(ask("two", "wanted"))
        await store.idempotency.settle("wanted", "two", freed())
        assert await channel.get_message(timeout=0.05) is None, "the next owner has no rival"


async def test_who_waits_is_woken_when_news_may_have_been_missed(server: RedisServer) -> None:
    async with (
        relay(server.port) as wire,
        running_store(server.settings(port=wire.port)) as store,
    ):
        await server.has_listeners(1)
        woken: list[bool] = []
        leave = store.idempotency.watch(NAME, lambda: woken.append(True))
        await asyncio.sleep(0.05)
        woken.clear()
        wire.cut()
        await eventually(lambda: woken)
        leave()


async def test_a_claim_that_was_cancelled_and_set_free_leaves_no_trace(
    server: RedisServer, client: Redis
) -> None:
    """Whether or not the server knows the script."""
    async with running_store(server.settings()) as store:
        for _ in range(2):
            claim = asyncio.create_task(store.idempotency.claim(ask("one")))
            await asyncio.sleep(0)
            claim.cancel()
            await store.idempotency.settle(NAME, "one", freed())
            assert await client.exists(KEY) == 0
            await store.idempotency.claim(ask("one", "another"))  # now it does


async def test_who_comes_again_after_a_claim_that_was_cancelled_has_it(
    server: RedisServer, client: Redis
) -> None:
    async with running_store(server.settings()) as store:
        await store.idempotency.claim(ask("one", "another"))
        for _ in range(2):
            claim = asyncio.create_task(store.idempotency.claim(ask("one")))
            await asyncio.sleep(0)
            claim.cancel()
            await asyncio.wait([claim])
            assert (await store.idempotency.claim(ask("one"))).answer is ClaimAnswer.NEW
            await store.idempotency.show(NAME)  # whatever else was sent is done
            assert await store.idempotency.settle(NAME, "one", freed())
            await client.script_flush()


@pytest.mark.parametrize(
    ("policy", "warns"), [("noeviction", False), ("allkeys-lru", True), ("volatile-ttl", True)]
)
async def test_a_server_that_may_evict(
    policy: str,
    warns: bool,  # noqa: FBT001 - a column of the table
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        redis_server(SERVERS[0], "--maxmemory-policy", policy) as server,
        running_store(server.settings()) as store,
    ):
        await store.idempotency.claim(ask())
        assert not caplog.records, "who keeps no keys does not mind"
        for _ in range(2):
            store.keep_keys()
            await store.idempotency.show(NAME)  # comes after
    texts = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    if warns:
        assert texts[0] == (
            f"the store at 127.0.0.1:{server.port} may forget idempotency keys when its memory is"
            f" full (maxmemory-policy {policy}): set it to noeviction"
        )
    assert len(texts) == (2 if warns else 0)


async def test_who_may_not_ask_about_memory_is_not_troubled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rules = ["on", ">secret", "~*", "&*", "+@all", "-info"]
    async with (
        redis_server(SERVERS[0], "--user", "proxy", *rules) as server,
        running_store(server.settings(username="proxy", password="secret")) as store,
    ):
        store.keep_keys()
        assert (await store.idempotency.claim(ask())).answer is ClaimAnswer.NEW
        assert store.state == "up"
    assert not caplog.records
