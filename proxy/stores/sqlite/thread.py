"""The thread that has the file: commands go in, in their order, and results come back.

What has queued up while it worked goes into one transaction, so a crowd costs little more
than one. A transaction is kept or lost as a whole: a command whose result was told to
anybody is in the file.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from proxy.stores import StoreError

_TableT = TypeVar("_TableT")
"""What knows the rows of the file."""

_MOST = 100
"""Commands in one transaction: other processes wait for the file meanwhile."""


class FileFailure(StoreError):
    """The file is of no use now; any other error is about one key."""


class Job(Generic[_TableT]):
    """One command, and what became of it."""

    __slots__ = ("error", "is_over", "is_void", "only_reads", "result", "told", "work")

    def __init__(self, work: Callable[[_TableT], object], *, only_reads: bool) -> None:
        self.work = work
        self.only_reads = only_reads
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once there is a result or an error."""
        self.is_over = False
        """Whether there is one, and the loop is about to be told."""
        self.is_void = False
        """Set if nobody wants it any more: it is left out, unless it has begun."""
        self.result: object = None
        self.error: StoreError | None = None


class FileThread(Generic[_TableT]):
    """Runs commands on one file, one transaction after another."""

    def __init__(
        self,
        open_file: Callable[[], sqlite3.Connection],
        table: Callable[[sqlite3.Connection], _TableT],
    ) -> None:
        """*open_file* is called in the thread, and raises StoreError if it cannot be done."""
        self._open_file = open_file
        self._table = table
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
        """Run *job* after all that were put before."""
        self._queue.put(job)

    async def close(self, patience: float) -> bool:
        """Finish what was put; whether that was done within *patience* seconds."""
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
                    _run_batch(db, table, batch)
                    self._tell(_deliver, batch)
            finally:
                db.close()
        self._tell(_end, self._ended)

    def _tell(self, function: Callable[..., object], *args: object) -> None:
        with suppress(RuntimeError):  # the loop was closed before us: nobody is there to hear it
            self._loop.call_soon_threadsafe(function, *args)

    def _batches(self) -> Iterator[list[Job[_TableT]]]:
        """What has queued up, again and again until the end."""
        while (job := self._queue.get()) is not None:
            batch = [job]
            while len(batch) < _MOST and not self._queue.empty():
                following = self._queue.get()
                if following is None:
                    self._queue.put(None)  # the end, but for this batch
                    break
                batch.append(following)
            yield batch


def _run_batch(db: sqlite3.Connection, table: _TableT, batch: list[Job[_TableT]]) -> None:
    wanted = [job for job in batch if not job.is_void]
    try:
        with _transaction(db, only_reads=all(job.only_reads for job in wanted)):
            for job in wanted:
                try:
                    job.result = job.work(table)
                except StoreError as error:
                    job.error = error  # about one row, of which nothing was changed
    except Exception as error:  # noqa: BLE001 - whatever it is, the next ones get their turn
        for job in wanted:
            job.error = FileFailure(str(error))
    for job in batch:
        job.is_over = True


@contextmanager
def _transaction(db: sqlite3.Connection, *, only_reads: bool) -> Iterator[None]:
    try:
        # Who reads first and writes later can be refused in between: take the file at once.
        db.execute("BEGIN" if only_reads else "BEGIN IMMEDIATE")
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _deliver(batch: list[Job[_TableT]]) -> None:
    for job in batch:
        _end(job.told)


def _end(future: asyncio.Future[None], error: StoreError | None = None) -> None:
    if future.done():
        return  # nobody waits for it any more
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
