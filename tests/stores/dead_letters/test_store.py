"""The file of the dead letters: what is in it, for how long, and who is sending what."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from proxy.core.clock import SystemClock
from proxy.policy.dead_letter import (
    DeadLetter,
    DeadLetterCounts,
    DeadLetterState,
    Missing,
    Obstacle,
    ReplayRun,
)
from proxy.stores import StoreError
from proxy.stores.dead_letters import FILE, DeadLetterStore
from proxy.stores.dead_letters.file import open_letters
from proxy.stores.sqlite_file.reserve import Reserve
from tests.support.letters import CREATED, DAY, every_letter, letter, locked
from tests.support.waiting import PATIENCE, eventually
from tests.support.witness import Stopwatch

SENT_AGAIN = ReplayRun(CREATED + 9, "failed", ({"n": 1, "outcome": "timeout"}, {"n": 2}))


class At(SystemClock):
    """A clock whose date stands still."""

    def __init__(self, wall: float) -> None:
        self.wall = lambda: wall


class Losses:
    """Counts what is lost, by route."""

    def __init__(self) -> None:
        self.letters: dict[str, int] = {}

    def count(self, metric: str, *labels: str, by: int = 1) -> None:
        route, why = labels
        assert (metric, why) == ("holdfast_dead_letters_dropped_total", "expired")
        self.letters[route] = self.letters.get(route, 0) + by


@asynccontextmanager
async def opened(
    folder: Path,
    *,
    wall: float = CREATED,
    losses: Losses | None = None,
    max_count: int = 1000,
    max_bytes: int = 1024**2,
    patience: float = 5.0,
) -> AsyncIterator[DeadLetterStore]:
    store = DeadLetterStore(
        str(folder / "state"),
        At(wall),
        losses or Losses(),
        max_count=max_count,
        max_bytes=max_bytes,
        patience=patience,
    )
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def ids(store: DeadLetterStore, route: str | None = None, **options: object) -> list[str]:
    return [found.id for found in await store.page(route, **options)]  # type: ignore[arg-type]  # as named there


async def state_of(store: DeadLetterStore, wanted: DeadLetter) -> tuple[DeadLetterState, bool]:
    found = await store.find(wanted.id)
    assert found is not None
    return found.summary.state, found.summary.may_have_run


async def test_a_letter_comes_back_as_it_went_in(tmp_path: Path) -> None:
    wanted = letter(body=bytes(range(256)), missing=None, record="5f" * 16)
    odd = replace(wanted.summary, target="/\udce9?x", id=letter(2).id)
    async with opened(tmp_path) as store:
        assert await store.keep(wanted)
        assert await store.keep(replace(wanted, summary=odd))
    async with opened(tmp_path) as store:
        assert await store.find(wanted.id) == wanted
        assert await store.page() == [wanted.summary, odd]
        assert [found.id for found in await every_letter(store)] == [wanted.id, odd.id]


async def test_nobody_else_reads_the_file(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.keep(letter())
        modes = {
            file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "state").iterdir()
        }
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    # Nothing of the process is left beside it, but what a full disk can be cleared with.
    names = {file.name for file in (tmp_path / "state").iterdir()}
    assert names == {FILE, f"{FILE}-reserve"}


async def test_a_file_that_others_could_read_is_taken_from_them(tmp_path: Path) -> None:
    file = tmp_path / "state" / FILE
    async with opened(tmp_path) as store:
        await store.keep(letter())
    file.chmod(0o666)
    async with opened(tmp_path) as store:
        assert await ids(store) == [letter().id]
        modes = {stat.S_IMODE(each.stat().st_mode) for each in file.parent.iterdir()}
        assert modes == {0o600}


async def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=r"letters\.db is a symbolic link.*/elsewhere"):
        async with opened(tmp_path):
            pass
    assert not (tmp_path / "elsewhere").exists()


async def test_pages_go_both_ways_and_by_route(tmp_path: Path) -> None:
    letters = [letter(n, route="ab"[n % 2]) for n in range(6)]
    names = [one.id for one in letters]
    async with opened(tmp_path) as store:
        for one in letters:
            await store.keep(one)
        assert await ids(store, limit=4) == names[:4]
        assert await ids(store, limit=4, after=names[3]) == names[4:]
        assert await ids(store, newest=True, limit=2) == names[:3:-1]
        assert await ids(store, newest=True, after=names[4]) == names[3::-1]
        assert await ids(store, "b") == names[1::2]
        assert await ids(store, "c") == []


async def test_there_is_room_for_so_many(tmp_path: Path) -> None:
    async with opened(tmp_path, max_count=2) as store:
        assert [await store.keep(letter(n)) for n in range(3)] == [True, True, False]
        await store.drop(letter(0).id)
        assert await store.keep(letter(3))
        assert await ids(store) == [letter(1).id, letter(3).id]


async def test_there_is_room_for_so_many_bytes(tmp_path: Path) -> None:
    async with opened(tmp_path, max_bytes=4000) as store:
        large = letter(1, body=b"x" * 3000)
        assert await store.keep(large)
        assert not await store.keep(letter(2, body=b"x" * 3000))
        assert await store.keep(letter(3))  # a small one still fits
        assert await store.drop_all() == 2
        assert await store.keep(large)


async def test_nobody_takes_the_room_of_the_others(tmp_path: Path) -> None:
    async with opened(tmp_path, max_count=10) as store:

        async def keep(*numbers: int, holder: str) -> list[bool]:
            return [await store.keep(letter(n, holder=holder)) for n in numbers]

        assert await keep(*range(1, 7), holder="a") == [True] * 6, "it is alone"
        assert await keep(11, holder="b") == [True]
        assert await keep(7, holder="a") == [False], "it has more than half, and is not alone"
        assert await keep(12, 13, 14, holder="b") == [True] * 3
        assert await keep(21, holder="c") == [False], "what was promised is not given up"
        await store.drop(letter(1).id)
        await store.drop(letter(2).id)
        assert await keep(7, holder="a") == [True], "four, and half are five"
        assert await keep(8, holder="a") == [False]
        assert await keep(21, holder="c") == [True]
        for n in (11, 12, 13, 14, 21):
            await store.drop(letter(n).id)
        assert await keep(*range(31, 37), holder="a") == [True] * 4 + [False] * 2, "nine of ten"
        assert await keep(41, holder="new") == [True], "who comes later finds room"


async def test_nor_all_of_the_bytes(tmp_path: Path) -> None:
    async with opened(tmp_path, max_bytes=10_000) as store:
        assert await store.keep(letter(1, body=b"x" * 4500, holder="a"))
        assert await store.keep(letter(2, holder="b"))
        assert not await store.keep(letter(3, body=b"x" * 1000, holder="a"))
        assert await store.keep(letter(4, body=b"x" * 4500, holder="b"))


async def test_callers_are_told_apart_by_all_who_use_the_file(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        known = store.digest(b"authorization:Bearer a")
        assert known == other.digest(b"authorization:Bearer a")
        assert known != store.digest(b"authorization:Bearer b")
    async with opened(tmp_path) as store:
        assert store.digest(b"authorization:Bearer a") == known
    async with opened(tmp_path / "state") as store:
        assert store.digest(b"authorization:Bearer a") != known, "it has a secret of its own"


async def test_what_comes_meanwhile_is_not_dropped(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for n in range(1, 6):
            await store.keep(letter(n))
        dropped: list[str] = []
        assert await store.drop_all(until=letter(3).id, on_dropped=dropped.extend) == 3
        assert dropped == [letter(n).id for n in (1, 2, 3)]
        assert await ids(store) == [letter(4).id, letter(5).id]
        assert await store.drop_all() == 2
        assert await store.drop_all() == 0


async def test_what_has_expired_is_deleted_and_counted(tmp_path: Path) -> None:
    losses = Losses()
    async with opened(tmp_path) as store:
        for n, route in enumerate("aab"):
            await store.keep(letter(n, route=route))
        await store.keep(letter(9, ttl=9 * DAY))
    async with opened(tmp_path, wall=CREATED + 2 * DAY, losses=losses) as store:
        await eventually(lambda: losses.letters == {"a": 2, "b": 1})
        assert await ids(store) == [letter(9).id]
        await eventually(lambda: set(store.counts) == {"all"})


async def test_counts(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.keep(letter(1))
        await store.keep(letter(2, may_have_run=True))
        await store.keep(letter(3, missing=Missing.TOO_LARGE, body=b""))
        await store.keep(letter(4, route="b"))
        await eventually(lambda: len(store.counts) == 2)
        all_of_it = store.counts["all"]
        assert all_of_it == DeadLetterCounts(3, 1, all_of_it.size, CREATED + 1)
        await store.begin_replay(letter(4).id, "t", force=False)
        await eventually(lambda: store.counts["b"].replayable == 0)
        await store.end_replay(letter(4).id, "t", None, may_have_run=False, gone=True)
        await store.drop(letter(1).id)
        await eventually(lambda: set(store.counts) == {"all"})
        await eventually(lambda: store.counts["all"].oldest == CREATED + 2)
        assert store.counts["all"].replayable == 0
        # What another process did is seen after a while.
        await other.drop_all()
        await eventually(lambda: not store.counts, within=10)


@pytest.mark.parametrize(
    ("kept", "force", "expected"),
    [
        pytest.param(letter(), False, None, id="it did not run"),
        pytest.param(letter(may_have_run=True), False, Obstacle.MAY_HAVE_RUN, id="it may have run"),
        pytest.param(letter(may_have_run=True), True, None, id="and somebody insists"),
        pytest.param(
            letter(missing=Missing.TOO_LARGE), False, Obstacle.NO_BODY, id="there is no body"
        ),
        pytest.param(
            letter(missing=Missing.BUFFER_FULL), True, Obstacle.NO_BODY, id="nor by force"
        ),
        pytest.param(letter(2), False, Obstacle.UNKNOWN, id="there is none"),
    ],
)
async def test_what_may_be_sent_again(
    tmp_path: Path, kept: DeadLetter, *, force: bool, expected: Obstacle | None
) -> None:
    async with opened(tmp_path) as store:
        await store.keep(kept)
        begun = await store.begin_replay(letter().id, "t", force=force)
        if expected is None:
            assert begun == kept
            assert (await state_of(store, kept))[0] is DeadLetterState.REPLAYING
        else:
            assert begun is expected


async def test_a_letter_is_sent_by_one_at_a_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.keep(letter())
        assert isinstance(await store.begin_replay(letter().id, "one", force=False), DeadLetter)
        for second, force in ((store, True), (other, True), (other, False)):
            begun = await second.begin_replay(letter().id, "two", force=force)
            assert begun is Obstacle.REPLAYING
            # Whoever did not begin ends nothing.
            await second.end_replay(letter().id, "two", None, may_have_run=False, gone=True)
        assert await state_of(other, letter()) == (DeadLetterState.REPLAYING, False)
        assert await other.drop(letter().id) is False
        assert await other.drop_all() == 0


async def test_a_failed_replay_leaves_the_letter_with_one_more_run(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.keep(letter())
        for n in range(2):
            assert isinstance(await store.begin_replay(letter().id, "t", force=True), DeadLetter)
            await store.end_replay(letter().id, "t", SENT_AGAIN, may_have_run=n == 0, gone=False)
        found = await store.find(letter().id)
        assert found is not None
        assert found.runs == (*letter().runs, SENT_AGAIN, SENT_AGAIN)
        outline = found.summary
        assert (outline.state, outline.replays, outline.used) == (DeadLetterState.WAITING, 2, 2)
        assert outline.may_have_run, "that it did not run the second time says nothing"


async def test_what_a_dead_process_was_sending_is_uncertain(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.keep(letter())
        await store.keep(letter(2))
        died = await asyncio.to_thread(_die_while_sending, tmp_path, letter().id)
        assert died == -9
        assert await state_of(store, letter()) == (DeadLetterState.UNCERTAIN, True)
        assert await state_of(store, letter(2)) == (DeadLetterState.WAITING, False)
        assert await store.begin_replay(letter().id, "t", force=False) is Obstacle.UNCERTAIN
        assert isinstance(await store.begin_replay(letter().id, "t", force=True), DeadLetter)
        await store.end_replay(letter().id, "t", SENT_AGAIN, may_have_run=False, gone=False)
        assert await state_of(store, letter()) == (DeadLetterState.WAITING, True)
    async with opened(tmp_path):
        pass
    names = {file.name for file in (tmp_path / "state").iterdir()}
    assert names == {FILE, f"{FILE}-reserve"}, "it clears away"


def _die_while_sending(folder: Path, name: str) -> int:
    program = f"""
