"""Publish/subscribe: messages of other instances, on channels to which all of them subscribe.

Two things must be known at once. A pause: an instance that leases permits would learn of it with
the next batch, but a throttle without a rate leases nothing. And that an idempotency key may be
free for which a request here waits.

Both channels have one connection, which is renewed whenever it is lost. Messages that were
published meanwhile are not repeated: so after each renewal the subscribers ask for themselves.
"""

import asyncio
import logging
from typing import Protocol

from proxy.core.clock import Clock
from proxy.core.recorders import StoreRecorder
from proxy.stores.redis.connect import RedisConnector
from proxy.stores.redis.connection import RedisConnection, Reply, StoreFailure
from proxy.stores.redis.link import HEARTBEAT_TIMEOUT

_log = logging.getLogger("holdfast")

_AGAIN_AFTER = 0.25
_AGAIN_AT_MOST = 8.0
"""Seconds between two attempts to subscribe, the first and the longest."""


class PubSubListener(Protocol):
    """Called with the messages of other instances."""

    def pause_heard(self, message: str, seconds: float) -> None:
        """Handle a pause that an instance has published: *message* names it and the bucket."""

    def key_heard(self, name: str) -> None:
        """Handle the message that a key may be free."""

    def messages_missed(self) -> None:
        """Ask for what may have been published while there was no subscription."""


class PubSub:
    """Subscribes to the messages of other instances, while the link is up."""

    def __init__(
        self,
        pauses: str,
        keys: str,
        connector: RedisConnector,
        *,
        listener: PubSubListener,
        clock: Clock,
        recorder: StoreRecorder,
    ) -> None:
        """Subscribe to the channels called *pauses* and *keys*."""
        self._pauses = pauses
        self._keys = keys
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

    def beat(self) -> None:
        """Check that a connection without messages is not dead."""
        connection = self._connection
        if connection is None:
            return
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
            self._connection = await self._connector.connect(self._drop)
            await self._connection.request("SUBSCRIBE", self._pauses, self._keys)
        self._connection.pushed = self._pushed
        self._recorder.operated("subscribe", self._clock.monotonic() - began)
        self._complained = False
        self._listener.messages_missed()
        await self._lost.wait()

    def _complain(self, error: Exception) -> None:
        self._recorder.failed("subscribe")
        if self._wanted.is_set() and not self._complained:
            self._complained = True
            reason = str(error) or "no answer in time"
            _log.warning(
                "pauses that other instances tell of are not heard, nor of keys: %s", reason
            )

    def _drop(self, reason: str) -> None:  # noqa: ARG002 - what is wrong shows in the next attempt
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._lost.set()

    def _pushed(self, reply: Reply) -> None:
        match reply:
            case [b"message", bytes(channel), bytes(payload)]:
                text = payload.decode(errors="replace")
                if channel == self._keys.encode():
                    self._listener.key_heard(text)
                    return
                lasts, _, message = text.partition(" ")
                if lasts.isascii() and lasts.isdigit():
                    self._listener.pause_heard(message, int(lasts) / 1e6)
