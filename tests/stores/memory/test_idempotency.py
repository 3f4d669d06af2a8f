"""How much this process remembers, and what it gives up first."""

from random import Random

import pytest

from proxy.policy.idempotency.record import (
    LEFT_FOR,
    ClaimAnswer,
    Claimed,
    Ending,
    KnownKeys,
    RecordState,
)
from proxy.policy.settings import MemorySettings
from proxy.stores.memory import MemoryIdempotencyStore
from proxy.stores.memory.caller_usage import CALLER_USAGE_BYTES
from proxy.stores.memory.idempotency import RECORD
from tests.stores.key_stores import LEASE, TTL, ask, done, freed
from tests.support.clock import FakeClock

LARGE = b"x" * 10_000


class Memory:
    """A small one."""

    def __init__(self, entries: int = 1000, most: int = 10**6) -> None:
        self.clock = FakeClock()
        self.evicted = 0
        self.claims = MemoryIdempotencyStore(MemorySettings(entries, most), self.clock, self)

    def count(self, metric: str, *labels: str, by: int = 1) -> None:
        assert (metric, labels) == ("holdfast_store_evictions_total", ())
        self.evicted += by

    async def claim(self, name: str, waited_for: str = "", caller: str = "") -> Claimed:
        return await self.claims.claim(ask("one", name, waited_for=waited_for, caller=caller))

    async def run(self, name: str, ending: Ending, caller: str = "") -> None:
        assert (await self.claim(name, caller=caller)).answer is ClaimAnswer.NEW
        assert await self.claims.settle(name, "one", ending)

    async def run_while_another_waits(self, name: str, ending: Ending) -> None:
        assert (await self.claim(name)).answer is ClaimAnswer.NEW
        assert (await self.claims.claim(ask("two", name))).answer is ClaimAnswer.BUSY
        assert await self.claims.settle(name, "one", ending)

    async def state(self, name: str) -> RecordState | None:
        shown = await self.claims.show(name)
        return None if shown is None else shown.state


async def test_where_there_are_too_many_the_oldest_go() -> None:
    memory = Memory(entries=3)
    await memory.run("a", Ending(RecordState.UNSTORED, TTL))
    await memory.run("b", Ending(RecordState.UNSTORED, TTL))
    await memory.claim("c")
    assert memory.evicted == 0
    assert (await memory.claim("d")).answer is ClaimAnswer.NEW
    assert memory.evicted == 1
    assert await memory.state("a") is None
    assert (await memory.claim("e")).answer is ClaimAnswer.NEW
    assert memory.evicted == 2
    assert await memory.state("b") is None
    assert len(memory.claims) == 3


@pytest.mark.parametrize("ending", [None, Ending(RecordState.HELD, TTL)])
async def test_what_is_in_flight_or_held_is_never_given_up(ending: Ending | None) -> None:
    memory = Memory(entries=3)
    for name in "abc":
        await memory.claim(name)
        if ending is not None:
            await memory.claims.settle(name, "one", ending)
    for _ in range(3):
        assert await memory.claim("d") == Claimed(ClaimAnswer.FULL)
    memory.clock.advance(LEASE + 2)
    assert await memory.claim("d") == Claimed(ClaimAnswer.FULL), "nor when its owner is silent"
    for name in "abc":
        assert await memory.state(name) is not None
    assert memory.evicted == 0
    memory.clock.advance(TTL)
    assert (await memory.claim("d")).answer is ClaimAnswer.NEW, "but in time it is forgotten"
    assert memory.evicted == 0


async def test_what_is_in_flight_stays_whatever_the_date() -> None:
    memory = Memory(entries=2)
    await memory.claim("a")
    memory.clock.set_wall_wrong_by(1e9)
    assert (await memory.claim("a")).answer is ClaimAnswer.BUSY
    await memory.claim("b")
    assert await memory.claim("c") == Claimed(ClaimAnswer.FULL), "nor does it make room for another"
    assert await memory.claims.renew("a", "one", LEASE, TTL)
    memory.clock.set_wall_wrong_by(2e9)
    assert await memory.claims.settle("a", "one", done(b"result"))
    assert (await memory.claim("a")).result == b"result"
    memory.clock.advance(LEASE + 1)
    assert not await memory.claims.settle("b", "one", done()), "its lease has ended, and its time"


