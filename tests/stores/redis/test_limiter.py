"""One limit for three instances, whatever becomes of one of them."""

import asyncio
import math
import re
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.wait_queue import Reservation, Waiter
from tests.stores.running_stores import (
    CLOCK,
    Callers,
    Tally,
    assert_within,
    calls_out,
    goes_out_at,
    most_in,
    on_every_server,
    per_second,
    running_store,
)
from tests.support.redis_server import redis_server
from tests.support.relay import relay
from tests.support.waiting import eventually
from tests.support.witness import Stopwatch


@on_every_server
async def test_three_instances_keep_one_rate_and_use_it(program: Path) -> None:
    async with redis_server(program) as server, AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(running_store(server.settings())) for _ in range(3)
        ]
        await eventually(lambda: all(store._link.instances == 3 for store in stores))
        lines = [Callers(store, per_second(200, 20), callers=10) for store in stores]
        await goes_out_at(0.9 * 200, 1.2, lambda: sum(len(line.sent) for line in lines), server.pid)
        for line in lines:
            line.stop()
        sent = [moment for line in lines for moment in line.sent]
        assert_within(sent, 200, 20)
        assert min(len(line.sent) for line in lines) >= len(sent) / 6


async def test_who_was_there_first_leaves_a_share_to_those_it_has_not_heard_of() -> None:
    async with redis_server() as server, AsyncExitStack() as stack:
        lines: list[Callers] = []
        for _ in range(3):
            store = await stack.enter_async_context(running_store(server.settings()))
            lines.append(Callers(store, per_second(200, 20), callers=10))
            await calls_out(lines[-1], 30)
        before = [len(line.sent) for line in lines]
        await asyncio.sleep(0.5)
        sent = [len(line.sent) - had for line, had in zip(lines, before, strict=True)]
        for line in lines:
            line.stop()
        assert min(sent) >= sum(sent) / 6, sent


async def test_what_a_killed_instance_had_is_used_by_the_others() -> None:
    async with (
        redis_server() as server,
        relay(server.port) as wire,
        running_store(server.settings()) as survivor,
        running_store(server.settings(port=wire.port, timeout=0.5)) as victim,
    ):
        dying = Callers(victim, per_second(100, 10), callers=10)
        living = Callers(survivor, per_second(100, 10), callers=10)
        await calls_out(dying, 5)
        dying.stop()
        wire.go_dead()
        await goes_out_at(0.9 * 100, 0.5, lambda: len(living.sent), server.pid)
        living.stop()
        assert_within(living.sent + dying.sent, 100, 10)


@on_every_server
async def test_slots_are_shared_and_never_exceeded(program: Path) -> None:
    async with redis_server(program) as server, AsyncExitStack() as stack:
        lines: list[Callers] = []
        for _ in range(3):
            store = await stack.enter_async_context(running_store(server.settings()))
            lines.append(Callers(store, ThrottleSettings(concurrency=10), callers=20, lasts=0.02))
        most = 0

        def count() -> int:
            return sum(len(line.sent) for line in lines)

        used = asyncio.create_task(goes_out_at(0.8 * 10 / 0.02, 1.0, count, server.pid))
        while not used.done():
            await asyncio.sleep(0.001)
            most = max(most, sum(line.under_way for line in lines))
        await used
        for line in lines:
            line.stop()
        assert most == 10
        done = [len(line.sent) for line in lines]
        assert min(done) >= 0.6 * max(done), "an instance starved"


async def test_a_single_place_goes_round() -> None:
    async with (
        redis_server() as server,
        running_store(server.settings()) as one,
        running_store(server.settings()) as other,
    ):
        only = ThrottleSettings(concurrency=1)
        lines = [Callers(store, only, callers=3, lasts=0.005) for store in (one, other)]
        most = 0

        def have_had_it() -> bool:
            nonlocal most
            most = max(most, sum(line.under_way for line in lines))
            return min(len(line.sent) for line in lines) > 20

        await eventually(have_had_it, what="the turn of each of them")
        for line in lines:
            line.stop()
        assert most == 1


