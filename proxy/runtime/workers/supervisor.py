"""Several workers as one proxy: start, hot reload, graceful shutdown, one admin listener."""

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from proxy import __version__
from proxy.admin.listener import AdminListener
from proxy.admin.operations import StoreSilent
from proxy.app.lifecycle import needs_restart
from proxy.config import ConfigError, Loaded
from proxy.core.clock import Clock, SystemClock
from proxy.http.fields import RawHeaders
from proxy.observe.metrics.exposition import expose
from proxy.observe.metrics.families import WORKER_RESTARTS
from proxy.observe.metrics.recorders import Metrics
from proxy.observe.metrics.totals import Totals
from proxy.observe.status import process_status
from proxy.policy.dead_letter import DeadLetter, DeadLetterSummary, Obstacle, Replayed
from proxy.policy.idempotency.record import Released, Shown
from proxy.policy.settings import Settings
from proxy.runtime.workers.bind import BoundAddresses
from proxy.runtime.workers.pool import WorkerPool
from proxy.runtime.workers.shares import share_of
from proxy.runtime.workers.worker_process import Launch, WorkerGone
from proxy.server.aiohttp_adapter.parser import parser_name

_ANSWER_PATIENCE = 10.0
"""Seconds that a worker has to look something up."""

_LOGGED_AS = {
    "list_dead_letters": "page_of_letters",
    "find_dead_letter": "find_letter",
    "drop_dead_letter": "drop_letter",
    "drop_dead_letters": "drop_letters",
    "replay_obstacle": "letter_obstacle",
    "replay_dead_letter": "replay_letter",
}
"""Operations that the log has always called otherwise: operators may search for these names."""

_log = logging.getLogger("holdfast")


