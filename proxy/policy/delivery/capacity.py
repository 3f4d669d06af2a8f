"""Room for deliveries: what all may take, and one caller of it.

Nothing that was accepted is evicted, so a caller must not be able to take all. Beside others it has
a quarter of the entries and of the bytes; alone, all but what is reserved for callers yet to come
(:func:`proxy.policy.fair_share.limit_for_one_caller`).
"""

from dataclasses import dataclass
from enum import StrEnum

from proxy.policy.fair_share import limit_for_one_caller

_SHARE = 4


class CapacityCause(StrEnum):
    """What there is no room for."""

    ENTRIES = "entries"
    BYTES = "bytes"
    CALLER = "caller"
    """The caller has its share."""


@dataclass(frozen=True, slots=True)
class CapacityUse:
    """Room that is taken, or that there is."""

    entries: int = 0
    size: int = 0

    def __add__(self, other: "CapacityUse") -> "CapacityUse":
        return CapacityUse(self.entries + other.entries, self.size + other.size)

    def __sub__(self, other: "CapacityUse") -> "CapacityUse":
        return CapacityUse(self.entries - other.entries, self.size - other.size)


def lacking(
    asked: CapacityUse, used: CapacityUse, own: CapacityUse, most: CapacityUse
) -> CapacityCause | None:
    """Return what is lacking for *asked* besides what is *used*; None: there is room.

    *own* is what the caller uses of that, and *most* what there is.
    """
    total = used + asked
    if total.entries > most.entries:
        return CapacityCause.ENTRIES
    if total.size > most.size:
        return CapacityCause.BYTES
    if used.entries == own.entries:
        share = CapacityUse(limit_for_one_caller(most.entries), limit_for_one_caller(most.size))
    else:
        share = CapacityUse(max(most.entries // _SHARE, 1), most.size // _SHARE)
    mine = own + asked
    is_over = mine.entries > share.entries or mine.size > share.size
    return CapacityCause.CALLER if is_over else None
