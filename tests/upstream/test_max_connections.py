"""A pool at its limit: whose turn it is, decided in one turn of the loop."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from proxy.core.clock import SystemClock
from proxy.net.write_coalescer import WriteCoalescer
from proxy.policy.attempt import FailureKind
from proxy.policy.settings import Origin, UpstreamSettings
from proxy.upstream.connection import UpstreamConnection
from proxy.upstream.pool import ConnectError, Pool
from tests.support import PATIENCE, ScriptedUpstream, eventually

Waiting = asyncio.Task[UpstreamConnection]


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    """A pool with one place, which at the end must be free again."""
    async with ScriptedUpstream() as upstream:
        origin = Origin("http", "127.0.0.1", upstream.port)
        settings = UpstreamSettings("scripted", (origin,), max_connections=1)
        pool = Pool(
            origin, origin.host, settings, None, clock=SystemClock(), coalescer=WriteCoalescer()
        )
        yield pool
        pool.close()
        await eventually(lambda: pool.open_connections == 0, what="freeing the place")
        assert pool.idle_connections == 0


def ask(pool: Pool, within: float = PATIENCE) -> Waiting:
    return asyncio.create_task(pool.connect(within, blame=True))


async def ask_and_wait(pool: Pool) -> Waiting:
    """Someone who stands in the queue now."""
    waiting = ask(pool)
    await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


def end(pool: Pool, connection: UpstreamConnection) -> None:
    """The connection ends, and the pool hears of it in this very turn."""
    connection.abandon()
    pool.lost(connection)


async def test_whoever_waits_gets_a_place_before_one_who_comes_as_it_becomes_free(
    pool: Pool,
) -> None:
    first = await ask(pool)
    waiting = await ask_and_wait(pool)
    newcomer = ask(pool)
    end(pool, first)
    connection = await waiting
    assert not newcomer.done()
    assert pool.open_connections == 1
    pool.give_back(connection)
    assert await newcomer is connection
    pool.give_back(connection)


async def test_whoever_waits_gets_a_connection_before_one_who_comes_as_it_becomes_free(
    pool: Pool,
) -> None:
    first = await ask(pool)
    waiting = await ask_and_wait(pool)
    newcomer = ask(pool)
    pool.give_back(first)
    assert await waiting is first
    assert not newcomer.done()
    end(pool, first)
    second = await newcomer
    assert second is not first
    pool.give_back(second)


async def test_a_connection_that_closes_while_it_is_handed_over_is_not_used(pool: Pool) -> None:
    first = await ask(pool)
    waiting = await ask_and_wait(pool)
    pool.give_back(first)
    first.abandon()
    second = await waiting
    assert second is not first
    assert not second.is_closing
    assert pool.open_connections == 1
    pool.give_back(second)


@pytest.mark.parametrize("granted", ["a connection", "a place"])
async def test_whoever_leaves_as_he_is_served_passes_it_on(pool: Pool, granted: str) -> None:
    first = await ask(pool)
    leaving, next_one = await ask_and_wait(pool), await ask_and_wait(pool)
    if granted == "a connection":
        pool.give_back(first)
    else:
        end(pool, first)
    leaving.cancel()
    connection = await next_one
    assert leaving.cancelled()
    assert (connection is first) == (granted == "a connection")
    assert pool.open_connections == 1
    pool.give_back(connection)


@pytest.mark.parametrize("granted", ["a connection", "a place"])
async def test_whoever_leaves_last_leaves_nothing_behind(pool: Pool, granted: str) -> None:
    first = await ask(pool)
    leaving = await ask_and_wait(pool)
    if granted == "a connection":
        pool.give_back(first)
    else:
        end(pool, first)
    leaving.cancel()
    await asyncio.wait((leaving,))
    kept = 1 if granted == "a connection" else 0
    assert (pool.open_connections, pool.idle_connections) == (kept, kept)


async def test_giving_up_in_the_queue_takes_nobody_elses_turn(pool: Pool) -> None:
    first = await ask(pool)
    hasty = ask(pool, within=0.01)
    patient = await ask_and_wait(pool)
    with pytest.raises(ConnectError) as failed:
        await hasty
    assert failed.value.kind is FailureKind.BUSY
    pool.give_back(first)
    assert await patient is first
    pool.give_back(first)
