"""The asynchronous interface to the dead letters of this machine."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar, cast

from proxy.core.clock import Clock
from proxy.core.recorders import Meter
from proxy.policy.dead_letter import (
    DeadLetter,
    DeadLetterCounts,
    DeadLetterSummary,
    Obstacle,
    ReplayRun,
)
from proxy.stores import StoreError
from proxy.stores.dead_letters.file import FILE, open_letters
from proxy.stores.dead_letters.table import BATCH, DeadLetterTable, Kept
from proxy.stores.sqlite_file.presence import Presence
from proxy.stores.sqlite_file.reserve import Reserve
from proxy.stores.sqlite_file.thread import DiskFull, FileFailure, FileThread, Job

_log = logging.getLogger("holdfast")

MAX_COUNT = 100_000
MAX_BYTES = 1024**3
"""Bounds for the dead letters of all routes together."""

_PATIENCE = 5.0
"""Seconds for a command. A disk that is busy takes one; one that is broken never answers, and a
client shall have its response all the same."""
_SWEEP_EVERY = 60.0
_SWEEP_ON = 0.05
_LOOK_EVERY = 5.0
"""Seconds after which the dead letters are counted again, for what other processes have done."""
_LOOK_SOON = 0.05
"""Seconds after which they are counted again once this process has changed some."""
_CLOSE_WITHIN = 5.0
_PAGE = 100
_DIGEST = 8
"""Bytes of the digests that tell callers apart."""

_T = TypeVar("_T")


class DeadLetterStore:
    """Has the dead letters of this machine."""

    def __init__(
        self,
        folder: str,
        clock: Clock,
        meter: Meter,
        *,
        max_count: int = MAX_COUNT,
        max_bytes: int = MAX_BYTES,
        patience: float = _PATIENCE,
    ) -> None:
        """Open no file yet; *patience*: seconds that a command may take."""
        self._folder = folder
        self._path = str(Path(folder) / FILE)
        self._clock = clock
        self._meter = meter
        self._most = (max_count, max_bytes)
        self._patience = patience
        self._thread: FileThread[DeadLetterTable] | None = None
        self._reserve = Reserve(self._path)
        self._secret = b""
        self._presence: Presence | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.counts: Mapping[str, DeadLetterCounts] = {}
        """By route, as of a moment ago."""
        self.counted = 0.0
        """When they were counted, in monotonic seconds."""
        self._is_failing = False
        self._cannot_keep = False
        """Whether the last dead letter could not be written; that others can be read says
        nothing."""

    def __repr__(self) -> str:
        return f"<letters in {self._path}, {self.state}>"

    @property
    def is_open(self) -> bool:
        """Tell whether dead letters can be kept."""
        return self._thread is not None

    @property
    def has_file(self) -> bool:
        """Tell whether dead letters were kept here before."""
        return Path(self._path).is_file()

    @property
    def state(self) -> str:
        """``up`` or ``down``: how the last command went, and the last dead letter."""
        is_up = self._thread is not None and not (self._is_failing or self._cannot_keep)
        return "up" if is_up else "down"

    async def start(self) -> None:
        """Open the file. Raises StoreError, with a suggestion in its text, if it cannot."""
        thread = FileThread(self._open, self._table, self._reserve)
        await thread.start()
        self._thread = thread
        self._secret = await self._ask(DeadLetterTable.secret, only_reads=True)
        await self._count()
        for work in (self._keep_sweeping(), self._keep_looking()):
            self._begin(work)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* as a task until it ends, or the store is closed."""
        task = asyncio.create_task(work, name="letters")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _open(self) -> sqlite3.Connection:
        db, self._presence = open_letters(self._folder, self._patience, self._reserve)
        return db

    def _table(self, db: sqlite3.Connection) -> DeadLetterTable:
        assert self._presence is not None  # noqa: S101 - for the type checker
        return DeadLetterTable(db, self._clock, self._presence)

    async def close(self) -> None:
        """Finish what was requested, and leave nothing behind: no thread, no task, no file."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if not await thread.close(_CLOSE_WITHIN):
            _log.warning("the disk of %s does not answer: the file is left open", self._path)
        elif self._presence is not None:
            self._presence.close()
        self._presence = None

    # The operations of the store.

    async def keep(self, dead_letter: DeadLetter) -> bool:
        """Write a dead letter; True once it is on disk, False if there is no space for it.

        The write is finished even if its client leaves meanwhile.
        """
        max_count, max_bytes = self._most
        try:
            kept = await self._run(lambda table: table.keep(dead_letter, max_count, max_bytes))
        except FileFailure as error:
            if not self._cannot_keep:
                self._cannot_keep = True
                _log.warning("dead letters cannot be kept in %s (%s)", self._path, error)
            raise
        if kept is Kept.NO_SHARE:
            _log.warning(
                "a caller has used up its share of the space for dead letters (half beside "
                "others, seven eighths alone): no more of its requests are kept"
            )
        if kept is Kept.YES:
            if self._cannot_keep:
                _log.info("dead letters can be kept in %s again", self._path)
            self._cannot_keep = self._is_failing = False
        self._changed.set()
        return kept is Kept.YES

    def digest(self, content: bytes) -> str:
        """Return a digest of *content*, from which that cannot be read, to tell callers apart."""
        return blake2b(content, key=self._secret, digest_size=_DIGEST).hexdigest()

    async def page(
        self, route: str | None = None, *, after: str = "", limit: int = _PAGE, newest: bool = False
    ) -> list[DeadLetterSummary]:
        """Return up to *limit* dead letters behind *after*; the oldest one first, or the *newest*.

        The list is empty where no route keeps dead letters, or ever did.
        """
        if not self.is_open and not self.has_file:
            return []
        return await self._ask(lambda table: table.page(route, after, limit, newest=newest))

    async def find(self, dead_letter_id: str) -> DeadLetter | None:
        """Return all of one dead letter; None if there is none."""
        if not self.is_open and not self.has_file:
            return None
        return await self._ask(lambda table: table.find(dead_letter_id))

    async def begin_replay(
        self, dead_letter_id: str, ticket: str, *, force: bool
    ) -> DeadLetter | Obstacle:
        """Mark a dead letter as being replayed; otherwise return the obstacle.

        If the answer does not arrive, for whatever reason, the replay has not begun. *ticket* is
        for :meth:`end_replay`.
        """
        try:
            begun = await self._ask(
                lambda table: table.begin_replay(dead_letter_id, ticket, force=force),
                gives_back=True,
            )
        except (StoreError, asyncio.CancelledError):
            if self._thread is not None:
                undo: Job[DeadLetterTable] = Job(
                    lambda table: table.end_replay(
                        dead_letter_id, ticket, None, may_have_run=False, gone=False
                    ),
                    only_reads=False,
                    gives_back=True,
                )
                self._thread.put(undo)  # it may be marked, and no replay would end it
            raise
        self._changed.set()
        return begun

    async def end_replay(
        self,
        dead_letter_id: str,
        ticket: str,
        run: ReplayRun | None,
        *,
        may_have_run: bool,
        gone: bool,
    ) -> None:
        """End a replay: the dead letter is *gone*, or waits with one more *run* on record.

        *run* is None if nothing of it was sent after all.
        """
        await self._ask(
            lambda table: table.end_replay(
                dead_letter_id, ticket, run, may_have_run=may_have_run, gone=gone
            ),
            gives_back=True,
        )
        self._changed.set()

    async def drop(self, dead_letter_id: str) -> bool | None:
        """Delete a dead letter; False if it is being replayed, None if there is none."""
        dropped = await self._ask(lambda table: table.drop(dead_letter_id), gives_back=True)
        self._changed.set()
        return dropped

    async def drop_all(
        self,
        route: str | None = None,
        until: str = "",
        on_dropped: Callable[[list[str]], object] = lambda _: None,
    ) -> int:
        """Delete all of a route, or all, but for those that are being replayed; return how many.

        Dead letters up to *until*, or to the newest one, are deleted: those that come meanwhile
        stay. *on_dropped* is called with the ids of those that are gone, some at a time.
        """
        if not until:
            newest = await self.page(route, limit=1, newest=True)
            until = newest[0].id if newest else ""
        after, limit, total = "", BATCH, 0
        while until and after != until:
            work = partial(
                DeadLetterTable.drop_some, route=route, after=after, until=until, limit=limit
            )
            try:
                dropped = await self._ask(work, gives_back=True)
            except DiskFull:
                if limit == 1:
                    raise
                limit = max(limit // 10, 1)  # deleting fewer of them takes less space
                continue
            if not dropped:
                break
            total += len(dropped)
            after = dropped[-1]
            self._changed.set()
            on_dropped(dropped)
        self._begin(self._give_back())
        return total

    async def _give_back(self) -> None:
        """Give what is free in the file back to the disk, as long as that goes on."""
        before = None
        with suppress(StoreError):  # it is only disk space
            while (pages := await self._ask(self._shrink)) and pages != before:
                before = pages

    async def _ask(
        self,
        work: Callable[[DeadLetterTable], _T],
        *,
        only_reads: bool = False,
        gives_back: bool = False,
    ) -> _T:
        """Return the result of *work*; log it if the file begins or ceases to fail."""
        try:
            result = await self._run(work, only_reads=only_reads, gives_back=gives_back)
        except StoreError as error:
            self._note(error)
            raise
        self._note(None)
        return result

    async def _run(
        self,
        work: Callable[[DeadLetterTable], _T],
        *,
        only_reads: bool = False,
        gives_back: bool = False,
    ) -> _T:
        """Return the result of *work*; one that *gives_back* disk space may use the reserve."""
        if self._thread is None:
            raise StoreError("the file of the dead letters is closed")
        job: Job[DeadLetterTable] = Job(work, only_reads=only_reads, gives_back=gives_back)
        return cast("_T", await self._thread.run(job, self._patience))

    def _note(self, error: StoreError | None) -> None:
        """Log it when the file begins to fail, and when that is over."""
        is_failing = isinstance(error, FileFailure) and not isinstance(error, DiskFull)
        if is_failing and not self._is_failing:
            _log.warning("the dead letters in %s are unavailable (%s)", self._path, error)
        elif self._is_failing and not is_failing:
            _log.info("the dead letters in %s are available again", self._path)
        self._is_failing = is_failing

    async def _count(self) -> None:
        counts = await self._ask(DeadLetterTable.counts, only_reads=True)
        self.counts, self.counted = counts, self._clock.monotonic()

    # Background tasks.

    async def _keep_sweeping(self) -> None:
        while True:
            has_more = False
            try:
                gone, has_more = await self._ask(self._sweep, gives_back=True)
            except StoreError:
                gone = {}  # the failure was logged already
            for route, count in gone.items():
                _log.warning("%d dead letters of route %s have expired", count, route)
                self._meter.count("holdfast_dead_letters_dropped_total", route, "expired", by=count)
                self._changed.set()
            await asyncio.sleep(_SWEEP_ON if has_more else _SWEEP_EVERY)

    def _sweep(self, table: DeadLetterTable) -> tuple[dict[str, int], bool]:
        self._reserve.set_aside()  # if it had to be given up, and there is space again
        gone, has_more = table.sweep()
        self._shrink(table)
        return gone, has_more

    def _shrink(self, table: DeadLetterTable) -> int:
        """Have some free pages given back to the disk afterwards; return how many there are now."""
        pages = table.loose_pages()
        self._reserve.file_is_to_shrink = pages > 0
        return pages

    async def _keep_looking(self) -> None:
        """Count again after each change, and now and then for those of other processes."""
        while True:
            waiting = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait([waiting], timeout=_LOOK_EVERY)
            finally:
                waiting.cancel()
            self._changed.clear()
            await asyncio.sleep(_LOOK_SOON)
            try:
                await self._count()
            except StoreError:
                continue
