"""Fair shares: how a bounded capacity is shared among callers who know nothing of each other.

No caller has a quota of its own: one caller alone may use the whole capacity. As soon as others
use anything, no caller may take more than half, and the caller that uses most is the one that is
evicted. A capacity is anything that is counted: bytes, records, connections. Where nothing can be
evicted, because it has to be kept for days, an eighth is reserved for callers yet to come
(:func:`limit_for_one_caller`).

A caller is any hashable value; :func:`network_of` gives one for a client's address.
"""

from collections.abc import Hashable
from functools import lru_cache
from heapq import heapify, heappop, heappush
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Generic, TypeVar

Caller = TypeVar("Caller", bound=Hashable)

_FOR_NEWCOMERS = 8
"""Of a capacity without eviction, one part of so many is reserved for callers yet to come."""
_STALE_ENTRIES = 64
"""Entries of the heap that may be out of date, besides one for each caller."""


class FairShare(Generic[Caller]):
    """Counts how much of one capacity each caller uses; forgets callers that use nothing."""

    def __init__(self) -> None:
        self.used = 0
        """The sum of what all callers use."""
        self._used_by: dict[Caller, int] = {}
        # For largest(), and None until its first call: a heap that has, for each caller, one
        # entry with at least what the caller uses, and others that are out of date.
        self._heap: list[tuple[int, int, Caller]] | None = None
        self._grown: dict[Caller, None] = {}
        """Callers that use more than the heap says."""
        self._ranked = 0

    def __len__(self) -> int:
        """Count the callers that use anything."""
        return len(self._used_by)

    def __repr__(self) -> str:
        return f"<fair share: {self.used} held by {len(self._used_by)}>"

    def used_by(self, caller: Caller) -> int:
        """Return what *caller* uses."""
        return self._used_by.get(caller, 0)

    def take(self, caller: Caller, size: int, limit: int) -> bool:
        """Give *caller* *size* more of a capacity of *limit*; False, and nothing, if unfair.

        That is unfair if the capacity is used up, or if *caller* would use more than half while
        others use anything.
        """
        # speed: same as used_by() and add(), held by tests/policy/test_fair_share.py; saves 5 of 6
        # calls for every request that keeps something
        used_by = self._used_by
        own = used_by[caller] + size if caller in used_by else size
        used = self.used + size
        if used > limit or (used != own and own > limit >> 1):
            return False
        if size:
            used_by[caller] = own
            self.used = used
            if self._heap is not None:
                self._grown[caller] = None
        return True

    def give_back(self, caller: Caller, size: int) -> None:
        """Take *size* back from *caller*."""
        if size:
            used_by = self._used_by
            left = used_by[caller] - size
            self.used -= size
            if left:
                used_by[caller] = left
            else:
                del used_by[caller]

    def add(self, caller: Caller, size: int) -> None:
        """Give *caller* *size* more, be that fair or not: the store evicts afterwards."""
        if size:
            self._used_by[caller] = self.used_by(caller) + size
            self.used += size
            if self._heap is not None:
                self._grown[caller] = None

    def largest(self) -> Caller | None:
        """Return the caller that uses most, of several the one that has done so for longest.

        Each change since the last call costs at most one step of a heap, so that a crowd of
        callers makes no single call slow.
        """
        heap = self._ranking()
        used_by = self._used_by
        while heap:
            negative, rank, caller = heap[0]
            now = used_by.get(caller, 0)
            if now == -negative:
                return caller
            heappop(heap)
            if 0 < now < -negative:
                heappush(heap, (-now, rank, caller))
        return None

    def _ranking(self) -> list[tuple[int, int, Caller]]:
        used_by, heap = self._used_by, self._heap
        if heap is None or len(heap) + len(self._grown) > 2 * len(used_by) + _STALE_ENTRIES:
            heap = self._heap = [
                (-size, self._ranked + index, caller)
                for index, (caller, size) in enumerate(used_by.items())
            ]
            self._ranked += len(heap)
            heapify(heap)
        else:
            for caller in self._grown:
                if caller in used_by:
                    self._ranked += 1
                    heappush(heap, (-used_by[caller], self._ranked, caller))
        self._grown.clear()
        return heap


def limit_for_one_caller(limit: int) -> int:
    """Return what a single caller may use of a capacity of *limit* without eviction."""
    return limit - limit // _FOR_NEWCOMERS


# Few clients send most requests, and an address takes 4 µs to read.
@lru_cache(maxsize=1024)
def network_of(address: str) -> str:
    """Return the caller that *address* belongs to: one IPv4 address, or an IPv6 network.

    Every IPv6 client has a /64 of its own, that is 2^64 addresses. Link-local addresses
    share one prefix and count each for itself, with their zone. No address, as on a unix
    socket, is a caller as well.
    """
    if not address:
        return ""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    if found.is_link_local:
        return str(found)
    return str(IPv6Network((int(found), 64), strict=False))
