"""A full disk costs new letters, each of which is told of, and can be cleared with the tool."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.policy.dead_letter import DeadLetter, ReplayRun
from proxy.stores.dead_letters import FILE, DeadLetterStore
from proxy.stores.sqlite_file.thread import DiskFull
from tests.stores.dead_letters.test_store import ids, opened
from tests.support.disks import fill, free, small_disk
from tests.support.letters import CREATED, letter
from tests.support.waiting import eventually

KIB = 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder on a disk so small that little fits beside the empty tables."""
    with small_disk(tmp_path / "disk", 512 * KIB) as folder:
        yield folder


async def kept_until_full(store: DeadLetterStore, size: int, start: int = 1) -> list[DeadLetter]:
    """Keep letters until there is no room."""
    kept: list[DeadLetter] = []
    for number in range(start, start + 10_000):
        one = letter(number, body=bytes(size))
        try:
            assert await store.keep(one)
        except DiskFull:
            return kept
        kept.append(one)
    raise AssertionError("the disk never was full")


@pytest.mark.parametrize("size", [3, 1000, 8000])
async def test_a_full_disk_can_be_cleared(
    disk: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    async with opened(disk, max_bytes=10**9, max_count=10**6) as store:
        kept = await kept_until_full(store, size)
        assert kept
        assert store.state == "down"
        # That they can be counted and read does not mean that another one can be kept.
        await store._count()
        assert await ids(store, limit=10_000) == [one.id for one in kept]
        assert (store.state, "again" in caplog.text) == ("down", False)
        dropped: list[str] = []
        assert await store.drop_all(on_dropped=dropped.extend) == len(kept)
        assert dropped == [one.id for one in kept]
        assert "again" not in caplog.text
        again = await kept_until_full(store, size, 20_000)
        assert len(again) > len(kept) * 0.8
        assert caplog.messages[0].startswith("dead letters cannot be kept in ")
        assert caplog.messages[1].startswith("dead letters can be kept in ")
        assert len(caplog.messages) == 3, "and then it is full once more"


async def test_one_by_one(disk: Path) -> None:
    async with opened(disk) as store:
        kept = await kept_until_full(store, 1000)
        fill(disk)
        for one in kept:
            assert await store.drop(one.id)
        assert await ids(store) == []


async def test_a_disk_that_others_have_filled(disk: Path) -> None:
    async with opened(disk) as store:
        kept = [letter(number) for number in range(5)]
        for one in kept:
            assert await store.keep(one)
        fill(disk)
        assert free(disk) == 0
        assert await kept_until_full(store, 5000, 100) == []
        assert await store.drop_all() == 5
        assert await store.keep(letter(9)), "there is room in the file"


async def test_a_letter_can_be_sent_again_and_stays_if_it_failed(disk: Path) -> None:
    async with opened(disk) as store:
        kept = await kept_until_full(store, 2000)
        fill(disk)
        for one, gone in zip(kept, [False, True, False], strict=False):
            assert await store.begin_replay(one.id, "ticket", force=False) == one
            run = ReplayRun(CREATED, "failed", ({"n": 1, "outcome": "timeout"},))
            await store.end_replay(one.id, "ticket", run, may_have_run=False, gone=gone)
        assert await ids(store) == [one.id for one in kept if one is not kept[1]]


async def test_it_can_be_opened_when_the_disk_is_full(disk: Path) -> None:
    async with opened(disk) as store:
        kept = await kept_until_full(store, 1000)
    fill(disk)
    async with opened(disk) as store:
        assert await ids(store, limit=1000) == [one.id for one in kept]
        assert await store.drop_all() == len(kept)


async def test_what_is_dropped_is_given_back_to_the_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 12 * KIB * KIB) as folder:
        async with opened(folder, max_bytes=10**9) as store:
            before = free(folder)
            kept = await kept_until_full(store, 200_000)
            assert len(kept) > 20
            assert await store.drop_all() == len(kept)
            await eventually(lambda: free(folder) > before - 2 * KIB * KIB)
            file = folder / "state" / FILE
            assert file.stat().st_size < 2 * KIB * KIB


async def test_a_large_disk_has_a_reserve_of_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path):
        file = tmp_path / "state" / f"{FILE}-reserve"
        assert file.stat().st_size == KIB * KIB
        assert file.stat().st_blocks * 512 >= KIB * KIB, "it is no hole"