class Supervisor:
    """Serves through its workers, and implements the admin listener's operations for all."""

    def __init__(
        self,
        load: Callable[[], Loaded],
        loaded: Loaded,
        workers: int,
        entry: str,
        clock: Clock | None = None,
    ) -> None:
        """*load* reads the configuration anew at every reload; *loaded* is the first one.

        *entry* is the module whose ``main`` a worker's process runs.
        """
        self._load = load
        self._loaded = loaded
        self._workers = workers
        self._clock: Clock = clock or SystemClock()
        self._started = self._clock.monotonic()
        self._state = "starting"
        self._reloading = asyncio.Lock()
        self._totals = Totals(
            Metrics(version=__version__, parser=parser_name(), loaded_at=self._clock.wall())
        )
        self._log_lock = _new_log_lock()
        self._addresses = BoundAddresses()
        launch = Launch(entry, self._log_lock)
        self._pool = WorkerPool(workers, self._share, self._totals, self._clock, launch)
        admin = loaded.settings.admin
        self._admin = None if admin is None else AdminListener(self, admin)

    def _share(self, worker: int) -> Settings:
        return share_of(self._loaded.settings, worker, self._workers)

    # Start and graceful shutdown.

    @property
    def bound(self) -> list[str]:
        """Addresses that clients can use."""
        return self._addresses.bound

    async def start(self) -> None:
        """Open every listener and start all workers.

        Raises OSError if a listener cannot be opened and CannotStart if a worker cannot serve;
        nothing is open then, and no worker left.
        """
        try:
            if self._admin is not None:
                await self._admin.start()
                _log.info("admin on %s", ", ".join(self._admin.bound))
            await self._addresses.bind(self._loaded.settings.listen)
            await self._pool.start()
        except BaseException:
            await self._close()
            raise
        self._pool.acceptor.open(self._addresses.sockets)
        self._state = "ready"
        _log.info("%d workers", self._workers)
        _log.info("listening on %s", ", ".join(self.bound))
        for warning in self._loaded.warnings:
            _log.warning("%s", warning)

    async def drain(self) -> None:
        """Shut down gracefully: take no more requests, let those under way end, close all."""
        self._state = "draining"
        _log.info("draining")
        await asyncio.sleep(self._loaded.settings.drain_delay)
        self._stop_listening()
        await self._pool.drain(self._loaded.settings.drain_timeout)
        await self._close()

    async def stop_at_once(self) -> None:
        """Cut off every request, and close everything."""
        self._state = "draining"
        self._stop_listening()
        await self._pool.stop()
        await self._close()

    def _stop_listening(self) -> None:
        self._pool.acceptor.close()
        self._addresses.close()

    async def _close(self) -> None:
        self._stop_listening()
        if self._admin is not None:
            await self._admin.close()
        if self._log_lock >= 0:
            os.close(self._log_lock)
            self._log_lock = -1
        # Transports close in callbacks of their own: let these run.
        await asyncio.sleep(0)

    # What the admin listener may see and do (admin.Operations).

    def token(self) -> str | None:
        """Return the admin token in force."""
        return self._loaded.settings.admin_token

    def not_ready(self) -> str | None:
        """Say why no requests are taken; None if they are."""
        if self._state != "ready":
            return self._state
        return None if self._pool.serving else "no_worker"

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics of all workers, in the format that *accept* asks for."""
        await self._pool.refresh()
        return await expose(self._totals.total(self._pool.snapshots()), accept)

    async def status(self) -> dict[str, object]:
        """Return what goes on in all workers, for a person."""
        await self._pool.refresh()
        now, total = self._clock.monotonic(), self._totals.total(self._pool.snapshots())
        return {
            "version": __version__,
            "state": self._state,
            "uptime_seconds": round(now - self._started, 3),
            "workers": [
                {
                    "number": worker.number,
                    "pid": worker.pid,
                    "state": _worker_state(is_ready=worker.is_ready, is_silent=worker.is_silent),
                    "uptime_seconds": round(now - worker.started_at, 3),
                    "connections": worker.fd_sender.load,
                }
                for _, worker in sorted(self._pool.workers.items())
            ],
            "worker_restarts": total[WORKER_RESTARTS][()].value,
            **process_status(total),
        }

    async def find_attempts(self, request_id: str) -> list[dict[str, object]]:
        """Return the recent notable requests with this id, whichever worker served them."""
        workers = [worker for worker in self._pool.serving if not worker.is_silent]
        tasks = [asyncio.create_task(worker.ask("find_attempts", request_id)) for worker in workers]
        found: list[dict[str, object]] = []
        if tasks:
            done, pending = await asyncio.wait(tasks, timeout=_ANSWER_PATIENCE)
            for task in pending:
                task.cancel()
            for task in done:
                found += [] if isinstance(task.exception(), WorkerGone) else task.result()
        return sorted(found, key=lambda request: str(request["time"]))

    def config(self) -> dict[str, object]:
        """Return the configuration in force, secrets masked."""
        return self._loaded.effective

    async def reload(self) -> tuple[bool, Sequence[str]]:
        """Read the configuration again and have all workers apply it, or leave all as it is."""
        async with self._reloading:
            try:
                loaded = await asyncio.to_thread(self._load)
            except ConfigError as error:
                return self._keep_old([str(diagnostic) for diagnostic in error.report.diagnostics])
            except Exception:  # noqa: BLE001 - whatever it is, the old configuration serves on
                _log.exception("reload failed inside the proxy")
                return self._keep_old(["the configuration could not be read, see the log"])
            changed = needs_restart(self._loaded.settings, loaded.settings)
            if changed:
                return self._keep_old(changed)
            # Before any worker is asked: a worker that is started from now on begins with it.
            before, self._loaded = self._loaded, loaded
            refused = await self._pool.reload()
            if refused is not None:
                self._loaded = before
                await self._pool.roll_back()
                return self._keep_old(refused)
            await self._pool.refresh()
            self._totals.reload_succeeded(self._clock.wall(), self._pool.snapshots())
            _log.info("configuration reloaded")
            for warning in loaded.warnings:
                _log.warning("%s", warning)
            return True, [str(warning) for warning in loaded.warnings]

    def _keep_old(self, lines: Sequence[str]) -> tuple[bool, Sequence[str]]:
        self._totals.own.reload_failed()
        for line in lines:
            _log.error("reload refused: %s", line)
        return False, lines

    # Keys and dead letters are in a store that all workers share: any worker can answer.

    async def show_key(self, name: str) -> Shown | None:
        """Return what is known of the key whose record is called *name*."""
        shown: Shown | None = await self._ask_one("show_key", name)
        return shown

    async def release_key(self, name: str, *, force: bool) -> Released:
        """Forget a key, unless a running request owns it; with *force* that request loses it."""
        released: Released = await self._ask_one("release_key", name, force=force)
        return released

    async def list_dead_letters(
        self, route: str | None, after: str, limit: int, *, newest: bool
    ) -> list[DeadLetterSummary]:
        """Return one page of dead letters, in their order."""
        page: list[DeadLetterSummary] = await self._ask_one(
            "list_dead_letters", route, after, limit, newest=newest
        )
        return page

    async def find_dead_letter(self, name: str) -> DeadLetter | None:
        """Return all of one dead letter; None if there is none."""
        found: DeadLetter | None = await self._ask_one("find_dead_letter", name)
        return found

    async def drop_dead_letter(self, name: str) -> bool | None:
        """Delete a dead letter; False if it is being sent again, None if there is none."""
        dropped: bool | None = await self._ask_one("drop_dead_letter", name)
        return dropped

    async def drop_dead_letters(self, route: str | None, until: str) -> int:
        """Delete those of a route, or all, except those being sent again: maybe very many."""
        dropped: int = await self._ask_one("drop_dead_letters", route, until, patience=None)
        return dropped

    async def replay_obstacle(
        self, name: str, given: RawHeaders, *, force: bool
    ) -> Obstacle | None:
        """Say why a dead letter would not be sent again now; None if it would."""
        obstacle: Obstacle | None = await self._ask_one("replay_obstacle", name, given, force=force)
        return obstacle

    async def replay_dead_letter(
        self, name: str, given: RawHeaders, *, force: bool
    ) -> Replayed | Obstacle:
        """Send a dead letter again through its route, as the route is now, without a time limit."""
        replayed: Replayed | Obstacle = await self._ask_one(
            "replay_dead_letter", name, given, patience=None, force=force
        )
        return replayed

    async def _ask_one(
        self,
        operation: str,
        *arguments: Any,  # noqa: ANN401 - of any operation
        patience: float | None = _ANSWER_PATIENCE,
        **options: Any,  # noqa: ANN401 - as above
    ) -> Any:  # noqa: ANN401 - as above
        """Have one worker run *operation*, and no other after it: it may have been done.

        Raises StoreSilent if the worker does not answer, or there is none.
        """
        if not self._pool.serving:
            raise StoreSilent
        worker = self._pool.serving[0]
        try:
            async with asyncio.timeout(patience):
                return await worker.ask(operation, *arguments, **options)
        except (WorkerGone, TimeoutError):
            name = _LOGGED_AS.get(operation, operation)
            _log.warning("worker %d does not answer %s", worker.number, name)
            raise StoreSilent from None


def _worker_state(*, is_ready: bool, is_silent: bool) -> str:
    if not is_ready:
        return "starting"
    return "silent" if is_silent else "ready"


def _new_log_lock() -> int:
    """Make an unnamed file, for the lock that serializes the workers' writes to the log."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("holdfast-log-turns")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
