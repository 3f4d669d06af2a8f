"""What a store of idempotency keys promises: the same tests for every store.

The rules are those of standards 1.8 and of :mod:`proxy.policy.idempotency.record`.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.policy.idempotency.record import (
    LEFT_FOR,
    PAGE,
    ClaimAnswer,
    Claimed,
    Ending,
    KeyFilter,
    RecordState,
)
from proxy.stores import LARGE, IdempotencyStore
from tests.stores.key_stores import (
    LEASE,
    NAME,
    TTL,
    KeyStore,
    MemoryKeyStore,
    RedisKeyStore,
    SqliteKeyStore,
    ask,
    done,
    freed,
)
from tests.stores.running_stores import CLOCK
from tests.support import both_loops
from tests.support.redis_server import SERVERS, RedisServer, program_name, standing_server
from tests.support.waiting import eventually
from tests.support.witness import Stopwatch


def _name(where: str | Path) -> str:
    return where if isinstance(where, str) else program_name(where)


SHARED: tuple[str | Path, ...] = ("sqlite", *SERVERS)
in_shared_stores = pytest.mark.parametrize("where", SHARED, ids=_name, indirect=True)
"""Those that have an elsewhere."""


@pytest.fixture(params=["memory", *SHARED], ids=_name, scope="module")
def where(request: pytest.FixtureRequest) -> Iterator[str | RedisServer]:
    if isinstance(request.param, str):
        yield request.param
    else:
        with standing_server(request.param) as server:
            yield server


@pytest.fixture
async def key_store(where: str | RedisServer, tmp_path: Path) -> AsyncIterator[KeyStore]:
    match where:
        case "memory":
            key_store: KeyStore = MemoryKeyStore()
        case "sqlite":
            key_store = SqliteKeyStore(tmp_path)
        case RedisServer():
            key_store = RedisKeyStore(where)
        case _:
            raise AssertionError(where)
    yield key_store
    await key_store.close()


@pytest.fixture
async def store(key_store: KeyStore) -> IdempotencyStore:
    return await key_store.open()


@pytest.fixture
async def other(key_store: KeyStore, store: IdempotencyStore) -> IdempotencyStore:
    """Another store on the same ground; in memory there is only one."""
    return await key_store.open() if key_store.is_shared else store


async def answer(store: IdempotencyStore, owner: str = "two", **terms: object) -> ClaimAnswer:
    return (await store.claim(ask(owner, **terms))).answer  # type: ignore[arg-type]  # as named there


# Claims.


@both_loops
async def test_a_new_key_is_busy_and_then_done(
    store: IdempotencyStore, other: IdempotencyStore
) -> None:
    assert await store.claim(ask("one")) == Claimed(ClaimAnswer.NEW)
    busy = await other.claim(ask("two"))
    assert (busy.answer, busy.owner) == (ClaimAnswer.BUSY, "one")
    assert busy.lease_left == pytest.approx(LEASE, abs=2)
    assert await store.settle(NAME, "one", done(b"result"))
    for asked in (store, other):
        assert await asked.claim(ask("three")) == Claimed(ClaimAnswer.DONE, result=b"result")


async def test_another_request_is_a_mismatch_whatever_the_state(
    store: IdempotencyStore, key_store: KeyStore
) -> None:
    stranger = b"x" * 32
    assert await answer(store, "one") is ClaimAnswer.NEW
    assert await answer(store, fingerprint=stranger) is ClaimAnswer.MISMATCH
    await key_store.advance(LEASE + 2)
    assert await answer(store, fingerprint=stranger) is ClaimAnswer.MISMATCH, "even if it is silent"
    assert await store.settle(NAME, "one", done())
    assert await answer(store, fingerprint=stranger) is ClaimAnswer.MISMATCH
    assert await answer(store) is ClaimAnswer.DONE


@pytest.mark.parametrize("state", [RecordState.UNSTORED, RecordState.HELD])
async def test_it_ran_and_there_is_no_result(
    store: IdempotencyStore, other: IdempotencyStore, key_store: KeyStore, state: RecordState
) -> None:
    await store.claim(ask("one"))
    assert await store.settle(NAME, "one", Ending(state, TTL))
    await key_store.advance(LEASE + 2)
    assert await other.claim(ask("two")) == Claimed(ClaimAnswer(state.value)), "no lease ends that"
    assert not await store.settle(NAME, "one", done(b"late"))
    assert not await store.renew(NAME, "one", LEASE, TTL)


async def test_a_silent_owner_is_followed_by_another(
    store: IdempotencyStore, other: IdempotencyStore, key_store: KeyStore
) -> None:
    await store.claim(ask("one"))
    await key_store.advance(LEASE + 2)
    assert await answer(other, "two", takes_over=True) is ClaimAnswer.NEW
    assert not await store.renew(NAME, "one", LEASE, TTL)
    assert not await store.settle(NAME, "one", done(b"of one"))
    assert (await store.claim(ask("three"))).owner == "two"
    assert await other.settle(NAME, "two", done(b"of two"))
    assert (await store.claim(ask("three"))).result == b"of two"


async def test_a_silent_owner_is_left_to_a_person(
    store: IdempotencyStore, key_store: KeyStore
) -> None:
    await store.claim(ask("one"))
    await key_store.advance(LEASE + 2)
    assert await answer(store, takes_over=False) is ClaimAnswer.HELD
    assert await answer(store, takes_over=False) is ClaimAnswer.HELD
    assert await store.settle(NAME, "one", done(b"better late")), "it was not dead"
    assert (await store.claim(ask("two", takes_over=False))).result == b"better late"


async def test_who_renews_stays_the_owner(
    store: IdempotencyStore, other: IdempotencyStore, key_store: KeyStore
) -> None:
    await store.claim(ask("one"))
    for _ in range(3):
        await key_store.advance(LEASE - 2)
        assert await store.renew(NAME, "one", LEASE, TTL)
        assert await answer(other) is ClaimAnswer.BUSY
    assert not await store.renew(NAME, "two", LEASE, TTL)
    assert not await store.renew("nobody's", "one", LEASE, TTL)
    await key_store.advance(LEASE - 2)
    assert await store.renew(NAME, "one", LEASE * 3, TTL)
    assert (await other.claim(ask("two"))).lease_left == pytest.approx(LEASE * 3, abs=2)


async def test_only_the_owner_ends_it(store: IdempotencyStore, other: IdempotencyStore) -> None:
    await store.claim(ask("one"))
    for ending in (done(b"theft"), freed(b"theft"), Ending(RecordState.HELD, TTL, b"theft")):
        assert not await other.settle(NAME, "two", ending)
        assert not await other.settle("nobody's", "one", ending)
    assert await answer(other) is ClaimAnswer.BUSY
    assert await answer(other, waited_for="two") is ClaimAnswer.BUSY, "nor is anything left behind"
    assert await store.settle(NAME, "one", done())
    assert not await store.settle(NAME, "one", freed()), "only once"
    assert await answer(other) is ClaimAnswer.DONE


async def test_a_result_is_forgotten_in_time(
    store: IdempotencyStore, other: IdempotencyStore, key_store: KeyStore
) -> None:
    await store.claim(ask("one"))
    await key_store.advance(50)
    assert await store.settle(NAME, "one", done(b"result", TTL))
    await key_store.advance(TTL - 5)
    assert await answer(other) is ClaimAnswer.DONE, "it is kept from its end on"
    await key_store.advance(10)
    assert await store.show(NAME) is None
    assert not await store.drop(NAME)
    assert await answer(other, fingerprint=b"y" * 32) is ClaimAnswer.NEW


async def test_who_fell_silent_is_forgotten_in_time(
    store: IdempotencyStore, key_store: KeyStore
) -> None:
    await store.claim(ask("one", ttl=50))
    await key_store.advance(LEASE + 45)
    assert await answer(store, takes_over=False) is ClaimAnswer.HELD, "ttl counts from its end"
    await key_store.advance(10)
    assert not await store.renew(NAME, "one", LEASE, TTL)
    assert not await store.settle(NAME, "one", done())
    assert await answer(store, takes_over=False) is ClaimAnswer.NEW


async def test_a_key_whose_owner_lives_does_not_expire(
    store: IdempotencyStore, other: IdempotencyStore, key_store: KeyStore
) -> None:
    await store.claim(ask("one", ttl=5))
    for _ in range(4):
        await key_store.advance(LEASE - 2)
        assert await answer(other) is ClaimAnswer.BUSY
        assert await store.renew(NAME, "one", LEASE, 5)
    shown = await other.show(NAME)
    assert shown is not None
    assert shown.expires == pytest.approx(key_store.wall() + LEASE + 5, abs=2)
    assert await store.settle(NAME, "one", done(b"result", 5)), "it is still its own"
    assert await answer(other) is ClaimAnswer.DONE
    await key_store.advance(8)
    assert await answer(other) is ClaimAnswer.NEW, "a result is kept from its end on, and no longer"


async def test_who_lived_for_long_and_fell_silent_is_forgotten_in_time(
    store: IdempotencyStore, key_store: KeyStore
) -> None:
    await store.claim(ask("one", ttl=20))
    for _ in range(4):
        await key_store.advance(LEASE - 2)
        assert await store.renew(NAME, "one", LEASE, 20)
    await key_store.advance(LEASE + 15)
    assert await answer(store, takes_over=False) is ClaimAnswer.HELD
    await key_store.advance(8)
    assert await answer(store, takes_over=False) is ClaimAnswer.NEW


# What is left behind.


async def test_those_who_waited_get_what_was_left(
    store: IdempotencyStore, other: IdempotencyStore, key_store: KeyStore
) -> None:
    await store.claim(ask("one"))
    assert (await other.claim(ask("two"))).owner == "one"
    assert await store.settle(NAME, "one", freed(b"failure"))
    left = Claimed(ClaimAnswer.LEFT, result=b"failure")
    assert await other.claim(ask("two", waited_for="one")) == left
    assert await store.claim(ask("three", waited_for="one")) == left, "as often as it is asked for"
    assert await answer(other, "four", waited_for="five") is ClaimAnswer.NEW, "nobody else does"
    assert await other.claim(ask("two", waited_for="one")) == left, "whoever has it now"
    assert await other.settle(NAME, "four", done(b"success"))
    assert await store.claim(ask("two", waited_for="one")) == left
    assert (await store.claim(ask("two"))).result == b"success"
    await key_store.advance(LEFT_FOR + 2)
    assert (await store.claim(ask("two", waited_for="one"))).result == b"success"


async def test_nothing_is_left_and_who_waited_may_claim(
    store: IdempotencyStore, other: IdempotencyStore
) -> None:
    await store.claim(ask("one"))
    assert await store.settle(NAME, "one", freed())
    assert await answer(other, waited_for="one") is ClaimAnswer.NEW


@pytest.mark.parametrize("size", [1, LARGE + 1], ids=["small", "large"])
async def test_nothing_is_left_behind_where_nobody_waits(
    store: IdempotencyStore, other: IdempotencyStore, size: int
) -> None:
    for ending in (freed(bytes(size)), Ending(RecordState.HELD, TTL, bytes(size))):
        await store.claim(ask("one"))
        assert await store.settle(NAME, "one", ending)
        assert await other.fetch(NAME, "one") is None


@in_shared_stores
async def test_one_caller_has_so_many_in_flight_or_held_and_no_more(
    store: IdempotencyStore, other: IdempotencyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite.table", "redis.idempotency"):
        monkeypatch.setattr(f"proxy.stores.{module}.MOST_OPEN", 3)
    for name in "abc":
        claimed = await store.claim(ask(name=name, caller="stranger"))
        assert claimed.answer is ClaimAnswer.NEW
    assert await store.settle("a", "one", Ending(RecordState.HELD, TTL))
    for _ in range(2):
        assert (await other.claim(ask(name="d", caller="stranger"))).answer is ClaimAnswer.FULL
        assert (await other.claim(ask(name="b", caller="stranger"))).answer is ClaimAnswer.BUSY
    assert (await other.claim(ask(name="e", caller="another"))).answer is ClaimAnswer.NEW
    for name, ending in (("b", done(b"x")), ("c", freed())):
        assert await store.settle(name, "one", ending)
        claimed = await other.claim(ask(name=f"after {name}", caller="stranger"))
        assert claimed.answer is ClaimAnswer.NEW
    assert (await other.claim(ask(name="f", caller="stranger"))).answer is ClaimAnswer.FULL
    assert await other.drop("a"), "a person decides"
    assert (await other.claim(ask(name="f", caller="stranger"))).answer is ClaimAnswer.NEW


async def test_a_key_that_is_held_leaves_its_outcome_to_those_who_waited(
    store: IdempotencyStore, other: IdempotencyStore
) -> None:
    await store.claim(ask("one"))
    assert await answer(other) is ClaimAnswer.BUSY
    assert await store.settle(NAME, "one", Ending(RecordState.HELD, TTL, b"unclear"))
    waited = await other.claim(ask("two", waited_for="one"))
    assert waited == Claimed(ClaimAnswer.LEFT, result=b"unclear")
    assert await other.claim(ask("three")) == Claimed(ClaimAnswer.HELD)
    shown = await store.show(NAME)
    assert shown is not None
    assert shown.size == 0


async def test_a_result_is_not_left_behind(store: IdempotencyStore) -> None:
    await store.claim(ask("one"))
    await store.settle(NAME, "one", done(b"result"))
    assert await store.claim(ask("two", waited_for="one")) == Claimed(
        ClaimAnswer.DONE, result=b"result"
    )


# What a person sees and does.


async def test_what_is_shown(
    store: IdempotencyStore, other: IdempotencyStore, key_store: KeyStore
) -> None:
    assert await store.show(NAME) is None
    await store.claim(ask("one"))
    first = await other.show(NAME)
    assert first is not None
    assert (first.state, first.route, first.size) == (RecordState.IN_FLIGHT, "charges", 0)
    assert first.created == pytest.approx(CLOCK.wall(), abs=5)
    assert first.expires == pytest.approx(first.created + LEASE + TTL, abs=0.1)
    assert first.lease_left == pytest.approx(LEASE, abs=2)
    await key_store.advance(LEASE + 2)
    silent = await other.show(NAME)
    assert silent is not None
    assert (silent.state, silent.lease_left) == (RecordState.HELD, 0.0)
    await store.settle(NAME, "one", done(b"12345", 2 * TTL))
    last = await other.show(NAME)
    assert last is not None
    assert (last.state, last.route, last.lease_left, last.size) == (
        RecordState.DONE,
        "charges",
        0.0,
        5,
    )
    assert last.expires == pytest.approx(first.expires + TTL, abs=LEASE + 5)


HELD_ONLY = KeyFilter(frozenset({RecordState.HELD}))
ALL = KeyFilter(frozenset(RecordState))


async def listed(store: IdempotencyStore, wanted: KeyFilter) -> dict[str, RecordState]:
    """All records of all pages."""
    found: dict[str, RecordState] = {}
    after = ""
    while True:
        page = await store.page(wanted, after)
        assert page is not None
        found |= {name: shown.state for name, shown in page.records}
        if not page.after:
            return found
        after = page.after


async def test_records_are_listed_by_their_state(
    store: IdempotencyStore, other: IdempotencyStore, key_store: KeyStore
) -> None:
    assert await listed(store, ALL) == {}
    endings = {"b": done(b"x" * 2 * LARGE), "c": Ending(RecordState.UNSTORED, TTL)}
    endings["d"] = Ending(RecordState.HELD, TTL)
    for name in "abcd":
        await store.claim(ask("one", name * 32))
    for name, ending in endings.items():
        await store.settle(name * 32, "one", ending)
    everything = {
        "a" * 32: RecordState.IN_FLIGHT,
        "b" * 32: RecordState.DONE,
        "c" * 32: RecordState.UNSTORED,
        "d" * 32: RecordState.HELD,
    }
    assert await listed(other, ALL) == everything
    for name, state in everything.items():
        assert await listed(other, KeyFilter(frozenset({state}))) == {name: state}
        assert await listed(other, KeyFilter(frozenset({state}), "charges")) == {name: state}
    assert await listed(other, KeyFilter(frozenset(RecordState), "elsewhere")) == {}
    page = await other.page(HELD_ONLY, "")
    assert page is not None
    ((name, shown),) = page.records
    alone = await store.show(name)
    assert alone is not None
    assert shown.expires == pytest.approx(alone.expires, abs=1)
    assert replace(shown, expires=0.0) == replace(alone, expires=0.0)
    # Without a lease it is held; without time left it is not known.
    await key_store.advance(LEASE + 2)
    assert (await listed(other, HELD_ONLY)).keys() == {"a" * 32, "d" * 32}
    await key_store.advance(LEASE + TTL)
    assert await listed(other, ALL) == {}


async def test_lists_have_pages(store: IdempotencyStore, other: IdempotencyStore) -> None:
    names = {f"{number:032x}" for number in range(2 * PAGE + 100)}
    for name in names:
        await store.claim(ask("one", name))
    page = await other.page(ALL, "")
    assert page is not None
    assert 0 < len(page.records) < len(names)
    assert (await listed(other, ALL)).keys() == names


async def test_a_page_is_a_look_at_some_records(
    store: IdempotencyStore, other: IdempotencyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few are held among many: a page may have none, and is not the last one."""
    for module in ("memory.idempotency", "sqlite.table", "redis.idempotency"):
        monkeypatch.setattr(f"proxy.stores.{module}.LOOKED_AT", 5)
    monkeypatch.setattr("proxy.stores.redis.idempotency._AT_A_TIME", 5)
    for number in range(100):
        await store.claim(ask("one", f"{number:032x}"))
    held = {f"{number:032x}" for number in (3, 97)}
    for name in held:
        await store.settle(name, "one", Ending(RecordState.HELD, TTL))
    pages, after = 0, ""
    found: set[str] = set()
    while True:
        page = await other.page(HELD_ONLY, after)
        assert page is not None
        pages += 1
        found |= {name for name, _ in page.records}
        after = page.after
        if not after:
            break
    assert found == held
    assert pages > 5  # a server may have keys of others, too


