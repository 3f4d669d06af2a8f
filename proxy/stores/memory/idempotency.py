"""Idempotency keys that this process remembers for as long as it lives.

Nothing here ever waits, so each method is one step. What it may take is bounded, in records
and in bytes, and three kinds of things share the room:

-   what is in flight or held: never given up, for it would run twice;
-   what has ended: a result is given up if another record or result needs its room, and leaves
    a marker behind, which says that the request has run; when only markers are left, those go;
-   how a key ended that was set free: for seconds only, for those who waited for it, and
    within a share of the room, so that a storm of failures leaves the rest alone.

The room is shared by caller (``rooms.py``): the caller that holds most gives up its oldest, and
one caller has at most half of what may not be given up while others have anything, and seven
eighths while it is alone. Where all of it is taken by what must stay, new keys are turned away.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable

from proxy.core.clock import Clock
from proxy.policy.fair_share import FairShare, limit_for_one_caller
from proxy.policy.idempotency.record import (
    LEFT_FOR,
    YOURS,
    Claim,
    ClaimAnswer,
    Claimed,
    Ending,
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

_DONE, _HELD = RecordState.DONE, RecordState.HELD  # speed: as records.py has it

RECORD = 432
"""Bytes that a record takes besides its result, its name included: measured, on 64 bits."""
_TIDY_EVERY = 16
"""Claims after which somebody looks for records that have had their time."""
_LOOKS = 2 * _TIDY_EVERY
"""Records that may go then, of each queue: more than were added meanwhile."""
_LOOK_AGAIN = 1.0
"""Seconds until it is looked again whether anything held has had its time: it takes a while."""
_LEFT_SHARE = 0.25
"""Of all bytes, for what was left behind."""
_RECORDS_SHARE = 0.75
"""Of all bytes, for records as such: beyond that the oldest of them go before results do, so that
there is room for some. With the usual bounds there are never so many."""


class MemoryIdempotencyStore:
    """Has the record of every key, and shares them with nobody."""

    def __init__(self, settings: MemorySettings, clock: Clock, evicted: Callable[[], None]) -> None:
        """*evicted* is called for each result, and each record, given up before its time."""
        self._settings = settings
        self._clock = clock
        self._evicted = evicted
        self._open: dict[str, Record] = {}
        """What is in flight or held, by name."""
        self._ended: dict[str, Record] = {}
        """What may be given up."""
        self._queues: dict[float, deque[str]] = {}
        """Names of those by how long they are kept: in each queue the first one is the oldest, and
        the next one to expire. Some may be gone."""
        self._rooms: dict[str, CallerUsage] = {}
        """By caller, for those who hold anything."""
        self._count = 0
        """Records, of all callers together."""
        self._entries = settings.entries
        self._bytes = settings.bytes
        self._roomy = settings.bytes - RECORD - CALLER_USAGE_BYTES
        """Bytes in use up to which another record fits, whoever's it is."""
        room = min(settings.entries, settings.bytes // RECORD)
        self._half = max(room // 2, 1)
        """Records in flight or held that one caller may have beside others."""
        self._most_alone = limit_for_one_caller(room)
        """Records in flight or held that a caller may have alone: what is held stays for a day."""
        self._shares: tuple[FairShare[str], FairShare[str]] | None = None
        """Who holds how many bytes of results, and how many records of which some may be given
        up. None until the room was first short, for it takes time to know."""
        self._held = 0
        """Records whose outcome nobody knows."""
        self._says_held = False
        """Whether it was said that these are many."""
        self._looked = 0.0
        """When it was last looked for those that have had their time."""
        self._until_tidy = _TIDY_EVERY
        """Claims until somebody looks for records that have had their time."""
        self._left: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        """What owners left behind for those who waited, and until when; the oldest first."""
        self.used = 0
        """Bytes in use."""
        self._left_used = 0
        """Those of them that were left behind."""
        self._results_used = 0
        """Those of them that are results, which may be given up."""

    @property
    def at_once(self) -> "MemoryIdempotencyStore":
        """Nobody has to wait for anything here."""
        return self

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<memory, {len(self)} keys, {self.used} bytes>"

    # What is asked of it.

    async def claim(self, ask: Claim) -> Claimed:
        """Get a key, or hear why not."""
        return self.claim_at_once(ask)

    def claim_at_once(self, ask: Claim) -> Claimed:
        """The same without waiting."""
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
                    opened[name] = after  # somebody waits for it
                return claimed
            self._forget(name)  # it has expired, or its owner has fallen silent
        else:
            after = new_record(ask, now=now, wall=wall)  # as above, in less time
        caller, rooms = ask.caller, self._rooms
        is_new = caller not in rooms
        room = CallerUsage(caller) if is_new else rooms[caller]
        if (
            self.used > self._roomy or self._count >= self._entries or room.open >= self._half
        ) and not self._has_room(room, now, wall):
            return Claimed(ClaimAnswer.FULL)
        if is_new:
            rooms[caller] = room
            self.used += CALLER_USAGE_BYTES
        opened[name] = after
        room.open += 1
        self._count += 1
        self.used += RECORD
        if self._shares is not None:
            self._rank(room)
        return YOURS

    async def fetch(self, name: str, owner: str = "") -> bytes | None:
        """The result of a key, or what *owner* left behind. A claim has told it here."""
        if owner:
            left = self._left.get(owner)
            return None if left is None else left[1]
        record = self._find(name)
        return None if record is None or record.state is not RecordState.DONE else record.result

    async def settle(self, name: str, owner: str, ending: Ending) -> bool:
        """End what *owner* has begun; False if the key is not its own any more."""
        return self.settle_at_once(name, owner, ending)

    def settle_at_once(self, name: str, owner: str, ending: Ending) -> bool:
        """The same without waiting."""
        wall = self._clock.wall()
        record = self._open.get(name)
        if record is None or record.owner != owner:
            return False  # who is held or has ended has no owner
        if record.expires <= wall and not record.holds(self._clock.monotonic()):
            return False
        after, caller, state = settle(record, ending, wall=wall), record.caller, ending.state
        if after is None:
            self._forget(name)
        elif state is _HELD:
            if after.caller != caller:
                self._move(self._rooms[caller], after.caller)
            self._open[name] = after
            self._hold()
        else:
            self._end(name, caller, after, ending.ttl, wall)
        if record.waits and state is not _DONE and ending.result:
            self._leave(owner, ending.result, wall)
        return True

    async def renew(self, name: str, owner: str, lease: float, ttl: float) -> bool:
        """*owner* is still alive; False if the key is not its own any more."""
        record = self._find(name)
        if record is None or not is_owned(record, owner):
            return False
        now, wall = self._clock.monotonic(), self._clock.wall()
        self._open[name] = renew(record, lease, ttl, now=now, wall=wall)
        return True

    def watch(
        self,
        name: str,  # noqa: ARG002 - nobody else could change it
        awake: Callable[[], None],  # noqa: ARG002 - as above
    ) -> Callable[[], None]:
        """Nothing changes here by another process's doing."""
        return _nothing

    async def show(self, name: str) -> Shown | None:
        """What is known of a key; None if nothing is."""
        record = self._find(name)
        return None if record is None else shown(record, now=self._clock.monotonic())

    async def drop(self, name: str) -> bool:
        """Forget a key; False if there is none, or somebody alive has it."""
        record = self._find(name)
        if record is None or record.holds(self._clock.monotonic()):
            return False
        self._forget(name)
        return True

    async def revoke(self, name: str) -> bool:
        """Take a key from the owner that has it, so that it is held; False if none alive has."""
        record = self._find(name)
        if record is None or not record.holds(self._clock.monotonic()):
            return False
        self._open[name] = revoke(record)
        self._hold()
        return True

    # How it is kept.

    def _find(self, name: str) -> Record | None:
        record = self._open.get(name) or self._ended.get(name)
        now, wall = self._clock.monotonic(), self._clock.wall()
        return None if record is None or record.has_expired(now=now, wall=wall) else record

    def _end(self, name: str, caller: str, after: Record, ttl: float, wall: float) -> None:
        """Keep a record of *caller*'s whose request has run: it may be given up from now on.

        Its result goes first.
        """
        room = self._rooms[caller]
        if after.caller != caller:
            room = self._move(room, after.caller)
        size = len(after.result)
        if self.used + size > self._bytes and not self._has_result_room(size, wall):
            # That it has run must not be forgotten, whatever becomes of its result.
            after, size = after._replace(state=RecordState.UNSTORED, result=b""), 0
        del self._open[name]
        self._ended[name] = after
        room.open -= 1
        room.ended += 1
        if size:
            room.results.names.append(name)
            room.bytes += size
            self._results_used += size
            self.used += size
        else:
            room.markers.names.append(name)
        queues = self._queues
        if ttl not in queues:
            queues[ttl] = deque()
        queues[ttl].append(name)
        if self._shares is not None:
            self._rank(room)

    def _move(self, room: CallerUsage, caller: str) -> CallerUsage:
        """An open record of *room* belongs to *caller* from now on, whose room this is."""
        room.open -= 1
        self._settle_room(room)
        other = self._rooms.get(caller)
        if other is None:
            other = self._rooms[caller] = CallerUsage(caller)
            self.used += CALLER_USAGE_BYTES
        other.open += 1
        return other

    def _hold(self) -> None:
        """One more is held: say so once if half of the room is, as much as one caller can hold."""
        self._held += 1
        if self._held >= self._half and not self._says_held:
            self._says_held = True
            _log.warning(
                "half of the room for idempotency keys is held by requests of which nobody knows"
                " whether they ran (%d of at most %d): find out, and `holdfast keys release` them",
                self._held,
                2 * self._half,
            )

    def _leave(self, owner: str, result: bytes, wall: float) -> None:
        """Keep *result* for those who waited for *owner*, if there is room."""
        if owner in self._left:
            self._clear(owner)
        size = RECORD + len(result)
        most = self._settings.bytes * _LEFT_SHARE
        while self._left and self._left_used + size > most:
            self._clear(next(iter(self._left)))
        if size <= most and (
            self.used + size <= self._settings.bytes or self._has_result_room(size, wall)
        ):
            self._left[owner] = (self._clock.monotonic() + LEFT_FOR, result)
            self.used += size
            self._left_used += size

    def _clear(self, owner: str) -> None:
        """What *owner* left behind goes."""
        _, result = self._left.pop(owner)
        size = RECORD + len(result)
        self.used -= size
        self._left_used -= size

    def _forget(self, name: str) -> None:
        record = self._open.pop(name, None)
        is_open = record is not None
        if record is None:
            record = self._ended.pop(name)
        room, size = self._rooms[record.caller], len(record.result)
        self.used -= RECORD + size
        self._count -= 1
        if is_open:
            room.open -= 1
            if record.state is RecordState.HELD:
                self._held -= 1
                self._says_held = self._says_held and self._held > self._half // 2
        else:
            room.ended -= 1
            room.bytes -= size
            self._results_used -= size
        self._settle_room(room)

    def _settle_room(self, room: CallerUsage) -> None:
        """*room* holds less than before: let go of what it does not need any more."""
        if self._shares is not None:
            self._rank(room)
        if not room.open and not room.ended:
            del self._rooms[room.caller]
            self.used -= CALLER_USAGE_BYTES
        elif room.is_untidy:
            room.results.clear_up(lambda name: self._is_of(room, name, with_result=True))
            room.markers.clear_up(lambda name: self._is_of(room, name, with_result=False))

    def _is_of(self, room: CallerUsage, name: str, *, with_result: bool) -> bool:
        record = self._ended.get(name)
        if record is None or record.caller != room.caller:
            return False
        return bool(record.result) is with_result

    # Room.

    def known(self) -> KnownKeys:
        """How much is remembered, and how far back."""
        created = []
        for queue in self._queues.values():
            while queue and queue[0] not in self._ended:
                queue.popleft()
            if queue:
                created.append(self._ended[queue[0]].created)
        oldest = max(self._clock.wall() - min(created), 0.0) if created else None
        return KnownKeys(self._count, self._held, oldest)

    def _has_room(self, room: CallerUsage, now: float, wall: float) -> bool:
        """Whether *room* may have one more record, if need be after others have gone."""
        if self._make_room(room, wall):
            return True
        if now - self._looked < _LOOK_AGAIN:
            return False
        self._looked = now
        self._tidy_open(wall)
        return self._make_room(room, wall)

    def _make_room(self, room: CallerUsage, wall: float) -> bool:
        """Give up what may be given up, until a record more fits; nothing if it never will."""
        most = self._settings
        if room.open >= self._half and self._count > room.records:
            return False  # others have something, and shall find room for more
        if room.open >= self._most_alone:
            return False  # others may come
        size = RECORD if room.caller in self._rooms else RECORD + CALLER_USAGE_BYTES
        spare = self._results_used + len(self._ended) * RECORD
        if len(self._open) >= most.entries or self.used - spare + size > most.bytes:
            return False
        while self.used + size > most.bytes:
            self._give_up(size, wall)
        while self._count >= most.entries:
            self._give_up_record(wall)
        return True

    def _has_result_room(self, size: int, wall: float) -> bool:
        """Make room for a result, by giving up others; markers only if there are too many."""
        most = self._settings.bytes
        spare = min(max(self._too_many_records(0), 0), len(self._ended) * RECORD)
        if self.used - self._results_used - spare + size > most:
            return False
        while self.used + size > most:
            self._give_up(0, wall)
        return True

    def _too_many_records(self, more: int) -> int:
        """Bytes that records take beyond their share, with *more* of them."""
        records = self.used - self._results_used - self._left_used
        return records + more - int(self._settings.bytes * _RECORDS_SHARE)

    def _give_up(self, more: int, wall: float) -> None:
        """Give up a result, or a record if there is none or if records take too much."""
        if self._results_used and not (self._ended and self._too_many_records(more) > 0):
            self._give_up_result(wall)
        else:
            self._give_up_record(wall)

    def _give_up_result(self, wall: float) -> None:
        """The caller that has most bytes of results gives up its oldest: that it ran stays."""
        room = self._rooms[self._largest(0)]
        name = room.results.take_oldest(lambda name: self._is_of(room, name, with_result=True))
        assert name is not None  # noqa: S101 - it has bytes, so it has results
        record = self._ended[name]
        if record.expires <= wall:
            self._forget(name)
            return
        self._evicted()
        size = len(record.result)
        self._ended[name] = record._replace(state=RecordState.UNSTORED, result=b"")
        room.markers.names.append(name)
        room.bytes -= size
        self._results_used -= size
        self.used -= size
        self._rank(room)

    def _give_up_record(self, wall: float) -> None:
        """The caller that has most records gives up its oldest marker, or else its oldest key."""
        room = self._rooms[self._largest(1)]
        name = room.markers.take_oldest(lambda name: self._is_of(room, name, with_result=False))
        if name is None:
            name = room.results.take_oldest(lambda name: self._is_of(room, name, with_result=True))
        assert name is not None  # noqa: S101 - who is asked has something to give up
        if self._ended[name].expires > wall:
            self._evicted()
        self._forget(name)

    def _largest(self, which: int) -> str:
        """The caller that holds most: 0, bytes of results; 1, records, if some may go."""
        if self._shares is None:
            self._shares = (FairShare(), FairShare())
            for room in self._rooms.values():
                self._rank(room)
        caller = self._shares[which].largest()
        assert caller is not None  # noqa: S101 - it was seen before that there is something
        return caller

    def _rank(self, room: CallerUsage) -> None:
        """Note what *room* holds now."""
        assert self._shares is not None  # noqa: S101 - for the type checker
        wants = (room.bytes, room.records if room.ended else 0)
        for share, holds in zip(self._shares, wants, strict=True):
            change = holds - share.used_by(room.caller)
            if change > 0:
                share.add(room.caller, change)
            elif change < 0:
                share.give_back(room.caller, -change)

    def _tidy(self, wall: float) -> None:
        """Drop what has had its time, a few at a time: nobody waits for a great clean-up."""
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
        """Drop what nobody has come for in time; the oldest is first."""
        while self._left:
            owner, (until, _) = next(iter(self._left.items()))
            if now < until:
                break
            self._clear(owner)

    def _tidy_open(self, wall: float) -> None:
        """Drop what was held, or left in flight, for all of its time. Where there is need."""
        now = self._clock.monotonic()
        expired = [
            name for name, record in self._open.items() if record.has_expired(now=now, wall=wall)
        ]
        for name in expired:
            self._forget(name)


def _nothing() -> None:
    pass
