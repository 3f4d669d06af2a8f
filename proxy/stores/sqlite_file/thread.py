"""The thread that has the file: commands go in, in their order, and results come back.

Commands that have queued up while it worked go into one transaction, so a crowd costs little
more than one. A command whose result was delivered is in the file; one that fails costs no
other command anything.

Large commands wait until all others are done, and go one at a time: an urgent command waits
for one of them at most.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from proxy.stores import StoreError, StoreRefusal
from proxy.stores.sqlite_file.reserve import Reserve

_TableT = TypeVar("_TableT")
"""The class that knows the rows of the file."""

_MOST = 100
"""Commands in one transaction: other processes wait for the file meanwhile."""


class FileFailure(StoreError):
    """The file cannot be used now; any other error is about one command."""


class NoAnswerInTime(FileFailure):
    """The disk did not answer in time: what was asked for may be done later, or never."""


class FileRefusal(FileFailure, StoreRefusal):
    """What was to be written does not fit: the disk is full, or the file may grow no further."""


class DiskFull(FileRefusal):
    """There is no space on the disk for what was to be written."""


def _new_future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Job(Generic[_TableT]):
    """One command, and what became of it."""

    work: Callable[[_TableT], object]
    _: KW_ONLY
    only_reads: bool
    is_large: bool = False
    """Whether it takes so long that others go first."""
    gives_back: bool = False
    """Whether it frees space on the disk, or leads to that."""
    done: asyncio.Future[None] = field(default_factory=_new_future, init=False)
    """Done once there is a result or an error."""
    is_over: bool = field(default=False, init=False)
    """Whether there is one, and the loop is about to be notified."""
    is_void: bool = field(default=False, init=False)
    """Set if no caller wants it any more: it is skipped, unless it has begun."""
    result: object = field(default=None, init=False)
    error: StoreError | None = field(default=None, init=False)


class FileThread(Generic[_TableT]):
    """Runs commands on one file, one transaction after another."""

    def __init__(
        self,
        open_file: Callable[[], sqlite3.Connection],
        table: Callable[[sqlite3.Connection], _TableT],
        reserve: Reserve | None = None,
    ) -> None:
        """Call *open_file* in the thread; it raises StoreError if the file cannot be opened.

        *reserve* is used when the disk is full.
        """
        self._open_file = open_file
        self._table = table
        self._reserve = reserve
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Job[_TableT] | None] = SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        # A disk that never answers must not keep the process from ending.
        self._thread = Thread(target=self._run, name="holdfast store", daemon=True)

    async def start(self) -> None:
        """Open the file. Raises StoreError if that cannot be done; the thread has ended then."""
        self._thread.start()
        try:
            await self._opened
        except asyncio.CancelledError:
            self._queue.put(None)
            raise

    def put(self, job: Job[_TableT]) -> None:
        """Run *job* after all that were put before; a large one after some that come later."""
        self._queue.put(job)

    async def run(self, job: Job[_TableT], patience: float) -> object:
        """Run *job* and return its result. Raises FileFailure after *patience* seconds.

        A job that has begun is finished all the same, and so is that of a caller that is cancelled.
        """
        self._queue.put(job)
        try:
            async with asyncio.timeout(patience):
                await job.done
        except TimeoutError:
            job.is_void = True  # skipped, unless it has begun
            raise NoAnswerInTime(f"no answer within {patience:g} s") from None
        if job.error is not None:
            raise job.error
        return job.result

    async def close(self, patience: float) -> bool:
        """Finish all jobs; tell whether that was done within *patience* seconds."""
        self._queue.put(None)
        await asyncio.wait([self._ended], timeout=patience)
        if not self._ended.done():
            return False
        self._thread.join()  # it has nothing left to do
        return True

    # In the thread.

    def _run(self) -> None:
        try:
            db = self._open_file()
        except StoreError as error:
            self._tell(_end, self._opened, error)
        else:
            self._tell(_end, self._opened)
            table = self._table(db)
            try:
                for batch in self._batches():
                    _run_batch(db, table, batch, self._reserve)
                    self._tell(_deliver, batch)
                    if self._reserve is not None:
                        self._reserve.tidy(db)
            finally:
                db.close()
        self._tell(_end, self._ended)

    def _tell(self, function: Callable[..., object], *args: object) -> None:
        with suppress(RuntimeError):  # the loop was closed before us: no caller is left
            self._loop.call_soon_threadsafe(function, *args)

    def _batches(self) -> Iterator[list[Job[_TableT]]]:
        """Yield what has queued up, then one large job, again and again until the end."""
        large: deque[Job[_TableT]] = deque()
        is_over = False
        while large or not is_over:
            batch: list[Job[_TableT]] = []
            while not is_over and len(batch) < _MOST:
                if (batch or large) and self._queue.empty():
                    break
                job = self._queue.get()
                if job is None:
                    is_over = True  # but for what was put before
                else:
                    (large if job.is_large else batch).append(job)
            if batch:
                yield batch
            if large:
                yield [large.popleft()]


def _run_batch(
    db: sqlite3.Connection,
    table: _TableT,
    batch: list[Job[_TableT]],
    reserve: Reserve | None = None,
) -> None:
    """Run all of *batch* in one transaction; if that cannot be committed, in smaller ones.

    A transaction that a command has spoilt is undone and run again in two halves, and so on down to
    that command, which fails alone: all others are committed, in their order.
    """
    parts = [[job for job in batch if not job.is_void]]
    while parts:
        part = parts.pop()
        try:
            _run_part(db, table, part)
        except _NotBegun as error:
            # Another process has the file for now: each further part would only wait as long.
            for job in chain(part, *parts):
                job.error = FileFailure(str(error))
            break
        except Exception as error:  # noqa: BLE001 - whatever it is, the other jobs are run
            if len(part) > 1:
                half = len(part) // 2
                parts += (part[half:], part[:half])
                continue
            part[0].error = _failure(error)
            if reserve is not None and isinstance(part[0].error, DiskFull):
                _run_on_full_disk(db, table, part[0], reserve)
    for job in batch:
        job.is_over = True


def _run_part(db: sqlite3.Connection, table: _TableT, part: list[Job[_TableT]]) -> None:
    """Run all of *part* in one transaction; raise what made that impossible."""
    with _transaction(db, only_reads=all(job.only_reads for job in part)):
        for job in part:
            job.error = None
            try:
                job.result = job.work(table)
            except StoreError as error:
                job.error = error  # about one row, of which nothing was changed


def _run_on_full_disk(
    db: sqlite3.Connection, table: _TableT, job: Job[_TableT], reserve: Reserve
) -> None:
    """Run a command again that found no space, as often as *reserve* can free some."""
    while isinstance(job.error, DiskFull) and reserve.make(db, gives_back=job.gives_back):
        try:
            _run_part(db, table, [job])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this command's
            job.error = _failure(error)
    reserve.restore(db)


def _failure(error: Exception) -> StoreError:
    """Return the error of a command that failed: FileFailure if the file is the reason."""
    if not isinstance(error, (OSError, sqlite3.DatabaseError, _NotBegun)) or isinstance(
        error, (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.ProgrammingError)
    ):
        return StoreError(str(error))
    code = getattr(error, "sqlite_errorcode", 0)
    if code in _FULL:
        return DiskFull(str(error))
    return (FileRefusal if code in _NOT_WRITTEN else FileFailure)(str(error))


_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}
_NOT_WRITTEN = {sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE}
"""Errors of a file that may not grow any further: by a quota, say."""


class _NotBegun(Exception):
    """The file could not be locked for a transaction."""


@contextmanager
def _transaction(db: sqlite3.Connection, *, only_reads: bool) -> Iterator[None]:
    try:
        # A transaction that reads first and writes later can be refused in between: lock at once.
        db.execute("BEGIN" if only_reads else "BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        raise _NotBegun(str(error)) from error
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _deliver(batch: list[Job[_TableT]]) -> None:
    for job in batch:
        _end(job.done)


def _end(future: asyncio.Future[None], error: StoreError | None = None) -> None:
    if future.done():
        return  # no caller waits for it any more
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
