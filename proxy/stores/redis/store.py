"""The store that all instances share: the limiters of every bucket, and keys, behind one link."""

import asyncio
import logging
import re
from functools import partial
from hashlib import pbkdf2_hmac
from itertools import count
from uuid import uuid4
from weakref import WeakSet, WeakValueDictionary

from proxy.core.clock import Clock
from proxy.core.recorders import StoreMeter, StoreRecorder
from proxy.policy.settings import ThrottleSettings
from proxy.policy.settings.store import RedisSettings
from proxy.policy.throttle.limiter import LimiterListener, Limiters
from proxy.stores import OpenedStore
from proxy.stores.redis.bulk import BulkConnection
from proxy.stores.redis.concurrency import SharedConcurrencyLimiter
from proxy.stores.redis.connect import RedisConnector
from proxy.stores.redis.idempotency import RedisIdempotencyStore, keys_channel
from proxy.stores.redis.limiter import SharedLimiter
from proxy.stores.redis.link import Link
from proxy.stores.redis.permit_commands import PermitCommands, pause_channel
from proxy.stores.redis.pubsub import PubSub
from proxy.stores.redis.rates import SharedRateLimiter
from proxy.stores.redis.scripts import OPERATIONS

_log = logging.getLogger("holdfast")

_ALL_KNOW = 1.0
"""Seconds after which every instance has found out that the store is back."""


_ROUNDS = 50_000
"""How often a password is hashed to get a key from it: some hundredths of a second, once."""


def _digest_key(settings: RedisSettings) -> bytes:
    """Return the key of the digests that name callers' buckets.

    All instances must find the same names, and a reader that only sees those (in a dump or a
    backup, by MONITOR, as another user of the server) must not be able to try guesses at a
    credential on them. What all instances have and such a reader has not is the store's password.
    Without one every client that reaches the server is let in, and there is nothing to key them
    with.
    """
    if not settings.password:
        return b""
    salt = f"holdfast bucket names {settings.prefix}"
    return pbkdf2_hmac("sha256", settings.password.encode(), salt.encode(), _ROUNDS)