async def test_slots_of_a_killed_instance_return_by_themselves() -> None:
    async with (
        redis_server() as server,
        relay(server.port) as wire,
        running_store(server.settings()) as survivor,
        running_store(server.settings(port=wire.port, timeout=0.5)) as victim,
    ):
        dying = Callers(victim, ThrottleSettings(concurrency=4), callers=4, lasts=60.0)
        await calls_out(dying, 4)
        living = Callers(survivor, ThrottleSettings(concurrency=4), callers=4, lasts=60.0)
        wire.go_dead()
        watch = Stopwatch()
        await asyncio.sleep(0.5)
        assert not living.sent, "the victim may be alive yet"
        await calls_out(living, 4)
        assert watch.seconds < 4.0


async def test_unused_slots_are_given_back_at_once() -> None:
    async with (
        redis_server() as server,
        running_store(server.settings()) as one,
        running_store(server.settings()) as other,
    ):
        four = ThrottleSettings(concurrency=4)
        first = Callers(one, four, callers=4, lasts=0.01)
        await calls_out(first, 4)
        first.stop()
        watch = Stopwatch(server.pid)
        second = Callers(other, four, callers=4, lasts=60.0)
        await calls_out(second, 4)
        assert watch.seconds < 1.0
        await eventually(lambda: first.slots.is_idle(CLOCK.monotonic()))


async def test_slots_of_a_limit_that_is_dropped_are_free_and_count_again_with_the_next() -> None:
    async with (
        redis_server() as server,
        running_store(server.settings()) as one,
        running_store(server.settings()) as other,
    ):
        four, nothing = ThrottleSettings(concurrency=4), ThrottleSettings()
        first = Callers(one, four, callers=4, lasts=60.0)
        await calls_out(first, 4)
        second = Callers(other, four, callers=6, lasts=60.0)
        first.bucket.change(nothing, CLOCK.monotonic())
        watch = Stopwatch()
        await calls_out(second, 4)
        assert watch.seconds < 1.0, "without waiting for a lease to end"
        first.stop()
        first.bucket.change(four, CLOCK.monotonic())
        await eventually(lambda: not first.slots.ask(CLOCK.monotonic(), 0))
        assert not first.take(CLOCK.monotonic()), "four of its own are under way yet"
        for _ in range(4):
            first.finish()
        assert first.bucket.under_way == 0
        second.stop()


async def test_who_has_a_slot_gets_another_permit_though_all_slots_are_taken() -> None:
    """As after a connection that took longer to make than a permit lives."""
    async with redis_server() as server, running_store(server.settings()) as store:
        line = Callers(store, per_second(100, concurrency=1))
        queue = line.bucket

        def reserved() -> Reservation | None:
            line.ask(CLOCK.monotonic(), 1)
            return queue.reserve(CLOCK.monotonic())

        call = await eventually(reserved)
        assert call is not None
        now = CLOCK.monotonic()
        queue.pause(now, 0.01)
        assert not call.commit(now), "what was at hand is lost"
        assert queue.come_back(Waiter(now, math.inf, call))
        released = await eventually(lambda: queue.serve(CLOCK.monotonic()).out)
        assert [reservation for _, reservation in released] == [call]
        assert call.commit(CLOCK.monotonic())


async def test_a_pause_reaches_every_instance_and_ends_without_a_burst() -> None:
    async with redis_server() as server, AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(running_store(server.settings())) for _ in range(3)
        ]
        limited = [Callers(store, per_second(50, 25), bucket="route:a") for store in stores]
        unlimited = [Callers(store, ThrottleSettings(), bucket="route:b") for store in stores]
        await server.has_listeners(3)
        now, watch = CLOCK.monotonic(), Stopwatch(server.pid)
        for lines in (limited, unlimited):
            lines[0].bucket.pause(now, 0.3)
        await eventually(lambda: all(line.pauses for line in unlimited[1:] + limited[1:]))
        late = CLOCK.monotonic() - now - watch.seconds
        for line in limited[1:] + unlimited[1:]:
            until = line.pauses[0]
            assert until == pytest.approx(now + 0.3, abs=0.1 + late)
            assert not line.rates.take(min(CLOCK.monotonic(), until - 0.001), 0)
        for line in limited:
            line.call(10)
        await eventually(lambda: sum(len(line.sent) for line in limited) >= 5)
        for line in limited:
            line.stop()
        sent = [moment for line in limited for moment in line.sent]
        assert min(sent) >= now + 0.3
        assert most_in(sent, 0.01) <= 2, "a burst after the pause"


