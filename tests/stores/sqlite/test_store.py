"""A file of keys: shared, killed, damaged, locked, somebody else's."""

import asyncio
import logging
import os
import re
import signal
import sqlite3
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.policy.idempotency.record import ClaimAnswer, Claimed, Ending, RecordState
from proxy.policy.settings.store import SqliteSettings
from proxy.stores import StoreError, caller_share_name
from proxy.stores.sqlite import OPERATIONS, SqliteStore
from proxy.stores.sqlite.table import KeyTable
from tests.stores.key_stores import LEASE, NAME, TTL, ask, done, freed, running_file
from tests.stores.running_stores import CLOCK, Tally
from tests.support import both_loops
from tests.support.clock import FakeClock
from tests.support.waiting import PATIENCE, eventually
from tests.support.witness import Stopwatch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.db"


_DESCRIPTORS = Path("/proc/self/fd")


def names_in(folder: Path) -> set[str]:
    """Of all files; none where there is no such folder."""
    return {file.name for file in folder.iterdir()} if folder.is_dir() else set()


def content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def damage(path: Path) -> None:
    """All but the first page turns to rubbish."""
    size = path.stat().st_size
    path.write_bytes(content(path)[:4096] + b"\xa5" * (size - 4096))


def change_rows(path: Path, change: str, name: str = NAME) -> None:
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE keys SET {change} WHERE name = ?", (name,))  # noqa: S608 - our own words
    db.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def set_mode(path: Path, mode: int, owner: int = -1) -> None:
    path.chmod(mode)
    os.chown(path, owner, -1)


def identity(path: Path) -> int:
    """Tells a file from another one of the same name."""
    return path.stat().st_ino if path.exists() else 0


def link(path: Path, target: Path) -> None:
    """Put a link there, to where the file is from then on."""
    if path.exists():
        path.rename(target)
    path.symlink_to(target)


def count_rows(path: Path) -> tuple[int, int]:
    """Keys and outcomes that are in the file."""
    with sqlite3.connect(path) as db:
        keys = db.execute("SELECT count(*) FROM keys").fetchone()[0]
        outcomes = db.execute("SELECT count(*) FROM outcomes").fetchone()[0]
    db.close()
    return keys, outcomes


async def refusal(path: Path) -> str:
    """What a start says that fails."""
    threads = threading.active_count()
    store = SqliteStore(SqliteSettings(str(path)), CLOCK, Tally(OPERATIONS))
    with pytest.raises(StoreError) as raised:
        await store.start()
    await store.close()
    await eventually(lambda: threading.active_count() == threads)
    return str(raised.value)


# Start and end.


@both_loops
async def test_nothing_is_left_behind(path: Path) -> None:
    descriptors, threads = names_in(_DESCRIPTORS), threading.active_count()
    tasks = asyncio.all_tasks()
    async with running_file(path, CLOCK) as store:
        await store.claim(ask())
        store.watch(NAME, lambda: None)
        assert store.state == "up"
    assert store.state == "down"
    assert threading.active_count() == threads
    assert names_in(_DESCRIPTORS) == descriptors
    assert asyncio.all_tasks() == tasks
    assert names_in(path.parent) == {path.name}, "the log of changes has gone into the file"
    with pytest.raises(StoreError, match="closed"):
        await store.claim(ask())


async def test_the_file_is_for_us_alone(path: Path) -> None:
    async with running_file(path, CLOCK) as store:
        await store.claim(ask())
        modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == {0o600}


async def test_a_file_that_others_could_read_is_taken_from_them(path: Path) -> None:
    """With all that a crash left beside it."""
    async with running_file(path, CLOCK) as store:
        await store.claim(ask())
        beside = {file: content(file) for file in path.parent.iterdir()}
    assert len(beside) == 3
    for file, before in beside.items():
        file.write_bytes(before)
        file.chmod(0o666)
    async with running_file(path, CLOCK) as store:
        assert (await store.claim(ask("two"))).owner == "one", "what was in it is still there"
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert set(modes.values()) == {0o600}, modes


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
async def test_nor_is_one_used_that_others_can_read_and_we_do_not_own(path: Path) -> None:
    async with running_file(path, CLOCK) as store:
        await store.claim(ask())
    set_mode(path, 0o640, owner=12345)
    text = await refusal(path)
    assert f"others can read {path} (mode 0640)" in text
    assert "belongs to user 12345: run chown 0 and chmod 600 on it" in text
    assert mode(path) == 0o640


