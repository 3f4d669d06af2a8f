"""The store in memory: limiters and keys, which no other process shares."""

from proxy.core.clock import Clock
from proxy.core.recorders import Meter
from proxy.policy.settings import MemorySettings
from proxy.stores import OpenedStore
from proxy.stores.memory.idempotency import MemoryIdempotencyStore
from proxy.stores.memory.limiter import MemoryLimiterStore


def open_memory(settings: MemorySettings, clock: Clock, meter: Meter) -> OpenedStore:
    """Make the store of this process alone."""
    return OpenedStore(MemoryLimiterStore(clock), MemoryIdempotencyStore(settings, clock, meter))
