"""A connection of their own for large results, in either direction.

A crowd of requests that fetch large results, or store them, fills this one. Claims, permits and
heartbeats go over the link and wait behind none of it. Back-pressure: only a few calls are under
way at a time, so that neither side has more than a few results in its buffers; the others wait.
No call waits for longer than a fixed time, and a failure concerns only the calls that wait.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hiredis import ReplyError

from proxy.core.clock import Clock
from proxy.core.recorders import StoreRecorder
from proxy.stores import PATIENCE, StoreError
from proxy.stores.redis.connect import RedisConnector
from proxy.stores.redis.connection import Command, RedisConnection, Reply, StoreFailure
from proxy.stores.redis.link import is_unknown_script
from proxy.stores.redis.scripts import Script

_AT_ONCE = 8
"""Calls that are under way at the same time."""
_RECONNECT_AFTER = 0.25
"""Seconds after a connection could not be made until it is tried again."""

_T = TypeVar("_T")


class BulkConnection:
    """Makes its connection when it is first needed, and again when that was lost."""

    def __init__(self, connector: RedisConnector, clock: Clock, recorder: StoreRecorder) -> None:
        self._connector = connector
        self._clock = clock
        self._recorder = recorder
        self._patience = max(PATIENCE, 2 * connector.timeout)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._connecting = asyncio.Lock()
        self._connection: RedisConnection | None = None
        self._failed: StoreFailure | None = None
        self._reconnect_at = 0.0
        """When a connection may be tried again; ``_failed`` is why it could not be made last
        time."""
        self._drops = 0
        """How often it was dropped: a connection that was begun before is not wanted any more."""

    def __repr__(self) -> str:
        return f"<bulk, {self._connection}>"

    async def run(
        self,
        operation: str,
        script: Script,
        keys: tuple[str, ...],
        args: Command,
        read: Callable[[list[Reply]], _T],
    ) -> _T:
        """Return the answer of *script*, converted by *read*. Raises :class:`StoreError`."""

        async def call() -> Reply:
            args_and_keys = (len(keys), *keys, *args)
            reply = await self._send(("EVALSHA", script.digest, *args_and_keys))
            if is_unknown_script(reply):
                reply = await self._send(("EVAL", script.text, *args_and_keys))
            return reply

        def read_list(reply: Reply) -> _T:
            if not isinstance(reply, list):
                raise StoreError("its answer is invalid")
            return read(reply)

        return await self._run_limited(operation, call, read_list)

    async def ask(self, operation: str, command: Command, read: Callable[[Reply], _T]) -> _T:
        """Return the answer to *command*, converted by *read*. Raises :class:`StoreError`."""
        return await self._run_limited(operation, lambda: self._send(command), read)

    def drop(self, reason: str) -> None:
        """Close the connection; waiting calls fail with *reason*. It may be used again."""
        self._drops += 1
        if self._connection is not None:
            self._connection.close(reason)
            self._connection = None

    async def _run_limited(
        self,
        operation: str,
        call: Callable[[], Awaitable[Reply]],
        read: Callable[[Reply], _T],
    ) -> _T:
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._patience), self._slots:
                reply = await call()
            result = read(_checked(reply))
        except TimeoutError:
            self._recorder.failed(operation)
            raise StoreError(f"no answer within {self._patience:.0f} s") from None
        except (StoreFailure, OSError) as error:
            self._recorder.failed(operation)
            raise StoreError(str(error)) from error
        except StoreError:
            self._recorder.failed(operation)
            raise
        self._recorder.operated(operation, self._clock.monotonic() - began)
        return result

    async def _send(self, command: Command) -> Reply:
        connection = await self._connected()
        return await connection.ask(command)

    async def _connected(self) -> RedisConnection:
        async with self._connecting:
            if self._connection is not None:
                return self._connection
            if self._failed is not None and self._clock.monotonic() < self._reconnect_at:
                raise self._failed
            drops = self._drops
            try:
                async with asyncio.timeout(self._connector.timeout):
                    connection = await self._connector.connect(self._lose)
            except (StoreFailure, OSError, TimeoutError) as error:
                self._failed = StoreFailure(str(error) or "no connection in time")
                self._reconnect_at = self._clock.monotonic() + _RECONNECT_AFTER
                raise self._failed from error
            if drops != self._drops:
                connection.close()
                raise StoreFailure("the store is down")
            connection.longest = 2 * self._patience
            self._connection = connection
            return connection

    def _lose(self, reason: str) -> None:  # noqa: ARG002 - the calls that wait have failed for it
        self._connection = None


def _checked(reply: Reply) -> Reply:
    """Return *reply*; raise StoreError if it is an error, which concerns this call alone."""
    if isinstance(reply, ReplyError):
        raise StoreError(str(reply))
    return reply
