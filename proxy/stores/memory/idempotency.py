"""Idempotency keys that this process remembers for as long as it lives.

Nothing here ever waits, so each method is one atomic step. Memory is bounded, in records
and in bytes, and three kinds of entries share it:

-   records in flight or held: never evicted, for their requests would run twice;
-   records that have ended: a result is evicted if another record or result needs its space, and
    leaves a marker behind, which says that the request has run; when only markers are left,
    those go;
-   outcomes of keys that were set free: for seconds only, for the requests that waited for them,
    and within a share of the bytes, so that a storm of failures leaves the rest alone.

Memory is shared by caller (``caller_usage.py``): the caller that uses most loses its oldest, and
one caller has at most half of the records that may not be evicted while others have any, and seven
eighths while it is alone. Where all of it is taken by records that must stay, new keys are refused.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable

from proxy.core.clock import Clock
from proxy.core.recorders import Meter
from proxy.policy.fair_share import FairShare, limit_for_one_caller
from proxy.policy.idempotency.record import (
    LEFT_FOR,
    LOOKED_AT,
    PAGE,
    YOURS,
    Claim,
    ClaimAnswer,
    Claimed,
    Ending,
    KeyFilter,
    KeyPage,
    KnownKeys,
    Record,
    RecordState,
    Shown,
    claim,
    is_owned,
    new_record,
    renew,
    revoke,
    settle,
    shown,
)
from proxy.policy.settings import MemorySettings
from proxy.stores.memory.caller_usage import CALLER_USAGE_BYTES, CallerUsage

_log = logging.getLogger("holdfast")

_DONE, _HELD = RecordState.DONE, RecordState.HELD  # speed: as in policy/idempotency/record.py

RECORD = 432
"""Bytes that a record takes besides its result, its name included: measured, on 64 bits."""
_TIDY_EVERY = 16
"""Claims after which expired records are looked for."""
_LOOKS = 2 * _TIDY_EVERY
"""Records that may be dropped then, of each queue: more than were added meanwhile."""
_AT_A_TIME, _NAMES_AT_A_TIME = 500, 10_000
"""Records, and names, that are looked at for an operator in one step of the event loop: each takes
about a millisecond."""
_SAMPLES = 1_000
"""Names by which the length of a page is estimated."""
_LOOK_AGAIN = 1.0
"""Seconds until expired records are looked for again among those held: it takes a while."""
_LEFT_SHARE = 0.25
"""Share of all bytes for outcomes that owners left behind."""
_RECORDS_SHARE = 0.75
"""Share of all bytes for records as such: beyond that the oldest of them go before results do, so
that there is space for some. With the usual bounds there are never so many."""


class MemoryIdempotencyStore:
    """Has the record of every key, and shares them with no other process."""

    def __init__(self, settings: MemorySettings, clock: Clock, meter: Meter) -> None:
        """*meter* counts each result, and each record, that is evicted before its time."""
        self._settings = settings
        self._clock = clock
        self._meter = meter
        self._open: dict[str, Record] = {}
        """Records in flight or held, by name."""
        self._ended: dict[str, Record] = {}
        """Records that may be evicted, by name."""
        self._queues: dict[float, deque[str]] = {}
        """Names of the ended records by how long they are kept: in each queue the first one is the
        oldest, and the next one to expire. Some may be gone."""
        self._usage: dict[str, CallerUsage] = {}
        """By caller, for those that have any record."""
        self._count = 0
        """Records, of all callers together."""
        self._entries = settings.entries
        self._bytes = settings.bytes
        self._fits_below = settings.bytes - RECORD - CALLER_USAGE_BYTES
        """Bytes in use up to which another record fits, whichever caller's it is."""
        capacity = min(settings.entries, settings.bytes // RECORD)
        self._half = max(capacity // 2, 1)
        """Records in flight or held that one caller may have beside others."""
        self._most_alone = limit_for_one_caller(capacity)
        """Records in flight or held that a caller may have alone: what is held stays for a day."""
        self._shares: tuple[FairShare[str], FairShare[str]] | None = None
        """How many bytes of results each caller has, and how many records of which some may be
        evicted. None until memory was first short, for it takes time to compute."""
        self._held = 0
        """Records whose outcome is not known."""
        self._says_held = False
        """Whether the log has a warning that these are many."""
        self._looked = 0.0
        """When expired records were last looked for among those held."""
        self._until_tidy = _TIDY_EVERY
        """Claims until expired records are looked for."""
        self._left: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        """Outcomes that owners left behind for those who waited, and until when; the oldest
        first."""
        self.used = 0
        """Bytes in use."""
        self._left_used = 0
        """Bytes of them that were left behind."""
        self._results_used = 0
        """Bytes of them that are results, which may be evicted."""

    @property
    def at_once(self) -> "MemoryIdempotencyStore":
        """Return the store itself: it never waits."""
        return self

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<memory, {len(self)} keys, {self.used} bytes>"

    # The operations of a store.

    async def claim(self, ask: Claim) -> Claimed:
        """Claim a key; the answer tells who has it otherwise."""
        return self.claim_at_once(ask)

    def claim_at_once(self, ask: Claim) -> Claimed:
        """Claim a key without waiting."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        name = ask.name
        self._until_tidy -= 1
        if not self._until_tidy:
            self._until_tidy = _TIDY_EVERY
            self._tidy(wall)
        if self._left:
            self._tidy_left(now)
            if ask.waited_for and (left := self._left.get(ask.waited_for)) is not None:
                return Claimed(ClaimAnswer.LEFT, result=left[1])
        opened = self._open
        if name in opened or name in self._ended:
            before = opened.get(name) or self._ended[name]
            after, claimed = claim(before, ask, now=now, wall=wall)
            if claimed.answer is not ClaimAnswer.NEW:
                if after is not before:
                    opened[name] = after  # a request waits for it
                return claimed
            self._forget(name)  # it has expired, or its owner's lease has
        else:
            # speed: same as claim() without a record, held by
            # tests/policy/idempotency/test_record.py; saves a call for each new key
            after = new_record(ask, now=now, wall=wall)
        caller, usages = ask.caller, self._usage
        is_new = caller not in usages
        usage = CallerUsage(caller) if is_new else usages[caller]
        if (
            self.used > self._fits_below or self._count >= self._entries or usage.open >= self._half
        ) and not self._has_space(usage, now, wall):
            return Claimed(ClaimAnswer.FULL)
        if is_new:
            usages[caller] = usage
            self.used += CALLER_USAGE_BYTES
        opened[name] = after
        usage.open += 1
        self._count += 1
        self.used += RECORD
        if self._shares is not None:
            self._rank(usage)
        return YOURS

    async def fetch(self, name: str, owner: str = "") -> bytes | None:
        """Return the result of a key, or what *owner* left behind. A claim has it here already."""
        if owner:
            left = self._left.get(owner)
            return None if left is None else left[1]
        record = self._find(name)
        return None if record is None or record.state is not RecordState.DONE else record.result

    async def settle(self, name: str, owner: str, ending: Ending) -> bool:
        """Finish what *owner* has begun; False if the key is not its own any more."""
        return self.settle_at_once(name, owner, ending)

    def settle_at_once(self, name: str, owner: str, ending: Ending) -> bool:
        """Finish what *owner* has begun, without waiting."""
        wall = self._clock.wall()
        record = self._open.get(name)
        if record is None or record.owner != owner:
            return False  # a record that is held or has ended has no owner
        if record.expires <= wall and not record.is_leased(self._clock.monotonic()):
            return False
        after, caller, state = settle(record, ending, wall=wall), record.caller, ending.state
        if after is None:
            self._forget(name)
        elif state is _HELD:
            if after.caller != caller:
                self._move(self._usage[caller], after.caller)
            self._open[name] = after
            self._hold()
        else:
            self._end(name, caller, after, ending.ttl, wall)
        if record.waits and state is not _DONE and ending.result:
            self._leave(owner, ending.result, wall)
        return True

    async def renew(self, name: str, owner: str, lease: float, ttl: float) -> bool:
        """Renew the lease of *owner*; False if the key is not its own any more."""
        record = self._find(name)
        if record is None or not is_owned(record, owner):
            return False
        now, wall = self._clock.monotonic(), self._clock.wall()
        self._open[name] = renew(record, lease, ttl, now=now, wall=wall)
        return True

    def watch(
        self,
        name: str,  # noqa: ARG002 - no other process could change it
        awake: Callable[[], None],  # noqa: ARG002 - as above
    ) -> Callable[[], None]:
        """Do nothing: no other process can change a record here."""
        return _nothing

    async def show(self, name: str) -> Shown | None:
        """Return a key's record for an operator; None if there is none."""
        record = self._find(name)
        return None if record is None else shown(record, now=self._clock.monotonic())

    async def page(self, wanted: KeyFilter, after: str) -> KeyPage | None:
        """Return records for an operator, in the order of their names, from *after*."""
        names = [*self._open]
        # A record in flight may be shown as held; none that is open is shown as ended.
        if not wanted.states <= {RecordState.IN_FLIGHT, RecordState.HELD}:
            names += self._ended
        last = _last_to_look_at(names, after)
        chosen: list[str] = []
        for start in range(0, len(names), _NAMES_AT_A_TIME):
            part = names[start : start + _NAMES_AT_A_TIME]
            chosen += [name for name in part if name > after and (not last or name <= last)]
            await asyncio.sleep(0)  # requests go on meanwhile
        found: list[tuple[str, Shown]] = []
        for number, name in enumerate(sorted(chosen)):
            if not number % _AT_A_TIME:
                await asyncio.sleep(0)
            if (record := await self.show(name)) is not None and wanted.accepts(record):
                found.append((name, record))
            if len(found) == PAGE:
                return KeyPage(tuple(found), name)
        return KeyPage(tuple(found), last)

    async def drop(self, name: str) -> bool:
        """Forget a key; False if there is none, or its owner is alive."""
        record = self._find(name)
        if record is None or record.is_leased(self._clock.monotonic()):
            return False
        self._forget(name)
        return True

    async def revoke(self, name: str) -> bool:
        """Take a key from its owner, so that it is held; False if no owner that is alive has it."""
        record = self._find(name)
        if record is None or not record.is_leased(self._clock.monotonic()):
            return False
        self._open[name] = revoke(record)
        self._hold()
        return True

    # Records, and what they take.

    def _find(self, name: str) -> Record | None:
        record = self._open.get(name) or self._ended.get(name)
        now, wall = self._clock.monotonic(), self._clock.wall()
        return None if record is None or record.has_expired(now=now, wall=wall) else record

    def _end(self, name: str, caller: str, after: Record, ttl: float, wall: float) -> None:
        """Keep a record of *caller*'s whose request has run: it may be evicted from now on.

        Where memory is short, its result goes first.
        """
        usage = self._usage[caller]
        if after.caller != caller:
            usage = self._move(usage, after.caller)
        size = len(after.result)
        if self.used + size > self._bytes and not self._has_result_space(size, wall):
            # That it has run must not be forgotten, even if its result does not fit.
            after, size = after._replace(state=RecordState.UNSTORED, result=b""), 0
        del self._open[name]
        self._ended[name] = after
        usage.open -= 1
        usage.ended += 1
        if size:
            usage.results.names.append(name)
            usage.bytes += size
            self._results_used += size
            self.used += size
        else:
            usage.markers.names.append(name)
        queues = self._queues
        if ttl not in queues:
            queues[ttl] = deque()
        queues[ttl].append(name)
        if self._shares is not None:
            self._rank(usage)

    def _move(self, usage: CallerUsage, caller: str) -> CallerUsage:
        """Move an open record from *usage* to *caller*, whose usage is returned."""
        usage.open -= 1
        self._settle_usage(usage)
        other = self._usage.get(caller)
        if other is None:
            other = self._usage[caller] = CallerUsage(caller)
            self.used += CALLER_USAGE_BYTES
        other.open += 1
        return other

    def _hold(self) -> None:
        """Count one more held record; warn once if half of all are: one caller can have as many."""
        self._held += 1
        if self._held >= self._half and not self._says_held:
            self._says_held = True
            _log.warning(
                "half of the space for idempotency keys is held by requests that may have run (%d "
                "of at most %d): find out whether those of `holdfast keys list` did, and release "
                "them with `holdfast keys release`",
                self._held,
                2 * self._half,
            )

    def _leave(self, owner: str, result: bytes, wall: float) -> None:
        """Keep *result* for the requests that waited for *owner*, if there is space."""
        if owner in self._left:
            self._clear(owner)
        size = RECORD + len(result)
        most = self._settings.bytes * _LEFT_SHARE
        while self._left and self._left_used + size > most:
            self._clear(next(iter(self._left)))
        if size <= most and (
            self.used + size <= self._settings.bytes or self._has_result_space(size, wall)
        ):
            self._left[owner] = (self._clock.monotonic() + LEFT_FOR, result)
            self.used += size
            self._left_used += size

    def _clear(self, owner: str) -> None:
        """Drop the outcome that *owner* left behind."""
        _, result = self._left.pop(owner)
        size = RECORD + len(result)
        self.used -= size
        self._left_used -= size

    def _forget(self, name: str) -> None:
        record = self._open.pop(name, None)
        is_open = record is not None
        if record is None:
            record = self._ended.pop(name)
        usage, size = self._usage[record.caller], len(record.result)
        self.used -= RECORD + size
        self._count -= 1
        if is_open:
            usage.open -= 1
            if record.state is RecordState.HELD:
                self._held -= 1
                self._says_held = self._says_held and self._held > self._half // 2
        else:
            usage.ended -= 1
            usage.bytes -= size
            self._results_used -= size
        self._settle_usage(usage)

    def _settle_usage(self, usage: CallerUsage) -> None:
        """Update what depends on *usage*, which has less than before; drop it once it is empty."""
        if self._shares is not None:
            self._rank(usage)
        if not usage.open and not usage.ended:
            del self._usage[usage.caller]
            self.used -= CALLER_USAGE_BYTES
        elif usage.is_untidy:
            usage.results.clear_up(lambda name: self._is_of(usage, name, with_result=True))
            usage.markers.clear_up(lambda name: self._is_of(usage, name, with_result=False))

    def _is_of(self, usage: CallerUsage, name: str, *, with_result: bool) -> bool:
        record = self._ended.get(name)
        if record is None or record.caller != usage.caller:
            return False
        return bool(record.result) is with_result

    # Eviction.

    def known(self) -> KnownKeys:
        """Return how many keys are remembered, and how far back."""
        created = []
        for queue in self._queues.values():
            while queue and queue[0] not in self._ended:
                queue.popleft()
            if queue:
                created.append(self._ended[queue[0]].created)
        oldest = max(self._clock.wall() - min(created), 0.0) if created else None
        return KnownKeys(self._count, self._held, oldest)

    def _has_space(self, usage: CallerUsage, now: float, wall: float) -> bool:
        """Tell whether *usage* may have one more record, if need be after others were evicted."""
        if self._make_space(usage, wall):
            return True
        if now - self._looked < _LOOK_AGAIN:
            return False
        self._looked = now
        self._tidy_open(wall)
        return self._make_space(usage, wall)

    def _make_space(self, usage: CallerUsage, wall: float) -> bool:
        """Evict until one more record fits; evict nothing and return False if it never will."""
        most = self._settings
        if usage.open >= self._half and self._count > usage.records:
            return False  # others have records, and shall find space for more
        if usage.open >= self._most_alone:
            return False  # others may come
        size = RECORD if usage.caller in self._usage else RECORD + CALLER_USAGE_BYTES
        spare = self._results_used + len(self._ended) * RECORD
        if len(self._open) >= most.entries or self.used - spare + size > most.bytes:
            return False
        while self.used + size > most.bytes:
            self._evict(size, wall)
        while self._count >= most.entries:
            self._evict_record(wall)
        return True

    def _has_result_space(self, size: int, wall: float) -> bool:
        """Make space for a result by evicting others; markers only if there are too many."""
        most = self._settings.bytes
        spare = min(max(self._too_many_records(0), 0), len(self._ended) * RECORD)
        if self.used - self._results_used - spare + size > most:
            return False
        while self.used + size > most:
            self._evict(0, wall)
        return True

    def _too_many_records(self, more: int) -> int:
        """Return the bytes that records take beyond their share, with *more* of them."""
        records = self.used - self._results_used - self._left_used
        return records + more - int(self._settings.bytes * _RECORDS_SHARE)

    def _evict(self, more: int, wall: float) -> None:
        """Evict a result, or a record if there is none or if records take too much."""
        if self._results_used and not (self._ended and self._too_many_records(more) > 0):
            self._evict_result(wall)
        else:
            self._evict_record(wall)

    def _evict_result(self, wall: float) -> None:
        """Evict the oldest result of the caller that has most bytes of them; its marker stays."""
        usage = self._usage[self._largest(0)]
        name = usage.results.take_oldest(lambda name: self._is_of(usage, name, with_result=True))
        assert name is not None  # noqa: S101 - it has bytes, so it has results
        record = self._ended[name]
        if record.expires <= wall:
            self._forget(name)
            return
        self._meter.count("holdfast_store_evictions_total")
        size = len(record.result)
        self._ended[name] = record._replace(state=RecordState.UNSTORED, result=b"")
        usage.markers.names.append(name)
        usage.bytes -= size
        self._results_used -= size
        self.used -= size
        self._rank(usage)

    def _evict_record(self, wall: float) -> None:
        """Evict the oldest marker, or else the oldest key, of the caller that has most records."""
        usage = self._usage[self._largest(1)]
        name = usage.markers.take_oldest(lambda name: self._is_of(usage, name, with_result=False))
        if name is None:
            name = usage.results.take_oldest(
                lambda name: self._is_of(usage, name, with_result=True)
            )
        assert name is not None  # noqa: S101 - who is asked has something to give up
        if self._ended[name].expires > wall:
            self._meter.count("holdfast_store_evictions_total")
        self._forget(name)

    def _largest(self, which: int) -> str:
        """Return the caller that has most: 0, bytes of results; 1, records that may be evicted."""
        if self._shares is None:
            self._shares = (FairShare(), FairShare())
            for usage in self._usage.values():
                self._rank(usage)
        caller = self._shares[which].largest()
        assert caller is not None  # noqa: S101 - it was seen before that there is something
        return caller

    def _rank(self, usage: CallerUsage) -> None:
        """Update the ranking with what *usage* has now."""
        assert self._shares is not None  # noqa: S101 - for the type checker
        wants = (usage.bytes, usage.records if usage.ended else 0)
        for share, amount in zip(self._shares, wants, strict=True):
            change = amount - share.used_by(usage.caller)
            if change > 0:
                share.add(usage.caller, change)
            elif change < 0:
                share.give_back(usage.caller, -change)

    def _tidy(self, wall: float) -> None:
        """Drop expired records, a few at a time: no request waits for a long clean-up."""
        most = self._settings
        if self.used < most.bytes // 2 and self._count < most.entries // 2:
            self._shares = None
        for ttl, queue in self._queues.items():
            if len(queue) > 2 * len(self._ended) + _LOOKS:
                last = reversed(dict.fromkeys(reversed(queue)))
                queue = self._queues[ttl] = deque(name for name in last if name in self._ended)  # noqa: PLW2901 - the same, without what is gone
            for _ in range(min(_LOOKS, len(queue))):
                record = self._ended.get(queue[0])
                if record is not None and record.expires > wall:
                    break
                name = queue.popleft()
                if record is not None:
                    self._forget(name)

    def _tidy_left(self, now: float) -> None:
        """Drop outcomes that no request has fetched in time; the oldest is first."""
        while self._left:
            owner, (until, _) = next(iter(self._left.items()))
            if now < until:
                break
            self._clear(owner)

    def _tidy_open(self, wall: float) -> None:
        """Drop expired records that were held, or left in flight. Only where memory is short."""
        now = self._clock.monotonic()
        expired = [
            name for name, record in self._open.items() if record.has_expired(now=now, wall=wall)
        ]
        for name in expired:
            self._forget(name)


def _last_to_look_at(names: list[str], after: str) -> str:
    """Return a name so that about as many follow *after* up to it as a page looks at.

    Empty: all that follow.
    """
    step = max(len(names) // _SAMPLES, 1)
    following = sorted(name for name in names[::step] if name > after)
    count = LOOKED_AT // step
    return following[count] if count < len(following) else ""


def _nothing() -> None:
    pass
