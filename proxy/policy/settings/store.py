"""Settings of the store, which keeps shared state: in memory, in a SQLite file, or in Redis."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from proxy.policy.settings.upstream import UpstreamTls
from proxy.policy.settings.validation import FILLED, Validated, above, at_least, within


class StoreCapabilities(Validated):
    """What a store can do; each kind of settings says what is different for its store."""

    __slots__ = ()

    shares_limits: ClassVar[bool] = False
    """Whether processes and instances count their calls together."""
    shares_keys: ClassVar[bool] = False
    """Whether processes know each other's idempotency keys."""
    spans_machines: ClassVar[bool] = False
    """Whether instances on several machines share what it keeps."""

    @property
    def permit_life(self) -> float | None:
        """Seconds for which a leased permit of a rate may be used; None: derived from the rate."""
        return None


@dataclass(frozen=True, slots=True)
class MemorySettings(StoreCapabilities):
    """A store in the memory of this process, and how much it may take."""

    entries: Annotated[int, at_least(1)] = 100_000
    """Maximum number of idempotency keys."""
    bytes: Annotated[int, at_least(1)] = 64 * 1024**2
    """Maximum bytes of the keys and their kept responses."""


@dataclass(frozen=True, slots=True)
class SqliteSettings(StoreCapabilities):
    """A file in which idempotency keys outlive the process. Rate limits stay in memory."""

    shares_keys: ClassVar[bool] = True

    path: Annotated[str, FILLED]
    timeout: Annotated[float, above(0)] = 0.2
    """Seconds within which the file must answer."""
    bytes: Annotated[int, at_least(1)] = 1024**3
    """Maximum bytes of the kept responses of keys."""


@dataclass(frozen=True, slots=True)
class RedisSettings(StoreCapabilities):
    """A Redis server with the state that all instances share."""

    shares_limits: ClassVar[bool] = True
    shares_keys: ClassVar[bool] = True
    spans_machines: ClassVar[bool] = True

    host: Annotated[str, FILLED]
    port: Annotated[int, within(1, 65535)] = 6379
    database: Annotated[int, at_least(0)] = 0
    username: str | None = None
    password: str | None = field(repr=False, default=None)
    tls: UpstreamTls | None = None
    """TLS to the server; None: plain TCP."""
    prefix: Annotated[str, FILLED] = "holdfast"
    """The beginning of every Redis key."""
    timeout: Annotated[float, above(0)] = 0.2
    """Seconds within which the server must answer."""
    permit_life: Annotated[float | None, above(0)] = None
    """Seconds for which a leased permit of a rate may be used; None: derived from the rate."""


StoreSettings = MemorySettings | SqliteSettings | RedisSettings
