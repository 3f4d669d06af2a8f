"""The thread that has a file: what one command does wrong costs no other command anything."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.policy.idempotency.record import ClaimAnswer
from proxy.stores import StoreError
from proxy.stores.dead_letters.table import DeadLetterTable as LetterTable
from proxy.stores.sqlite.table import KeyTable
from proxy.stores.sqlite_file.thread import FileFailure, FileThread, Job
from tests.stores.dead_letters.test_store import opened
from tests.stores.key_stores import ask, running_file
from tests.stores.running_stores import CLOCK
from tests.support.letters import letter
from tests.support.waiting import PATIENCE
from tests.support.witness import Stopwatch

TOO_LARGE = 10**36
"""A number that no statement takes."""


class Rows:
    """A table of numbers."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.run = db.execute

    def add(self, number: int) -> int:
        self.run("INSERT INTO numbers VALUES (?)", (number,))
        return number

    def all(self) -> list[int]:
        return [number for (number,) in self.run("SELECT number FROM numbers ORDER BY number")]


def make(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, timeout=0.1)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER PRIMARY KEY)")
    return db


async def together(thread: FileThread[Any], works: list[Callable[[Any], object]]) -> list[Job[Any]]:
    """Have all *works* done as one batch."""
    begun, stuck = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        begun.set()
        stuck.wait(PATIENCE)

    jobs: list[Job[Any]] = [Job(work, only_reads=False) for work in works]
    thread.put(Job(wait, only_reads=True))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    for job in jobs:  # they queue up
        thread.put(job)
    stuck.set()
    await asyncio.wait([job.done for job in jobs], timeout=PATIENCE)
    return jobs


def endings(jobs: list[Job[Any]]) -> list[object]:
    return [job.result if job.error is None else type(job.error) for job in jobs]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (lambda table: table.add(TOO_LARGE), StoreError),
        (lambda table: table.add(1), StoreError),  # it is there already
        (lambda table: table.run("SELECT 1 / ?", ("x", "y")), StoreError),
        (lambda _: 1 / 0, StoreError),
        (lambda table: table.run("SELECT * FROM nowhere"), FileFailure),
    ],
    ids=["too large a number", "a row twice", "a wrong call", "a mistake of ours", "no table"],
)
async def test_one_bad_command_fails_alone(
    tmp_path: Path, bad: Callable[[Rows], object], error: type[StoreError]
) -> None:
    thread = FileThread(lambda: make(tmp_path / "a.db"), Rows)
    await thread.start()

    def half_done(table: Rows) -> object:
        table.add(500)
        return bad(table)

    works: list[Callable[[Rows], object]] = [
        lambda table, number=number: table.add(number)  # type: ignore[misc]  # bound in the loop
        for number in range(40)
    ]
    jobs = await together(thread, [*works[:20], half_done, *works[20:]])
    expected: list[object] = list(range(40))
    assert endings(jobs) == [*expected[:20], error, *expected[20:]]
    (job,) = await together(thread, [Rows.all])
    assert job.result == list(range(40)), "and nothing of the bad one is in the file"
    await thread.close(PATIENCE)


async def test_a_good_batch_is_one_transaction(tmp_path: Path) -> None:
    said: list[str] = []

    def traced() -> sqlite3.Connection:
        db = make(tmp_path / "a.db")
        db.set_trace_callback(said.append)
        return db

    thread = FileThread(traced, Rows)
    await thread.start()
    works: list[Callable[[Rows], object]] = [
        lambda table, number=number: table.add(number)  # type: ignore[misc]  # bound in the loop
        for number in range(50)
    ]
    await together(thread, works)
    await thread.close(PATIENCE)
    assert said.count("COMMIT") == 2, "one that reads, and one that writes"
    assert len(said) == 50 + 4, "and nothing is paid for what did not happen"


async def test_a_file_that_others_have_is_asked_for_once(tmp_path: Path) -> None:
    thread = FileThread(lambda: make(tmp_path / "a.db"), Rows)
    await thread.start()
    lock = make(tmp_path / "a.db")
    lock.execute("BEGIN IMMEDIATE")
    watch = Stopwatch()
    jobs = await together(thread, [Rows.all] * 50)
    assert endings(jobs) == [FileFailure] * 50
    assert watch.seconds < 2, "not each of them for a time of its own"
    lock.close()
    await thread.close(PATIENCE)


async def test_a_bad_question_costs_no_key(tmp_path: Path) -> None:
    async with running_file(tmp_path / "keys.db", CLOCK, answers_within=5.0) as store:

        def bad(table: KeyTable) -> object:
            return table._run("SELECT ?", (TOO_LARGE,))

        asked = [
            asyncio.create_task(
                store._ask("admin", bad) if n % 10 == 5 else store.claim(ask(name=str(n)))
            )
            for n in range(100)
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for n, answer in enumerate(answers):
            if n % 10 == 5:
                assert isinstance(answer, StoreError)
            else:
                assert getattr(answer, "answer", answer) is ClaimAnswer.NEW
        assert store.state == "up"


async def test_a_bad_question_costs_no_letter(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:

        def bad(table: LetterTable) -> object:
            return table.page(None, "", TOO_LARGE, newest=True)

        asked = [
            asyncio.create_task(store._ask(bad) if n % 10 == 5 else store.keep(letter(n)))
            for n in range(100)
        ]
        kept = await asyncio.gather(*asked, return_exceptions=True)
        assert [one for n, one in enumerate(kept) if n % 10 != 5] == [True] * 90
        assert len(await store.page(limit=1000)) == 90
        assert store.state == "up"