async def test_a_page_of_another_kind_of_store(store: IdempotencyStore) -> None:
    for after in ("no cursor", "f" * 32, "9" * 40, "²"):
        page = await store.page(ALL, after)
        assert page is None or page.records == ()


async def test_a_key_can_be_taken_from_its_owner(
    store: IdempotencyStore, other: IdempotencyStore, key_store: KeyStore
) -> None:
    assert not await store.revoke(NAME), "there is none"
    await store.claim(ask("one"))
    assert await other.revoke(NAME)
    assert not await other.revoke(NAME), "nobody has it any more"
    assert not await store.renew(NAME, "one", LEASE, TTL)
    assert not await store.settle(NAME, "one", done(b"late"))
    assert await answer(store) is ClaimAnswer.HELD
    await key_store.advance(LEASE + TTL - 5)
    assert await answer(store) is ClaimAnswer.HELD, "for as long as it would have been known"
    assert await other.drop(NAME), "now it can be released"
    await store.claim(ask("one"))
    await key_store.advance(LEASE + 2)
    assert not await store.revoke(NAME), "its owner is gone"
    assert await store.settle(NAME, "one", done(b"result"))
    assert not await store.revoke(NAME), "it has ended"
    assert (await store.claim(ask("two"))).result == b"result"


@in_shared_stores
async def test_who_waits_is_woken_when_a_key_is_taken_away(
    store: IdempotencyStore, other: IdempotencyStore
) -> None:
    woken = asyncio.Event()
    await store.claim(ask("one"))
    await other.claim(ask("two"))
    leave = other.watch(NAME, woken.set)
    assert await store.revoke(NAME)
    watch = Stopwatch()
    await eventually(woken.is_set)
    assert watch.seconds < 1.0
    leave()


