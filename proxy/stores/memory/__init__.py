"""The store of one process: rate limits and idempotency keys in its memory, lost when it ends.

``limiter`` has the limiters, ``idempotency`` the records of keys, ``caller_usage`` how they are
shared by caller, ``store`` opens both. It imports ``core`` and ``policy`` only.
"""

from proxy.stores.memory.idempotency import MemoryIdempotencyStore
from proxy.stores.memory.limiter import MemoryLimiterStore
from proxy.stores.memory.store import open_memory
