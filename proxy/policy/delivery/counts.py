"""How many deliveries there are."""

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.policy.delivery.words import DeliveryState


@dataclass(frozen=True, slots=True)
class RouteDeliveries:
    """Counts of one route."""

    states: Mapping[DeliveryState, int]
    size: int
    """Bytes of those that are open or failed."""
    oldest: float
    """When the oldest open one was accepted, in seconds since the epoch; 0: none is open."""
    next_due: float
    """When the next one is due, in seconds since the epoch; 0: none waits."""