async def test_what_may_be_dropped(
    store: IdempotencyStore, other: IdempotencyStore, key_store: KeyStore
) -> None:
    assert not await store.drop(NAME)
    await store.claim(ask("one"))
    assert not await other.drop(NAME), "somebody alive has it"
    assert await answer(store) is ClaimAnswer.BUSY
    await key_store.advance(LEASE + 2)
    assert await other.drop(NAME), "nobody does"
    assert not await store.settle(NAME, "one", done())
    for ending in (done(b"x"), Ending(RecordState.HELD, TTL), Ending(RecordState.UNSTORED, TTL)):
        assert await answer(store, "two") is ClaimAnswer.NEW
        assert await store.settle(NAME, "two", ending)
        assert await other.drop(NAME)
        assert not await other.drop(NAME)


# Contents.


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\0", id="a zero"),
        pytest.param(bytes(range(256)) + b"\r\n$-1\r\n", id="all bytes, and some protocol"),
        pytest.param(os.urandom(1024**2 + 17), id="more than a MiB"),
    ],
)
async def test_results_are_bytes(
    store: IdempotencyStore, other: IdempotencyStore, result: bytes
) -> None:
    await store.claim(ask("one", fingerprint=bytes(32)))
    assert await store.settle(NAME, "one", done(result))
    kept = await other.claim(ask("two", fingerprint=bytes(32)))
    assert kept.answer is ClaimAnswer.DONE
    assert kept.result == result or (len(result) > LARGE and not kept.result)
    assert await other.fetch(NAME) == result
    await store.claim(ask("one", name="m"))
    assert (await other.claim(ask("two", name="m"))).answer is ClaimAnswer.BUSY
    assert await store.settle("m", "one", freed(result))
    left = await other.claim(ask("two", name="m", waited_for="one"))
    assert left.answer is (ClaimAnswer.LEFT if result else ClaimAnswer.NEW)
    assert await other.fetch("m", "one") == (result or None)


