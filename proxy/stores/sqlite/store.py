"""The asynchronous interface to the idempotency keys in a file."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TypeVar, cast

from proxy.core.clock import Clock
from proxy.core.recorders import StoreMeter, StoreRecorder
from proxy.policy.idempotency.record import (
    Claim,
    ClaimAnswer,
    Claimed,
    Ending,
    KeyFilter,
    KeyPage,
    Shown,
)
from proxy.policy.settings.store import SqliteSettings
from proxy.stores import LARGE, PATIENCE, OpenedStore, StoreError, caller_share_name
from proxy.stores.memory import MemoryLimiterStore
from proxy.stores.sqlite.table import LAYOUT, KeyTable, boot_id
from proxy.stores.sqlite_file.opening import open_file
from proxy.stores.sqlite_file.thread import FileFailure, FileThread, Job

_log = logging.getLogger("holdfast")

OPERATIONS = ("claim", "fetch", "settle", "renew", "admin", "watch", "sweep")
"""The store's operations, for metrics: each is counted and timed under one of these."""

_LOCK_SHARE = 0.75
"""Share of the time that a command has, for waiting until other processes are done with the
file."""
_POLL_EVERY = 0.1
"""Seconds between two looks for keys that are not busy any more."""
_SWEEP_EVERY = 60.0
_SWEEP_ON = 0.05
"""Seconds between two batches of expired records, where there are many."""
_CLOSE_WITHIN = 5.0
_FETCHES_AT_ONCE = 8
"""Large results that are read, and in memory, at the same time."""
_REMEMBERED = 1000
"""Keys that were last found busy: a request that is told so may watch them."""

_T = TypeVar("_T")


