"""Where shared state is kept: in memory, in a file, or in Redis."""

from dataclasses import dataclass, field

from proxy.policy.settings.upstream import UpstreamTls


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What this process keeps for itself, and how much of it."""

    entries: int = 100_000
    """Most idempotency keys."""
    bytes: int = 64 * 1024**2
    """Most bytes that they and their results take."""


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """A file in which idempotency keys outlive the process. Limits are kept in memory."""

    path: str
    timeout: float = 0.2
    """Seconds in which it must answer."""
    bytes: int = 1024**3
    """Most bytes that the results of keys take."""


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Where the state is that all instances share."""

    host: str
    port: int = 6379
    database: int = 0
    username: str | None = None
    password: str | None = field(repr=False, default=None)
    tls: UpstreamTls | None = None
    """None: in clear."""
    prefix: str = "holdfast"
    """What the names of all its keys begin with."""
    timeout: float = 0.2
    """Seconds in which it must answer."""
    permit_life: float | None = None
    """Seconds for which a leased permit of a rate may be used; None: what suits the rate."""


StoreSettings = MemorySettings | SqliteSettings | RedisSettings
