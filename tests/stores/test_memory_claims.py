"""How much this process remembers, and what it gives up first."""

import pytest

from proxy.policy.records import LEFT_FOR, Answer, Claimed, Ending, State
from proxy.policy.settings import MemorySettings
from proxy.stores.memory import MemoryClaims
from proxy.stores.memory.claims import OVERHEAD
from tests.stores.houses import LEASE, TTL, ask, done, freed
from tests.support.clock import FakeClock

SIZE = 1 + OVERHEAD
"""Bytes that a record counts whose name is one letter, without its result."""


class Memory:
    """A small one."""

    def __init__(self, entries: int = 1000, room: int = 10**6) -> None:
        self.clock = FakeClock()
        self.evicted = 0
        self.claims = MemoryClaims(MemorySettings(entries, room), self.clock, self._count)

    def _count(self) -> None:
        self.evicted += 1

    async def claim(self, name: str, waited_for: str = "") -> Claimed:
        return await self.claims.claim(ask("one", name, waited_for=waited_for))

    async def run(self, name: str, ending: Ending) -> None:
        assert (await self.claim(name)).answer is Answer.NEW
        assert await self.claims.settle(name, "one", ending)

    async def state(self, name: str) -> State | None:
        shown = await self.claims.show(name)
        return None if shown is None else shown.state


async def test_what_has_ended_makes_room_the_oldest_first() -> None:
    memory = Memory(entries=3)
    await memory.run("a", done(b"a"))
    await memory.run("b", Ending(State.UNSTORED, TTL))
    await memory.claim("c")
    assert memory.evicted == 0
    assert (await memory.claim("d")).answer is Answer.NEW
    assert memory.evicted == 1
    assert await memory.state("a") is None
    assert (await memory.claim("e")).answer is Answer.NEW
    assert memory.evicted == 2
    assert await memory.state("b") is None
    assert len(memory.claims) == 3


@pytest.mark.parametrize("ending", [None, Ending(State.HELD, TTL)])
async def test_what_is_in_flight_or_held_is_never_given_up(ending: Ending | None) -> None:
    memory = Memory(entries=3)
    for name in "abc":
        await memory.claim(name)
        if ending is not None:
            await memory.claims.settle(name, "one", ending)
    for _ in range(3):
        assert await memory.claim("d") == Claimed(Answer.FULL)
    memory.clock.advance(LEASE + 2)
    assert await memory.claim("d") == Claimed(Answer.FULL), "nor when its owner is silent"
    for name in "abc":
        assert await memory.state(name) is not None
    assert memory.evicted == 0
    memory.clock.advance(TTL)
    assert (await memory.claim("d")).answer is Answer.NEW, "but in time it is forgotten"
    assert memory.evicted == 0


async def test_results_make_room_for_each_other() -> None:
    memory = Memory(room=3 * (SIZE + 100))
    for name in "abc":
        await memory.run(name, done(b"x" * 100))
    assert memory.claims.used == 3 * (SIZE + 100)
    await memory.run("d", done(b"y" * 150))
    assert memory.evicted == 2, "one for its record, one for its result"
    assert (await memory.claim("d")).result == b"y" * 150
    assert (await memory.claim("c")).result == b"x" * 100


async def test_a_result_that_never_fits_is_not_kept_and_that_it_ran_is() -> None:
    memory = Memory(room=1000)
    await memory.run("a", done(b"small"))
    await memory.run("b", done(b"x" * 1000))
    assert await memory.claim("b") == Claimed(Answer.UNSTORED)
    assert (await memory.claim("a")).result == b"small", "nothing was given up for it"
    assert memory.evicted == 0


async def test_room_that_is_in_use_is_no_room() -> None:
    memory = Memory(room=3 * SIZE)
    for name in "abc":
        assert (await memory.claim(name)).answer is Answer.NEW
    assert await memory.claim("d") == Claimed(Answer.FULL)
    assert await memory.claims.settle("a", "one", done(b"x"))
    assert await memory.state("a") is State.UNSTORED
    assert (await memory.claim("d")).answer is Answer.NEW, "that it ran was given up, and counted"
    assert memory.evicted == 1


async def test_what_is_left_behind_counts_and_goes() -> None:
    memory = Memory(room=4000)
    await memory.run("a", freed(b"x" * 200))
    assert memory.claims.used == len("one") + OVERHEAD + 200
    assert (await memory.claim("b", waited_for="one")).result == b"x" * 200
    memory.clock.advance(LEFT_FOR + 1)
    assert (await memory.claim("b", waited_for="one")).answer is Answer.NEW
    assert memory.claims.used == SIZE


async def test_what_is_left_behind_may_not_fit() -> None:
    memory = Memory(room=1000)
    await memory.run("a", freed(b"x" * 2000))
    assert (await memory.claim("a", waited_for="one")).answer is Answer.NEW
    assert memory.claims.used == SIZE


async def test_a_storm_of_failures_leaves_results_alone() -> None:
    memory = Memory(room=10_000)
    await memory.run("a", done(b"x" * 5000))
    for number in range(100):
        name = owner = f"{number:02}"
        assert (await memory.claims.claim(ask(owner, name))).answer is Answer.NEW
        assert await memory.claims.settle(name, owner, freed(b"y" * 400))
        assert memory.claims.used < 8000
    assert (await memory.claim("b", waited_for="99")).result == b"y" * 400
    assert (await memory.claim("a")).result == b"x" * 5000
    assert memory.evicted == 0


async def test_what_was_left_twice_counts_once() -> None:
    memory = Memory(room=4000)
    await memory.run("a", freed(b"x" * 200))
    await memory.run("a", freed(b"y" * 100))
    assert memory.claims.used == len("one") + OVERHEAD + 100
    assert (await memory.claim("a", waited_for="one")).result == b"y" * 100


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
    memory = Memory(entries=50, room=20_000)
    for number in range(2000):
        name = f"{number:064x}"
        await memory.run(name, done(b"x" * (number % 700)) if number % 3 else freed(b"y" * 50))
        assert len(memory.claims) <= 50
        assert memory.claims.used <= 20_000
    memory.clock.advance(TTL + 1)
    for number in range(200):
        await memory.run(f"{number} again", freed())
    assert len(memory.claims) == 0
    assert memory.claims.used == memory.claims._spare == 0


async def test_nobody_is_woken() -> None:
    memory = Memory()
    await memory.claim("a")
    leave = memory.claims.watch("a", lambda: pytest.fail("by whom?"))
    await memory.claims.settle("a", "one", done())
    leave()