import asyncio, os, signal
from proxy.core.clock import SystemClock
from proxy.stores.dead_letters import DeadLetterStore
async def main():
    store = DeadLetterStore({str(folder / "state")!r}, SystemClock(), None)
    await store.start()
    await store.begin_replay({name!r}, "t", force=False)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    return subprocess.run([sys.executable, "-c", program], check=False).returncode


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(lambda s: s.write_text("x"), "File exists", id="a file in its place"),
        pytest.param(
            lambda s: (s.mkdir(), (s / FILE).write_bytes(b"x" * 9000)),
            "the dead letters in it may be forgotten",
            id="no database",
        ),
        pytest.param(
            lambda s: (s.mkdir(), (s / FILE).mkdir()), "cannot be opened for writing", id="a folder"
        ),
    ],
)
async def test_a_file_that_cannot_be_used(
    tmp_path: Path, spoil: Callable[[Path], object], said: str
) -> None:
    spoil(tmp_path / "state")
    with pytest.raises(StoreError, match=said):
        async with opened(tmp_path):
            pass


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        tmp_path = Path("/proc")  # where not even root can make one
    else:
        await asyncio.to_thread(tmp_path.chmod, 0o500)
    with pytest.raises(StoreError, match="set state_dir or HOLDFAST_STATE_DIR"):
        async with opened(tmp_path):
            pass


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        pass
    with pytest.raises(StoreError, match="closed"):
        await store.keep(letter())


