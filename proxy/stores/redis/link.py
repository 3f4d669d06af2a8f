"""The link to the server, with a heartbeat: up, or down and tried again.

::

    start ──► connect, log in, beat ──► up ──► call … call … heartbeat once a second
                 │        ▲              │
                 ▼        │              ▼  the first error, or no answer in time
                down ─────┘  probe     down: all users are told at once

It is a circuit breaker with the shortest of memories: one failure opens it, because all
calls are alike and go to the same server. While it is down nothing is sent, so an outage costs
nothing per request. A probe is a real call that writes, so a server that cannot be
written to (a replica, one out of memory) is not taken for a good one.

Once a second each instance sends a heartbeat; the server counts the instances whose last one is
not older than ``HEARTBEAT_TIMEOUT``.

What goes over the link is small, so that no call waits for long behind others; large results have
a connection of their own (``bulk.py``).
"""

import asyncio
import logging
from collections.abc import Callable
from math import ceil
from typing import NoReturn, Protocol, TypeVar

from hiredis import ReplyError

from proxy.core.clock import Clock
from proxy.core.recorders import StoreRecorder
from proxy.stores import StoreError
from proxy.stores.redis.connect import RedisConnector
from proxy.stores.redis.connection import Command, RedisConnection, Reply, StoreFailure
from proxy.stores.redis.scripts import BEAT, CLAIM, Script

_log = logging.getLogger("holdfast")

_HEARTBEAT_EVERY = 1.0
_SECOND_HEARTBEAT = 0.1
"""Seconds from the first heartbeat to the second: instances that start together soon know of each
other."""
HEARTBEAT_TIMEOUT = 3.0
"""Seconds after which an instance without a heartbeat is gone, and all that it had is free."""
_PROBE_EVERY = 0.5
_PROBE_SELDOM = 8.0
_SHORT_LIFE = 5.0
"""Seconds: a link that fails sooner than that after it came up is tried less often."""

Answer = Callable[[list[int], float], None]
"""Called with the numbers that a script answered, and when it was called."""


_T = TypeVar("_T")


class StoreListener(Protocol):
    """Notified of the state of the link, and of what other instances publish (``pubsub.py``)."""

    def came_up(self) -> None:
        """Use the server from now on: the link is up."""

    def went_down(self) -> None:
        """Do without the server: the link is down, and calls under way will not be answered."""

    def heard(self, channel: str, message: str) -> None:
        """Handle a message that an instance, maybe this one, has published."""

    def missed(self) -> None:
        """Ask for what may have been published while there was no subscription."""


