"""Idempotency keys that this process remembers for as long as it lives.

Nothing here ever waits, so each method is one step. What it may take is bounded, in records
and in bytes, and three kinds of things share the room:

-   what is in flight or held: never given up, for it would run twice;
-   what has ended, with its result or without: given up if another needs the room, the
    oldest first, and counted if somebody could still have asked for it;
-   how a key ended that was set free: for seconds only, for those who waited for it, and
    within a share of the room, so that a storm of failures leaves the rest alone.

Where all of it is taken by what must stay, new keys are turned away.
"""

from collections import OrderedDict, deque
from collections.abc import Callable

from proxy.core import Clock
from proxy.policy.records import (
    LEFT_FOR,
    YOURS,
    Answer,
    Claim,
    Claimed,
    Ending,
    Record,
    Shown,
    State,
    claim,
    is_owned,
    new_record,
    renew,
    settle,
    shown,
)
from proxy.policy.settings import MemorySettings

OVERHEAD = 360
"""Bytes that a record takes besides its name and its result: measured, on 64 bits."""
_TIDY_EVERY = 16
"""Claims after which somebody looks for records that have had their time."""
_LOOKS = 2 * _TIDY_EVERY
"""Records that may go then, of each queue: more than were added meanwhile."""
_LEFT_SHARE = 0.25
"""Of all bytes, for what was left behind."""


class MemoryClaims:
    """Has the record of every key, and shares them with nobody."""

    def __init__(self, settings: MemorySettings, clock: Clock, evicted: Callable[[], None]) -> None:
        """*evicted* is called for each record that is given up before its time."""
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
        self._asked = 0
        """Claims so far."""
        self._left: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        """What owners left behind for those who waited, and until when; the oldest first."""
        self.used = 0
        """Bytes in use."""
        self._left_used = 0
        """Those of them that were left behind."""
        self._spare = 0
        """Those of them that may be given up."""

    @property
    def at_once(self) -> "MemoryClaims":
        """Nobody has to wait for anything here."""
        return self

    def __len__(self) -> int:
        return len(self._open) + len(self._ended)

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
        self._asked += 1
        if self._asked % _TIDY_EVERY == 0:
            self._tidy(wall)
        if self._left:
            self._tidy_left(now)
            if ask.waited_for and (left := self._left.get(ask.waited_for)) is not None:
                return Claimed(Answer.LEFT, result=left[1])
        before = self._open.get(name) or self._ended.get(name)
        if before is None:
            after: Record | None = new_record(ask, now=now, wall=wall)  # as below, in less time
        else:
            after, claimed = claim(before, ask, now=now, wall=wall)
            if claimed.answer is not Answer.NEW:
                return claimed
            self._forget(name)  # it has expired, or its owner has fallen silent
        assert after is not None  # noqa: S101 - for the type checker
        size = len(name) + OVERHEAD
        most, records = self._settings, len(self._open) + len(self._ended)
        if (self.used + size > most.bytes or records >= most.entries) and not self._has_room(
            size, wall
        ):
            return Claimed(Answer.FULL)
        self._open[name] = after
        self.used += size
        return YOURS

    async def settle(self, name: str, owner: str, ending: Ending) -> bool:
        """End what *owner* has begun; False if the key is not its own any more."""
        return self.settle_at_once(name, owner, ending)

    def settle_at_once(self, name: str, owner: str, ending: Ending) -> bool:
        """The same without waiting."""
        wall = self._clock.wall()
        record = self._open.get(name)
        if record is None or record.owner != owner or record.expires <= wall:
            return False  # who is held or has ended has no owner
        after = settle(record, ending, wall=wall)
        if after is None:
            self._forget(name)
        elif after.state is State.HELD:
            self._open[name] = after
        else:
            self._end(name, after, ending.ttl, wall)
        if ending.state is not State.DONE and ending.result:
            self._leave(owner, ending.result, wall)
        return True

    async def renew(self, name: str, owner: str, lease: float) -> bool:
        """*owner* is still alive; False if the key is not its own any more."""
        record = self._find(name)
        if record is None or not is_owned(record, owner):
            return False
        self._open[name] = renew(record, lease, now=self._clock.monotonic())
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

    # How it is kept.

    def _find(self, name: str) -> Record | None:
        record = self._open.get(name) or self._ended.get(name)
        return None if record is None or record.expires <= self._clock.wall() else record

    def _end(self, name: str, record: Record, ttl: float, wall: float) -> None:
        """It has run: from now on it may be given up."""
        result = len(record.result)
        if self.used + result > self._settings.bytes and not self._make_room(0, result, wall):
            # That it has run must not be forgotten, whatever becomes of its result.
            record, result = record._replace(state=State.UNSTORED, result=b""), 0
        del self._open[name]
        self._ended[name] = record
        queue = self._queues.get(ttl)
        if queue is None:
            queue = self._queues[ttl] = deque()
        queue.append(name)
        self.used += result
        self._spare += len(name) + OVERHEAD + result

    def _leave(self, owner: str, result: bytes, wall: float) -> None:
        """Keep *result* for those who waited for *owner*, if there is room."""
        if owner in self._left:
            self._clear(owner)
        size = len(owner) + OVERHEAD + len(result)
        most = self._settings.bytes * _LEFT_SHARE
        while self._left and self._left_used + size > most:
            self._clear(next(iter(self._left)))
        if size <= most and self._make_room(0, size, wall):
            self._left[owner] = (self._clock.monotonic() + LEFT_FOR, result)
            self.used += size
            self._left_used += size

    def _clear(self, owner: str) -> None:
        """What *owner* left behind goes."""
        _, result = self._left.pop(owner)
        size = len(owner) + OVERHEAD + len(result)
        self.used -= size
        self._left_used -= size

    def _forget(self, name: str) -> None:
        record = self._open.pop(name, None)
        if record is None:
            record = self._ended.pop(name)
            self._spare -= len(name) + OVERHEAD + len(record.result)
        self.used -= len(name) + OVERHEAD + len(record.result)

    # Room.

    def _has_room(self, size: int, wall: float) -> bool:
        """Whether there is room for one more record, if need be after some have gone."""
        if self._make_room(1, size, wall):
            return True
        self._tidy_open(wall)
        return self._make_room(1, size, wall)

    def _make_room(self, records: int, size: int, wall: float) -> bool:
        """Give up what may be given up, until so much more fits; nothing if it never will."""
        most, used = self._settings, len(self._open) + len(self._ended)
        if used + records <= most.entries and self.used + size <= most.bytes:
            return True
        if len(self._open) + records > most.entries or self.used - self._spare + size > most.bytes:
            return False
        while len(self) + records > most.entries or self.used + size > most.bytes:
            oldest = self._oldest()
            if self._ended[oldest].expires > wall:
                self._evicted()
            self._forget(oldest)
        return True

    def _oldest(self) -> str:
        """Of all that may be given up, the one that has ended first."""
        fronts = []
        for ttl, queue in self._queues.items():
            while queue and queue[0] not in self._ended:
                queue.popleft()
            if queue:
                fronts.append((self._ended[queue[0]].expires - ttl, queue[0]))
        return min(fronts)[1]

    def _tidy(self, wall: float) -> None:
        """Drop what has had its time, a few at a time: nobody waits for a great clean-up."""
        for queue in self._queues.values():
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
        for name in [name for name, record in self._open.items() if record.expires <= wall]:
            self._forget(name)


def _nothing() -> None:
    pass
