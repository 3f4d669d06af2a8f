"""Room that this process has promised to requests whose bodies are being read.

What is in the file is known as of a moment ago. Whether a delivery fits is decided for good when it
is inserted; here, so that a body for which there is no room is not read in the first place.
"""

from collections.abc import Callable

from proxy.core.clock import Clock
from proxy.policy.delivery.capacity import CapacityUse, lacking
from proxy.stores.deliveries.ports import NoCapacity

_FRESH = 1.0
"""Seconds for which it is taken as true what a caller uses; then it may be asked to wait or not
only by the file."""
_MOST_CALLERS = 10_000
"""Callers of whom that is known."""
_NOTHING = CapacityUse()


class DeliveryCapacity:
    """The room of all deliveries, as this process knows it."""

    def __init__(self, most: CapacityUse, clock: Clock, on_refused: Callable[[], object]) -> None:
        """Call *on_refused* when there is no room: what is known of it may be out of date."""
        self.most = most
        self.used = _NOTHING
        """What is in the file."""
        self._clock = clock
        self._on_refused = on_refused
        self._reserved = _NOTHING
        self._reserved_by: dict[str, CapacityUse] = {}
        self._known: dict[str, tuple[CapacityUse, float]] = {}

    def reserve(self, caller: str, size: int) -> "ReservedCapacity | NoCapacity":
        """Reserve room for one delivery of *size* bytes."""
        reservation = ReservedCapacity(self, caller)
        return self.add(reservation, CapacityUse(1, size)) or reservation

    def add(self, reservation: "ReservedCapacity", more: CapacityUse) -> NoCapacity | None:
        """Reserve *more*; None if there is room for it."""
        caller = reservation.caller
        mine = self._reserved_by.get(caller, _NOTHING)
        own = self._use_of(caller) + mine
        used = self.used + self._reserved
        # What the file has of the caller may be newer than what it has of all.
        used = CapacityUse(max(used.entries, own.entries), max(used.size, own.size))
        cause = lacking(more, used, own, self.most)
        if cause is not None:
            self._on_refused()
            return NoCapacity(cause)
        reservation.held += more
        self._reserved += more
        self._reserved_by[caller] = mine + more
        return None

    def release(self, caller: str, held: CapacityUse) -> None:
        """Give back what was reserved."""
        self._reserved -= held
        left = self._reserved_by[caller] - held
        if left.entries:
            self._reserved_by[caller] = left
        else:
            del self._reserved_by[caller]

    def note(self, caller: str, used: CapacityUse, own: CapacityUse) -> None:
        """Note what is in the file now, and what of it is the *caller*'s."""
        self.used = used
        self._known.pop(caller, None)
        if len(self._known) >= _MOST_CALLERS:
            del self._known[next(iter(self._known))]
        self._known[caller] = (own, self._clock.monotonic())

    def _use_of(self, caller: str) -> CapacityUse:
        own, noted = self._known.get(caller, (_NOTHING, 0.0))
        return own if self._clock.monotonic() - noted < _FRESH else _NOTHING


class ReservedCapacity:
    """Room for one request."""

    __slots__ = ("_capacity", "caller", "held")

    def __init__(self, capacity: DeliveryCapacity, caller: str) -> None:
        self._capacity = capacity
        self.caller = caller
        self.held = _NOTHING

    def grow(self, size: int) -> NoCapacity | None:
        """Reserve *size* bytes more; None if there is room for them."""
        return self._capacity.add(self, CapacityUse(0, size))

    def release(self) -> None:
        """Give the room back; a second time nothing happens."""
        held, self.held = self.held, _NOTHING
        if held.entries:
            self._capacity.release(self.caller, held)
