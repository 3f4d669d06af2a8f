"""Several workers as one proxy: start, hot reload, graceful shutdown, one admin listener."""

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Sequence

from proxy import __version__
from proxy.admin.listener import AdminListener
from proxy.admin.process import Reloaded
from proxy.app.operations import not_ready
from proxy.app.reloading import faulty, needs_restart, refused, reloaded
from proxy.config import ConfigError, Loaded
from proxy.core.clock import Clock, SystemClock
from proxy.observe.history import History
from proxy.observe.metrics.exposition import expose
from proxy.observe.metrics.families import WORKER_RESTARTS
from proxy.observe.metrics.recorders import Metrics
from proxy.observe.metrics.totals import Totals
from proxy.observe.status import process_status
from proxy.observe.trouble import silent_worker
from proxy.policy.explain_command import ExplainContext
from proxy.policy.settings import Settings
from proxy.runtime.workers.bind import BoundAddresses
from proxy.runtime.workers.operations import operations_of
from proxy.runtime.workers.pool import WorkerPool
from proxy.runtime.workers.shares import share_of
from proxy.runtime.workers.worker_process import Launch
from proxy.server.aiohttp_adapter.parser import parser_name

_log = logging.getLogger("holdfast")


class Supervisor:
    """Serves through its workers, and does for all of them what the admin listener asks for."""

    def __init__(
        self,
        load: Callable[[], Loaded],
        loaded: Loaded,
        workers: int,
        entry: str,
        clock: Clock | None = None,
        *,
        hung_after: float | None = None,
    ) -> None:
        """*load* reads the configuration anew at every reload; *loaded* is the first one.

        *entry* is the module whose ``main`` a worker's process runs. A worker that has not
        answered for *hung_after* seconds is replaced; None: it only gets no new connections.
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
        self._history = History()
        self._log_lock = _new_log_lock()
        self._addresses = BoundAddresses()
        launch = Launch(entry, self._log_lock, hung_after)
        self._pool = WorkerPool(workers, self._share, self._totals, self._clock, launch)
        admin = loaded.settings.admin
        operations = operations_of(self, self._pool)
        self._admin = None if admin is None else AdminListener(operations, admin)

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
        self.sample()
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

    def sample(self) -> None:
        """Remember what all workers counted up to their last reports."""
        self._history.sample(self._clock.monotonic(), self._totals.counted(self._pool.snapshots()))

    # What the admin listener may see and do, but for what workers are asked (operations.py).

    def token(self) -> str | None:
        """Return the admin token in force."""
        return self._loaded.settings.admin_token

    def not_ready(self) -> str | None:
        """Say why no requests are taken; None if they are."""
        reason = not_ready(self._state, self._loaded.settings)
        return reason or (None if self._pool.serving else "no_worker")

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics of all workers, in the format that *accept* asks for."""
        await self._pool.refresh()
        return await expose(self._totals.total(self._pool.snapshots()), accept)

    async def status(self) -> dict[str, object]:
        """Return what goes on in all workers, for a person."""
        await self._pool.refresh()
        now, total = self._clock.monotonic(), self._totals.total(self._pool.snapshots())
        silent = [
            silent_worker(worker.number, worker.pid)
            for _, worker in sorted(self._pool.workers.items())
            if worker.is_ready and worker.is_silent
        ]
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
            **process_status(
                total, self._history.last_minute(now, total), self._loaded.store_url, silent
            ),
        }

    def config(self) -> dict[str, object]:
        """Return the configuration in force, secrets masked."""
        return self._loaded.effective

    def explain_context(self) -> ExplainContext:
        """Return the configuration in force, as far as requests are explained by it."""
        return self._loaded.explain_context()

    async def reload(self) -> Reloaded:
        """Read the configuration again and have all workers apply it, or leave all as it is."""
        async with self._reloading:
            try:
                loaded = await asyncio.to_thread(self._load)
            except ConfigError as error:
                self._totals.own.reload_failed()
                return faulty(error.report)
            except Exception:  # noqa: BLE001 - whatever it is, the old configuration serves on
                _log.exception("reload failed inside the proxy")
                return self._keep_old(["the configuration could not be read, see the log"])
            changed = needs_restart(self._loaded.settings, loaded.settings)
            if changed:
                return self._keep_old(changed)
            # Before any worker is asked: a worker that is started from now on begins with it.
            before, self._loaded = self._loaded, loaded
            reasons = await self._pool.reload()
            if reasons is not None:
                self._loaded = before
                await self._pool.roll_back()
                return self._keep_old(reasons)
            await self._pool.refresh()
            self._totals.reload_succeeded(self._clock.wall(), self._pool.snapshots())
            return reloaded(before, loaded)

    def _keep_old(self, lines: Sequence[str]) -> Reloaded:
        self._totals.own.reload_failed()
        return refused(lines)


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
