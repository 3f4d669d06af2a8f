"""Where the limits of a throttle, idempotency keys, dead letters and deliveries are kept.

Only these modules keep state in files or in Redis: ``memory/`` (one process), ``sqlite/`` (the
processes of one machine), ``redis/`` (any number of instances), ``dead_letters/`` and
``deliveries/`` (one file, always); ``sqlite_file/`` is what those that use SQLite share. Each store
opens itself, and ``opening.py`` knows which one is configured. ``ports.py`` has the protocols that
the pipeline sees, exported here.
The modules may import ``core/``, ``policy/``, ``http/`` and ``net/``; this one imports none of the
stores, so that the drivers are loaded only where they are configured.
"""

from proxy.stores.ports import (
    LARGE,
    MOST_OPEN,
    PATIENCE,
    IdempotencyStore,
    ImmediateIdempotencyStore,
    LimiterStore,
    OpenedStore,
    SharedStore,
    StoreError,
    StoreRefusal,
    caller_share_name,
)
