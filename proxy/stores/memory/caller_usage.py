"""What each caller holds of the room for keys, and in which order it gives that up."""

from collections.abc import Callable

CALLER_USAGE_BYTES = 416
"""Bytes that a caller takes besides its records: measured, on 64 bits."""
_FEW = 64
"""Names that may be out of date before a line is cleared of them."""


class EvictionOrder:
    """Names of records, the oldest first. Some may be gone, or stand for something else."""

    __slots__ = ("_first", "names")

    def __init__(self) -> None:
        # A list: an empty deque takes ten times as much, and most callers have few keys.
        self.names: list[str] = []
        """Appended to."""
        self._first = 0

    def take_oldest(self, is_current: Callable[[str], bool]) -> str | None:
        """The oldest name that *is_current*, which is in the line no longer; None without one."""
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


class CallerUsage:
    """What one caller holds."""

    __slots__ = ("bytes", "caller", "ended", "markers", "open", "results")

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.open = 0
        """Records that may not be given up: in flight, or held."""
        self.ended = 0
        """Records that may."""
        self.bytes = 0
        """Of the results of those."""
        self.results = EvictionOrder()
        """Ended records that have a result, and those that have none."""
        self.markers = EvictionOrder()

    def __repr__(self) -> str:
        return f"<room of {self.caller}: {self.open} open, {self.ended} ended, {self.bytes} bytes>"

    @property
    def records(self) -> int:
        """All that it holds."""
        return self.open + self.ended

    @property
    def is_untidy(self) -> bool:
        """Whether most names in its lines stand for nothing any more."""
        return len(self.results.names) + len(self.markers.names) > 2 * self.ended + _FEW