class SqliteStore:
    """Has the record of every key, and shares them with the processes of this machine."""

    at_once = None
    """None: every operation waits for the file."""

    def __init__(self, settings: SqliteSettings, clock: Clock, recorder: StoreRecorder) -> None:
        self._settings = settings
        self._clock = clock
        self._recorder = recorder
        self._thread: FileThread[KeyTable] | None = None
        self._reader: FileThread[KeyTable] | None = None
        """Fetches large results, so that no other command waits for them."""
        self._patience = max(PATIENCE, 2 * settings.timeout)
        self._slots = asyncio.Semaphore(_FETCHES_AT_ONCE)
        self._watched: dict[str, _Watched] = {}
        self._busy: OrderedDict[str, str] = OrderedDict()
        """The owner of a key when a request was last told that it is busy."""
        self._polling: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._is_failing = False

    def __repr__(self) -> str:
        return f"<store, {self._settings.path}, {self.state}, {len(self._watched)} watched>"

    @property
    def state(self) -> str:
        """``up`` or ``down``: how the last command went."""
        return "down" if self._thread is None or self._is_failing else "up"

    async def start(self) -> None:
        """Open the file. Raises StoreError, with a suggestion in its text, if it cannot."""
        thread = self._new_thread()
        await thread.start()
        self._thread = thread
        reader = self._new_thread()
        try:
            await reader.start()
        except BaseException:
            await self.close()
            raise
        self._reader = reader
        self._sweeping = asyncio.create_task(self._keep_sweeping(), name="store sweep")

    def _new_thread(self) -> FileThread[KeyTable]:
        settings = self._settings
        return FileThread(
            partial(open_file, settings.path, settings.timeout * _LOCK_SHARE, LAYOUT),
            lambda db: KeyTable(db, self._clock, boot_id(), settings.bytes),
        )

    async def close(self) -> None:
        """Finish what was requested, and leave nothing behind: no thread, no task, no file."""
        for task in (self._polling, self._sweeping):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._polling = self._sweeping = None
        self._watched.clear()
        # One after the other: the last one to close moves the log into the file.
        threads = (self._reader, self._thread)
        self._reader = self._thread = None
        closed = [await thread.close(_CLOSE_WITHIN) for thread in threads if thread is not None]
        if not all(closed):
            _log.warning("the store at %s does not answer: it is left open", self._settings.path)

    # The operations of a store.

    async def claim(self, ask: Claim) -> Claimed:
        """Claim a key. If the answer does not arrive, for whatever reason, the claim is undone."""
        ask = ask._replace(caller=caller_share_name(ask.caller))
        try:
            claimed = await self._ask("claim", lambda table: table.claim(ask), may_be_void=True)
        except (StoreError, asyncio.CancelledError):
            if self._thread is not None:
                free = Ending(None, 0.0)
                undo: Job[KeyTable] = Job(
                    lambda table: table.settle(ask.name, ask.owner, free), only_reads=False
                )
                self._thread.put(undo)  # it may have begun, and no owner would end it
            raise
        if claimed.answer is ClaimAnswer.BUSY:
            self._found_busy(ask.name, claimed.owner)
        return claimed

    async def settle(self, name: str, owner: str, ending: Ending) -> bool:
        """Finish what *owner* has begun; False if the key is not its own any more.

        The change is made even if it takes too long: a record is better late than lost.
        """
        if ending.caller:
            ending = ending._replace(caller=caller_share_name(ending.caller))
        is_large = len(ending.result) > LARGE
        return await self._ask(
            "settle", lambda table: table.settle(name, owner, ending), is_large=is_large
        )

    async def fetch(self, name: str, owner: str = "") -> bytes | None:
        """Return the result of a key, or what *owner* left behind; None if it is gone."""
        try:
            # Only some at a time, or a crowd of them would be in memory at the same time.
            async with asyncio.timeout(self._patience), self._slots:
                return await self._ask(
                    "fetch",
                    lambda table: table.result(name, owner),
                    only_reads=True,
                    may_be_void=True,
                    is_large=True,
                )
        except TimeoutError:
            self._recorder.failed("fetch")
            raise StoreError(f"no answer within {self._patience:.0f} s") from None

    async def renew(self, name: str, owner: str, lease: float, ttl: float) -> bool:
        """Renew the lease of *owner*; False if the key is not its own any more."""
        return await self._ask(
            "renew", lambda table: table.renew(name, owner, lease, ttl), may_be_void=True
        )

    async def show(self, name: str) -> Shown | None:
        """Return a key's record for an operator; None if there is none."""
        return await self._ask(
            "admin", lambda table: table.show(name), only_reads=True, may_be_void=True
        )

    async def page(self, wanted: KeyFilter, after: str) -> KeyPage | None:
        """Return records for an operator, in the order of their names, from *after*."""
        return await self._ask(
            "admin",
            lambda table: table.page(wanted, after),
            only_reads=True,
            may_be_void=True,
            is_large=True,  # it may take a while, and delays no claim
        )

    async def drop(self, name: str) -> bool:
        """Forget a key; False if there is none, or its owner is alive."""
        return await self._ask("admin", lambda table: table.drop(name), may_be_void=True)

    async def revoke(self, name: str) -> bool:
        """Take a key from its owner, so that it is held; False if no owner that is alive has it."""
        return await self._ask("admin", lambda table: table.revoke(name), may_be_void=True)

    async def _ask(
        self,
        operation: str,
        work: Callable[[KeyTable], _T],
        *,
        only_reads: bool = False,
        may_be_void: bool = False,
        is_large: bool = False,
    ) -> _T:
        """Return the result of *work*, within the time that the operation has.

        *may_be_void*: it need not be done once no request waits for it. What *is_large* gets more
        time, and delays nothing else.
        """
        thread = self._reader if is_large and only_reads else self._thread
        if thread is None:
            raise StoreError("the store is closed")
        within = self._patience if is_large else self._settings.timeout
        began = self._clock.monotonic()
        job = Job(work, only_reads=only_reads, is_large=is_large)
        thread.put(job)
        try:
            await asyncio.wait([job.done], timeout=within)
            if job.is_over:
                await job.done  # the loop was late, not the file: the result is on its way
        finally:
            # Given up or cancelled: a job that has not begun is skipped, if it may be.
            job.is_void = may_be_void and not job.is_over
        if not job.done.done():
            job.error = FileFailure(f"no answer within {within * 1000:.0f} ms")
        self._note(job.error)
        if job.error is not None:
            self._recorder.failed(operation)
            raise job.error
        self._recorder.operated(operation, self._clock.monotonic() - began)
        return cast("_T", job.result)

    def _note(self, error: StoreError | None) -> None:
        """Log it when the file begins to fail, and when that is over."""
        is_failing = isinstance(error, FileFailure)
        if is_failing and not self._is_failing:
            path = self._settings.path
            _log.warning("the store at %s is down (%s): on_store_error decides", path, error)
        elif self._is_failing and not is_failing:
            _log.info("the store at %s is back", self._settings.path)
        self._is_failing = is_failing

    # Keys that other processes set free.

    def watch(self, name: str, awake: Callable[[], None]) -> Callable[[], None]:
        """Call *awake* when the key may be free, until the returned function is called."""
        watched = self._watched.get(name)
        if watched is None:
            watched = self._watched[name] = _Watched(self._busy.get(name, ""))
        number = watched.add(awake)
        if self._polling is None and self._thread is not None:
            self._polling = asyncio.create_task(self._poll(), name="store watch")

        def leave() -> None:
            watched.awake.pop(number, None)
            if not watched.awake and self._watched.get(name) is watched:
                del self._watched[name]

        return leave

    def _found_busy(self, name: str, owner: str) -> None:
        watched = self._watched.get(name)
        if watched is not None:
            watched.see(owner)
        self._busy[name] = owner
        self._busy.move_to_end(name)
        if len(self._busy) > _REMEMBERED:
            self._busy.popitem(last=False)

    async def _poll(self) -> None:
        """Look at all watched keys, with one query, while there are any."""
        try:
            while True:
                await asyncio.sleep(_POLL_EVERY)
                names = list(self._watched)
                if not names:
                    return
                try:
                    busy = await self._ask(
                        "watch", partial(KeyTable.busy, names=names), only_reads=True
                    )
                except StoreError:
                    continue  # the waiting requests have time limits of their own
                for name in names:
                    if (watched := self._watched.get(name)) is not None:
                        watched.see(busy.get(name, ""))
        finally:
            self._polling = None

    # Expired records.

    async def _keep_sweeping(self) -> None:
        while True:
            try:
                has_more = await self._ask("sweep", KeyTable.sweep)
            except StoreError:
                has_more = False  # the failure was logged already
            await asyncio.sleep(_SWEEP_ON if has_more else _SWEEP_EVERY)


class _Watched:
    """A key that requests wait for."""

    __slots__ = ("_numbers", "_owner", "awake")

    def __init__(self, owner: str) -> None:
        """Start with *owner*, the last one known; empty: it is not known."""
        self._owner = owner
        self._numbers = count()
        self.awake: dict[int, Callable[[], None]] = {}

    def add(self, awake: Callable[[], None]) -> int:
        """Add a waiting request; return its number."""
        number = next(self._numbers)
        self.awake[number] = awake
        return number

    def see(self, owner: str) -> None:
        """Wake the waiting requests if the key's *owner* has changed; empty: it has none.

        Another owner means that the first has ended between two looks.
        """
        before, self._owner = self._owner, owner
        if not owner or (before and before != owner):
            for awake in list(self.awake.values()):
                awake()


def open_sqlite(settings: SqliteSettings, clock: Clock, meter: StoreMeter) -> OpenedStore:
    """Make the store of a file: keys, shared by the processes of this machine.

    Limits are counted in memory.
    """
    recorder = meter.store(OPERATIONS)
    store = SqliteStore(settings, clock, recorder)
    return OpenedStore(MemoryLimiterStore(clock), store, store, recorder)
