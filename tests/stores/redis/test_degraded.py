"""The store is down, slow, or not what it should be: nobody waits for it, and it comes back."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import pytest

from proxy.policy.settings import Rate, ThrottleSettings
from proxy.policy.settings.store import RedisSettings
from proxy.policy.throttle.limiter import NEVER
from proxy.stores.redis.degraded import degraded_rates
from proxy.stores.redis.rates import SharedRateLimiter
from tests.stores.running_stores import (
    CLOCK,
    Callers,
    Tally,
    assert_within,
    calls_out,
    goes_out_at,
    most_in,
    per_second,
    running_store,
)
from tests.support import both_loops
from tests.support.ports import black_hole, refusing_port
from tests.support.redis_server import SERVERS, RedisServer, redis_server
from tests.support.relay import relay
from tests.support.waiting import eventually
from tests.support.witness import Stopwatch

Fault = Callable[[RedisServer], Awaitable[None]]
SECRET = "correct horse battery staple"
SOON = 0.5
"""Seconds: 200 ms, and what a busy machine adds to them."""


async def _is_killed(server: RedisServer) -> None:
    await server.stop()


async def _stalls(server: RedisServer) -> None:
    server.stall()


async def _is_back(server: RedisServer) -> None:
    if server.is_running:
        server.resume()
    else:
        await server.start()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("fault", [_is_killed, _stalls])
async def test_each_mode_holds_at_once_and_until_the_store_is_back(
    fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    async with redis_server() as server, running_store(server.settings(timeout=0.2)) as store:
        lines = {
            mode: Callers(store, per_second(100, 4, on_store_error=mode), bucket=f"route:{mode}")
            for mode in ("local", "open", "closed")
        }
        for line in lines.values():
            line.call(2)
            await calls_out(line, 2)
            line.is_stopped = True
        await asyncio.sleep(0.1)  # what was lent has lapsed
        already = len(lines["closed"].sent)
        await fault(server)
        for line in lines.values():
            line.is_stopped = False
            line.waiting = 10
            line.serve()
        watch = Stopwatch()
        await eventually(lambda: store.state == "down")
        await calls_out(lines["local"], len(lines["local"].sent) + 1)
        await calls_out(lines["open"], 12)
        assert watch.seconds < SOON
        assert lines["closed"].rates.wait(CLOCK.monotonic(), 1) == NEVER
        assert len(lines["closed"].sent) == already
        assert_within(lines["local"].sent, 100, 4)

        await _is_back(server)
        await eventually(lambda: store.state == "up")
        await calls_out(lines["closed"], 12)
        for line in lines.values():
            line.stop()
    assert len(warnings(caplog)) == 1
    assert [r.getMessage() for r in caplog.records][1:] == [
        f"the store at 127.0.0.1:{server.port} is back: limits are shared again"
    ]


async def test_an_outage_costs_nothing_per_request() -> None:
    tally = Tally()
    async with redis_server() as server, running_store(server.settings(), tally=tally) as store:
        line = Callers(store, per_second(1000), callers=5)
        await calls_out(line, 50)
        await server.stop()
        await eventually(lambda: store.state == "down")
        asked = tally.answered["take"] + tally.unanswered["take"]
        await calls_out(line, len(line.sent) + 100)
        line.stop()
        assert tally.answered["take"] + tally.unanswered["take"] == asked


async def test_those_in_queue_whose_bucket_another_one_has_taken_over_hear_of_it_too() -> None:
    async with redis_server() as server, running_store(server.settings(timeout=0.2)) as store:
        # As after a reload by which callers are told apart by something else.
        before, after = (Callers(store, per_second(10, 1, on_store_error="open")) for _ in range(2))
        server.stall()
        before.call(2)
        after.call(2)
        watch = Stopwatch()
        await calls_out(before, 2)
        await calls_out(after, 2)
        assert watch.seconds < SOON
        for line in (before, after):
            line.stop()
        server.resume()


async def test_on_its_own_an_instance_keeps_to_its_share() -> None:
    async with redis_server() as server, AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(running_store(server.settings())) for _ in range(2)
        ]
        await eventually(lambda: all(store._link.instances == 2 for store in stores))
        await server.stop()
        await eventually(lambda: all(store.state == "down" for store in stores))
        lines = [Callers(store, per_second(100, 10), callers=10) for store in stores]
        began = CLOCK.monotonic()
        await goes_out_at(0.8 * 100, 0.4, lambda: sum(len(line.sent) for line in lines))
        lasted = CLOCK.monotonic() - began
        for line in lines:
            line.stop()
            assert_within(line.sent, 50, 5)
        assert sum(len(line.sent) for line in lines) <= 100 * lasted + 10


def test_what_stands_in_for_the_store_begins_without_a_burst() -> None:
    # The store may have given out all of it a moment ago.
    local = degraded_rates(per_second(100, 20), instances=2, now=50.0, life=0.025)
    interval = 2 * 1.051 / 100
    assert [local.wait(50.0, n) for n in (1, 2, 3)] == pytest.approx(
        [interval, 2 * interval, 3 * interval], abs=1e-6
    )
    assert not local.take(50.0 + interval - 1e-6, 0)
    assert [local.take(50.0 + interval + 1e-6, 0) for _ in range(3)] == [True, False, False]


async def test_a_store_that_comes_and_goes_grants_nothing_by_that() -> None:
    async with redis_server() as server, running_store(server.settings()) as store:
        line = Callers(store, ThrottleSettings(rates=(Rate(6, 60.0),), burst=10), callers=20)
        await calls_out(line, 10)
        for _ in range(5):
            store.went_down()
            line.serve()
            store.came_up()
            told = line.changes
            await eventually(lambda told=told: line.changes > told)  # type: ignore[misc]  # its own
        line.stop()
        assert len(line.sent) == 10


async def test_the_store_is_told_what_was_sent_without_it() -> None:
    """Else each outage would be one call more: one by our share, and at once one by the store."""
    async with redis_server() as server, running_store(server.settings()) as store:
        line = Callers(store, per_second(5), callers=5)
        await calls_out(line, 1)
        limiter = line.rates
        assert isinstance(limiter, SharedRateLimiter)
        for _ in range(4):
            store.went_down()
            await calls_out(line, len(line.sent) + 1)
            store.came_up()
            limiter.trust_store()
            await calls_out(line, len(line.sent) + 1)
        line.stop()
        assert most_in(line.sent, 1.0) <= 5
        assert line.sent[-1] - line.sent[0] >= 8 * 0.2


async def test_what_was_told_in_vain_is_told_again() -> None:
    async with redis_server() as server, running_store(server.settings(timeout=0.2)) as store:
        line = Callers(store, per_second(5), callers=5)
        await calls_out(line, 1)
        store.went_down()
        await calls_out(line, 2)
        server.stall()
        store.came_up()
        await eventually(lambda: store.state == "down")
        server.resume()
        await eventually(lambda: store.state == "up")
        assert isinstance(line.rates, SharedRateLimiter)
        line.rates.trust_store()
        await calls_out(line, len(line.sent) + 2)
        line.stop()
        assert most_in(line.sent, 1.0) <= 5 + 1


async def test_those_who_are_not_back_yet_still_count_for_a_while() -> None:
    async with redis_server() as server, running_store(server.settings()) as store:
        async with running_store(server.settings()) as other:
            await eventually(lambda: store._link.instances == other._link.instances == 2)
            await server.stop()
            await eventually(lambda: store.state == other.state == "down")
        await server.start()
        await eventually(lambda: store.state == "up")
        assert store._link.instances == 2
        await eventually(lambda: store._link.instances == 1)


async def test_who_finds_it_back_first_leaves_the_others_their_share() -> None:
    async with redis_server() as server, relay(server.port) as wire, AsyncExitStack() as stack:
        ways = (server.settings(), server.settings(port=wire.port, timeout=0.2))
        stores = [await stack.enter_async_context(running_store(way)) for way in ways]
        await eventually(lambda: all(store._link.instances == 2 for store in stores))
        await server.stop()
        await eventually(lambda: all(store.state == "down" for store in stores))
        lines = [Callers(store, per_second(100, 10), callers=10) for store in stores]
        wire.go_dead()
        await server.start()
        await eventually(lambda: stores[0].state == "up")
        await asyncio.sleep(0.6)
        for line in lines:
            line.stop()
            assert_within(line.sent, 50, 5)
        assert_within(lines[0].sent + lines[1].sent, 100, 10)
        assert stores[1].state == "down"


async def test_calls_under_way_are_counted_throughout() -> None:
    async with redis_server() as server, running_store(server.settings()) as store:
        line = Callers(store, ThrottleSettings(concurrency=3), callers=3, lasts=60.0)
        await calls_out(line, 3)
        await server.stop()
        await eventually(lambda: store.state == "down")
        assert line.slots.wait(CLOCK.monotonic(), 1) == NEVER
        await server.start()
        await eventually(lambda: store.state == "up")
        async with server.client() as client:
            await eventually(lambda: line.changes >= 3)
            (held,) = (await client.hgetall("holdfast:route:line")).values()
        assert str(held).startswith("3 3 ")
        line.finish()
        line.call()
        await calls_out(line, 4)


async def test_a_pause_that_was_told_to_one_during_an_outage_is_told_to_all_after_it() -> None:
    async with (
        redis_server() as server,
        running_store(server.settings()) as one,
        running_store(server.settings()) as other,
    ):
        told, untold = Callers(one, ThrottleSettings()), Callers(other, ThrottleSettings())
        await server.stop()
        await eventually(lambda: one.state == other.state == "down")
        now = CLOCK.monotonic()
        told.bucket.pause(now, 30)
        assert not told.rates.take(now, 0)
        assert untold.rates.take(now, 0)
        await server.start()
        await eventually(lambda: untold.pauses)


@both_loops
async def test_a_server_that_has_forgotten_the_scripts_is_told_them_again() -> None:
    async with (
        redis_server() as server,
        running_store(server.settings()) as store,
        server.client() as client,
    ):
        line = Callers(store, per_second(1000), callers=2)
        await calls_out(line, 20)
        await client.script_flush()
        await calls_out(line, len(line.sent) + 20)
        line.stop()
        assert store.state == "up"


async def test_it_starts_without_a_server_and_finds_it_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with redis_server() as server:
        await server.stop()
        watch = Stopwatch()
        tally = Tally()
        async with running_store(server.settings(timeout=0.2), tally=tally) as store:
            assert watch.seconds < SOON
            assert store.state == "down"
            await eventually(lambda: tally.unanswered["connect"] == 2)
            await server.start()
            await eventually(lambda: store.state == "up")
    assert len(warnings(caplog)) == 1


# Servers that are of no use.

Useless = Callable[[], AbstractAsyncContextManager[RedisSettings]]


@asynccontextmanager
async def _nobody() -> AsyncIterator[RedisSettings]:
    with refusing_port() as port:
        yield RedisSettings("127.0.0.1", port)


@asynccontextmanager
async def _a_black_hole() -> AsyncIterator[RedisSettings]:
    with black_hole() as port:
        yield RedisSettings("127.0.0.1", port)


@asynccontextmanager
async def _wants_a_password() -> AsyncIterator[RedisSettings]:
    async with redis_server(SERVERS[0], "--requirepass", SECRET) as server:
        yield server.settings()


@asynccontextmanager
async def _wants_another_password() -> AsyncIterator[RedisSettings]:
    async with redis_server(SERVERS[0], "--requirepass", "something else") as server:
        yield server.settings(password=SECRET)


@asynccontextmanager
async def _does_not_know_the_user() -> AsyncIterator[RedisSettings]:
    async with redis_server() as server:
        yield server.settings(username="nobody", password=SECRET)


@asynccontextmanager
async def _a_replica() -> AsyncIterator[RedisSettings]:
    with refusing_port() as port:
        async with redis_server(SERVERS[0], "--replicaof", "127.0.0.1", str(port)) as server:
            yield server.settings()


@asynccontextmanager
async def _out_of_memory() -> AsyncIterator[RedisSettings]:
    async with redis_server(SERVERS[0], "--maxmemory", "1") as server:
        yield server.settings()


@asynccontextmanager
async def _no_such_database() -> AsyncIterator[RedisSettings]:
    async with redis_server() as server:
        yield server.settings(database=999)


def _says(words: bytes) -> Useless:
    """Something that answers everything with *words*."""

    @asynccontextmanager
    async def saying() -> AsyncIterator[RedisSettings]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(65536) and words:
                writer.write(words)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        try:
            yield RedisSettings("127.0.0.1", server.sockets[0].getsockname()[1])
        finally:
            server.close()

    return saying


@pytest.mark.parametrize(
    ("useless", "why"),
    [
        pytest.param(_nobody, "Connect", id="nobody is there"),
        pytest.param(_a_black_hole, "no connection within 200 ms", id="nobody answers at all"),
        pytest.param(_wants_a_password, "NOAUTH", id="it wants a password"),
        pytest.param(_wants_another_password, "WRONGPASS", id="it wants another password"),
        pytest.param(_does_not_know_the_user, "WRONGPASS", id="it does not know the user"),
        pytest.param(_a_replica, "READONLY", id="it is a replica"),
        pytest.param(_out_of_memory, "OOM", id="it is out of memory"),
        pytest.param(_no_such_database, "DB index", id="it has no such database"),
        pytest.param(_says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "protocol", id="it speaks HTTP"),
        pytest.param(_says(b"+OK\r\n"), "its answer is invalid", id="its answer is none"),
        pytest.param(
            _says(b"*1\r\n$1\r\n1\r\n"), "its answer is invalid", id="its numbers are none"
        ),
        pytest.param(_says(b""), "closed the connection", id="it hangs up"),
    ],
)
async def test_a_server_that_is_of_no_use_is_down(
    useless: Useless, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    tally = Tally()
    async with useless() as settings, running_store(settings, tally=tally) as store:
        assert store.state == "down"
        limiter = Callers(store, per_second(10)).rates
        now = CLOCK.monotonic()
        opens = now + limiter.wait(now, 1)
        assert not limiter.take(opens - 0.001, 0), "not with a call"
        assert limiter.take(opens + 1e-6, 0)
    assert tally.unanswered["connect"] == 1
    (line,) = warnings(caplog)
    assert line.startswith(f"the store at 127.0.0.1:{settings.port} is down (")
    assert why in line
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(b"-NOSCRIPT No matching script\r\n", id="it does not learn our scripts"),
        pytest.param(b"-ERR no such thing\r\n", id="it cannot do that"),
        pytest.param(b"+OK\r\n", id="its answer is none"),
        pytest.param(b"*1\r\n:1\r\n", id="it says too little"),
        pytest.param(b"*4\r\n:1\r\n$1\r\n1\r\n:0\r\n:0\r\n", id="not all are numbers"),
        pytest.param(b"*4\r\n" + b":1" + b"0" * 30 + b"\r\n", id="a number is too large"),
        pytest.param(b"*1\r\n" * 100, id="lists of lists of lists"),
        pytest.param(b"*4\r\n:1\r\n", id="it does not come to an end"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="it speaks HTTP"),
    ],
)
async def test_a_server_that_was_of_use_and_is_no_more_is_down(words: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = b"*1\r\n:1\r\n"
        while await reader.read(65536):
            writer.write(greeting)
            greeting = words
        writer.close()

    tally = Tally()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    settings = RedisSettings("127.0.0.1", server.sockets[0].getsockname()[1])
    async with running_store(settings, tally=tally) as store:
        assert store.state == "up"
        watch = Stopwatch()
        line = Callers(store, per_second(10, on_store_error="open"), callers=1)
        await calls_out(line, 1)
        assert watch.seconds < SOON
        assert store.state == "down"
        assert tally.unanswered["take"] == 1
        line.stop()
    server.close()


async def test_a_password_and_a_user_and_a_database() -> None:
    rules = ["on", f">{SECRET.replace(' ', '')}", "~holdfast:*", "&holdfast:*", "+@all"]
    async with redis_server(SERVERS[0], "--user", "proxy", *rules) as server:
        settings = server.settings(
            username="proxy", password=SECRET.replace(" ", ""), database=3, prefix="holdfast:x"
        )
        async with running_store(settings) as store:
            assert store.state == "up"
            line = Callers(store, per_second(100), callers=1)
            await calls_out(line, 3)
            line.stop()


async def test_pauses_that_it_may_not_hear_are_one_complaint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rules = ["on", ">secret", "~*", "resetchannels", "+@all"]
    tally = Tally()
    async with (
        redis_server(SERVERS[0], "--user", "deaf", *rules) as server,
        running_store(server.settings(username="deaf", password="secret"), tally=tally) as store,
    ):
        await eventually(lambda: tally.unanswered["subscribe"] >= 2)
        assert store.state == "up"
    (line,) = warnings(caplog)
    assert "pauses and keys that other instances announce are not received" in line


# The end.


async def test_it_closes_in_time_while_nobody_answers() -> None:
    async with redis_server() as server:
        async with running_store(server.settings(timeout=0.2)) as store:
            line = Callers(store, per_second(10, 1), callers=5)
            await calls_out(line, 1)
            server.stall()
            line.stop()
            watch = Stopwatch()
        assert watch.seconds < SOON
        server.resume()


async def test_it_leaves_nothing_behind_on_the_server() -> None:
    async with redis_server() as server, server.client() as client:
        async with running_store(server.settings()) as store:
            line = Callers(store, ThrottleSettings(concurrency=3), callers=3, lasts=60.0)
            await calls_out(line, 3)
            line.stop()
            assert await client.exists("holdfast:route:line", "holdfast:instances") == 2
        assert await client.exists("holdfast:route:line", "holdfast:instances") == 0
        others = [c for c in await client.client_list() if c["id"] != str(await client.client_id())]
        assert not others