async def test_results_make_room_for_each_other_and_that_they_ran_is_known() -> None:
    memory = Memory(most=CALLER_USAGE_BYTES + 4 * RECORD + 3000)
    for name in "abc":
        await memory.run(name, done(b"x" * 1000))
    assert memory.claims.used == CALLER_USAGE_BYTES + 3 * (RECORD + 1000)
    await memory.run("d", done(b"y" * 1500))
    assert memory.evicted == 2, "results, and no record"
    assert (await memory.claim("d")).result == b"y" * 1500
    assert (await memory.claim("c")).result == b"x" * 1000
    for name in "ab":
        assert await memory.claim(name) == Claimed(ClaimAnswer.UNSTORED)


async def test_a_result_that_never_fits_is_not_kept_and_that_it_ran_is() -> None:
    memory = Memory(most=CALLER_USAGE_BYTES + 3 * RECORD)
    await memory.run("a", done(b"small"))
    await memory.run("b", done(b"x" * 1000))
    assert await memory.claim("b") == Claimed(ClaimAnswer.UNSTORED)
    assert (await memory.claim("a")).result == b"small", "nothing was given up for it"
    assert memory.evicted == 0


async def test_markers_leave_a_quarter_to_results() -> None:
    memory = Memory(most=20 * RECORD)
    for number in range(100):
        await memory.run(f"{number:02}", Ending(RecordState.UNSTORED, TTL))
    evicted = memory.evicted
    assert evicted > 0
    for name in "abc":
        await memory.run(name, done(b"x" * 4 * RECORD))
        assert (await memory.claim(name)).result == b"x" * 4 * RECORD
    assert 0 < memory.evicted - evicted < 15
    await memory.run("d", done(b"x" * 8 * RECORD))
    assert await memory.claim("d") == Claimed(ClaimAnswer.UNSTORED), "the rest is theirs"
    assert memory.claims.used <= 20 * RECORD


async def test_room_that_is_in_use_is_no_room() -> None:
    memory = Memory(most=CALLER_USAGE_BYTES + 3 * RECORD)
    for name in "abc":
        assert (await memory.claim(name)).answer is ClaimAnswer.NEW
    assert await memory.claim("d") == Claimed(ClaimAnswer.FULL)
    assert await memory.claims.settle("a", "one", done(b"x"))
    assert await memory.state("a") is RecordState.UNSTORED
    assert (await memory.claim("d")).answer is ClaimAnswer.NEW, (
        "that it ran was given up, and counted"
    )
    assert memory.evicted == 1


async def test_nothing_is_left_behind_where_nobody_waits() -> None:
    memory = Memory(most=4000)
    await memory.run("a", freed(b"x" * 200))
    assert memory.claims.used == 0


async def test_what_is_left_behind_counts_and_goes() -> None:
    memory = Memory(most=4000)
    await memory.run_while_another_waits("a", freed(b"x" * 200))
    assert memory.claims.used == RECORD + 200
    assert (await memory.claim("b", waited_for="one")).result == b"x" * 200
    memory.clock.advance(LEFT_FOR + 1)
    assert (await memory.claim("b", waited_for="one")).answer is ClaimAnswer.NEW
    assert memory.claims.used == CALLER_USAGE_BYTES + RECORD


async def test_what_is_left_behind_may_not_fit() -> None:
    memory = Memory(most=1000)
    await memory.run_while_another_waits("a", freed(b"x" * 2000))
    assert (await memory.claim("a", waited_for="one")).answer is ClaimAnswer.NEW
    assert memory.claims.used == CALLER_USAGE_BYTES + RECORD


async def test_a_storm_of_failures_leaves_results_alone() -> None:
    memory = Memory(most=10_000)
    await memory.run("a", done(b"x" * 5000))
    for number in range(100):
        name = owner = f"{number:02}"
        assert (await memory.claims.claim(ask(owner, name))).answer is ClaimAnswer.NEW
        assert (await memory.claims.claim(ask("another", name))).answer is ClaimAnswer.BUSY
        assert await memory.claims.settle(name, owner, freed(b"y" * 400))
        assert memory.claims.used < 8500
    assert (await memory.claim("b", waited_for="99")).result == b"y" * 400
    assert (await memory.claim("a")).result == b"x" * 5000
    assert memory.evicted == 0