async def test_a_large_outcome_is_fetched_by_those_who_waited(
    store: IdempotencyStore, other: IdempotencyStore
) -> None:
    left = bytes(LARGE + 1)
    await store.claim(ask("one"))
    assert (await other.claim(ask("two"))).answer is ClaimAnswer.BUSY
    assert await store.settle(NAME, "one", freed(left))
    claimed = await other.claim(ask("two", waited_for="one"))
    assert claimed.answer is ClaimAnswer.LEFT
    assert claimed.result in {left, b""}
    assert await other.fetch(NAME, "one") == left


async def test_what_is_not_there_cannot_be_fetched(
    store: IdempotencyStore, other: IdempotencyStore, key_store: KeyStore
) -> None:
    assert await store.fetch(NAME) is None
    assert await store.fetch(NAME, "one") is None
    await store.claim(ask("one"))
    assert await other.fetch(NAME) is None, "it is in flight"
    await store.settle(NAME, "one", done(bytes(LARGE + 1)))
    await key_store.advance(TTL + 1)
    assert await other.fetch(NAME) is None, "it has expired"


async def test_keys_do_not_touch_each_other(store: IdempotencyStore) -> None:
    names = [f"{number:064x}" for number in range(20)]
    for name in names:
        assert await answer(store, f"of {name}", name=name) is ClaimAnswer.NEW
    for name in names:
        assert await store.settle(name, f"of {name}", done(name.encode()))
    for name in names:
        assert (await store.claim(ask(name=name))).result == name.encode()