async def test_what_was_on_its_way_when_a_pause_began_is_not_used_after_it() -> None:
    tally = Tally()
    async with redis_server() as server, running_store(server.settings(), tally=tally) as store:
        # Who begins to listen asks whether there is a pause: that shall be over.
        await eventually(lambda: tally.answered["subscribe"])
        line = Callers(store, per_second(100, 20))
        line.rates.ask(CLOCK.monotonic(), 5)
        now = CLOCK.monotonic()
        line.bucket.pause(now, 0.02)  # shorter than a permit lives
        await eventually(lambda: tally.answered["take"] == tally.answered["pause"] == 1)
        await asyncio.sleep(max(now + 0.025 - CLOCK.monotonic(), 0))
        assert not line.rates.take(CLOCK.monotonic(), 0)
        line.stop()


async def test_an_instance_that_comes_later_learns_of_the_pause() -> None:
    async with (
        redis_server() as server,
        running_store(server.settings()) as early,
        running_store(server.settings()) as late,
    ):
        first = Callers(early, ThrottleSettings())
        now = CLOCK.monotonic()
        first.bucket.pause(now, 30)
        await asyncio.sleep(0.05)
        second = Callers(late, ThrottleSettings())
        await eventually(lambda: second.pauses)
        assert second.rates.wait(CLOCK.monotonic(), 1) > 29


async def test_a_lost_subscription_is_renewed_and_nothing_is_missed() -> None:
    tally = Tally()
    async with (
        redis_server() as server,
        running_store(server.settings()) as one,
        running_store(server.settings(), tally=tally) as other,
        server.client() as client,
    ):
        telling, hearing = (
            Callers(one, ThrottleSettings()),
            Callers(other, ThrottleSettings()),
        )
        await server.has_listeners(2)
        await client.client_kill_filter(_type="pubsub")
        now = CLOCK.monotonic()
        telling.bucket.pause(now, 30)
        await eventually(lambda: hearing.pauses)
        assert other.state == "up"
        assert tally.answered["subscribe"] == 2


async def test_after_the_loop_slept_nothing_bursts() -> None:
    async with redis_server() as server, running_store(server.settings()) as store:
        line = Callers(store, per_second(100, 20), callers=40)
        await calls_out(line, 30)
        time.sleep(0.5)  # noqa: ASYNC251 - that is the fault
        await calls_out(line, 60)
        line.stop()
        assert_within(line.sent, 100, 20)
        assert store.state == "up", "it was us who slept"


async def test_a_distant_store_is_slow_but_of_use() -> None:
    async with (
        redis_server() as server,
        relay(server.port, delay=0.03) as wire,
        running_store(server.settings(port=wire.port, permit_life=0.2)) as store,
    ):
        line = Callers(store, per_second(100), callers=4)
        await calls_out(line, 10)
        line.stop()


async def test_no_permit_lives_longer_because_the_store_is_far_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        redis_server() as server,
        relay(server.port, delay=0.03) as wire,
        running_store(server.settings(port=wire.port)) as store,
    ):
        line = Callers(store, per_second(100), callers=4)
        await eventually(lambda: "permit_life" in caplog.text)
        line.stop()
        assert not line.sent
    # What it advises follows from what it measured, which a busy machine adds to.
    advice = r"is (\d+) ms away, .*write store: {permit_life: (\d+)ms}, on all instances"
    told = re.search(advice, caplog.text)
    assert told is not None
    away, life = int(told[1]), int(told[2])
    assert away >= 60
    assert 3 * (away - 0.5) <= life < 3 * (away + 0.5) + 100
    assert life % 100 == 0
