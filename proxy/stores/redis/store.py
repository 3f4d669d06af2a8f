"""One limit for all instances: the permits of every bucket, behind one link."""

import asyncio
from itertools import count
from uuid import uuid4
from weakref import WeakValueDictionary

from proxy.core import Clock, StoreRecorder
from proxy.policy.permits import PermitsListener
from proxy.policy.settings import RedisSettings, ThrottleSettings
from proxy.stores.redis.link import Link
from proxy.stores.redis.pauses import PauseChannel
from proxy.stores.redis.permits import SharedPermits
from proxy.stores.redis.places import LOOK_EVERY


class RedisStore:
    """Has the permits of every bucket, and shares them with all other instances."""

    def __init__(self, settings: RedisSettings, clock: Clock, recorder: StoreRecorder) -> None:
        self._prefix = settings.prefix
        self._clock = clock
        self._instance = uuid4().hex
        """Our name among the instances."""
        self._link = Link(settings, clock, recorder, self._instance, self)
        self._channel = f"{settings.prefix}:pauses"
        self._pauses = PauseChannel(
            self._channel, self._link, clock, recorder,
            heard=self._heard_pause, renewed=self._may_have_missed_pauses,
        )  # fmt: skip
        self._permits: WeakValueDictionary[str, SharedPermits] = WeakValueDictionary()
        """Those in use, by bucket."""
        self._holding: set[SharedPermits] = set()
        """Those that hold places."""
        self._look_timer: asyncio.TimerHandle | None = None
        self._numbers = count(1)

    def __repr__(self) -> str:
        return f"<store, {self._link}, {len(self._permits)} buckets>"

    @property
    def state(self) -> str:
        """``up`` or ``down``."""
        return "up" if self._link.is_up else "down"

    async def start(self) -> None:
        """Connect, if that can be done; go on trying otherwise. Takes no longer than a call."""
        await self._link.start()

    async def close(self) -> None:
        """Say good-bye and leave nothing behind: no connection, no task, no timer."""
        stopped = self._pauses.stop()
        if stopped is not None:
            await asyncio.wait([stopped])
        await self._link.close()
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        self._holding.clear()
        for permits in list(self._permits.values()):
            permits.close()

    def permits(
        self, bucket: str, settings: ThrottleSettings, listener: PermitsListener
    ) -> SharedPermits:
        """The permits of *bucket*, one object at a time for each."""
        permits = SharedPermits(
            key=f"{self._prefix}:{bucket}",
            # Places belong to the object: whoever asks for the bucket anew holds none yet.
            name=f"{self._instance}.{next(self._numbers)}",
            pauses=(self._channel, f"{self._instance} {bucket}"),
            settings=settings,
            listener=listener,
            link=self._link,
            holders=self,
            clock=self._clock,
        )
        self._permits[bucket] = permits
        if not settings.rates:
            permits.look_for_pause()
        return permits

    # How the link does.

    def came_up(self) -> None:
        """All buckets use the store from now on."""
        now = self._clock.monotonic()
        self._pauses.start()
        for permits in list(self._permits.values()):
            permits.came_up(now)

    def went_down(self) -> None:
        """No bucket waits for the store any more."""
        now = self._clock.monotonic()
        self._pauses.stop()
        for permits in list(self._permits.values()):
            permits.went_down(now)

    def beat(self) -> None:
        """Once a second while it is up."""
        self._pauses.beat()

    # Pauses.

    def _heard_pause(self, words: str, seconds: float) -> None:
        instance, _, bucket = words.partition(" ")
        permits = self._permits.get(bucket)
        if permits is not None and instance != self._instance:
            permits.hear_pause(self._clock.monotonic(), seconds)

    def _may_have_missed_pauses(self) -> None:
        for permits in list(self._permits.values()):
            permits.look_for_pause()

    # Places.

    def hold(self, permits: SharedPermits) -> None:
        """Look after *permits* until they hold no place any more."""
        self._holding.add(permits)
        if self._look_timer is None:
            self._look_timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        now = self._clock.monotonic()
        for permits in list(self._holding):
            if not permits.look(now):
                self._holding.discard(permits)
        self._look_timer = None
        if self._holding:
            self._look_timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)