# Many at once.


@both_loops
async def test_of_many_at_once_one_gets_it(
    store: IdempotencyStore, other: IdempotencyStore
) -> None:
    asked = [(other if number % 2 else store).claim(ask(f"owner {number}")) for number in range(50)]
    answers = Counter(claimed.answer for claimed in await asyncio.gather(*asked))
    assert answers == {ClaimAnswer.NEW: 1, ClaimAnswer.BUSY: 49}


async def test_every_key_runs_once(store: IdempotencyStore, other: IdempotencyStore) -> None:
    """Callers that come back until it is done; some owners set the key free first."""
    ran: Counter[str] = Counter()
    failed: set[str] = set()

    async def caller(number: int, name: str) -> bytes:
        asked = other if number % 2 else store
        owner = f"{number} of {name}"
        while True:
            claimed = await asked.claim(ask(owner, name=name))
            if claimed.answer is ClaimAnswer.DONE:
                return claimed.result
            if claimed.answer is ClaimAnswer.NEW and name not in failed:
                failed.add(name)
                assert await asked.settle(name, owner, freed())
            elif claimed.answer is ClaimAnswer.NEW:
                ran[name] += 1
                await asyncio.sleep(0.001)
                assert await asked.settle(name, owner, done(owner.encode()))
            await asyncio.sleep(0.002)

    names = [f"key {number}" for number in range(5)]
    for name in names:
        results = await asyncio.gather(*(caller(number, name) for number in range(10)))
        assert len(set(results)) == 1
    assert ran == dict.fromkeys(names, 1)


