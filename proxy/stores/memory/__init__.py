"""What this process keeps for itself: all that a single instance needs.

``permits.py`` has the limits, ``claims.py`` what is known of idempotency keys.
"""

from proxy.stores.memory.claims import MemoryClaims
from proxy.stores.memory.permits import MemoryStore

__all__ = ["MemoryClaims", "MemoryStore"]
