"""Settings of the store, which keeps shared state: in memory, in a SQLite file, or in Redis."""

from dataclasses import dataclass, field
from typing import ClassVar

from proxy.policy.settings.upstream import UpstreamTls


class StoreCapabilities:
    """What a store can do; each kind of settings says what is different for its store."""

    __slots__ = ()

    shares_limits: ClassVar[bool] = False
    """Whether processes and instances count their calls together."""
    shares_keys: ClassVar[bool] = False
    """Whether processes know each other's idempotency keys."""

    @property
    def permit_life(self) -> float | None:
        """Seconds for which a leased permit of a rate may be used; None: derived from the rate."""
        return None


@dataclass(frozen=True, slots=True)
class MemorySettings(StoreCapabilities):
    """A store in the memory of this process, and how much it may take."""

    entries: int = 100_000
    """Maximum number of idempotency keys."""
    bytes: int = 64 * 1024**2
    """Maximum bytes of the keys and their kept responses."""


@dataclass(frozen=True, slots=True)
class SqliteSettings(StoreCapabilities):
    """A file in which idempotency keys outlive the process. Rate limits stay in memory."""

    shares_keys: ClassVar[bool] = True

    path: str
    timeout: float = 0.2
    """Seconds within which the file must answer."""
    bytes: int = 1024**3
    """Maximum bytes of the kept responses of keys."""


@dataclass(frozen=True, slots=True)
class RedisSettings(StoreCapabilities):
    """A Redis server with the state that all instances share."""

    shares_limits: ClassVar[bool] = True
    shares_keys: ClassVar[bool] = True

    host: str
    port: int = 6379
    database: int = 0
    username: str | None = None
    password: str | None = field(repr=False, default=None)
    tls: UpstreamTls | None = None
    """TLS to the server; None: plain TCP."""
    prefix: str = "holdfast"
    """The beginning of every Redis key."""
    timeout: float = 0.2
    """Seconds within which the server must answer."""
    permit_life: float | None = None
    """Seconds for which a leased permit of a rate may be used; None: derived from the rate."""


StoreSettings = MemorySettings | SqliteSettings | RedisSettings
