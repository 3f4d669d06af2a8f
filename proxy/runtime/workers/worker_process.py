"""One worker as the supervisor sees it: a process, a way to pass sockets, its last snapshot."""

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

from proxy.admin.declaration import StoreSilent
from proxy.core.clock import Clock
from proxy.observe.metrics.snapshot import ProcessSnapshot
from proxy.policy.settings import Settings
from proxy.runtime.workers.fd_passing import AcceptedConnection, FdSender
from proxy.runtime.workers.ipc import (
    RELOAD,
    SNAPSHOT,
    Ask,
    Begin,
    Channel,
    Drain,
    Failed,
    Last,
    Message,
    NoAnswer,
    Ready,
    Stop,
    WorkerReply,
)

SILENT_AFTER = 2.0
"""Seconds without a heartbeat after which a worker gets no new connections."""
_POLLS_UNTIL_HUNG = 2
"""Polls for which a worker is silent, at least, before it counts as hung."""
_LAST_STEPS = 2.0
"""Seconds that a process may take to end once its channel is closed."""

_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); from {} import main; main()"
"""Imports what the supervisor itself would, not what happens to lie in the current folder."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals for the supervisor alone, even where all processes of a group or terminal get them."""

_log = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True)
class Launch:
    """How every worker is started."""

    entry: str
    """The module whose ``main`` a worker's process runs."""
    log_lock: int
    """The file whose lock is taken to write lines to the log that all workers share."""
    hung_after: float | None = None
    """Seconds without a heartbeat after which a worker is replaced; None: never."""


class WorkerGone(Exception):
    """The worker has ended, so there is no answer."""


