"""What throttles and stores report to metrics."""

from dataclasses import dataclass
from typing import Protocol


class ThrottleRecorder(Protocol):
    """Told what one throttle decided. Must not raise and must not wait."""

    def passed(self) -> None:
        """An attempt went through at once."""

    def delayed(self, seconds: float) -> None:
        """An attempt went through after a wait."""

    def refused(self) -> None:
        """An attempt was refused."""


@dataclass(frozen=True, slots=True)
class ThrottleState:
    """What goes on at one throttle, all its buckets together."""

    waiting: int
    """Attempts in line."""
    under_way: int
    """Attempts that passed and are not over, where their number is limited."""
    buckets: int
    """One per value of the key, as far as they are in use; one where there is no key."""
    paused: int
    """Buckets that are closed because the upstream asked us to wait."""
    paused_for: float
    """Seconds until the last of them opens."""


class StoreRecorder(Protocol):
    """Told how a shared store does. Must not raise and must not wait."""

    def operated(self, operation: str, seconds: float) -> None:
        """The store answered."""

    def failed(self, operation: str) -> None:
        """It did not, or not in time."""
