"""Where the limits of a throttle, idempotency keys and dead letters are kept.

Only these modules talk to files and to Redis: ``memory/`` (one process), ``sqlite/`` (the
processes of one machine), ``redis/`` (any number of instances), ``dead_letters/`` (a file, always).
``ports.py`` has the protocols that the pipeline sees. May import ``core/``, ``policy/``, ``net/``.
"""

from proxy.stores.ports import (
    LARGE,
    MOST_OPEN,
    PATIENCE,
    IdempotencyStore,
    ImmediateIdempotencyStore,
    LimiterStore,
    SharedStore,
    StoreError,
    StoreRefusal,
    caller_share_name,
)

__all__ = [
    "LARGE",
    "MOST_OPEN",
    "PATIENCE",
    "IdempotencyStore",
    "ImmediateIdempotencyStore",
    "LimiterStore",
    "SharedStore",
    "StoreError",
    "StoreRefusal",
    "caller_share_name",
]