async def test_what_was_left_twice_counts_once() -> None:
    memory = Memory(most=4000)
    await memory.run_while_another_waits("a", freed(b"x" * 200))
    await memory.run_while_another_waits("a", freed(b"y" * 100))
    assert memory.claims.used == RECORD + 100
    assert (await memory.claim("a", waited_for="one")).result == b"y" * 100


# Shared by caller.


async def test_a_stranger_s_results_push_out_its_own() -> None:
    memory = Memory(entries=100_000, most=64 * 10_000)
    await memory.run("mine", done(b"my result"), "me")
    for number in range(200):
        await memory.run(f"{number}", done(LARGE), "stranger")
    assert memory.evicted > 100
    assert (await memory.claim("mine", caller="me")).result == b"my result"
    assert (await memory.claim("0", caller="stranger")).answer is ClaimAnswer.UNSTORED
    assert (await memory.claim("199", caller="stranger")).result == LARGE


async def test_a_stranger_s_keys_push_out_its_own() -> None:
    memory = Memory(entries=100)
    for name in "abc":
        await memory.run(name, done(b"my result"), "me")
    for number in range(1000):
        await memory.run(f"{number}", done(b"x"), "stranger")
    for name in "abc":
        assert (await memory.claim(name, caller="me")).result == b"my result"
    assert len(memory.claims) == 100


async def test_what_is_held_is_at_most_half_of_the_room_beside_others() -> None:
    memory = Memory(entries=20)
    await memory.run("mine", done(b"my result"), "me")
    for number in range(40):
        claimed = await memory.claim(f"{number}", caller="stranger")
        if number < 10:
            await memory.claims.settle(f"{number}", "one", Ending(RecordState.HELD, TTL))
        assert claimed.answer is (ClaimAnswer.NEW if number < 10 else ClaimAnswer.FULL)
    for number in range(100):
        await memory.run(f"mine {number}", done(b"my result"), "me")
    assert (await memory.claim("mine 99", caller="me")).result == b"my result"
    assert await memory.claim("one more", caller="stranger") == Claimed(ClaimAnswer.FULL)


async def test_a_caller_alone_leaves_an_eighth_of_what_is_never_given_up() -> None:
    memory = Memory(entries=20)
    for number in range(18):
        assert (await memory.claim(f"{number}", caller="me")).answer is ClaimAnswer.NEW
        await memory.claims.settle(f"{number}", "one", Ending(RecordState.HELD, TTL))
    assert await memory.claim("one more", caller="me") == Claimed(ClaimAnswer.FULL)
    for name in "ab":
        assert (await memory.claim(name, caller="new")).answer is ClaimAnswer.NEW, (
            "it was yet to come"
        )
    assert await memory.claim("c", caller="new") == Claimed(ClaimAnswer.FULL)


async def test_what_may_be_given_up_is_all_of_a_caller_alone() -> None:
    memory = Memory(entries=20)
    for number in range(20):
        await memory.run(f"{number}", done(b"x"), "me")
    assert len(memory.claims) == 20


async def test_a_record_moves_to_who_it_turns_out_to_be() -> None:
    memory = Memory(entries=100)
    await memory.claim("mine", caller="10.0.0.1")
    await memory.claims.settle("mine", "one", Ending(RecordState.DONE, TTL, b"mine", "me"))
    for number in range(1000):
        await memory.run(f"{number}", done(b"x"), "10.0.0.1")
    assert (await memory.claim("mine", caller="me")).result == b"mine"


async def test_made_up_callers_cost_room_as_well() -> None:
    memory = Memory(entries=100_000, most=100 * (CALLER_USAGE_BYTES + RECORD))
    for number in range(1000):
        await memory.run(f"{number}", done(b""), f"caller {number}")
    assert len(memory.claims) <= 100
    assert memory.claims.used <= 100 * (CALLER_USAGE_BYTES + RECORD)
    assert len(memory.claims._usage) == len(memory.claims)


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_happens_the_count_is_right(seed: int) -> None:
    chance = Random(seed)
    memory = Memory(entries=60, most=40_000)
    claims = memory.claims
    for _ in range(3000):
        name, caller = f"{chance.randrange(150)}", f"{chance.randrange(6) ** 2}"
        match chance.randrange(8):
            case 0:
                await claims.drop(name)
            case 1:
                memory.clock.advance(chance.expovariate(1.0))
            case _ if (await memory.claim(name, caller=caller)).answer is ClaimAnswer.NEW:
                state = chance.choice(
                    [
                        RecordState.DONE,
                        RecordState.DONE,
                        RecordState.HELD,
                        RecordState.UNSTORED,
                        None,
                    ]
                )
                result = (
                    b"x" * chance.choice([0, 10, 3000]) if state is not RecordState.HELD else b""
                )
                mine = chance.choice(["", caller, "known"])
                ttl = chance.choice([TTL, TTL / 50])
                await claims.settle(name, "one", Ending(state, ttl, result, mine))
        _assert_counted(claims)
    assert memory.evicted > 0


