"""What this process keeps for itself: all that a single instance needs.

``permits.py`` has the limits, ``claims.py`` what is known of idempotency keys.
"""

from proxy.stores.memory.idempotency import MemoryIdempotencyStore
from proxy.stores.memory.limiter import MemoryLimiterStore

__all__ = ["MemoryIdempotencyStore", "MemoryLimiterStore"]