async def test_a_file_that_somebody_holds_is_not_waited_for_without_end(tmp_path: Path) -> None:
    async with opened(tmp_path, patience=0.3) as store:
        store._patience = PATIENCE  # while nobody holds it: a busy disk takes its time
        await store.keep(letter())
        with locked(tmp_path / "state"):
            store._patience = 0.3
            for asking in (
                store.keep(letter(2)),
                store.begin_replay(letter().id, "t", force=False),
            ):
                watch = Stopwatch()
                with pytest.raises(StoreError):
                    await asking
                assert watch.seconds < 2
                assert store.state == "down"
        store._patience = PATIENCE
        # Who did not hear has not begun.
        await eventually_found(store, letter())
        assert store.state == "down", "no letter was kept yet"
        assert await store.keep(letter(33))
        assert store.state == "up"
        assert await store.keep(letter(3))


async def eventually_found(store: DeadLetterStore, wanted: DeadLetter) -> None:
    async with asyncio.timeout(PATIENCE):  # else it is still marked
        while True:
            found = await store.find(wanted.id)
            if found is not None and found.summary.state is DeadLetterState.WAITING:
                return
            await asyncio.sleep(0.01)


async def test_each_commit_waits_for_the_disk(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        (level,) = await store._ask(lambda table: table._run("PRAGMA synchronous").fetchone())
        (mode,) = await store._ask(lambda table: table._run("PRAGMA journal_mode").fetchone())
    assert (level, mode) == (2, "wal"), "FULL"


def test_a_folder_that_several_processes_make_at_once_is_good_for_all(tmp_path: Path) -> None:
    together = Barrier(8)

    def open_one() -> None:
        folder = str(tmp_path / "state")
        together.wait()
        db, presence = open_letters(folder, 5.0, Reserve(str(tmp_path / "state" / FILE)))
        db.close()
        presence.close()

    with ThreadPoolExecutor(8) as threads:
        for opened in [threads.submit(open_one) for _ in range(8)]:
            opened.result(20)
