"""Publish/subscribe: messages of other instances, on channels to which all of them subscribe.

Two things must be known at once. A pause: an instance that leases permits would learn of it with
the next batch, but a throttle without a rate leases nothing. And that an idempotency key may be
free for which a request here waits.

Both channels have one connection, which is renewed whenever it is lost. Messages that were
published meanwhile are not repeated: so after each renewal the subscribers ask for themselves.
"""

import asyncio
import logging

from proxy.core.clock import Clock
from proxy.core.recorders import StoreRecorder
from proxy.stores.redis.connect import RedisConnector
from proxy.stores.redis.connection import RedisConnection, Reply, StoreFailure
from proxy.stores.redis.link import HEARTBEAT_TIMEOUT, StoreListener

_log = logging.getLogger("holdfast")

_AGAIN_AFTER = 0.25
_AGAIN_AT_MOST = 8.0
"""Seconds between two attempts to subscribe, the first and the longest."""
_CHECK_EVERY = 1.0
"""Seconds between two checks of a connection on which nothing may come."""


class PubSub:
    """Subscribes to the messages of other instances, while the link is up."""

    def __init__(
        self,
        channels: tuple[str, ...],
        connector: RedisConnector,
        *,
        listener: StoreListener,
        clock: Clock,
        recorder: StoreRecorder,
    ) -> None:
        """Subscribe to *channels*."""
        self._channels = channels
        self._connector = connector
        self._clock = clock
        self._recorder = recorder
        self._listener = listener
        self._connection: RedisConnection | None = None
        self._wanted = asyncio.Event()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._complained = False

    def start(self) -> None:
        """Subscribe, in the background, until :meth:`stop`."""
        self._wanted.set()
        if self._task is None:
            self._task = asyncio.create_task(self._keep_listening(), name="store pubsub")

    def stop(self) -> None:
        """Unsubscribe for now."""
        self._wanted.clear()
        self._drop("")

    async def close(self) -> None:
        """Unsubscribe, and leave nothing behind."""
        self.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def _check(self, connection: RedisConnection) -> None:
        """Check that a connection without messages is not dead."""
        if self._clock.monotonic() - connection.heard > HEARTBEAT_TIMEOUT:
            connection.fail("silence")
        else:
            connection.write(("PING",))

    async def _keep_listening(self) -> None:
        again_after = _AGAIN_AFTER
        while True:
            await self._wanted.wait()
            try:
                await self._listen()
                again_after = _AGAIN_AFTER
            except (StoreFailure, OSError, TimeoutError) as error:
                self._complain(error)
                again_after = min(again_after * 2, _AGAIN_AT_MOST)
            finally:
                self._drop("")
            await asyncio.sleep(again_after * (0.75 + self._clock.roll() / 2))

    async def _listen(self) -> None:
        """Receive messages until the connection is lost."""
        self._lost.clear()
        began = self._clock.monotonic()
        async with asyncio.timeout(self._connector.timeout):
            connection = self._connection = await self._connector.connect(self._drop)
            await connection.request("SUBSCRIBE", *self._channels)
        connection.pushed = self._pushed
        self._recorder.operated("subscribe", self._clock.monotonic() - began)
        self._complained = False
        self._listener.missed()
        while not self._lost.is_set():
            try:
                async with asyncio.timeout(_CHECK_EVERY):
                    await self._lost.wait()
            except TimeoutError:
                self._check(connection)

    def _complain(self, error: Exception) -> None:
        self._recorder.failed("subscribe")
        if self._wanted.is_set() and not self._complained:
            self._complained = True
            reason = str(error) or "no answer in time"
            _log.warning(
                "pauses and keys that other instances announce are not received: %s", reason
            )

    def _drop(self, reason: str) -> None:  # noqa: ARG002 - what is wrong shows in the next attempt
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._lost.set()

    def _pushed(self, reply: Reply) -> None:
        match reply:
            case [b"message", bytes(channel), bytes(payload)]:
                self._listener.heard(channel.decode(), payload.decode(errors="replace"))
