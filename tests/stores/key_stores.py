"""The stores of idempotency keys, for tests that are the same for all of them.

A :class:`KeyStore` opens one or more stores on the same data, and time passes when a test says
so. For Redis, whose clock cannot be set, the stored data is moved back in time instead."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

from redis.asyncio import Redis

from proxy.core.clock import Clock
from proxy.observe.metrics.recorders import Metrics
from proxy.policy.idempotency.record import Claim, Ending, RecordState
from proxy.policy.settings import MemorySettings
from proxy.policy.settings.store import SqliteSettings
from proxy.stores import IdempotencyStore
from proxy.stores.memory import MemoryIdempotencyStore
from proxy.stores.sqlite import OPERATIONS, SqliteStore
from tests.stores.running_stores import CLOCK, Tally, running_store
from tests.support.clock import FakeClock
from tests.support.redis_server import RedisServer

NAME = "n" * 64
PRINT = bytes(range(32))
LEASE = 10.0
TTL = 100.0


def ask(
    owner: str = "one",
    name: str = NAME,
    *,
    fingerprint: bytes = PRINT,
    lease: float = LEASE,
    ttl: float = TTL,
    takes_over: bool = True,
    waited_for: str = "",
    caller: str = "",
) -> Claim:
    """Return a claim by *owner*."""
    terms = (lease, ttl, takes_over, waited_for, caller)
    return Claim(name, owner, fingerprint, "charges", *terms)


def done(result: bytes = b"", ttl: float = TTL) -> Ending:
    """Return the ending of a request that has run."""
    return Ending(RecordState.DONE, ttl, result)


def freed(result: bytes = b"") -> Ending:
    """Return an ending that sets the key free; *result* is for the requests that waited."""
    return Ending(None, TTL, result)


class KeyStore(ABC):
    """The data of a store, and the stores that are opened on it."""

    is_shared = True
    """Whether several stores can share the data."""

    def __init__(self) -> None:
        self._stores = AsyncExitStack()

    @abstractmethod
    async def open(self) -> IdempotencyStore:
        """Open another store on the same data."""

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """Let so much time pass."""

    def wall(self) -> float:
        """Return the seconds since the epoch, as the store counts them."""
        return CLOCK.wall()

    async def close(self) -> None:
        """Close all stores that were opened."""
        await self._stores.aclose()


class MemoryKeyStore(KeyStore):
    """The memory of a process: one store, however often it is opened."""

    is_shared = False

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self._store = MemoryIdempotencyStore(
            MemorySettings(), self.clock, Metrics(version="", parser="", loaded_at=0.0)
        )

    async def open(self) -> IdempotencyStore:
        return self._store

    def wall(self) -> float:
        return self.clock.wall()

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


@asynccontextmanager
async def running_file(
    path: Path, clock: Clock, *, answers_within: float = 2.0, tally: Tally | None = None
) -> AsyncIterator[SqliteStore]:
    """Yield a store that was started, on a file."""
    settings = SqliteSettings(str(path), answers_within)
    store = SqliteStore(settings, clock, tally or Tally(OPERATIONS))
    await store.start()
    try:
        yield store
    finally:
        await store.close()


class SqliteKeyStore(KeyStore):
    """A file."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.path = folder / f"{uuid4().hex}.db"

    async def open(self) -> IdempotencyStore:
        return await self._stores.enter_async_context(running_file(self.path, self.clock))

    def wall(self) -> float:
        return self.clock.wall()

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


class RedisKeyStore(KeyStore):
    """A prefix on a server."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        self._settings = server.settings(prefix=f"test-{uuid4().hex}")
        self._server = server

    async def open(self) -> IdempotencyStore:
        store = await self._stores.enter_async_context(running_store(self._settings))
        return store.idempotency

    async def advance(self, seconds: float) -> None:
        async with self._server.client() as client:
            async for key in client.scan_iter(f"{self._settings.prefix}:key:*"):
                for field in ("created", "lease"):
                    await client.hincrby(key, field, -round(seconds * 1e6))
                await _age(client, key, seconds)
            async for key in client.scan_iter(f"{self._settings.prefix}:left:*"):
                await _age(client, key, seconds)


async def _age(client: Redis, key: str, seconds: float) -> None:
    await client.pexpire(key, await client.pttl(key) - round(seconds * 1e3))
