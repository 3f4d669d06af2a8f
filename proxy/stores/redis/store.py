"""The store that all instances share: the limiters of every bucket, and keys, behind one link."""

import asyncio
import logging
import re
from hashlib import pbkdf2_hmac
from itertools import count
from uuid import uuid4
from weakref import WeakSet, WeakValueDictionary

from proxy.core.clock import Clock
from proxy.core.recorders import StoreMeter, StoreRecorder
from proxy.policy.settings import RedisSettings, ThrottleSettings
from proxy.policy.throttle.limiter import LimiterListener
from proxy.stores import OpenedStore
from proxy.stores.redis.bulk import BulkConnection
from proxy.stores.redis.concurrency import LOOK_EVERY
from proxy.stores.redis.connect import RedisConnector
from proxy.stores.redis.idempotency import RedisIdempotencyStore, keys_channel
from proxy.stores.redis.limiter import SharedLimiter
from proxy.stores.redis.link import Link
from proxy.stores.redis.permit_commands import PermitCommands, pause_channel
from proxy.stores.redis.pubsub import PubSub
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
        self._pubsub = PubSub(
            pause_channel(settings.prefix),
            keys_channel(settings.prefix),
            connector,
            listener=self,
            clock=clock,
            recorder=recorder,
        )
        self._limiters: WeakSet[SharedLimiter] = WeakSet()
        """Limiters in use. After a reload some may be waited for whose bucket has a newer one by
        now."""
        self._by_bucket: WeakValueDictionary[str, SharedLimiter] = WeakValueDictionary()
        """The latest limiter of each bucket."""
        self._with_slots: set[SharedLimiter] = set()
        """Limiters that have concurrency slots."""
        self._timer: asyncio.TimerHandle | None = None
        """For the next look at those."""
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

    @property
    def instances(self) -> int:
        """Number of instances that share the store, this one included, as far as was last seen."""
        return self._link.instances

    async def start(self) -> None:
        """Connect, if that can be done; go on trying otherwise. Takes no longer than a call."""
        await self._link.start()
        self._was_away = True  # whenever it comes up from now on

    async def close(self) -> None:
        """Unregister and leave nothing behind: no connection, no task, no timer."""
        for limiter in self._all():
            limiter.close()
        for timer in (self._timer, self._trust):
            if timer is not None:
                timer.cancel()
        self._timer = self._trust = None
        self._with_slots.clear()
        await self._pubsub.close()
        self._bulk.drop("the store is closed")
        await self._link.close()

    def limiter(
        self, bucket: str, settings: ThrottleSettings, listener: LimiterListener
    ) -> SharedLimiter:
        """Return the limiter of *bucket*, one object at a time for each."""
        commands = PermitCommands(
            self._link, self._prefix, bucket, self._instance, next(self._numbers)
        )
        limiter = SharedLimiter(
            settings, listener, commands, self, self._clock, permit_life=self._permit_life
        )
        self._limiters.add(limiter)
        self._by_bucket[bucket] = limiter
        if not settings.rates:
            limiter.look_for_pause()  # it will not learn of it by asking for permits
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

    # Listener of the link.

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
        if self._trust is not None:
            self._trust.cancel()
            self._trust = None
        for limiter in self._all():
            limiter.went_down(now)

    def beat(self) -> None:
        """Check the subscription, once a second while the link is up."""
        self._pubsub.beat()

    # Listener of the channels.

    def pause_heard(self, message: str, seconds: float) -> None:
        """Pass on a pause: *message* is the instance's name and the bucket's."""
        instance, _, bucket = message.partition(" ")
        limiter = self._by_bucket.get(bucket)
        if limiter is not None and instance != self._instance:
            limiter.hear_pause(seconds)

    def key_heard(self, name: str) -> None:
        """Wake requests that wait for a key: an instance has published that it may be free."""
        self.idempotency.heard(name)

    def messages_missed(self) -> None:
        """Ask for pauses and keys whose messages may have been missed."""
        self.idempotency.missed()
        for limiter in self._all():
            limiter.look_for_pause()

    # Concurrency slots.

    def keep_renewing(self, limiter: SharedLimiter) -> None:
        """Renew the slots of *limiter* regularly until it has none any more."""
        self._with_slots.add(limiter)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        now = self._clock.monotonic()
        self._with_slots = {limiter for limiter in self._with_slots if limiter.look(now)}
        self._timer = None
        if self._with_slots:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)


def open_redis(
    settings: RedisSettings, clock: Clock, meter: StoreMeter, *, keeps_keys: bool
) -> OpenedStore:
    """Make the store of a Redis server: limits and keys, shared by all instances."""
    recorder = meter.store(OPERATIONS)
    store = RedisStore(settings, clock, recorder, keeps_keys=keeps_keys)
    return OpenedStore(store, store.idempotency, store, recorder, store.keep_keys)
