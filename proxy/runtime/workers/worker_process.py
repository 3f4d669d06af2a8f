"""One worker as the supervisor sees it: a process, a door, and what it told last."""

import asyncio
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from proxy.admin.operations import StoreSilent
from proxy.core.clock import Clock
from proxy.observe.metrics.process_snapshot import ProcessSnapshot
from proxy.policy.settings import Settings
from proxy.runtime.workers.fd_passing import Dealt, FdSender
from proxy.runtime.workers.ipc import (
    Ask,
    Begin,
    Channel,
    Drain,
    Failed,
    Last,
    Message,
    NoAnswer,
    Ready,
    Reload,
    Stop,
    WorkerReply,
)

SILENT_AFTER = 2.0
"""Seconds without an answer after which a worker gets no new connections."""
_LAST_STEPS = 2.0
"""Seconds that a process may take to end once its channel has."""

_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); from {} import main; main()"
"""Imports what the supervisor itself would, not what happens to lie in the present folder."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""They mean the supervisor, even where all of a group or a terminal get them."""

_log = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True)
class Launch:
    """How every worker is started."""

    entry: str
    """The module whose ``main`` a worker's process runs."""
    log_turns: int
    """The file whose lock is held while lines are written to the log that all share."""


class WorkerGone(Exception):
    """It has ended, so there is no answer."""


class WorkerProcess:
    """A worker process, from its start to its end."""

    def __init__(self, number: int, clock: Clock, on_room: Callable[[], None]) -> None:
        """*on_room* is called when it can take more connections than before."""
        self.number = number
        self.settings: Settings | None = None
        """What it serves with, or is about to."""
        self.reading: ProcessSnapshot | None = None
        """What it told last."""
        self.failure = ""
        """Why it cannot serve, if it said so."""
        self.is_ready = False
        self.is_silent = False
        self._clock = clock
        self.born = clock.monotonic()
        self._on_room = on_room
        self._channel = Channel(self._heard, self._end)
        self._hatch: FdSender | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._readings: dict[int, float] = {}
        """Questions for a reading that were not answered yet, and when they were asked."""
        self.ready = asyncio.Event()
        """It serves, or never will."""
        self.ended = asyncio.Event()

    def __repr__(self) -> str:
        return f"<worker {self.number}, process {self.pid}>"

    @property
    def pid(self) -> int:
        """Of its process; 0 before there is one."""
        return 0 if self._process is None else self._process.pid

    @property
    def hatch(self) -> FdSender:
        """Its door. Only once it was started."""
        assert self._hatch is not None  # noqa: S101 - for the type checker
        return self._hatch

    # Start and end.

    async def start(self, settings: Settings, launch: Launch) -> None:
        """Start the process; it tells when it is ready. Raises OSError."""
        ours, theirs = socket.socketpair()
        our_door, their_door = socket.socketpair()
        with theirs, their_door:
            try:
                self._process = _spawn(self.number, theirs, their_door, launch)
            except BaseException:
                ours.close()
                our_door.close()
                raise
        self._hatch = FdSender(our_door, self._on_room)
        await self._channel.open(ours)
        self.settings = settings
        self._channel.send(Begin(settings))

    def drain(self) -> None:
        """Let it end what it has begun, and then itself."""
        self.hatch.finish()
        self._channel.send(Drain())

    def stop(self) -> None:
        """Let it end at once."""
        self.hatch.finish()
        self._channel.send(Stop())

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def buried(self) -> int:
        """The exit status of one that has ended its channel."""
        assert self._process is not None  # noqa: S101 - for the type checker
        try:
            return await asyncio.to_thread(self._process.wait, _LAST_STEPS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return await asyncio.to_thread(self._process.wait)

    def close(self) -> list[Dealt]:
        """Let go of it; returns the connections that it had not taken up."""
        self._channel.close()
        return self.hatch.close()

    def _end(self) -> None:
        self.is_ready = False
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(WorkerGone())
                # Who asked may have stopped waiting; nobody else needs to know.
                asked.exception()
        self._asked.clear()
        self.ready.set()
        self.ended.set()

    # Questions.

    async def ask(self, what: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - of any operation
        """Let it do *what*. Raises StoreSilent as that does, WorkerGone if it ends meanwhile."""
        number = next(self._numbers)
        return await self._sent(number, Ask(number, what, arguments, tuple(options.items())))

    async def reload(self, settings: Settings) -> tuple[bool, tuple[str, ...]]:
        """Let it serve with *settings*: whether it does, and if not why. Raises WorkerGone."""
        number = next(self._numbers)
        answer: tuple[bool, tuple[str, ...]] = await self._sent(number, Reload(number, settings))
        if answer[0]:
            self.settings = settings
        return answer

    async def refresh(self) -> None:
        """Have it tell what it counted; unless it is silent, or gone."""
        if not self.is_ready or self.is_silent:
            return
        number = next(self._numbers)
        self._readings[number] = self._clock.monotonic()
        with suppress(WorkerGone):
            await self._sent(number, Ask(number, "reading"))

    def look(self) -> None:
        """Notice if it does not answer any more."""
        oldest = min(self._readings.values(), default=None)
        if oldest is None or self.is_silent:
            return
        waited = self._clock.monotonic() - oldest
        if waited > SILENT_AFTER:
            self.is_silent = True
            _log.warning(
                "worker %d (process %d) has not answered for %.0f s and gets no new connections",
                self.number,
                self.pid,
                waited,
            )

    async def _sent(self, number: int, message: Message) -> Any:  # noqa: ANN401 - as the question
        if self.ended.is_set():
            raise WorkerGone
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        self._channel.send(message)
        try:
            return await asked
        finally:
            self._asked.pop(number, None)

    def _heard(self, message: Message) -> None:
        match message:
            case Ready():
                self.reading = message.reading
                self.is_ready = True
                self.ready.set()
                self._on_room()
            case Failed():
                self.failure = message.why
            case Last():
                self.reading = message.reading
            case WorkerReply():
                if self._readings.pop(message.number, None) is not None:
                    self.reading = message.value
                    self._speaks_again()
                self._settle(message.number, message.value)
            case NoAnswer():
                error = StoreSilent() if message.store_is_silent else WorkerGone()
                self._settle(message.number, error)

    def _settle(self, number: int, value: Any) -> None:  # noqa: ANN401 - as the question
        asked = self._asked.get(number)
        if asked is None or asked.done():
            return
        if isinstance(value, Exception):
            asked.set_exception(value)
        else:
            asked.set_result(value)

    def _speaks_again(self) -> None:
        if self.is_silent and not self._readings:
            self.is_silent = False
            _log.info("worker %d (process %d) answers again", self.number, self.pid)
            self._on_room()


def _spawn(
    number: int, channel: socket.socket, door: socket.socket, launch: Launch
) -> "subprocess.Popen[bytes]":
    """A fresh interpreter, not a copy of this one, whose loop and threads it could not use."""
    files = (channel.fileno(), door.fileno(), launch.log_turns)
    arguments = [str(number), *map(str, files), json.dumps(sys.path)]
    # Inherited: none of them can end it before it has said that it ignores them. Those that
    # come to us meanwhile are not lost.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        return subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-c", _PROGRAM.format(launch.entry), *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=files,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
