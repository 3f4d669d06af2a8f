"""Which callers have a bucket of their own, where there may be more callers than buckets.

Anybody can make up values for a header, and each would take a place. So a caller has to prove
itself: one of its calls was answered below 400. From then on it is *known*, and made-up ones
cannot take its place from it::

    a new caller ──► room, or an idle bucket to replace ──────────────► its own bucket
        │
        ├─► it is known ──► replaces the oldest one that is not ──────► its own bucket
        │
        └─► else ─────────────────────────────────► one of SHARED buckets, by its digest

An idle bucket is as good as a new one, so nobody notices that it was replaced; a known caller
that has no bucket at present stays known. What a caller that never proved itself has used is
forgotten if a known one needs its place, and who moves from a shared bucket to its own begins
anew there.

Time and buckets are the user's: a bucket is any object, and what is idle is asked.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, TypeVar

SHARED = 256
"""How many buckets those share that have none of their own."""

_LOOK_AT = 4
"""Places that are looked at to make room for another caller."""

B = TypeVar("B")


class CallerTable(Generic[B]):
    """Buckets by the digest of a caller's value: at most *most* of them, and the shared ones."""

    __slots__ = ("_absent", "_known", "_shared", "_unknown", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        """Callers that have their own bucket, at most; as many more are remembered as known."""
        self._known: OrderedDict[bytes, B] = OrderedDict()
        """Buckets of callers that have proved themselves, the one not used for longest first."""
        self._unknown: OrderedDict[bytes, B] = OrderedDict()
        """Buckets of all other callers, in the same order."""
        self._absent: OrderedDict[bytes, None] = OrderedDict()
        """Known callers that have no bucket at present, in the same order."""
        self._shared: dict[int, B] = {}

    def __len__(self) -> int:
        """How many buckets there are, the shared ones included."""
        return len(self._known) + len(self._unknown) + len(self._shared)

    def __repr__(self) -> str:
        return f"<{len(self._known)} known callers, {len(self._unknown)} others>"

    def buckets(self) -> Iterator[B]:
        """Every bucket there is."""
        yield from self._known.values()
        yield from self._unknown.values()
        yield from self._shared.values()

    def find(self, name: bytes) -> B | None:
        """The caller's own bucket; None if it has none."""
        for places in (self._known, self._unknown):
            bucket = places.get(name)
            if bucket is not None:
                places.move_to_end(name)
                return bucket
        return None

    def is_known(self, name: bytes) -> bool:
        """Whether the caller has proved itself."""
        return name in self._known or name in self._absent

    def make_room(self, name: bytes, is_idle: Callable[[B], bool]) -> bool:
        """Whether a caller that has no bucket may have one of its own; see :meth:`add`."""
        if len(self._known) + len(self._unknown) < self.most:
            return True
        if self._drop_idle(self._unknown, is_idle):
            return True
        if name in self._absent and self._unknown:
            self._unknown.popitem(last=False)
            return True
        return self._drop_idle(self._known, is_idle)

    def _drop_idle(self, places: OrderedDict[bytes, B], is_idle: Callable[[B], bool]) -> bool:
        """Take the place of one that was not here for long, if nobody would notice."""
        for name, bucket in list(islice(places.items(), _LOOK_AT)):
            if is_idle(bucket):
                self._drop(places, name)
                return True
            # One call that takes hours must not keep all others from being looked at.
            places.move_to_end(name)
        return False

    def _drop(self, places: OrderedDict[bytes, B], name: bytes) -> None:
        del places[name]
        if places is self._known:
            self._remember(name)

    def _remember(self, name: bytes) -> None:
        self._absent[name] = None
        self._absent.move_to_end(name)
        while len(self._absent) > self.most:
            self._absent.popitem(last=False)

    def add(self, name: bytes, bucket: B) -> None:
        """Give a caller for whom there is room *bucket* as its own."""
        if name in self._absent:
            del self._absent[name]
            self._known[name] = bucket
        else:
            self._unknown[name] = bucket

    def shared(self, name: bytes, new: Callable[[int], B]) -> B:
        """The bucket that a caller without its own shares with others; *new* makes it."""
        number = name[0] % SHARED
        bucket = self._shared.get(number)
        if bucket is None:
            bucket = self._shared[number] = new(number)
        return bucket

    def prove(self, name: bytes) -> None:
        """One of the caller's calls was answered below 400: it is known from now on."""
        if name in self._known:
            return
        bucket = self._unknown.pop(name, None)
        if bucket is None:
            self._remember(name)
        else:
            self._known[name] = bucket

    def sweep(self, is_idle: Callable[[B], bool]) -> None:
        """Drop every bucket that nobody would miss; those who were known stay so."""
        for places in (self._known, self._unknown):
            for name in [name for name, bucket in places.items() if is_idle(bucket)]:
                self._drop(places, name)
        idle = [number for number, bucket in self._shared.items() if is_idle(bucket)]
        for number in idle:
            del self._shared[number]

    def clear(self) -> None:
        """Forget all of them: other values tell callers apart from now on."""
        for places in (self._known, self._unknown, self._absent, self._shared):
            places.clear()
