"""What other instances tell, by channels that all of them listen to.

Two things must be heard of at once. A pause: who leases permits would learn of it with the
next lot, but a throttle without a rate leases nothing. And that an idempotency key may be
free for which somebody here waits.

Both channels have one connection, which is renewed whenever it is lost. What was announced
meanwhile nobody repeats: so after each renewal everybody asks for himself.
"""

import asyncio
import logging
from typing import Protocol

from proxy.core.clock import Clock
from proxy.core.recorders import StoreRecorder
from proxy.stores.redis.connect import RedisConnector
from proxy.stores.redis.connection import RedisConnection, Reply, StoreFailure
from proxy.stores.redis.link import SILENCE

_log = logging.getLogger("holdfast")

_AGAIN_AFTER = 0.25
_AGAIN_AT_MOST = 8.0
"""Seconds between two attempts to listen, the first and the longest."""


class PubSubListener(Protocol):
    """Who wants to know."""

    def pause_heard(self, words: str, seconds: float) -> None:
        """Somebody told of a pause, in these words; so long it lasts."""

    def key_heard(self, name: str) -> None:
        """Somebody told that a key may be free."""

    def news_missed(self) -> None:
        """We listen again: who knows what was told meanwhile."""


class PubSub:
    """Listens for what others tell, while the link is up."""

    def __init__(
        self,
        retry_waits: str,
        keys: str,
        dialler: RedisConnector,
        *,
        listener: PubSubListener,
        clock: Clock,
        recorder: StoreRecorder,
    ) -> None:
        """*retry_waits* and *keys* are the names of the channels."""
        self._pauses = retry_waits
        self._keys = keys
        self._dialler = dialler
        self._clock = clock
        self._recorder = recorder
        self._listener = listener
        self._connection: RedisConnection | None = None
        self._wanted = asyncio.Event()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._complained = False

    def start(self) -> None:
        """Listen, in the background, until :meth:`stop`."""
        self._wanted.set()
        if self._task is None:
            self._task = asyncio.create_task(self._keep_listening(), name="store news")

    def stop(self) -> None:
        """Listen no longer, for now."""
        self._wanted.clear()
        self._drop("")

    async def close(self) -> None:
        """Listen no longer, and leave nothing behind."""
        self.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def beat(self) -> None:
        """See to it that a connection without messages is told from a dead one."""
        connection = self._connection
        if connection is None:
            return
        if self._clock.monotonic() - connection.heard > SILENCE:
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
        """Listen until the connection is lost."""
        self._lost.clear()
        began = self._clock.monotonic()
        async with asyncio.timeout(self._dialler.timeout):
            self._connection = await self._dialler.dial(self._drop)
            await self._connection.request("SUBSCRIBE", self._pauses, self._keys)
        self._connection.pushed = self._pushed
        self._recorder.operated("subscribe", self._clock.monotonic() - began)
        self._complained = False
        self._listener.news_missed()
        await self._lost.wait()

    def _complain(self, error: Exception) -> None:
        self._recorder.failed("subscribe")
        if self._wanted.is_set() and not self._complained:
            self._complained = True
            why = str(error) or "no answer in time"
            _log.warning("pauses that other instances tell of are not heard, nor of keys: %s", why)

    def _drop(self, why: str) -> None:  # noqa: ARG002 - what is wrong shows in the next attempt
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._lost.set()

    def _pushed(self, reply: Reply) -> None:
        match reply:
            case [b"message", bytes(channel), bytes(message)]:
                text = message.decode(errors="replace")
                if channel == self._keys.encode():
                    self._listener.key_heard(text)
                    return
                lasts, _, words = text.partition(" ")
                if lasts.isascii() and lasts.isdigit():
                    self._listener.pause_heard(words, int(lasts) / 1e6)