# Waiting.


@in_shared_stores
@pytest.mark.parametrize("ending", [done(b"x"), freed(b"x"), Ending(RecordState.HELD, TTL)])
async def test_who_waits_elsewhere_is_woken(
    store: IdempotencyStore, other: IdempotencyStore, ending: Ending
) -> None:
    woken: list[bool] = []
    await store.claim(ask("one"))
    await other.claim(ask("two"))
    leave = other.watch(NAME, lambda: woken.append(True))
    await asyncio.sleep(0.15)
    woken.clear()  # it may be called for nothing
    await store.settle(NAME, "one", ending)
    watch = Stopwatch()
    await eventually(lambda: woken)
    assert watch.seconds < 1.0  # after so long who waits asks unbidden
    leave()
    leave()  # twice is once
    woken.clear()
    await store.claim(ask("three", waited_for="nobody"))
    await store.settle(NAME, "three", freed())
    await asyncio.sleep(0.15)
    assert not woken


@in_shared_stores
async def test_who_waits_is_woken_though_the_next_one_has_it_already(
    store: IdempotencyStore, other: IdempotencyStore
) -> None:
    woken = asyncio.Event()
    await store.claim(ask("one"))
    await other.claim(ask("two"))
    leave = other.watch(NAME, woken.set)
    await asyncio.sleep(0.02)
    await store.settle(NAME, "one", freed(b"failure"))
    assert await answer(store, "three") is ClaimAnswer.NEW
    watch = Stopwatch()
    await eventually(woken.is_set)
    assert watch.seconds < 1.0
    assert (await other.claim(ask("two", waited_for="one"))).result == b"failure"
    leave()
