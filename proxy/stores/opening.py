"""Open the store that the configuration names.

The libraries of Redis and SQLite are imported only where they are used: loading that of Redis
alone takes a fifth of the time to start.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from proxy.core.clock import Clock
from proxy.core.recorders import Meter, StoreRecorder
from proxy.policy.settings import MemorySettings, RedisSettings, SqliteSettings, StoreSettings
from proxy.stores.memory import MemoryIdempotencyStore, MemoryLimiterStore
from proxy.stores.ports import IdempotencyStore, LimiterStore, SharedStore


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """Where limits and idempotency keys are kept, and what of it other processes share."""

    limiters: LimiterStore
    keys: IdempotencyStore
    shared: SharedStore | None = None
    """The store that has to be started and closed; None if all is in this process's memory."""
    recorder: StoreRecorder | None = None
    """Where the operations of the shared store are counted; None without one."""
    on_first_key_route: Callable[[], None] | None = None
    """Called when a reload first configures idempotency; None if the store needs no call."""


def open_store(
    settings: StoreSettings,
    clock: Clock,
    *,
    new_recorder: Callable[[Iterable[str]], StoreRecorder],
    meter: Meter,
    keeps_keys: bool,
) -> OpenedStore:
    """Make the store for *settings*; a connection is made when it is started.

    *new_recorder* makes the recorder of a shared store from the names of its operations,
    *meter* counts what belongs to no operation, and *keeps_keys* says whether a route has
    idempotency keys from the start.
    """
    match settings:
        case RedisSettings():
            from proxy.stores import redis  # noqa: PLC0415 - see above

            recorder = new_recorder(redis.OPERATIONS)
            store = redis.RedisStore(settings, clock, recorder, keeps_keys=keeps_keys)
            return OpenedStore(store, store.idempotency, store, recorder, store.keep_keys)
        case SqliteSettings():
            from proxy.stores import sqlite  # noqa: PLC0415 - see above

            recorder = new_recorder(sqlite.OPERATIONS)
            file = sqlite.SqliteStore(settings, clock, recorder)
            return OpenedStore(MemoryLimiterStore(clock), file, file, recorder)
        case MemorySettings():
            memory = MemoryIdempotencyStore(settings, clock, meter)
            return OpenedStore(MemoryLimiterStore(clock), memory)
