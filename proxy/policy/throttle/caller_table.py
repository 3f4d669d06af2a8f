"""Which callers have a bucket of their own, where there may be more callers than buckets.

A client can invent values for a header, and each of them would take an entry. So a caller has to
prove itself: one of its calls was answered below 400. From then on it is *known*, and invented
callers cannot displace it::

    a new caller ──► a free entry, or an idle bucket to replace ──────► its own bucket
        │
        ├─► it is known ──► replaces the oldest unknown caller ───────► its own bucket
        │
        └─► else ─────────────────────────────────► one of SHARED buckets, by its digest

An idle bucket is equal to a new one, so replacing it changes nothing for its caller; a known
caller that has no bucket at present stays known. The usage of a caller that never proved itself
is forgotten if a known one needs the entry, and a caller that moves from a shared bucket to its
own starts with a fresh one.

The table is generic: a bucket is any object, and a function of the user tells whether it is idle.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, TypeVar

SHARED = 256
"""Number of buckets that the callers without a bucket of their own share."""

_LOOK_AT = 4
"""Entries that are examined to make space for another caller."""

B = TypeVar("B")


class CallerTable(Generic[B]):
    """Buckets by the digest of a caller's value: at most *most* of them, and the shared ones."""

    __slots__ = ("_absent", "_known", "_shared", "_unknown", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        """Callers that have their own bucket, at most; as many more are remembered as known."""
        self._known: OrderedDict[bytes, B] = OrderedDict()
        """Buckets of callers that have proved themselves, least recently used first."""
        self._unknown: OrderedDict[bytes, B] = OrderedDict()
        """Buckets of all other callers, least recently used first."""
        self._absent: OrderedDict[bytes, None] = OrderedDict()
        """Known callers that have no bucket at present, least recently used first."""
        self._shared: dict[int, B] = {}

    def __len__(self) -> int:
        """Count the buckets, the shared ones included."""
        return len(self._known) + len(self._unknown) + len(self._shared)

    def __repr__(self) -> str:
        return f"<{len(self._known)} known callers, {len(self._unknown)} others>"

    def buckets(self) -> Iterator[B]:
        """Iterate over every bucket, the shared ones included."""
        yield from self._known.values()
        yield from self._unknown.values()
        yield from self._shared.values()

    def find(self, name: bytes) -> B | None:
        """Return the caller's own bucket; None if it has none."""
        for entries in (self._known, self._unknown):
            bucket = entries.get(name)
            if bucket is not None:
                entries.move_to_end(name)
                return bucket
        return None

    def is_known(self, name: bytes) -> bool:
        """Tell whether the caller has proved itself."""
        return name in self._known or name in self._absent

    def make_space(self, name: bytes, is_idle: Callable[[B], bool]) -> bool:
        """Make space for a caller without a bucket; True if one may be added (:meth:`add`)."""
        if len(self._known) + len(self._unknown) < self.most:
            return True
        if self._drop_idle(self._unknown, is_idle):
            return True
        if name in self._absent and self._unknown:
            self._unknown.popitem(last=False)
            return True
        return self._drop_idle(self._known, is_idle)

    def _drop_idle(self, entries: OrderedDict[bytes, B], is_idle: Callable[[B], bool]) -> bool:
        """Drop an idle bucket among the least recently used; False if none of them is idle."""
        for name, bucket in list(islice(entries.items(), _LOOK_AT)):
            if is_idle(bucket):
                self._drop(entries, name)
                return True
            # One call that takes hours must not keep all other entries from being examined.
            entries.move_to_end(name)
        return False

    def _drop(self, entries: OrderedDict[bytes, B], name: bytes) -> None:
        del entries[name]
        if entries is self._known:
            self._remember(name)

    def _remember(self, name: bytes) -> None:
        self._absent[name] = None
        self._absent.move_to_end(name)
        while len(self._absent) > self.most:
            self._absent.popitem(last=False)

    def add(self, name: bytes, bucket: B) -> None:
        """Give *bucket* to a caller as its own; :meth:`make_space` has been True for it."""
        if name in self._absent:
            del self._absent[name]
            self._known[name] = bucket
        else:
            self._unknown[name] = bucket

    def shared(self, name: bytes, new: Callable[[int], B]) -> B:
        """Return the bucket that a caller without its own shares with others; *new* makes it."""
        number = name[0] % SHARED
        bucket = self._shared.get(number)
        if bucket is None:
            bucket = self._shared[number] = new(number)
        return bucket

    def prove(self, name: bytes) -> None:
        """Make the caller known: one of its calls was answered below 400."""
        if name in self._known:
            return
        bucket = self._unknown.pop(name, None)
        if bucket is None:
            self._remember(name)
        else:
            self._known[name] = bucket

    def sweep(self, is_idle: Callable[[B], bool]) -> None:
        """Drop every idle bucket; known callers stay known."""
        for entries in (self._known, self._unknown):
            for name in [name for name, bucket in entries.items() if is_idle(bucket)]:
                self._drop(entries, name)
        idle = [number for number, bucket in self._shared.items() if is_idle(bucket)]
        for number in idle:
            del self._shared[number]

    def clear(self) -> None:
        """Forget all callers: other values tell them apart from now on."""
        for entries in (self._known, self._unknown, self._absent, self._shared):
            entries.clear()
