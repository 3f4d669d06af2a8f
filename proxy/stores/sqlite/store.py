"""Idempotency keys in a file, as the rest of the house sees them."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TypeVar, cast

from proxy.core.clock import Clock
from proxy.core.recorders import StoreRecorder
from proxy.policy.idempotency.record import Claim, ClaimAnswer, Claimed, Ending, Shown
from proxy.policy.settings import SqliteSettings
from proxy.stores import LARGE, PATIENCE, StoreError, caller_share_name
from proxy.stores.sqlite.table import LAYOUT, KeyTable, boot_id
from proxy.stores.sqlite_file.opening import open_file
from proxy.stores.sqlite_file.thread import FileFailure, FileThread, Job

_log = logging.getLogger("holdfast")

OPERATIONS = ("claim", "fetch", "settle", "renew", "admin", "watch", "sweep")
"""What is asked of the store, for metrics: each is counted and timed under one of these."""

_LOCK_SHARE = 0.75
"""Of the time that a command has, for waiting until other processes are done with the file."""
_POLL_EVERY = 0.1
"""Seconds between two looks for keys that are not busy any more."""
_SWEEP_EVERY = 60.0
_SWEEP_ON = 0.05
"""Seconds between two lots of expired records, where there are many."""
_CLOSE_WITHIN = 5.0
_FETCHES_AT_ONCE = 8
"""Large results that are read, and in memory, at the same time."""
_REMEMBERED = 1000
"""Keys that were last found busy: who is told so may watch them."""

_T = TypeVar("_T")


class SqliteStore:
    """Has the record of every key, and shares them with the processes of this machine."""

    at_once = None
    """Nothing is done here without waiting."""

    def __init__(self, settings: SqliteSettings, clock: Clock, recorder: StoreRecorder) -> None:
        self._settings = settings
        self._clock = clock
        self._recorder = recorder
        self._thread: FileThread[KeyTable] | None = None
        self._reader: FileThread[KeyTable] | None = None
        """Fetches large results, and keeps nobody else waiting."""
        self._patience = max(PATIENCE, 2 * settings.timeout)
        self._turns = asyncio.Semaphore(_FETCHES_AT_ONCE)
        self._watched: dict[str, _Watched] = {}
        self._busy: OrderedDict[str, str] = OrderedDict()
        """Who had a key when somebody was last told that it is busy."""
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
        """Open the file. Raises StoreError with what to do about it if that cannot be done."""
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
        """Finish what was asked for, and leave nothing behind: no thread, no task, no file."""
        for task in (self._polling, self._sweeping):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._polling = self._sweeping = None
        self._watched.clear()
        # One after the other: who closes last puts everything into the file itself.
        threads = (self._reader, self._thread)
        self._reader = self._thread = None
        closed = [await thread.close(_CLOSE_WITHIN) for thread in threads if thread is not None]
        if not all(closed):
            _log.warning("the store at %s does not answer: it is left open", self._settings.path)

    # What is asked of it.

    async def claim(self, ask: Claim) -> Claimed:
        """Get a key, or hear why not. Who does not hear, for whatever reason, has not got it."""
        ask = ask._replace(caller=caller_share_name(ask.caller))
        try:
            claimed = await self._ask("claim", lambda table: table.claim(ask), may_be_void=True)
        except (StoreError, asyncio.CancelledError):
            if self._thread is not None:
                free = Ending(None, 0.0)
                undo: Job[KeyTable] = Job(
                    lambda table: table.settle(ask.name, ask.owner, free), only_reads=False
                )
                self._thread.put(undo)  # it may have begun, and nobody would end it
            raise
        if claimed.answer is ClaimAnswer.BUSY:
            self._found_busy(ask.name, claimed.owner)
        return claimed

    async def settle(self, name: str, owner: str, ending: Ending) -> bool:
        """End what *owner* has begun; False if the key is not its own any more.

        Done even if it takes too long: what is known of a key is better late than lost.
        """
        if ending.caller:
            ending = ending._replace(caller=caller_share_name(ending.caller))
        is_large = len(ending.result) > LARGE
        return await self._ask(
            "settle", lambda table: table.settle(name, owner, ending), is_large=is_large
        )

    async def fetch(self, name: str, owner: str = "") -> bytes | None:
        """The result of a key, or what *owner* left behind; None if it is gone."""
        try:
            # In turns, or a crowd of them would be in memory at the same time.
            async with asyncio.timeout(self._patience), self._turns:
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
        """*owner* is still alive; False if the key is not its own any more."""
        return await self._ask(
            "renew", lambda table: table.renew(name, owner, lease, ttl), may_be_void=True
        )

    async def show(self, name: str) -> Shown | None:
        """What is known of a key; None if nothing is."""
        return await self._ask(
            "admin", lambda table: table.show(name), only_reads=True, may_be_void=True
        )

    async def drop(self, name: str) -> bool:
        """Forget a key; False if there is none, or somebody alive has it."""
        return await self._ask("admin", lambda table: table.drop(name), may_be_void=True)

    async def revoke(self, name: str) -> bool:
        """Take a key from the owner that has it, so that it is held; False if none alive has."""
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
        """The result of *work*, within the time that there is.

        *may_be_void*: it need not be done once nobody waits for it. What *is_large* gets more
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
            await asyncio.wait([job.told], timeout=within)
            if job.is_over:
                await job.told  # it was us who were late: the result is on its way
        finally:
            # Given up or cancelled: what has not begun is left out, if it may be.
            job.is_void = may_be_void and not job.is_over
        if not job.told.done():
            job.error = FileFailure(f"no answer within {within * 1000:.0f} ms")
        self._note(job.error)
        if job.error is not None:
            self._recorder.failed(operation)
            raise job.error
        self._recorder.operated(operation, self._clock.monotonic() - began)
        return cast("_T", job.result)

    def _note(self, error: StoreError | None) -> None:
        """Say so when the file begins to fail, and when that is over."""
        is_failing = isinstance(error, FileFailure)
        if is_failing and not self._is_failing:
            path = self._settings.path
            _log.warning("the store at %s is down (%s): on_store_error decides", path, error)
        elif self._is_failing and not is_failing:
            _log.info("the store at %s is back", self._settings.path)
        self._is_failing = is_failing

    # Keys that others set free.

    def watch(self, name: str, awake: Callable[[], None]) -> Callable[[], None]:
        """Call *awake* when the key may be busy no longer, until the result is called."""
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
        """Look after all keys that are watched, with one question, while there are any."""
        try:
            while True:
                await asyncio.sleep(_POLL_EVERY)
                names = list(self._watched)
                if not names:
                    return
                try:
                    busy = await self._ask("watch", partial(_busy, names), only_reads=True)
                except StoreError:
                    continue  # they have time limits of their own
                for name in names:
                    if (watched := self._watched.get(name)) is not None:
                        watched.see(busy.get(name, ""))
        finally:
            self._polling = None

    # What has expired.

    async def _keep_sweeping(self) -> None:
        while True:
            try:
                has_more = await self._ask("sweep", KeyTable.sweep)
            except StoreError:
                has_more = False  # it says so itself
            await asyncio.sleep(_SWEEP_ON if has_more else _SWEEP_EVERY)


def _busy(names: list[str], table: KeyTable) -> dict[str, str]:
    return table.busy(names)


class _Watched:
    """A key that somebody waits for."""

    __slots__ = ("_numbers", "_owner", "awake")

    def __init__(self, owner: str) -> None:
        """*owner* has it, as far as is known; empty: that is not known."""
        self._owner = owner
        self._numbers = count()
        self.awake: dict[int, Callable[[], None]] = {}

    def add(self, awake: Callable[[], None]) -> int:
        """Another one waits, under the number returned."""
        number = next(self._numbers)
        self.awake[number] = awake
        return number

    def see(self, owner: str) -> None:
        """*owner* has the key now; empty: nobody does.

        That another one has it means that the first has ended, and we were not looking.
        """
        before, self._owner = self._owner, owner
        if not owner or (before and before != owner):
            for awake in list(self.awake.values()):
                awake()
