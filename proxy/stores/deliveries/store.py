"""The asynchronous interface to the deliveries of this machine."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from proxy.core.clock import Clock
from proxy.core.ids import new_owner_token
from proxy.policy.delivery.capacity import CapacityUse
from proxy.policy.delivery.counts import RouteDeliveries
from proxy.policy.delivery.state import (
    OPEN,
    Delivery,
    DeliveryRun,
    Outcome,
    Settlement,
)
from proxy.policy.delivery.words import DeferralReason, DeliveryState
from proxy.stores import StoreError
from proxy.stores.dead_letters.file import FILE, open_letters
from proxy.stores.deliveries.capacity import DeliveryCapacity, ReservedCapacity
from proxy.stores.deliveries.file_clock import FileClock, boot_name
from proxy.stores.deliveries.lock import DeliveryLock
from proxy.stores.deliveries.ports import (
    Abandoned,
    Accepted,
    AcceptUncertain,
    CapacityReservation,
    DeliveryPage,
    Gone,
    HeldKey,
    Mismatch,
    NewDelivery,
    NoCapacity,
    ShownDelivery,
    Taken,
    TakenBatch,
)
from proxy.stores.deliveries.table import DeliveryTable
from proxy.stores.sqlite_file.presence import Presence
from proxy.stores.sqlite_file.reserve import Reserve
from proxy.stores.sqlite_file.thread import DiskFull, FileFailure, FileThread, Job, NoAnswerInTime

_log = logging.getLogger("holdfast")

_PATIENCE = 5.0
"""Seconds for a command: a disk that is broken never answers, and a client shall have its answer
all the same."""
_LOOK_EVERY = 5.0
"""Seconds after which deliveries are counted again, for what other processes have done."""
_LOOK_IF_DOWN = 1.0
"""Seconds after which it is tried again whether the file can be written."""
_LOOK_SOON = 0.05
"""Seconds after which they are counted again once this process has changed some."""
_POLL_EVERY = 0.05
"""Seconds after which it is asked again whether another process has ended a delivery."""
_WITHOUT_BELL = 0.25
"""Seconds after which there may be work, where other processes cannot say so."""
_CLOSE_WITHIN = 5.0
_LOG_PAGES = 4000
"""Pages of the write-ahead log that are moved into the file together."""

_T = TypeVar("_T")


class FileDeliveryStore:
    """Has the deliveries of this machine (:class:`proxy.stores.deliveries.ports.DeliveryStore`)."""

    def __init__(
        self,
        folder: str,
        clock: Clock,
        *,
        entries: int,
        size: int,
        patience: float = _PATIENCE,
    ) -> None:
        """Open no file yet. *entries* and *size* are the room; *patience* is that of a command."""
        self._folder = folder
        self._path = str(Path(folder) / FILE)
        self._clock = clock
        self._patience = patience
        self._thread: FileThread[DeliveryTable] | None = None
        self._reserve = Reserve(self._path)
        self._presence: Presence | None = None
        self._file_clock: FileClock | None = None
        self._changed = asyncio.Event()
        self._work = asyncio.Event()
        self._capacity = DeliveryCapacity(CapacityUse(entries, size), clock, self._changed.set)
        self._lock = DeliveryLock(self._path, self._work.set)
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        """Those that wait for the end of a delivery, by its id."""
        self._is_failing = False
        self._counts: Mapping[str, RouteDeliveries] = {}
        self.counted = 0.0
        """When deliveries were counted last, in monotonic seconds."""

    def __repr__(self) -> str:
        return f"<deliveries in {self._path}, {self.state}>"

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self._thread is not None

    async def has_some(self) -> bool:
        """Say whether the file has deliveries that are not over, without opening it for use."""
        return await asyncio.to_thread(has_open_deliveries, self._path)

    @property
    def state(self) -> str:
        """``up`` or ``down``: how the last command went."""
        return "up" if self._thread is not None and not self._is_failing else "down"

    @property
    def counts(self) -> Mapping[str, RouteDeliveries]:
        """Counts by route, as of a moment ago."""
        return self._counts

    @property
    def fill(self) -> float:
        """What is used of the room, from 0 to 1 or more: of entries or bytes, whichever is more."""
        used, most = self._capacity.used, self._capacity.most
        return max(used.entries / most.entries, used.size / most.size)

    async def start(self) -> None:
        """Open the file. Raises StoreError, with a suggestion in its text, if it cannot."""
        thread = FileThread(self._open, self._table, self._reserve)
        await thread.start()
        self._thread = thread
        try:
            await self._ask(lambda _: self._begin_clock())
            await self._count()
        except BaseException:
            await self.close()  # it may be started again, and must not seem to be open
            raise
        self._begin(self._keep_looking())

    def _open(self) -> sqlite3.Connection:
        db, self._presence = open_letters(self._folder, self._patience, self._reserve)
        # A batch of acceptances writes many pages: more of them share one move into the file.
        db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        self._file_clock = FileClock(db, self._clock, boot_name())
        return db

    def _table(self, db: sqlite3.Connection) -> DeliveryTable:
        assert self._presence is not None  # noqa: S101 - for the type checker
        assert self._file_clock is not None  # noqa: S101 - for the type checker
        return DeliveryTable(db, self._clock, self._file_clock, self._presence)

    def _begin_clock(self) -> None:
        assert self._file_clock is not None  # noqa: S101 - for the type checker
        self._file_clock.begin()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="deliveries")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish what was asked for, give up the lock, and leave nothing behind.

        What this process has taken and not settled counts as that of a dead owner from now on.
        """
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        thread, self._thread = self._thread, None
        if thread is not None:
            if not await thread.close(_CLOSE_WITHIN):
                _log.warning("the disk of %s does not answer: the file is left open", self._path)
            elif self._presence is not None:
                self._presence.close()
            self._presence = None
        self._lock.release()

    # To accept.

    def resize(self, entries: int, size: int) -> None:
        """Change the room; what is there stays, though it be more."""
        self._capacity.most = CapacityUse(entries, size)

    def reserve(self, caller: str, size: int) -> ReservedCapacity | NoCapacity:
        """Reserve room for one delivery of *size* bytes, before its body is read."""
        return self._capacity.reserve(caller, size)

    async def accept(
        self, new: NewDelivery, reservation: CapacityReservation | None = None
    ) -> Accepted | Mismatch | HeldKey | NoCapacity:
        """Store a delivery: it is on disk when this returns."""
        most = self._capacity.most
        try:
            accepted = await self._ask(lambda table: table.accept(new, most))
        except NoAnswerInTime as error:
            self._wake_later()
            raise AcceptUncertain(str(error)) from error
        except asyncio.CancelledError:
            self._wake_later()
            raise
        finally:
            if reservation is not None:
                reservation.release()
        self._capacity.note(new.caller, accepted.used, accepted.own)
        answer = accepted.answer
        if isinstance(answer, Accepted) and not answer.is_duplicate:
            self._changed.set()
            self._lock.wake()
        return answer

    def _wake_later(self) -> None:
        """Wake whoever delivers, once all that was asked for is done: something may be due then."""
        if self._thread is not None:
            last: Job[DeliveryTable] = Job(lambda _: None, only_reads=True)
            last.done.add_done_callback(lambda _: self._lock.wake())
            self._thread.put(last)

    async def find_record(self, record: str) -> Delivery | None:
        """Return the delivery of an idempotency key's record, the open one or the newest."""
        return await self._ask(lambda table: table.find_record(record), only_reads=True)

    async def wait_for_end(self, delivery_id: str, seconds: float) -> ShownDelivery | None:
        """Return the delivery once it has ended or failed once; None: not within *seconds*."""
        loop = asyncio.get_running_loop()
        over = loop.time() + seconds
        while True:
            heard = loop.create_future()
            self._waiting.setdefault(delivery_id, set()).add(heard)
            try:
                progress = await self._ask(
                    lambda table: table.progress(delivery_id), only_reads=True
                )
                if progress is None:
                    return None
                state, tries = progress
                if (tries and state != DeliveryState.SENDING) or state in _ENDS:
                    found = await self.find(delivery_id)
                    return None if isinstance(found, Gone) else found
                left = over - loop.time()
                if left <= 0:
                    return None
                wait = left if self._lock.is_held else min(left, _POLL_EVERY)
                await asyncio.wait([heard], timeout=wait)
            finally:
                waiting = self._waiting[delivery_id]
                waiting.discard(heard)
                if not waiting:
                    del self._waiting[delivery_id]

    async def withdraw_letter(self, delivery_id: str) -> None:
        """Keep a delivery that failed as an ended one only: its client has the answer."""
        await self._change(lambda table: table.withdraw_letter(delivery_id))

    # To deliver.

    @property
    def delivers(self) -> bool:
        """Whether this process holds the lock."""
        return self._lock.is_held

    async def lead(self) -> None:
        """Wait until this process holds the lock."""
        await self._lock.acquire()

    async def wait_for_work(self, seconds: float) -> bool:
        """Wait for a delivery that became due by a person or by acceptance."""
        if not self._lock.can_wake:
            seconds = min(seconds, _WITHOUT_BELL)
        try:
            async with asyncio.timeout(seconds):
                await self._work.wait()
        except TimeoutError:
            return not self._lock.can_wake  # if nobody can say so, there may be work
        self._work.clear()
        return True

    async def recover(
        self, decide: Callable[[Delivery], Abandoned], limit: int = 200
    ) -> Sequence[Delivery]:
        """End the tries of dead owners, as *decide* says; empty: there are no more."""
        while True:
            found = await self._ask(lambda table: table.abandoned(limit), only_reads=True)
            if not found:
                return []
            decided = [(delivery, decide(delivery)) for delivery in found]
            recovered = await self._change(partial(DeliveryTable.recover, decided=decided))
            for delivery in recovered:
                self._tell(delivery)
            if recovered:
                return recovered  # otherwise another process was faster

    async def take(self, route: str, limit: int, urls: Sequence[str] = ()) -> TakenBatch:
        """Take up to *limit* deliveries that are due; they are ``sending`` on disk."""
        return await self._take(lambda table, ticket: table.take(route, limit, urls, ticket))

    async def take_one(self, delivery_id: str, urls: Sequence[str] = ()) -> Taken | None:
        """Take one that is open, due or not; None: it cannot be taken."""
        return await self._take(lambda table, ticket: table.take_one(delivery_id, urls, ticket))

    async def _take(self, work: Callable[[DeliveryTable, str], _T]) -> _T:
        ticket = new_owner_token()
        try:
            return await self._change(lambda table: work(table, ticket))
        except (StoreError, asyncio.CancelledError):
            if self._thread is not None:
                # They may be marked, and nobody has them: only this process may say so.
                undo: Job[DeliveryTable] = Job(
                    lambda table: table.undo_take(ticket), only_reads=False, gives_back=True
                )
                self._thread.put(undo)
            raise

    async def candidates(
        self, route: str, *, not_tried_for: float, after: str = "", limit: int = 50
    ) -> DeliveryPage:
        """Return the oldest that are open, not sending, and not tried for so many seconds."""
        return await self._ask(
            lambda table: table.candidates(route, not_tried_for, after, limit), only_reads=True
        )

    async def give_back(
        self, taken: Delivery, *, delay: float = 0.0, deferred: DeferralReason | None = None
    ) -> Outcome:
        """End a try of which nothing was sent: no attempt is counted."""
        return await self._change(lambda table: table.give_back(taken, delay, deferred))

    async def settle(
        self, taken: Delivery, settlement: Settlement, run: DeliveryRun | None
    ) -> Outcome:
        """End a try. If this fails it can be repeated: what was written is found."""
        settled = await self._change(lambda table: table.settle(taken, settlement, run))
        if isinstance(settled, Delivery):
            self._tell(settled)
        return settled

    async def forgive(self, delivery_ids: Sequence[str]) -> None:
        """Give an attempt back to those that are to be retried, once for each time named."""
        await self._change(lambda table: table.forgive(delivery_ids))

    async def defer(self, route: str, reason: DeferralReason | None, seconds: float = 0.0) -> None:
        """Note why what is due on a route is not sent, for so long at most."""
        await self._ask(lambda table: table.defer(route, reason, seconds))

    async def give_up(self, limit: int = 200) -> Sequence[Delivery]:
        """Fail those whose time is over; empty: there are no more."""
        if not await self._ask(DeliveryTable.has_overdue, only_reads=True):
            return []
        ended = await self._change(lambda table: table.give_up(limit))
        for delivery in ended:
            self._tell(delivery)
        return ended

    async def expire(self) -> Mapping[str, int]:
        """Forget some that ended; return those that had failed, by route."""
        most = self._capacity.most
        gone: dict[str, int] = {}
        has_more = True
        while has_more:
            some, has_more = await self._change(lambda table: self._expire(table, most))
            for route, count in some.items():
                gone[route] = gone.get(route, 0) + count
        return gone

    def _expire(self, table: DeliveryTable, most: CapacityUse) -> tuple[dict[str, int], bool]:
        # What was wiped is still in the log: that is emptied with what the file gives back.
        self._reserve.file_is_to_shrink = table.has_wiped
        table.has_wiped = False
        return table.expire(most)

    # To see and to touch.

    async def find(self, delivery_id: str) -> ShownDelivery | Gone:
        """Return all of a delivery but its body."""
        return await self._ask(lambda table: table.find(delivery_id), only_reads=True)

    async def page(
        self,
        *,
        route: str | None = None,
        state: DeliveryState | None = None,
        reason: str | None = None,
        after: str = "",
        limit: int = 100,
        newest: bool = False,
    ) -> DeliveryPage:
        """Return some deliveries, in the order of their acceptance."""
        return await self._ask(
            lambda table: table.page(route, state, reason, after, limit, newest=newest),
            only_reads=True,
            is_large=True,
        )

    async def cancel(self, delivery_id: str) -> Outcome:
        """End a delivery that is not being sent."""
        cancelled = await self._change(lambda table: table.cancel(delivery_id))
        if isinstance(cancelled, Delivery):
            self._tell(cancelled)
        return cancelled

    async def retry(self, seen: Delivery, *, repeatable: bool, force: bool = False) -> Outcome:
        """Make a delivery due now, or start a failed one anew under its key."""
        again = await self._change(
            lambda table: table.retry(seen, repeatable=repeatable, force=force)
        )
        if isinstance(again, Delivery):
            self._lock.wake()
        return again

    # In between.

    def _tell(self, delivery: Delivery) -> None:
        """Wake whoever waits for the end of a delivery."""
        for waiting in self._waiting.get(delivery.id, ()):
            if not waiting.done():
                waiting.set_result(None)

    async def _change(self, work: Callable[[DeliveryTable], _T]) -> _T:
        """Return the result of *work*, which may use the reserve: it leads to what frees space."""
        result = await self._ask(work, gives_back=True)
        self._changed.set()
        return result

    async def _ask(
        self,
        work: Callable[[DeliveryTable], _T],
        *,
        only_reads: bool = False,
        is_large: bool = False,
        gives_back: bool = False,
    ) -> _T:
        """Return the result of *work*; log it if the file begins or ceases to fail."""
        if self._thread is None:
            raise StoreError("the file of the deliveries is closed")
        job: Job[DeliveryTable] = Job(
            work, only_reads=only_reads, is_large=is_large, gives_back=gives_back
        )
        try:
            result = await self._thread.run(job, self._patience)
        except StoreError as error:
            self._note(error)
            raise
        if not only_reads or not self._is_failing:
            self._note(None)
        return cast("_T", result)

    def _note(self, error: StoreError | None) -> None:
        """Log it when the file begins to fail, and when that is over: when it can be written."""
        is_failing = isinstance(error, FileFailure)
        if is_failing and not self._is_failing:
            full = " because the disk is full" if isinstance(error, DiskFull) else ""
            _log.warning("no delivery can be kept in %s%s (%s)", self._path, full, error)
        elif self._is_failing and not is_failing:
            _log.info("deliveries can be kept in %s again", self._path)
        self._is_failing = is_failing

    async def _count(self) -> None:
        counted = await self._ask(DeliveryTable.counts, only_reads=True)
        self._counts, self._capacity.used = counted.routes, counted.used
        self.counted = self._clock.monotonic()

    async def _keep_looking(self) -> None:
        """Count again after each change, and now and then for those of other processes."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_IF_DOWN if self._is_failing else _LOOK_EVERY):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            await asyncio.sleep(_LOOK_SOON)
            try:
                if self._is_failing:
                    # Nothing is accepted now, so that nothing else would find out.
                    await self._ask(DeliveryTable.write)
                await self._count()
            except StoreError:
                continue


_ENDS = frozenset({DeliveryState.DELIVERED, DeliveryState.FAILED, DeliveryState.CANCELLED})


def has_open_deliveries(path: str) -> bool:
    """Say whether the file at *path* has deliveries that are not over."""
    if not Path(path).is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as db:
            open_states = ", ".join(f"'{state}'" for state in OPEN)
            query = f"SELECT 1 FROM deliveries WHERE state IN ({open_states}) LIMIT 1"  # noqa: S608 - our own words
            return db.execute(query).fetchone() is not None
    except sqlite3.Error:
        return False  # an older format, or damaged: whoever needs the file says so
