"""What all instances share: the permits of every bucket, and keys, behind one link."""

import asyncio
import logging
import re
from hashlib import pbkdf2_hmac
from itertools import count
from uuid import uuid4
from weakref import WeakSet, WeakValueDictionary

from proxy.core.clock import Clock
from proxy.core.recorders import StoreRecorder
from proxy.policy.settings import RedisSettings, ThrottleSettings
from proxy.policy.throttle.limiter import LimiterListener
from proxy.stores.redis.bulk import BulkConnection
from proxy.stores.redis.concurrency import LOOK_EVERY
from proxy.stores.redis.connect import RedisConnector
from proxy.stores.redis.idempotency import RedisIdempotencyStore, keys_channel
from proxy.stores.redis.limiter import SharedLimiter
from proxy.stores.redis.link import Link
from proxy.stores.redis.permit_commands import PermitCommands, pause_channel
from proxy.stores.redis.pubsub import PubSub

_log = logging.getLogger("holdfast")

_ALL_KNOW = 1.0
"""Seconds after which every instance has found out that the store is back."""


_ROUNDS = 50_000
"""How often a password is hashed to get a key from it: some hundredths of a second, once."""


def _digest_key(settings: RedisSettings) -> bytes:
    """What the names of callers' buckets are keyed with.

    All instances must find the same names, and who only sees those (in a dump or a backup, by
    MONITOR, as another user of the server) must not be able to try guesses at a credential on
    them. What all instances have and such a reader has not is the store's password. Without one
    whoever reaches the server is let in, and there is nothing to key them with.
    """
    if not settings.password:
        return b""
    salt = f"holdfast bucket names {settings.prefix}"
    return pbkdf2_hmac("sha256", settings.password.encode(), salt.encode(), _ROUNDS)


class RedisStore:
    """Has the permits of every bucket, and what is known of keys; shares them with all others."""

    def __init__(
        self,
        settings: RedisSettings,
        clock: Clock,
        recorder: StoreRecorder,
        *,
        keeps_keys: bool = False,
    ) -> None:
        """*keeps_keys*: as :meth:`keep_keys`, from the start."""
        self._prefix = settings.prefix
        self._permit_life = settings.permit_life
        self._clock = clock
        self.digest_key = _digest_key(settings)
        """The same on all instances."""
        self._instance = uuid4().hex
        """Our name among the instances."""
        dialler = RedisConnector(settings, clock)
        self._link = Link(
            dialler,
            f"{settings.prefix}:instances",
            self._instance,
            listener=self,
            clock=clock,
            recorder=recorder,
        )
        self._bulk = BulkConnection(dialler, clock, recorder)
        self.claims = RedisIdempotencyStore(
            self._link, self._bulk, settings.prefix, self.digest_key
        )
        """What is known of idempotency keys."""
        self._news = PubSub(
            pause_channel(settings.prefix),
            keys_channel(settings.prefix),
            dialler,
            listener=self,
            clock=clock,
            recorder=recorder,
        )
        self._permits: WeakSet[SharedLimiter] = WeakSet()
        """Those in use. After a reload some may be waited for whose bucket others have by now."""
        self._by_bucket: WeakValueDictionary[str, SharedLimiter] = WeakValueDictionary()
        """Of each bucket the latest."""
        self._placed: set[SharedLimiter] = set()
        """Those that have places."""
        self._timer: asyncio.TimerHandle | None = None
        """For the next look at those."""
        self._trust: asyncio.TimerHandle | None = None
        """For the moment in which everybody knows that the store is back."""
        self._numbers = count(1)
        self._asks_of_eviction = keeps_keys
        """Whether it is yet to be seen that the server drops no keys."""
        self._was_away = False
        """Whether others may have been without the store as well, and may not know yet."""

    def __repr__(self) -> str:
        return f"<store, {self._link}, {len(self._by_bucket)} buckets>"

    @property
    def state(self) -> str:
        """``up`` or ``down``."""
        return "up" if self._link.is_up else "down"

    @property
    def instances(self) -> int:
        """How many share the store, this one included, as far as was last seen."""
        return self._link.instances

    async def start(self) -> None:
        """Connect, if that can be done; go on trying otherwise. Takes no longer than a call."""
        await self._link.start()
        self._was_away = True  # whenever it comes up from now on

    async def close(self) -> None:
        """Say good-bye and leave nothing behind: no connection, no task, no timer."""
        for permits in self._all():
            permits.close()
        for timer in (self._timer, self._trust):
            if timer is not None:
                timer.cancel()
        self._timer = self._trust = None
        self._placed.clear()
        await self._news.close()
        self._bulk.drop("the store is closed")
        await self._link.close()

    def permits(
        self, bucket: str, settings: ThrottleSettings, listener: LimiterListener
    ) -> SharedLimiter:
        """The permits of *bucket*, one object at a time for each."""
        calls = PermitCommands(
            self._link, self._prefix, bucket, self._instance, next(self._numbers)
        )
        permits = SharedLimiter(
            settings, listener, calls, self, self._clock, permit_life=self._permit_life
        )
        self._permits.add(permits)
        self._by_bucket[bucket] = permits
        if not settings.rates:
            permits.look_for_pause()  # it will not hear of it by asking for permits
        return permits

    def keep_keys(self) -> None:
        """Idempotency keys are kept in it: say so in the log if the server may drop them."""
        self._asks_of_eviction = True
        if self._link.is_up:
            self._look_for_eviction()

    def _look_for_eviction(self) -> None:
        def told(memory: str) -> None:
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

        self._link.look_at_memory(told)

    def _all(self) -> list[SharedLimiter]:
        return list(self._permits)

    # How the link does.

    def came_up(self) -> None:
        """All buckets use the store again, and soon nothing else."""
        now = self._clock.monotonic()
        self._news.start()
        self.claims.came_up()
        if self._asks_of_eviction:
            self._look_for_eviction()
        for permits in self._all():
            permits.came_up(now)
        if self._was_away:
            self._trust = asyncio.get_running_loop().call_later(_ALL_KNOW, self._trust_store)
        else:
            self._trust_store()

    def _trust_store(self) -> None:
        self._trust = None
        for permits in self._all():
            permits.trust_store()

    def went_down(self) -> None:
        """No bucket waits for the store any more."""
        now = self._clock.monotonic()
        self._news.stop()
        self._bulk.drop("the store is down")
        if self._trust is not None:
            self._trust.cancel()
            self._trust = None
        for permits in self._all():
            permits.went_down(now)

    def beat(self) -> None:
        """Once a second while it is up."""
        self._news.beat()

    # What the channel says.

    def pause_heard(self, words: str, seconds: float) -> None:
        """An instance tells of a pause: its name and the bucket's, and how long it lasts."""
        instance, _, bucket = words.partition(" ")
        permits = self._by_bucket.get(bucket)
        if permits is not None and instance != self._instance:
            permits.hear_pause(seconds)

    def key_heard(self, name: str) -> None:
        """An instance tells that a key may be free for which somebody waits."""
        self.claims.heard(name)

    def news_missed(self) -> None:
        """Others may have told of pauses and keys, and we did not listen."""
        self.claims.missed()
        for permits in self._all():
            permits.look_for_pause()

    # Places.

    def look_after(self, permits: SharedLimiter) -> None:
        """Look after *permits* until they have no places any more."""
        self._placed.add(permits)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        now = self._clock.monotonic()
        self._placed = {permits for permits in self._placed if permits.look(now)}
        self._timer = None
        if self._placed:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)