async def test_somebody_elses_file_keeps_its_rights(path: Path) -> None:
    _is_anothers(path)
    set_mode(path, 0o644)
    assert "belongs to another application" in await refusal(path)
    assert mode(path) == 0o644


@pytest.mark.parametrize("beside", ["", "-wal", "-shm"])
async def test_a_symbolic_link_is_not_followed(path: Path, beside: str) -> None:
    async with running_file(path, CLOCK) as store:
        await store.claim(ask())
    target = path.parent / "elsewhere"
    link(Path(f"{path}{beside}"), target)
    text = await refusal(path)
    assert f"{path}{beside} is a symbolic link" in text
    assert f"name the file itself, {target}" in text


async def test_the_end_waits_for_what_was_asked(path: Path) -> None:
    store = SqliteStore(SqliteSettings(str(path), 5.0), CLOCK, Tally(OPERATIONS))
    await store.start()
    calls = [asyncio.create_task(store.claim(ask(name=str(n)))) for n in range(300)]
    await asyncio.sleep(0)
    await store.close()
    assert {claimed.answer for claimed in await asyncio.gather(*calls)} == {ClaimAnswer.NEW}
    async with running_file(path, CLOCK) as again:
        assert (await again.claim(ask("two", name="299"))).answer is ClaimAnswer.BUSY


async def test_many_start_at_once(path: Path) -> None:
    stores = [
        SqliteStore(SqliteSettings(str(path), 5.0), CLOCK, Tally(OPERATIONS)) for _ in range(8)
    ]
    await asyncio.gather(*(store.start() for store in stores))
    answers = await asyncio.gather(*(store.claim(ask(str(id(store)))) for store in stores))
    assert [claimed.answer for claimed in answers].count(ClaimAnswer.NEW) == 1
    for store in stores:
        await store.close()


_LOOK_IN = """
import asyncio, sys
from pathlib import Path
from tests.stores.key_stores import ask, running_file
from tests.stores.running_stores import CLOCK

async def main():
    async with running_file(Path(sys.argv[1]), CLOCK, answers_within=5.0) as store:
        print((await store.claim(ask("another", sys.argv[2]))).answer.name)

asyncio.run(main())
"""


async def test_another_process_that_comes_and_goes_takes_nothing_along(path: Path) -> None:
    """The last process that closes the file removes the write-ahead log; that is not this one."""

    async def look_in(name: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _LOOK_IN, str(path), name),
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        )
        said, _ = await process.communicate()
        return said.decode().strip()

    log = Path(f"{path}-wal")
    async with running_file(path, CLOCK) as store:
        # For longer than a busy machine may take to start another process.
        await store.claim(ask("one", "a", lease=1000.0, ttl=1000.0))
        before = identity(log)
        assert await look_in("a") == "BUSY"
        assert identity(log) == before, "what is claimed from here on is found by others"


# Files that are not what they should be.


def _is_text(path: Path) -> None:
    path.write_text("Dear diary, " * 1000, encoding="ascii")


