"""The life of a worker: it serves the connections it is passed, and obeys the supervisor alone."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from proxy.admin.declaration import StoreSilent
from proxy.admin.operations import WORKER_RULES
from proxy.app.lifecycle import App, CannotStart, WorkerRole
from proxy.config import CheckReport, Loaded
from proxy.policy.settings import Settings
from proxy.runtime.workers.fd_passing import FdReceiver
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

_HANDSHAKE_GRACE = 0.05
"""Seconds that new connections have, at the end, to complete their handshake and be drained."""

_LAST_MESSAGE = 1.0
"""Seconds that the supervisor has to receive the last message."""

_log = logging.getLogger("holdfast")


class Worker:
    """One of several processes that serve. The supervisor may be gone at any time."""

    def __init__(
        self,
        channel: socket.socket,
        fd_socket: socket.socket,
        log_lock: int,
        settle: Callable[[], None],
    ) -> None:
        """*settle* is called once all that lives as long as the process has been made."""
        self._channel = Channel(self._on_message, self._supervisor_gone)
        self._channel_socket = channel
        self._fd_receiver = FdReceiver(fd_socket, self._take_up)
        self._role = WorkerRole(
            on_connection_end=self._fd_receiver.connection_ended, log_lock=log_lock
        )
        self._settle = settle
        self._begin: asyncio.Future[Settings] = asyncio.get_running_loop().create_future()
        self._drain = asyncio.Event()
        self._stop = asyncio.Event()
        self._is_orphaned = False
        self._settings: Settings | None = None
        self._app: App | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """Connections being taken up, and operations being run."""

    async def run(self) -> int:
        """Serve until the supervisor says otherwise or is gone; return the exit status."""
        await self._channel.open(self._channel_socket)
        try:
            return await self._serve_until_drained()
        finally:
            self._fd_receiver.close()
            self._channel.close()
            await self._channel.closed(_LAST_MESSAGE)

    async def _serve_until_drained(self) -> int:
        began = asyncio.ensure_future(self._begin)
        drained = asyncio.ensure_future(self._drain.wait())
        await asyncio.wait((began, drained), return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()
        if not began.done():
            return 1
        self._settings = began.result()
        try:
            app = self._app = App(self._load, worker=self._role)
            await app.start()
        except (CannotStart, OSError) as error:
            self._channel.send(Failed(_reason(error)))
            return 1
        self._settle()
        self._fd_receiver.open()
        self._channel.send(Ready(app.snapshot()))
        await self._drain.wait()
        self._fd_receiver.finish()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_HANDSHAKE_GRACE)
        await self._end(app)
        self._channel.send(Last(app.snapshot()))
        return 1 if self._is_orphaned else 0

    async def _end(self, app: App) -> None:
        """Drain, unless the supervisor says meanwhile to stop at once."""
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
        """Return the settings that the supervisor sent, in place of those in a file."""
        assert self._settings is not None  # noqa: S101 - for the type checker
        return Loaded(self._settings, CheckReport((), ()), {})

    # What the supervisor sends.

    def _take_up(self, sock: socket.socket, which: int) -> None:
        assert self._app is not None  # noqa: S101 - for the type checker
        self._spawn(self._app.take_up(sock, which))

    def _on_message(self, message: Message) -> None:
        match message:
            case Begin():
                self._begin.set_result(message.settings)
            case Ask():
                self._spawn(self._run_operation(message))
            case Drain():
                self._drain.set()
            case Stop():
                self._stop.set()
                self._drain.set()

    def _supervisor_gone(self) -> None:
        if not self._drain.is_set():
            _log.warning("the supervisor is gone: draining")
            self._is_orphaned = True
            self._drain.set()

    async def _reload(self, app: App, settings: Settings) -> tuple[bool, tuple[str, ...]]:
        before, self._settings = self._settings, settings
        ended = await app.reload()
        if not ended.in_force:
            self._settings = before
        return ended.in_force, tuple(ended.faults)

    async def _run_operation(self, request: Ask) -> None:
        app = self._app
        assert app is not None  # noqa: S101 - for the type checker
        if request.operation == SNAPSHOT:
            self._channel.send(WorkerReply(request.number, app.snapshot()))
            return
        if request.operation == RELOAD:
            # Whatever it raises is not an answer: the supervisor replaces a worker without one.
            value = await self._reload(app, *request.arguments)
            self._channel.send(WorkerReply(request.number, value))
            return
        try:
            value = await _operation(app, request.operation)(*request.arguments, **request.options)
        except StoreSilent:
            self._channel.send(NoAnswer(request.number, store_is_silent=True))
        except Exception:  # noqa: BLE001 - whatever it is, the supervisor must not wait for ever
            _log.exception("admin request failed")
            self._channel.send(NoAnswer(request.number, store_is_silent=False))
        else:
            self._channel.send(WorkerReply(request.number, value))

    def _spawn(self, work: Any) -> None:  # noqa: ANN401 - any coroutine of ours
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _operation(app: App, name: str) -> Callable[..., Any]:
    if name not in WORKER_RULES:
        raise ValueError(name)
    operation: Callable[..., Any] = getattr(app.operations, name)
    return operation


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    of = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{of}"
