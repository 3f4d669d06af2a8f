"""The life of a worker: it serves what it is given, and obeys the supervisor alone."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from proxy.admin.operations import StoreSilent
from proxy.app.lifecycle import App, CannotStart, Membership
from proxy.config import CheckReport, Loaded
from proxy.policy.settings import Settings
from proxy.runtime.workers.fd_passing import FdReceiver
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

OPERATIONS = frozenset(
    {
        "find_attempts",
        "show_key",
        "release_key",
        "page_of_letters",
        "find_letter",
        "drop_letter",
        "drop_letters",
        "letter_obstacle",
        "replay_letter",
    }
)
"""What the supervisor lets a worker do in its place."""

_HANDSHAKE_GRACE = 0.05
"""Seconds that connections have, at the end, to become ones that can be drained."""

_LAST_WORDS = 1.0
"""Seconds that the supervisor has to take what it is told at the end."""

_log = logging.getLogger("holdfast")


class Worker:
    """One of several that serve. Its supervisor may be gone at any time."""

    def __init__(
        self,
        channel: socket.socket,
        door: socket.socket,
        log_turns: int,
        settle: Callable[[], None],
    ) -> None:
        """*settle* is called once everything is there that lives as long as the process."""
        self._channel = Channel(self._heard, self._deserted)
        self._channel_socket = channel
        self._intake = FdReceiver(door, self._take_up)
        self._membership = Membership(on_left=self._intake.left, log_turns=log_turns)
        self._settle = settle
        self._begin: asyncio.Future[Settings] = asyncio.get_running_loop().create_future()
        self._drain = asyncio.Event()
        self._stop = asyncio.Event()
        self._is_deserted = False
        self._settings: Settings | None = None
        self._app: App | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """Connections being taken up, and questions being answered."""

    async def run(self) -> int:
        """Serve until told otherwise; returns the exit status."""
        await self._channel.open(self._channel_socket)
        try:
            return await self._live()
        finally:
            self._intake.close()
            self._channel.close()
            await self._channel.closed(_LAST_WORDS)

    async def _live(self) -> int:
        began = asyncio.ensure_future(self._begin)
        deserted = asyncio.ensure_future(self._drain.wait())
        await asyncio.wait((began, deserted), return_when=asyncio.FIRST_COMPLETED)
        deserted.cancel()
        if not began.done():
            return 1
        self._settings = began.result()
        try:
            app = self._app = App(self._load, membership=self._membership)
            await app.start()
        except (CannotStart, OSError) as error:
            self._channel.send(Failed(_reason(error)))
            return 1
        self._settle()
        self._intake.open()
        self._channel.send(Ready(app.reading()))
        await self._drain.wait()
        self._intake.finish()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_HANDSHAKE_GRACE)
        await self._end(app)
        self._channel.send(Last(app.reading()))
        return 1 if self._is_deserted else 0

    async def _end(self, app: App) -> None:
        """Let every request end, unless told to stop meanwhile."""
        loop = asyncio.get_running_loop()
        draining = loop.create_task(app.drain())
        impatient = loop.create_task(self._stop.wait())
        await asyncio.wait((draining, impatient), return_when=asyncio.FIRST_COMPLETED)
        impatient.cancel()
        if draining.done():
            draining.result()
            return
        draining.cancel()
        await asyncio.wait((draining,))
        await app.stop_at_once()

    def _load(self) -> Loaded:
        """What the supervisor has settled, in place of what is in a file."""
        assert self._settings is not None  # noqa: S101 - for the type checker
        return Loaded(self._settings, CheckReport((), ()), {})

    # What comes in.

    def _take_up(self, sock: socket.socket, which: int) -> None:
        assert self._app is not None  # noqa: S101 - for the type checker
        self._spawn(self._app.take_up(sock, which))

    def _heard(self, message: Message) -> None:
        match message:
            case Begin():
                self._begin.set_result(message.settings)
            case Reload():
                self._spawn(self._reload(message))
            case Ask():
                self._spawn(self._answer(message))
            case Drain():
                self._drain.set()
            case Stop():
                self._stop.set()
                self._drain.set()

    def _deserted(self) -> None:
        if not self._drain.is_set():
            _log.warning("the supervisor is gone: draining")
            self._is_deserted = True
            self._drain.set()

    async def _reload(self, message: Reload) -> None:
        assert self._app is not None  # noqa: S101 - for the type checker
        before, self._settings = self._settings, message.settings
        in_force, lines = await self._app.reload()
        if not in_force:
            self._settings = before
        self._channel.send(WorkerReply(message.number, (in_force, tuple(lines))))

    async def _answer(self, question: Ask) -> None:
        assert self._app is not None  # noqa: S101 - for the type checker
        if question.what == "reading":
            self._channel.send(WorkerReply(question.number, self._app.reading()))
            return
        try:
            operation = self._operation(question.what)
            value = await operation(*question.arguments, **dict(question.options))
        except StoreSilent:
            self._channel.send(NoAnswer(question.number, store_is_silent=True))
        except Exception:  # noqa: BLE001 - whatever it is, the supervisor must not wait for ever
            _log.exception("admin request failed")
            self._channel.send(NoAnswer(question.number, store_is_silent=False))
        else:
            self._channel.send(WorkerReply(question.number, value))

    def _operation(self, name: str) -> Callable[..., Any]:
        if name not in OPERATIONS:
            raise ValueError(name)
        operation: Callable[..., Any] = getattr(self._app, name)
        return operation

    def _spawn(self, work: Any) -> None:  # noqa: ANN401 - any coroutine of ours
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    of = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{of}"