class Link:
    """The link to the server that all buckets of a process share."""

    def __init__(
        self,
        connector: RedisConnector,
        instances_key: str,
        instance: str,
        *,
        listener: StoreListener,
        clock: Clock,
        recorder: StoreRecorder,
    ) -> None:
        """Register as *instance* among those that *instances_key* lists."""
        self._connector = connector
        self.address = str(connector)
        """Host and port of the server."""
        self._instances_key = instances_key
        self._clock = clock
        self._recorder = recorder
        self._instance = instance
        self._listener = listener
        self._connection: RedisConnection | None = None
        self._broken = asyncio.Event()
        self._under_way: dict[int, str] = {}
        """Operations that were not answered yet, by number."""
        self._asked: dict[int, asyncio.Future[list[Reply]]] = {}
        """Futures of the operations that a request waits for."""
        self._calls = 0
        self._task: asyncio.Task[None] | None = None
        self._complained = False
        self._probe_every = _PROBE_EVERY
        self.is_up = False
        self.instances = 1
        """How many instances there are, this one included, as far as was last seen."""
        self._came_up = 0.0
        self.round_trip = 0.0
        """Seconds that a call takes, at best; a longer time is believed only gradually."""
        self._warned_of_round_trip = False

    def __repr__(self) -> str:
        return f"<link to {self._connector}, {'up' if self.is_up else 'down'}>"

    # Start and stop.

    async def start(self) -> None:
        """Try to connect, and go on trying in the background. Does not fail."""
        await self._come_up()
        self._task = asyncio.create_task(self._keep_up(), name="store link")

    async def close(self) -> None:
        """Unregister this instance, if that can be done, and leave nothing behind."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._connection is not None:
            try:
                async with asyncio.timeout(self._connector.timeout):
                    await self._run_now(BEAT, self._instances_key, (self._instance, 0))
            except (StoreFailure, TimeoutError):
                pass  # the heartbeat stops, which has the same effect
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.is_up = False
        self._fail_pending("the store is closed")

    # Calls.

    def call(
        self, operation: str, script: Script, key: str, args: tuple[str | int, ...], answer: Answer
    ) -> None:
        """Run *script* on *key*. If the link goes down first, *answer* is never called."""
        connection = self._connection
        if connection is None:
            return
        number = self._calls = self._calls + 1
        self._under_way[number] = operation

        def answered_by_name(reply: Reply, sent: float) -> None:
            if is_unknown_script(reply):
                connection.call(("EVAL", script.text, 1, key, *args), answered)
            else:
                answered(reply, sent)

        def answered(reply: Reply, sent: float) -> None:
            numbers = _numbers(reply, script.answers)
            if numbers is None:
                connection.fail(_reply_error(reply))
                return
            del self._under_way[number]
            took = self._clock.monotonic() - sent
            self._recorder.operated(operation, took)
            self.round_trip = (
                took if took < self.round_trip else self.round_trip * 0.99 + took / 100
            )
            answer(numbers, sent)

        connection.call(("EVALSHA", script.digest, 1, key, *args), answered_by_name)

    async def ask(
        self,
        operation: str,
        script: Script,
        keys: tuple[str, ...],
        args: Command,
        read: Callable[[list[Reply]], _T],
    ) -> _T:
        """Return the answer of *script*, converted by *read*.

        Raises :class:`StoreError` if there is no answer in time, and at once while the link is
        down; *read* raises it if an answer makes no sense.
        """
        began = self._clock.monotonic()
        reply = await self.send(operation, script, keys, args)
        try:
            result = read(reply)
        except StoreError:
            self._recorder.failed(operation)
            raise
        self._recorder.operated(operation, self._clock.monotonic() - began)
        return result

    def send(
        self,
        operation: str,
        script: Script,
        keys: tuple[str, ...],
        args: Command,
        *,
        in_order: bool = False,
    ) -> asyncio.Future[list[Reply]]:
        """Run *script*; return a future of its answer. Raises as :meth:`ask` does.

        *in_order*: before all that is sent later, even if the server does not know the script.
        """
        connection = self._connection
        if connection is None or not self.is_up:
            self.refuse(operation)
        number = self._calls = self._calls + 1
        future: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        self._under_way[number] = operation
        self._asked[number] = future

        def answered(reply: Reply, sent: float) -> None:  # noqa: ARG001 - both calls count
            is_unknown = is_unknown_script(reply)
            # A claim whose request has gone must not overtake its own release.
            if is_unknown and not (script is CLAIM and future.done()):
                connection.call(("EVAL", script.text, len(keys), *keys, *args), answered, late)
                return
            if not is_unknown and (not isinstance(reply, list) or len(reply) < script.answers):
                connection.fail(_reply_error(reply))
                return
            self._under_way.pop(number, None)
            self._asked.pop(number, None)
            if isinstance(reply, list) and not future.done():
                future.set_result(reply)

        def late() -> None:
            # The server lives, and answers others: this concerns no other call.
            self._under_way.pop(number, None)
            self._asked.pop(number, None)
            if not future.done():
                self._recorder.failed(operation)
                within = self._connector.timeout * 1000
                future.set_exception(StoreError(f"no answer within {within:.0f} ms"))

        named = ("EVAL", script.text) if in_order else ("EVALSHA", script.digest)
        connection.call((*named, len(keys), *keys, *args), answered, late)
        return future

    def refuse(self, operation: str) -> NoReturn:
        """Fail an operation at once while the link is down: an outage costs nothing per request."""
        self._recorder.failed(operation)
        raise StoreError("the store is down")

    def check_round_trip(self, life: float) -> None:
        """Warn once if permits that live for *life* seconds lapse on their way to us."""
        if self.round_trip > life / 2 and not self._warned_of_round_trip:
            self._warned_of_round_trip = True
            _log.warning(
                "the store at %s is %.0f ms away, and a permit of a rate must be used within %.0f "
                "ms: not all of the limit can be used; write store: {permit_life: %.0fms}, on all "
                "instances",
                self._connector,
                self.round_trip * 1e3,
                life * 1e3,
                max(ceil(self.round_trip * 30) * 100, 100),
            )

    def ask_memory(self, on_reply: Callable[[str], None]) -> None:
        """Call *on_reply* with what the server says of its memory, if it says anything."""

        def answered(reply: Reply, sent: float) -> None:  # noqa: ARG001 - when does not matter
            if isinstance(reply, bytes):
                on_reply(reply.decode(errors="replace"))

        if self._connection is not None:
            self._connection.call(("INFO", "memory"), answered)

    async def _run_now(self, script: Script, key: str, args: tuple[str | int, ...]) -> list[int]:
        """Run *script* and wait for it, during connecting and closing."""
        assert self._connection is not None  # noqa: S101 - for the type checker
        reply = await self._connection.request("EVAL", script.text, 1, key, *args)
        numbers = _numbers(reply, script.answers)
        if numbers is None:
            raise StoreFailure(_reply_error(reply))
        return numbers

    def _send_heartbeat(self) -> None:
        def answer(numbers: list[int], sent: float) -> None:
            self._see(numbers[0], sent)

        args = (self._instance, round(HEARTBEAT_TIMEOUT * 1e6))
        self.call("beat", BEAT, self._instances_key, args, answer)

    def _see(self, instances: int, now: float) -> None:
        """Update the number of instances. After an outage not all have come back yet."""
        least = self.instances if now < self._came_up + HEARTBEAT_TIMEOUT else 1
        self.instances = max(instances, least)

    # Up and down.

    async def _keep_up(self) -> None:
        while True:
            if self.is_up:
                since = self._clock.monotonic()
                await self._keep_sending_heartbeats()
                lived = self._clock.monotonic() - since
                longer = min(self._probe_every * 2, _PROBE_SELDOM)
                self._probe_every = longer if lived < _SHORT_LIFE else _PROBE_EVERY
            await asyncio.sleep(self._probe_every * (0.75 + self._clock.roll() / 2))
            await self._come_up()

    async def _keep_sending_heartbeats(self) -> None:
        """Send heartbeats until the link is broken."""
        every = _SECOND_HEARTBEAT
        while not self._broken.is_set():
            try:
                async with asyncio.timeout(every):
                    await self._broken.wait()
            except TimeoutError:
                self._send_heartbeat()
                every = _HEARTBEAT_EVERY

    async def _come_up(self) -> None:
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._connector.timeout):
                self._connection = await self._connector.connect(self._fail)
                called = self._clock.monotonic()
                args = (self._instance, round(HEARTBEAT_TIMEOUT * 1e6))
                numbers = await self._run_now(BEAT, self._instances_key, args)
        except (StoreFailure, OSError, TimeoutError) as error:
            self._recorder.failed("connect")
            self._fail(_reason(error, self._connector.timeout))
            return
        now = self._clock.monotonic()
        self.round_trip = now - called
        self._recorder.operated("connect", now - began)
        self._came_up = now
        self._see(numbers[0], now)
        self.is_up = True
        self._broken.clear()
        if self._complained:
            self._complained = False
            _log.info("the store at %s is back: limits are shared again", self._connector)
        self._listener.came_up()

    def _fail(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        was_up, self.is_up = self.is_up, False
        # A connection that is lost while it is idle is a failure as well.
        for operation in self._under_way.values() or (("connect",) if was_up else ()):
            self._recorder.failed(operation)
        self._under_way.clear()
        self._fail_pending(reason)
        self._broken.set()
        if not self._complained:
            self._complained = True
            _log.warning(
                "the store at %s is down (%s): on_store_error decides", self._connector, reason
            )
        if was_up:
            self._listener.went_down()

    def _fail_pending(self, reason: str) -> None:
        """Fail every request that waits for an answer: none will come."""
        asked = list(self._asked.values())
        self._asked.clear()
        for future in asked:
            if not future.done():
                future.set_exception(StoreError(reason))


def _numbers(reply: Reply, at_least: int) -> list[int] | None:
    """Return the numbers that a script answered; None if the reply makes no sense."""
    if not isinstance(reply, list) or len(reply) < at_least:
        return None
    return reply if all(isinstance(number, int) for number in reply) else None


def is_unknown_script(reply: Reply) -> bool:
    """Tell whether the server says that it does not know a script by this digest."""
    return isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT")


def _reply_error(reply: Reply) -> str:
    return str(reply) if isinstance(reply, ReplyError) else "its answer is invalid"


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection within {timeout * 1000:.0f} ms"
    return str(error) or type(error).__name__