class RedisStore:
    """Has the limiters of every bucket, and the records of keys; shares them with all instances."""

    def __init__(
        self,
        settings: RedisSettings,
        clock: Clock,
        recorder: StoreRecorder,
        *,
        keeps_keys: bool = False,
    ) -> None:
        """Connect nothing yet; *keeps_keys*: as :meth:`keep_keys`, from the start."""
        self._prefix = settings.prefix
        self._permit_life = settings.permit_life
        self._clock = clock
        self.digest_key = _digest_key(settings)
        """Equal on all instances."""
        self._instance = uuid4().hex
        """Name of this instance."""
        connector = RedisConnector(settings, clock)
        self._link = Link(
            connector,
            f"{settings.prefix}:instances",
            self._instance,
            listener=self,
            clock=clock,
            recorder=recorder,
        )
        self._bulk = BulkConnection(connector, clock, recorder)
        self.idempotency = RedisIdempotencyStore(
            self._link, self._bulk, settings.prefix, self.digest_key
        )
        """The records of idempotency keys."""
        self._keys_channel = keys_channel(settings.prefix)
        self._pubsub = PubSub(
            (pause_channel(settings.prefix), self._keys_channel),
            connector,
            listener=self,
            clock=clock,
            recorder=recorder,
        )
        self._limiters: WeakSet[SharedLimiter] = WeakSet()
        """Limiters in use. After a reload some may be waited for whose bucket has a newer one by
        now."""
        self._by_bucket: WeakValueDictionary[str, SharedRateLimiter] = WeakValueDictionary()
        """The latest limiter of the rates of each bucket."""
        self._trust: asyncio.TimerHandle | None = None
        """For the moment in which all instances know that the store is back."""
        self._numbers = count(1)
        self._asks_of_eviction = keeps_keys
        """Whether it is yet to be checked that the server evicts no keys."""
        self._was_away = False
        """Whether other instances may have been without the store as well, and may not know yet."""

    def __repr__(self) -> str:
        return f"<store, {self._link}, {len(self._by_bucket)} buckets>"

    @property
    def state(self) -> str:
        """``up`` or ``down``."""
        return "up" if self._link.is_up else "down"

    async def start(self) -> None:
        """Connect, if that can be done; go on trying otherwise. Takes no longer than a call."""
        await self._link.start()
        self._was_away = True  # whenever it comes up from now on

    async def close(self) -> None:
        """Unregister and leave nothing behind: no connection, no task, no timer."""
        for limiter in self._all():
            limiter.close()
        self._stop_trusting()
        await self._pubsub.close()
        self._bulk.drop("the store is closed")
        await self._link.close()

    def open_bucket(
        self, bucket: str, settings: ThrottleSettings, listener: LimiterListener
    ) -> Limiters:
        """Return the limiters of *bucket*, used by one queue at a time."""
        commands = PermitCommands(
            self._link, self._prefix, bucket, self._instance, next(self._numbers)
        )
        rates = SharedRateLimiter(settings, listener, commands, self._clock, self._permit_life)
        self._limiters.add(rates)
        self._by_bucket[bucket] = rates
        if not settings.rates:
            rates.missed()  # it will not learn of a pause by asking for permits
        return Limiters(rates, partial(self._new_concurrency, commands, listener))

    def _new_concurrency(
        self,
        commands: PermitCommands,
        listener: LimiterListener,
        settings: ThrottleSettings,
        under_way: int,
    ) -> SharedConcurrencyLimiter:
        limiter = SharedConcurrencyLimiter(settings, listener, commands, self._clock, under_way)
        self._limiters.add(limiter)
        return limiter

    def keep_keys(self) -> None:
        """Note that idempotency keys are kept here; warn if the server may evict them."""
        self._asks_of_eviction = True
        if self._link.is_up:
            self._look_for_eviction()

    def _look_for_eviction(self) -> None:
        def on_reply(memory: str) -> None:
            if not self._asks_of_eviction:
                return
            self._asks_of_eviction = False
            policy = re.search(r"^maxmemory_policy:([\w-]+)", memory, re.MULTILINE)
            if policy is not None and policy[1] != "noeviction":
                _log.warning(
                    "the store at %s may forget idempotency keys when its memory is full"
                    " (maxmemory-policy %s): set it to noeviction",
                    self._link.address,
                    policy[1],
                )

        self._link.ask_memory(on_reply)

    def _all(self) -> list[SharedLimiter]:
        return list(self._limiters)

    # Listener of the link and of the channels.

    def came_up(self) -> None:
        """Let all buckets use the store again, and soon nothing else."""
        now = self._clock.monotonic()
        self._pubsub.start()
        self.idempotency.came_up()
        if self._asks_of_eviction:
            self._look_for_eviction()
        for limiter in self._all():
            limiter.came_up(now)
        if self._was_away:
            self._trust = asyncio.get_running_loop().call_later(_ALL_KNOW, self._trust_store)
        else:
            self._trust_store()

    def _trust_store(self) -> None:
        self._trust = None
        for limiter in self._all():
            limiter.trust_store()

    def went_down(self) -> None:
        """Let no bucket wait for the store any more."""
        now = self._clock.monotonic()
        self._pubsub.stop()
        self._bulk.drop("the store is down")
        self._stop_trusting()
        for limiter in self._all():
            limiter.went_down(now)

    def _stop_trusting(self) -> None:
        if self._trust is not None:
            self._trust.cancel()
            self._trust = None

    def heard(self, channel: str, message: str) -> None:
        """Pass on what an instance has published: a key may be free, or a bucket is paused."""
        if channel == self._keys_channel:
            self.idempotency.heard(message)
            return
        match message.split(" ", 2):
            case [lasts, instance, bucket] if lasts.isascii() and lasts.isdigit():
                rates = self._by_bucket.get(bucket)
                if rates is not None and instance != self._instance:
                    rates.hear_pause(int(lasts) / 1e6)

    def missed(self) -> None:
        """Ask for pauses and keys whose messages may have been missed."""
        self.idempotency.missed()
        for limiter in self._all():
            limiter.missed()


def open_redis(
    settings: RedisSettings, clock: Clock, meter: StoreMeter, *, keeps_keys: bool
) -> OpenedStore:
    """Make the store of a Redis server: limits and keys, shared by all instances."""
    recorder = meter.store(OPERATIONS)
    store = RedisStore(settings, clock, recorder, keeps_keys=keeps_keys)
    return OpenedStore(store, store.idempotency, store, recorder, store.keep_keys)