def _is_anothers(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE diary (entry TEXT)")
    db.close()


def _is_of_the_future(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA application_id = {0x486F6C64}")
        db.execute("PRAGMA user_version = 99")
    db.close()


def _is_a_folder(path: Path) -> None:
    path.mkdir()


def _is_nowhere(path: Path) -> None:
    path.parent.rmdir()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_is_text, "no SQLite file"),
        (_is_anothers, "belongs to another application: name another file"),
        (_is_of_the_future, r"another version of Holdfast \(format 99, this one has 2\)"),
        (_is_a_folder, "cannot be opened for writing"),
        (_is_nowhere, "does not exist: create it"),
    ],
)
async def test_a_file_that_is_not_ours_is_refused(
    make: Callable[[Path], None], says: str, path: Path
) -> None:
    make(path)
    before = content(path)
    text = await refusal(path)
    assert text.startswith((str(path), f"the folder of {path}"))
    assert re.search(says, text), text
    assert content(path) == before, "and left as it is"


async def test_a_folder_that_is_not_ours_to_write_in(path: Path) -> None:
    if os.geteuid() == 0:
        path = Path("/proc/keys.db")  # where not even root may
    else:
        path.parent.chmod(0o500)
    assert "a folder in which it may write" in await refusal(path)


async def test_a_file_that_is_damaged_later_is_an_error_and_no_crash(path: Path) -> None:
    async with running_file(path, CLOCK) as store:
        for number in range(200):
            await store.claim(ask(name=f"{number:064}"))
    damage(path)
    tally = Tally(OPERATIONS)
    async with running_file(path, CLOCK, tally=tally) as store:
        for _ in range(2):
            with pytest.raises(StoreError):
                await store.claim(ask(name="7".zfill(64)))
        assert store.state == "down"
    assert tally.unanswered["claim"] == 2


@pytest.mark.parametrize(
    "change",
    ["version = 2", "state = 'gone'", "fingerprint = 'text'", "result = 'text'", "expires = 'x'"],
)
async def test_a_row_that_makes_no_sense_concerns_its_key_alone(path: Path, change: str) -> None:
    async with running_file(path, CLOCK) as store:
        for name in (NAME, "good"):
            await store.claim(ask("one", name))
        change_rows(path, change)
        results = await asyncio.gather(
            store.settle("good", "one", done(b"fine")),
            store.claim(ask("two")),
            store.settle(NAME, "one", done(b"lost")),
            store.renew(NAME, "one", LEASE, TTL),
            store.show(NAME),
            store.drop(NAME),
            return_exceptions=True,
        )
        assert results[0] is True
        assert all(isinstance(result, StoreError) for result in results[1:])
        assert store.state == "up"
        assert (await store.claim(ask("two", "good"))).result == b"fine"


# Clocks.


async def test_setting_the_date_moves_no_lease(path: Path) -> None:
    clock = FakeClock()
    async with running_file(path, clock) as store:
        await store.claim(ask("one"))
        for wrong in (TTL - 5, -1e6, 1e9):
            clock.set_wall_wrong_by(wrong)
            busy = await store.claim(ask("two"))
            assert busy.answer is ClaimAnswer.BUSY
            assert busy.lease_left == pytest.approx(LEASE, abs=2)
        assert await store.settle(NAME, "one", done(b"result"))
        assert (await store.claim(ask("two"))).answer is ClaimAnswer.DONE
        clock.set_wall_wrong_by(1e9 + TTL + 5)
        assert (await store.claim(ask("two"))).answer is ClaimAnswer.NEW, (
            "but keeping goes by the date"
        )


async def test_the_sweep_leaves_what_is_in_flight_whatever_the_date(path: Path) -> None:
    clock = FakeClock()
    async with running_file(path, clock) as store:
        await store.claim(ask("one", "alive"))
        await store.claim(ask("one", "ended"))
        await store.settle("ended", "one", done())
    clock.set_wall_wrong_by(1e6)
    async with running_file(path, clock) as store:
        await eventually(lambda: count_rows(path) == (1, 0))
        assert (await store.claim(ask("two", "alive"))).answer is ClaimAnswer.BUSY
        clock.advance(LEASE + 1)
        assert (await store.claim(ask("two", "alive", takes_over=False))).answer is ClaimAnswer.NEW


