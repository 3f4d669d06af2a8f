"""Open the store that the configuration names: each store opens itself.

The libraries of Redis and SQLite are imported only where they are used: loading that of Redis
alone takes a fifth of the time to start.
"""

# ruff: noqa: PLC0415 - see above

from proxy.core.clock import Clock
from proxy.core.recorders import StoreMeter
from proxy.policy.settings import StoreSettings
from proxy.policy.settings.store import MemorySettings, RedisSettings, SqliteSettings
from proxy.stores.ports import OpenedStore


def open_store(
    settings: StoreSettings, clock: Clock, meter: StoreMeter, *, keeps_keys: bool
) -> OpenedStore:
    """Make the store for *settings*; a connection is made when it is started.

    *meter* counts what it does, and *keeps_keys* says whether a route has idempotency keys from
    the start.
    """
    match settings:
        case RedisSettings():
            from proxy.stores.redis import open_redis

            return open_redis(settings, clock, meter, keeps_keys=keeps_keys)
        case SqliteSettings():
            from proxy.stores.sqlite import open_sqlite

            return open_sqlite(settings, clock, meter)
        case MemorySettings():
            from proxy.stores.memory import open_memory

            return open_memory(settings, clock, meter)
