"""Files of SQLite in virtual time: the real tables, without the thread that waits for the disk.

A test that asks for the fixture :func:`files_at_once` has dead letters and deliveries in virtual
time. What a thread does is done at once there: it takes no time, and always the same.
"""

import asyncio
import sqlite3
from typing import Any

import pytest

from proxy.stores.dead_letters import store as dead_letters
from proxy.stores.deliveries import store as deliveries
from proxy.stores.sqlite_file.thread import FileThread, Job, _run_batch
from tests.support.virtual import TestLoop


class FileAtOnce(FileThread[Any]):
    """Runs each command at once, in a transaction of its own."""

    _db: sqlite3.Connection
    _rows: Any

    async def start(self) -> None:
        self._db = self._open_file()
        self._rows = self._table(self._db)

    def put(self, job: Job[Any]) -> None:
        _run_batch(self._db, self._rows, [job], self._reserve)

    async def run(self, job: Job[Any], patience: float) -> object:
        del patience
        self.put(job)
        await asyncio.sleep(0)  # as it would be with a thread
        if job.error is not None:
            raise job.error
        return job.result

    async def close(self, patience: float) -> bool:
        del patience
        self._db.close()
        return True


@pytest.fixture
def files_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have dead letters and deliveries in virtual time."""
    for module in (dead_letters, deliveries):
        monkeypatch.setattr(module, "FileThread", FileAtOnce)
    # The pipe by which other processes wake this one: there are none.
    monkeypatch.setattr(TestLoop, "add_reader", lambda *_: None, raising=False)
    monkeypatch.setattr(TestLoop, "remove_reader", lambda *_: None, raising=False)