def _assert_counted(claims: MemoryIdempotencyStore) -> None:
    records = {**claims._open, **claims._ended}
    results = sum(len(record.result) for record in claims._ended.values())
    usages = claims._usage
    assert claims._count == len(records) <= 60
    assert claims._results_used == results == sum(usage.bytes for usage in usages.values())
    assert (
        claims.used
        == len(records) * RECORD + results + len(usages) * CALLER_USAGE_BYTES + claims._left_used
    )
    assert claims.used <= 40_000
    assert {record.caller for record in records.values()} == set(usages)
    assert sum(usage.open for usage in usages.values()) == len(claims._open)
    assert sum(usage.ended for usage in usages.values()) == len(claims._ended)
    assert claims.known().held == sum(
        record.state is RecordState.HELD for record in records.values()
    )
    names = sum(len(usage.results.names) + len(usage.markers.names) for usage in usages.values())
    assert names <= 2 * len(claims._ended) + 70 * len(usages)
    assert sum(map(len, claims._queues.values())) <= 2 * (2 * 60 + 48)


async def test_that_half_of_it_is_held_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory(entries=20)
    for number in range(18):
        await memory.run(f"{number}", Ending(RecordState.HELD, TTL))
        assert len(caplog.messages) == (number >= 9)
    assert "10 of at most 20" in caplog.text
    for number in range(18):
        await memory.claims.drop(f"{number}")
    for number in range(18):
        await memory.run(f"{number} again", Ending(RecordState.HELD, TTL))
    assert len(caplog.messages) == 2


async def test_the_oldest_key_that_is_known() -> None:
    memory = Memory(entries=3)
    assert memory.claims.known() == KnownKeys(0, 0, None)
    for name in "abcd":
        await memory.run(name, done(b"x", TTL if name != "b" else TTL * 2))
        memory.clock.advance(10.0)
    assert memory.claims.known().oldest == pytest.approx(30.0, abs=1.0)
    await memory.claims.drop("b")
    assert memory.claims.known().oldest == pytest.approx(20.0, abs=1.0)
    assert memory.claims.known().known == 2


# Time.


async def test_what_has_expired_goes_while_others_come() -> None:
    memory = Memory()
    for number in range(200):
        await memory.run(f"{number:03}", done(b"x" * 100))
    memory.clock.advance(TTL + 1)
    for number in range(112):
        await memory.run(f"new {number}", done())
    assert len(memory.claims) == 112
    assert memory.evicted == 0


async def test_what_has_expired_makes_room_uncounted() -> None:
    memory = Memory(entries=300)
    for number in range(300):
        await memory.run(f"{number:03}", done())
    memory.clock.advance(TTL + 1)
    for number in range(300):
        await memory.run(f"new {number}", done())
    assert memory.evicted == 0
    assert len(memory.claims) == 300


async def test_a_flood_of_keys_stays_within_bounds() -> None:
    memory = Memory(entries=50, most=20_000)
    for number in range(2000):
        name = f"{number:064x}"
        await memory.run(name, done(b"x" * (number % 700)) if number % 3 else freed(b"y" * 50))
        assert len(memory.claims) <= 50
        assert memory.claims.used <= 20_000
    memory.clock.advance(TTL + 1)
    for number in range(200):
        await memory.run(f"{number} again", freed())
    assert len(memory.claims) == 0
    assert memory.claims.used == memory.claims._results_used == 0


async def test_nobody_is_woken() -> None:
    memory = Memory()
    await memory.claim("a")
    leave = memory.claims.watch("a", lambda: pytest.fail("by whom?"))
    await memory.claims.settle("a", "one", done())
    leave()
