"""How much of the store each caller uses, and in which order its records are evicted."""

from collections.abc import Callable
from dataclasses import dataclass, field

CALLER_USAGE_BYTES = 416
"""Bytes that a caller takes besides its records: measured, on 64 bits."""
_FEW = 64
"""Names that may be out of date before an eviction order is cleared of them."""


class EvictionOrder:
    """Names of records, the oldest first. Some may be gone, or stand for another record."""

    __slots__ = ("_first", "names")

    def __init__(self) -> None:
        # A list: an empty deque takes ten times as much, and most callers have few keys.
        self.names: list[str] = []
        """Appended to by the store."""
        self._first = 0

    def take_oldest(self, is_current: Callable[[str], bool]) -> str | None:
        """Remove and return the oldest name that *is_current*; None without one."""
        found = None
        while found is None and self._first < len(self.names):
            name = self.names[self._first]
            self._first += 1
            if is_current(name):
                found = name
        if self._first * 2 > len(self.names):
            del self.names[: self._first]
            self._first = 0
        return found

    def clear_up(self, is_current: Callable[[str], bool]) -> None:
        """Drop all names that are not current."""
        self.names = [name for name in self.names[self._first :] if is_current(name)]
        self._first = 0


@dataclass(slots=True, eq=False, repr=False)
class CallerUsage:
    """What one caller uses of the store."""

    caller: str
    open: int = 0
    """Records that may not be evicted: in flight, or held."""
    ended: int = 0
    """Ended records, which may be evicted."""
    bytes: int = 0
    """Bytes of the results of the ended records."""
    results: EvictionOrder = field(default_factory=EvictionOrder)
    """Ended records that have a result, and (below) those that have none."""
    markers: EvictionOrder = field(default_factory=EvictionOrder)

    def __repr__(self) -> str:
        return f"<usage of {self.caller}: {self.open} open, {self.ended} ended, {self.bytes} bytes>"

    @property
    def records(self) -> int:
        """Number of the caller's records."""
        return self.open + self.ended

    @property
    def is_untidy(self) -> bool:
        """Tell whether most names of the eviction orders stand for no record any more."""
        return len(self.results.names) + len(self.markers.names) > 2 * self.ended + _FEW
