"""Settings of the store, which keeps shared state: in memory, in a SQLite file, or in Redis."""

from dataclasses import dataclass, field

from proxy.policy.settings.upstream import UpstreamTls
from proxy.policy.settings.validation import above, at_least, filled, within


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """A store in the memory of this process, and how much it may take."""

    entries: int = 100_000
    """Maximum number of idempotency keys."""
    bytes: int = 64 * 1024**2
    """Maximum bytes of the keys and their kept responses."""

    def __post_init__(self) -> None:
        at_least(self, 1, "entries", "bytes")


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """A file in which idempotency keys outlive the process. Rate limits stay in memory."""

    path: str
    timeout: float = 0.2
    """Seconds within which the file must answer."""
    bytes: int = 1024**3
    """Maximum bytes of the kept responses of keys."""

    def __post_init__(self) -> None:
        filled(self, "path")
        above(self, 0, "timeout")
        at_least(self, 1, "bytes")


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """A Redis server with the state that all instances share."""

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

    def __post_init__(self) -> None:
        filled(self, "host", "prefix")
        within(self, 1, 65535, "port")
        at_least(self, 0, "database")
        above(self, 0, "timeout", "permit_life")


StoreSettings = MemorySettings | SqliteSettings | RedisSettings