class WorkerProcess:
    """A worker process, from its start to its end."""

    def __init__(self, number: int, clock: Clock, on_capacity: Callable[[], None]) -> None:
        """*on_room* is called when the worker can take more connections than before."""
        self.number = number
        self.settings: Settings | None = None
        """The settings that the worker serves with, or is about to."""
        self.snapshot: ProcessSnapshot | None = None
        """The last snapshot that the worker sent."""
        self.failure = ""
        """The reason why the worker cannot serve, if it gave one."""
        self.is_ready = False
        self.is_silent = False
        self._clock = clock
        self.started_at = clock.monotonic()
        self._on_capacity = on_capacity
        self._channel = Channel(self._on_message, self._end)
        self._fd_sender: FdSender | None = None
        self._hung_after: float | None = None
        self._silent_polls = 0
        """Polls since the worker was found silent."""
        self._is_aborted = False
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._polls: dict[int, float] = {}
        """Heartbeats that are not answered yet: their numbers, and when they were sent."""
        self.ready = asyncio.Event()
        """Set when the worker serves, or never will."""
        self.ended = asyncio.Event()

    def __repr__(self) -> str:
        return f"<worker {self.number}, process {self.pid}>"

    @property
    def pid(self) -> int:
        """The id of the worker's process; 0 before the start."""
        return 0 if self._process is None else self._process.pid

    @property
    def fd_sender(self) -> FdSender:
        """The sender of connections to this worker. Only once it was started."""
        assert self._fd_sender is not None  # noqa: S101 - for the type checker
        return self._fd_sender

    # Start and graceful shutdown.

    async def start(self, settings: Settings, launch: Launch) -> None:
        """Start the process, which reports when it is ready. Raises OSError."""
        ours, theirs = socket.socketpair()
        our_fd_socket, their_fd_socket = socket.socketpair()
        with theirs, their_fd_socket:
            try:
                self._process = _spawn(self.number, theirs, their_fd_socket, launch)
            except BaseException:
                ours.close()
                our_fd_socket.close()
                raise
        self._fd_sender = FdSender(our_fd_socket, self._on_capacity)
        await self._channel.open(ours)
        self._hung_after = launch.hung_after
        self.settings = settings
        self._channel.send(Begin(settings))

    def drain(self) -> None:
        """Tell the worker to end what it has begun, and then itself."""
        self.fd_sender.finish()
        self._channel.send(Drain())

    def stop(self) -> None:
        """Tell the worker to end at once."""
        self.fd_sender.finish()
        self._channel.send(Stop())

    def kill(self) -> None:
        """Kill the process, whatever it does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def exit_status(self) -> int:
        """Wait for a worker whose channel is closed; return its exit status."""
        assert self._process is not None  # noqa: S101 - for the type checker
        try:
            return await asyncio.to_thread(self._process.wait, _LAST_STEPS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return await asyncio.to_thread(self._process.wait)

    def close(self) -> list[AcceptedConnection]:
        """Close our ends; return the connections that the worker had not taken up."""
        self._channel.close()
        return self.fd_sender.close()

    def _end(self) -> None:
        self.is_ready = False
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(WorkerGone())
                # The caller may have stopped waiting, and asyncio must not log it then.
                answer.exception()
        self._pending.clear()
        self.ready.set()
        self.ended.set()

    # Requests to the worker.

    async def ask(self, operation: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - of any operation
        """Have the worker run *operation*.

        Raises StoreSilent as the operation does, WorkerGone if the worker ends meanwhile.
        """
        if self.ended.is_set():
            raise WorkerGone
        number = next(self._numbers)
        if operation == SNAPSHOT:
            self._polls[number] = self._clock.monotonic()
        answer = self._pending[number] = asyncio.get_running_loop().create_future()
        self._channel.send(Ask(number, operation, arguments, options))
        try:
            return await answer
        finally:
            self._pending.pop(number, None)

    async def reload(self, settings: Settings) -> tuple[bool, tuple[str, ...]]:
        """Have the worker apply *settings*; tell whether it did, and why not. Raises WorkerGone."""
        answer: tuple[bool, tuple[str, ...]] = await self.ask(RELOAD, settings)
        if answer[0]:
            self.settings = settings
        return answer

    async def refresh(self) -> None:
        """Poll the worker for a snapshot, unless it is silent or gone."""
        if self.is_ready and not self.is_silent:
            with suppress(WorkerGone):
                await self.ask(SNAPSHOT)

    def check_heartbeat(self) -> None:
        """Stop giving connections to the worker if its heartbeat is overdue; end it if it hangs.

        Called once per poll. The pool replaces a worker that has ended.
        """
        oldest = min(self._polls.values(), default=None)
        if oldest is None:
            return
        waited = self._clock.monotonic() - oldest
        if self.is_silent:
            self._end_if_hung(waited)
        elif waited > SILENT_AFTER:
            self.is_silent = True
            self._silent_polls = 0
            _log.warning(
                "worker %d (process %d) has not answered for %.0f s and gets no new connections",
                self.number,
                self.pid,
                waited,
            )

    def _end_if_hung(self, waited: float) -> None:
        """End a worker that has been silent for too long: first so that it logs where it hangs.

        Silence is counted in polls as well, so that a supervisor that was stopped itself does not
        take the answers that it has yet to read for missing ones.
        """
        self._silent_polls += 1
        if self._hung_after is None or waited <= self._hung_after:
            return
        if self._silent_polls < _POLLS_UNTIL_HUNG or self._process is None:
            return
        if self._is_aborted:
            self.kill()  # it is stopped, or cannot even take a signal
            return
        self._is_aborted = True
        _log.error(
            "worker %d (process %d) has not answered for %.0f s: aborted",
            self.number,
            self.pid,
            waited,
        )
        self._process.send_signal(signal.SIGABRT)

    def _on_message(self, message: Message) -> None:
        match message:
            case Ready():
                self.snapshot = message.snapshot
                self.is_ready = True
                self.ready.set()
                self._on_capacity()
            case Failed():
                self.failure = message.reason
            case Last():
                self.snapshot = message.snapshot
            case WorkerReply():
                if self._polls.pop(message.number, None) is not None:
                    self.snapshot = message.value
                    self._answers_again()
                self._resolve(message.number, message.value)
            case NoAnswer():
                error = StoreSilent() if message.store_is_silent else WorkerGone()
                self._resolve(message.number, error)

    def _resolve(self, number: int, value: Any) -> None:  # noqa: ANN401 - as the operation
        answer = self._pending.get(number)
        if answer is None or answer.done():
            return
        if isinstance(value, Exception):
            answer.set_exception(value)
        else:
            answer.set_result(value)

    def _answers_again(self) -> None:
        if self.is_silent and not self._polls:
            self.is_silent = False
            _log.info("worker %d (process %d) answers again", self.number, self.pid)
            self._on_capacity()


def _spawn(
    number: int, channel: socket.socket, fd_socket: socket.socket, launch: Launch
) -> "subprocess.Popen[bytes]":
    """Start a fresh interpreter, not a copy of this one, whose loop and threads are of no use."""
    files = (channel.fileno(), fd_socket.fileno(), launch.log_lock)
    arguments = [str(number), *map(str, files), json.dumps(sys.path)]
    # The worker inherits the mask: no signal can end it before it ignores them. Signals that
    # come to this process meanwhile are not lost.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        return subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-c", _PROGRAM.format(launch.entry), *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=files,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
