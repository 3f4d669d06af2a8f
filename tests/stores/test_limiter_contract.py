"""What limiters promise, whoever keeps them: the same tests for every store."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Unpack

import pytest

from proxy.policy.settings import Rate, ThrottleSettings
from proxy.policy.throttle.limiter import NEVER
from proxy.stores import LimiterStore
from proxy.stores.memory import MemoryLimiterStore
from tests.stores.running_stores import CLOCK, Callers, per_second, running_store
from tests.support.redis_server import SERVERS, Changes, RedisServer, program_name, standing_server
from tests.support.waiting import PATIENCE, eventually


@pytest.fixture(
    params=[None, *SERVERS],
    ids=lambda program: "memory" if program is None else program_name(program),
    scope="module",
)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer | None]:
    if request.param is None:
        yield None
    else:
        with standing_server(request.param) as server:
            yield server


@asynccontextmanager
async def opened(
    server: RedisServer | None, **changes: Unpack[Changes]
) -> AsyncIterator[LimiterStore]:
    if server is None:
        yield MemoryLimiterStore(CLOCK)
        return
    async with server.client() as client:
        await client.flushall()
    async with running_store(server.settings(**changes)) as store:
        yield store


@pytest.fixture
async def store(server: RedisServer | None) -> AsyncIterator[LimiterStore]:
    # A permit that lapses is gone for long: a busy machine gets to use those that live for long.
    async with opened(server, permit_life=1.0) as store:
        yield store


@pytest.fixture
async def usual_store(server: RedisServer | None) -> AsyncIterator[LimiterStore]:
    """A store whose permits live as long as their rates say."""
    async with opened(server) as store:
        yield store


def per_hour(count: int, burst: int, **others: object) -> ThrottleSettings:
    return ThrottleSettings(rates=(Rate(count, 3600.0),), burst=burst, **others)  # type: ignore[arg-type]  # as named there


async def settled(line: Callers, waiting: int = 1) -> None:
    """Ask for so many until they are there, or it is known that they are not."""
    async with asyncio.timeout(PATIENCE):
        while not line.has(waiting, CLOCK.monotonic()):
            if not line.ask(CLOCK.monotonic(), 0):
                return
            line.ask(CLOCK.monotonic(), waiting)
            await asyncio.sleep(0.001)


async def take(line: Callers, count: int) -> int:
    """Let calls out as far as there are permits and slots; return how many that were."""
    taken = 0
    while taken < count:
        if line.take(CLOCK.monotonic()):
            taken += 1
            continue
        await settled(line)
        if not line.has(1, CLOCK.monotonic()):
            break
    return taken


async def test_a_burst_goes_out_and_then_no_more(store: LimiterStore) -> None:
    line = Callers(store, per_hour(60, 5))
    assert await take(line, 10) == 5
    wait = line.rates.wait(CLOCK.monotonic(), 1)
    assert 50 < wait <= 60
    assert line.rates.wait(CLOCK.monotonic(), 3) == pytest.approx(wait + 120, abs=2)


async def test_all_rates_hold_and_none_is_charged_alone(store: LimiterStore) -> None:
    rates = (Rate(60, 3600.0), Rate(1000, 3600.0))
    line = Callers(store, ThrottleSettings(rates=rates, burst=4))
    assert await take(line, 10) == 4
    line.bucket.change(per_hour(1000, 4), CLOCK.monotonic())
    # 3.6 s each: nothing came back, but what was refused was not charged either.
    assert line.rates.wait(CLOCK.monotonic(), 1) <= 60


async def test_without_a_rate_everything_passes(store: LimiterStore) -> None:
    line = Callers(store, ThrottleSettings())
    assert await take(line, 1000) == 1000
    assert line.rates.wait(CLOCK.monotonic(), 1000) == 0


async def test_what_did_not_happen_costs_nothing(store: LimiterStore) -> None:
    line = Callers(store, per_hour(60, 5, concurrency=5))
    await take(line, 3)
    await settled(line)
    for let_out in [line.bucket.take, line.bucket.reserve] * 5:
        undone = let_out(CLOCK.monotonic())
        assert undone is not None
        undone.release()
        undone.close()
    assert await take(line, 5) == 2


async def test_a_reserved_permit_is_kept_free_until_it_is_committed(store: LimiterStore) -> None:
    line = Callers(store, per_hour(60, 3, concurrency=9))
    await settled(line, 3)
    now = CLOCK.monotonic()
    reserved = line.bucket.reserve(now)
    assert reserved is not None
    assert line.take(now)
    assert line.take(now)
    assert not line.take(now), "the last one is reserved"
    assert line.bucket.under_way == 3
    assert reserved.commit(now)
    assert not line.rates.take(now, 0)


async def test_slots_are_taken_and_given_back(store: LimiterStore) -> None:
    line = Callers(store, ThrottleSettings(concurrency=2))
    assert await take(line, 3) == 2
    assert line.slots.wait(CLOCK.monotonic(), 1) == NEVER
    line.slots.give_back()
    assert line.slots.wait(CLOCK.monotonic(), 1) == 0
    assert line.slots.take(CLOCK.monotonic(), 0)
    assert line.slots.wait(CLOCK.monotonic(), 1) == NEVER
    assert not line.slots.take(CLOCK.monotonic(), 0)


async def test_a_permit_and_a_slot_or_neither(store: LimiterStore) -> None:
    line = Callers(store, per_hour(60, 5, concurrency=1))
    assert await take(line, 3) == 1
    line.finish()
    assert await take(line, 1) == 1
    for _ in range(3):
        line.finish()
        assert await take(line, 1) == 1, "what was refused for want of a place cost a permit"


async def test_a_pause_lets_nothing_out_and_ends_without_a_burst(usual_store: LimiterStore) -> None:
    line = Callers(usual_store, per_second(10, 10))
    now = CLOCK.monotonic()
    line.bucket.pause(now, 0.2)
    assert not line.rates.take(now + 0.1, 0)
    assert line.rates.wait(now, 1) == pytest.approx(0.2, abs=0.01)
    assert line.rates.wait(now, 3) == pytest.approx(0.405, abs=0.015)
    await asyncio.sleep(0.21)
    taken = await take(line, 10)
    assert taken <= 2 + 10 * (CLOCK.monotonic() - now - 0.21)


async def test_a_pause_without_a_rate(store: LimiterStore) -> None:
    line = Callers(store, ThrottleSettings())
    now = CLOCK.monotonic()
    line.bucket.pause(now, 30)
    assert line.rates.wait(now, 1) == pytest.approx(30, abs=0.01) or isinstance(
        store, MemoryLimiterStore
    ), "the bucket knows of it as well"


async def test_a_changed_limit_holds_at_once(store: LimiterStore) -> None:
    line = Callers(store, per_hour(60, 9, concurrency=9))
    assert await take(line, 3) == 3
    line.bucket.change(per_hour(60, 5, concurrency=4), CLOCK.monotonic())
    assert await take(line, 9) <= 1, "a place is left of four"
    line.bucket.change(ThrottleSettings(), CLOCK.monotonic())
    assert await take(line, 50) == 50


async def test_what_was_sent_counts_for_a_larger_burst_too(store: LimiterStore) -> None:
    line = Callers(store, per_hour(60, 3))
    assert await take(line, 3) == 3
    line.bucket.change(per_hour(60, 50), CLOCK.monotonic())
    assert await take(line, 50) == 47


async def test_idle_is_what_a_new_one_would_be_like(store: LimiterStore) -> None:
    line = Callers(store, per_second(50, 5, concurrency=3))
    assert line.rates.is_idle(CLOCK.monotonic())
    assert line.slots.is_idle(CLOCK.monotonic())
    assert await take(line, 2) == 2
    assert not line.slots.is_idle(CLOCK.monotonic())
    for _ in range(2):
        line.finish()
    await eventually(lambda: line.bucket.is_idle(CLOCK.monotonic()))
    assert line.rates.is_idle(CLOCK.monotonic())
    assert line.slots.is_idle(CLOCK.monotonic())


async def test_quotas_are_told_alike(store: LimiterStore) -> None:
    line = Callers(store, per_hour(60, 5, concurrency=5))
    assert await take(line, 9) == 5
    rate, slots = line.bucket.quotas(CLOCK.monotonic())
    assert (rate.name, rate.limit, rate.window, rate.remaining) == ("60-per-3600s", 60, 3600, 0)
    assert rate.reset is not None
    assert 50 <= rate.reset <= 61
    assert (slots.name, slots.limit, slots.remaining) == ("concurrency", 5, 0)