@pytest.mark.parametrize(
    "change", ["boot = 'another'", "lease_until = lease_until + 1000", "lease_until = 1e300"]
)
async def test_a_lease_of_before_the_machine_started_has_ended(path: Path, change: str) -> None:
    async with running_file(path, CLOCK) as store:
        await store.claim(ask("one"))
        change_rows(path, change)
        shown = await store.show(NAME)
        assert shown is not None
        assert shown.state is RecordState.HELD
        assert (await store.claim(ask("two", takes_over=False))).answer is ClaimAnswer.HELD
        assert (await store.claim(ask("two", takes_over=True))).answer is ClaimAnswer.NEW


# Others have the file.


@contextmanager
def given(store: SqliteStore, seconds: float) -> Iterator[None]:
    """Let commands of the store have that time meanwhile: before and after it is another."""
    usual = store._settings
    store._settings = replace(usual, timeout=seconds)
    try:
        yield
    finally:
        store._settings = usual


async def test_a_file_that_is_locked_is_an_error_in_time(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    tally = Tally(OPERATIONS)
    async with running_file(path, CLOCK, answers_within=0.2, tally=tally) as store:
        with given(store, PATIENCE):
            await store.claim(ask("one"))
        lock = sqlite3.connect(path, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        watch = Stopwatch()
        results = await asyncio.gather(
            *(store.claim(ask("two", name)) for name in "abcdefghi"),
            store.settle(NAME, "one", done(b"late")),
            return_exceptions=True,
        )
        assert all(isinstance(result, StoreError) for result in results)
        assert watch.seconds < 1.2, "not each of them for a time of its own"
        assert store.state == "down"
        lock.execute("ROLLBACK")
        lock.close()
        with given(store, PATIENCE):
            third = await store.claim(ask("three", "a"))
            assert third.answer is ClaimAnswer.NEW, "nobody had got it"
            assert store.state == "up"
            # Whether the first one was turned away or only late, nothing is lost.
            await store.settle(NAME, "one", done(b"late"))
            assert (await store.claim(ask("two"))).result == b"late"
    assert tally.unanswered["claim"] == 9
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_what_was_given_up_keeps_its_order(path: Path) -> None:
    """The thread is stuck: claims that nobody waits for are left out, settlements are not."""
    async with running_file(path, CLOCK, answers_within=PATIENCE) as store:
        await store.claim(ask("one"))
        await store.claim(ask("two"))  # waits for it
        begun, stuck = threading.Event(), threading.Event()

        def wait(_: KeyTable) -> None:
            begun.set()
            stuck.wait(PATIENCE)

        with given(store, 0.1):
            waiting = asyncio.create_task(store._ask("admin", wait, only_reads=True))
            assert await asyncio.to_thread(begun.wait, PATIENCE)
            ending = store.settle(NAME, "one", freed(b"failure"))
            for late in (store.claim(ask("two", "a")), ending):
                with pytest.raises(StoreError, match="no answer within 100 ms"):
                    await late
            with pytest.raises(StoreError):
                await waiting
        cancelled = asyncio.create_task(store.claim(ask("two", "b")))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        stuck.set()
        assert (await store.claim(ask("three", "a"))).answer is ClaimAnswer.NEW
        assert (await store.claim(ask("three", "b"))).answer is ClaimAnswer.NEW
        left = await store.claim(ask("three", waited_for="one"))
        assert left == Claimed(ClaimAnswer.LEFT, result=b"failure")


async def test_who_never_heard_of_a_claim_has_not_got_it(path: Path) -> None:
    """The command had begun when its time was over."""
    async with running_file(path, CLOCK, answers_within=PATIENCE) as store:
        begun, stuck = threading.Event(), threading.Event()

        def slow(table: KeyTable) -> Claimed:
            begun.set()
            claimed = table.claim(ask("one"))
            stuck.wait(PATIENCE)
            return claimed

        with given(store, 0.1):
            asking = asyncio.create_task(store._ask("claim", slow, may_be_void=True))
            assert await asyncio.to_thread(begun.wait, PATIENCE)
            with pytest.raises(StoreError, match="no answer"):
                await asking
            with pytest.raises(StoreError, match="no answer"):
                await store.claim(ask("one"))
        stuck.set()
        assert (await store.claim(ask("one"))).answer is ClaimAnswer.NEW, "and may come again"
        assert (await store.claim(ask("two"))).owner == "one"


# What nobody needs.


async def test_what_has_expired_is_deleted(path: Path) -> None:
    clock = FakeClock()
    async with running_file(path, clock) as store:
        names = [f"{number:064}" for number in range(1200)]
        await asyncio.gather(*(store.claim(ask("one", name)) for name in names))
        await store.settle(names[0], "one", freed(b"failure"))
    clock.advance(LEASE + TTL + 1)
    async with running_file(path, clock) as store:
        await store.claim(ask("one", "new"))
        await eventually(lambda: count_rows(path) == (1, 0))


async def test_nobody_looks_where_nobody_waits(path: Path) -> None:
    tally = Tally(OPERATIONS)
    async with running_file(path, CLOCK, tally=tally) as store:
        await store.claim(ask("one"))
        await asyncio.sleep(0.15)
        assert tally.answered["watch"] == 0
        leave = [store.watch(name, lambda: None) for name in (NAME, NAME, "other")]
        await eventually(lambda: tally.answered["watch"] == 2)
        for function in leave:
            function()
        await store.show(NAME)  # after a look that is under way
        looks = tally.answered["watch"]
        await asyncio.sleep(0.25)
        assert tally.answered["watch"] == looks


async def test_a_lease_that_ends_wakes_who_waits(path: Path) -> None:
    clock = FakeClock()
    async with running_file(path, clock) as store:
        await store.claim(ask("one"))
        woken: list[bool] = []
        store.watch(NAME, lambda: woken.append(True))
        await asyncio.sleep(0.15)
        assert not woken
        clock.advance(LEASE + 1)
        await eventually(lambda: woken)


# The process dies.

_STORM = """
import asyncio, sys
from tests.stores.key_stores import ask, done, running_file
from tests.stores.running_stores import CLOCK
from pathlib import Path

async def caller(store, number):
    for turn in range(10**6):
        name, owner = f"{number}/{turn}", f"owner {number}/{turn}"
        print("asks", name, flush=True)
        await store.claim(ask(owner, name, lease=1000, ttl=1000))
        print("has", name, flush=True)
        await store.settle(name, owner, done(name.encode() * 100, 1000))
        print("done", name, flush=True)

async def main():
    async with running_file(Path(sys.argv[1]), CLOCK) as store:
        await asyncio.gather(*(caller(store, number) for number in range(20)))

asyncio.run(main())
"""


async def test_whatever_was_answered_survives_a_kill(path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _STORM, str(path)),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(20):
        while len(lines) < 1500:
            lines.append((await process.stdout.readline()).decode())
        process.send_signal(signal.SIGKILL)
        lines += (await process.stdout.read()).decode().splitlines(keepends=True)
        await process.wait()
    said = {tuple(line.split()) for line in lines if line.endswith("\n")}
    ended = {name for what, name in said if what == "done"}
    had = {name for what, name in said if what == "has"} - ended
    asked = {name for what, name in said if what == "asks"} - had - ended
    assert len(ended) > 100
    async with running_file(path, CLOCK) as store:
        for name in ended:
            assert (await store.claim(ask(name=name))).result == name.encode() * 100
        for name in had:
            found = await store.claim(ask(name=name))
            assert found.answer in {ClaimAnswer.BUSY, ClaimAnswer.DONE}
            assert found.result in {b"", name.encode() * 100}
        for name in asked:
            assert (await store.claim(ask(name=name))).answer in {ClaimAnswer.NEW, ClaimAnswer.BUSY}
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


# How much there is room for.


@asynccontextmanager
async def small_file(path: Path, limit: int) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(SqliteSettings(str(path), 2.0, limit), CLOCK, Tally(OPERATIONS))
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def _run(store: SqliteStore, name: str, ending: Ending, caller: str) -> None:
    assert (await store.claim(ask("one", name, caller=caller))).answer is ClaimAnswer.NEW
    assert await store.settle(name, "one", ending)


async def test_a_stranger_s_results_push_out_its_own_and_that_they_ran_is_known(
    path: Path,
) -> None:
    result = b"x" * 10_000
    async with small_file(path, 100_000) as store:
        await _run(store, "mine", done(result), "me")
        for number in range(40):
            await _run(store, f"{number}", done(result), "stranger")
        await _run(store, "too large", done(bytes(100_001)), "stranger")
        assert await store.fetch("mine") == result
        answers = [(await store.claim(ask("two", f"{number}"))).answer for number in range(40)]
        assert answers == [ClaimAnswer.UNSTORED] * 31 + [ClaimAnswer.DONE] * 9
        assert (await store.claim(ask("two", "too large"))).answer is ClaimAnswer.UNSTORED
        assert rooms(path) == {"me": (0, 10_000), "stranger": (0, 90_000), "*": (0, 100_000)}


def rooms(path: Path) -> dict[str, tuple[int, int]]:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT caller, open, bytes FROM rooms WHERE open OR bytes").fetchall()
    callers = {caller_share_name(caller): caller for caller in ("", "me", "stranger", "10.0.0.1")}
    return {callers.get(caller, caller): (count, size) for caller, count, size in rows}


async def test_what_each_caller_has_is_counted(path: Path) -> None:
    clock = FakeClock()
    async with running_file(path, clock) as store:
        await _run(store, "a", done(b"12345"), "me")
        await _run(store, "b", Ending(RecordState.HELD, TTL), "me")
        await store.claim(ask("one", "c", caller="10.0.0.1"))
        assert rooms(path) == {"me": (1, 5), "10.0.0.1": (1, 0), "*": (2, 5)}
        assert await store.renew("c", "one", LEASE, TTL)
        await store.settle("c", "one", Ending(RecordState.DONE, TTL, b"1234567", "me"))
        assert rooms(path) == {"me": (1, 12), "*": (1, 12)}
        assert await store.drop("b")
        clock.advance(TTL + 1)
        assert not await store._ask("sweep", KeyTable.sweep)
        assert rooms(path) == {}


async def test_what_is_left_behind_has_a_bound(path: Path) -> None:
    page = bytes(1024**2)
    async with running_file(path, CLOCK) as store:
        for number in range(20):
            name = owner = str(number)
            await store.claim(ask(owner, name))
            assert (await store.claim(ask("two", name))).answer is ClaimAnswer.BUSY
            assert await store.settle(name, owner, freed(page))
        kept = [await store.fetch(str(number), str(number)) for number in range(20)]
        assert kept == [page] * 16 + [None] * 4


async def test_a_file_of_the_last_format_is_brought_up_to_date(path: Path) -> None:
    async with running_file(path, CLOCK) as store:
        await _run(store, "a", done(b"12345"), "")
        await store.claim(ask("one", "b"))
    with closing(sqlite3.connect(path)) as db:
        for kind, name in db.execute(
            "SELECT type, name FROM sqlite_master WHERE type = 'trigger' OR name LIKE 'rooms%'"
            " OR name = 'results_by_caller' ORDER BY type = 'table'"
        ).fetchall():
            db.execute(f"DROP {kind} {name}")
        for column in ("caller", "waits"):
            db.execute(f"ALTER TABLE keys DROP COLUMN {column}")
        db.execute("PRAGMA user_version = 1")
        db.commit()
    async with running_file(path, CLOCK) as store, running_file(path, CLOCK) as other:
        assert (await store.claim(ask("two", "a"))).result == b"12345"
        assert rooms(path) == {"": (1, 5), "*": (1, 5)}
        assert (await other.claim(ask("two", "b"))).answer is ClaimAnswer.BUSY
        assert await store.settle("b", "one", done(b"6"))
        assert rooms(path) == {"": (0, 6), "*": (0, 6)}
