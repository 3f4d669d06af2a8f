"""Several workers as one proxy: start, reload, drain, and one admin listener for all."""

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from proxy import __version__
from proxy.admin.listener import AdminListener
from proxy.admin.operations import StoreSilent
from proxy.app.lifecycle import needs_restart, parser
from proxy.config import ConfigError, Loaded
from proxy.core.clock import Clock, SystemClock
from proxy.http.fields import RawHeaders
from proxy.observe.metrics.totals import Totals
from proxy.policy.dead_letter import DeadLetter, DeadLetterSummary, Obstacle, Replayed
from proxy.policy.idempotency.record import Released, Shown
from proxy.policy.settings import Settings
from proxy.runtime.workers.bind import BoundAddresses
from proxy.runtime.workers.pool import WorkerPool
from proxy.runtime.workers.shares import share_of
from proxy.runtime.workers.worker_process import Launch, WorkerGone

_ANSWER_PATIENCE = 10.0
"""Seconds that a worker has to look something up."""

_log = logging.getLogger("holdfast")


class Supervisor:
    """Serves by its workers. Also what the admin listener may see and do of them."""

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
        self._totals = Totals(__version__, parser(), self._clock.wall())
        self._log_turns = _turns()
        self._addresses = BoundAddresses()
        launch = Launch(entry, self._log_turns)
        self._crew = WorkerPool(workers, self._share, self._totals, self._clock, launch)
        admin = loaded.settings.admin
        self._admin = None if admin is None else AdminListener(self, admin)

    def _share(self, worker: int) -> Settings:
        return share_of(self._loaded.settings, worker, self._workers)

    # Start and stop.

    @property
    def bound(self) -> list[str]:
        """Addresses that clients can use."""
        return self._addresses.bound

    async def start(self) -> None:
        """Open every listener and start all workers.

        Raises OSError if a listener cannot be opened and CannotStart if a worker cannot serve;
        nothing is open then, and nobody left.
        """
        try:
            if self._admin is not None:
                await self._admin.start()
                _log.info("admin on %s", ", ".join(self._admin.bound))
            await self._addresses.bind(self._loaded.settings.listen)
            await self._crew.start()
        except BaseException:
            await self._close()
            raise
        self._crew.dealer.open(self._addresses.sockets)
        self._state = "ready"
        _log.info("%d workers", self._workers)
        _log.info("listening on %s", ", ".join(self.bound))
        for warning in self._loaded.warnings:
            _log.warning("%s", warning)

    async def drain(self) -> None:
        """Stop taking requests, let those under way end, and close everything."""
        self._state = "draining"
        _log.info("draining")
        await asyncio.sleep(self._loaded.settings.drain_delay)
        self._stop_listening()
        await self._crew.drain(self._loaded.settings.drain_timeout)
        await self._close()

    async def stop_at_once(self) -> None:
        """End every request where it is, and close everything."""
        self._state = "draining"
        self._stop_listening()
        await self._crew.stop()
        await self._close()

    def _stop_listening(self) -> None:
        self._crew.dealer.close()
        self._addresses.close()

    async def _close(self) -> None:
        self._stop_listening()
        if self._admin is not None:
            await self._admin.close()
        if self._log_turns >= 0:
            os.close(self._log_turns)
            self._log_turns = -1
        # Transports close in callbacks of their own: let these run.
        await asyncio.sleep(0)

    # What the admin listener may see and do (admin.Operations).

    def token(self) -> str | None:
        """The admin token in force."""
        return self._loaded.settings.admin_token

    def not_ready(self) -> str | None:
        """Why no requests are taken; None if they are."""
        if self._state != "ready":
            return self._state
        return None if self._crew.present else "no_worker"

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics of all workers, in the format that *accept* asks for."""
        await self._crew.refresh()
        return await self._totals.exposition(self._totals.of(self._crew.readings()), accept)

    async def tell_status(self) -> dict[str, object]:
        """What goes on in all of them, for a person."""
        await self._crew.refresh()
        now = self._clock.monotonic()
        return {
            "version": __version__,
            "state": self._state,
            "uptime_seconds": round(now - self._started, 3),
            "workers": [
                {
                    "number": member.number,
                    "pid": member.pid,
                    "state": _word(is_ready=member.is_ready, is_silent=member.is_silent),
                    "uptime_seconds": round(now - member.born, 3),
                    "connections": member.hatch.load,
                }
                for _, member in sorted(self._crew.members.items())
            ],
            "worker_restarts": self._totals.restarts,
            **self._totals.of(self._crew.readings()).told(),
        }

    async def find_attempts(self, request_id: str) -> list[dict[str, object]]:
        """The recent notable requests that had this id, whoever served them."""
        members = [member for member in self._crew.present if not member.is_silent]
        asked = [asyncio.create_task(member.ask("find_attempts", request_id)) for member in members]
        found: list[dict[str, object]] = []
        if asked:
            done, pending = await asyncio.wait(asked, timeout=_ANSWER_PATIENCE)
            for task in pending:
                task.cancel()
            for task in done:
                found += [] if isinstance(task.exception(), WorkerGone) else task.result()
        return sorted(found, key=lambda request: str(request["time"]))

    def config(self) -> dict[str, object]:
        """The configuration in force, secrets masked."""
        return self._loaded.effective

    async def reload(self) -> tuple[bool, Sequence[str]]:
        """Read the configuration again and have all serve with it, or leave all as it is."""
        async with self._reloading:
            try:
                loaded = await asyncio.to_thread(self._load)
            except ConfigError as error:
                return self._keep_old([str(finding) for finding in error.report.diagnostics])
            except Exception:  # noqa: BLE001 - whatever it is, the old configuration serves on
                _log.exception("reload failed inside the proxy")
                return self._keep_old(["the configuration could not be read, see the log"])
            changed = needs_restart(self._loaded.settings, loaded.settings)
            if changed:
                return self._keep_old(changed)
            # Before anybody is asked: who is started from now on begins with it.
            before, self._loaded = self._loaded, loaded
            refused = await self._crew.reload()
            if refused is not None:
                self._loaded = before
                await self._crew.take_back()
                return self._keep_old(refused)
            await self._crew.refresh()
            self._totals.reload_succeeded(self._clock.wall(), self._crew.readings())
            _log.info("configuration reloaded")
            for warning in loaded.warnings:
                _log.warning("%s", warning)
            return True, [str(warning) for warning in loaded.warnings]

    def _keep_old(self, lines: Sequence[str]) -> tuple[bool, Sequence[str]]:
        self._totals.reload_failed()
        for line in lines:
            _log.error("reload refused: %s", line)
        return False, lines

    # Keys and letters are in a store that all workers share: any of them can tell.

    async def show_key(self, name: str) -> Shown | None:
        """What is known of the key whose record has that name."""
        shown: Shown | None = await self._ask_one("show_key", name)
        return shown

    async def release_key(self, name: str, *, force: bool) -> Released:
        """Forget a key, unless a request that runs has it; with *force* that one loses it."""
        released: Released = await self._ask_one("release_key", name, force=force)
        return released

    async def page_of_letters(
        self, route: str | None, after: str, limit: int, *, newest: bool
    ) -> list[DeadLetterSummary]:
        """Some dead letters, in their order."""
        page: list[DeadLetterSummary] = await self._ask_one(
            "page_of_letters", route, after, limit, newest=newest
        )
        return page

    async def find_letter(self, letter: str) -> DeadLetter | None:
        """All of one dead letter."""
        found: DeadLetter | None = await self._ask_one("find_letter", letter)
        return found

    async def drop_letter(self, letter: str) -> bool | None:
        """Delete it; False if it is being sent again, None if there is none."""
        dropped: bool | None = await self._ask_one("drop_letter", letter)
        return dropped

    async def drop_letters(self, route: str | None, until: str) -> int:
        """Delete all of a route, or all, but for those that are being sent: maybe very many."""
        dropped: int = await self._ask_one("drop_letters", route, until, patience=None)
        return dropped

    async def letter_obstacle(
        self, letter: str, given: RawHeaders, *, force: bool
    ) -> Obstacle | None:
        """Why it would not be sent again now; None if it would."""
        obstacle: Obstacle | None = await self._ask_one(
            "letter_obstacle", letter, given, force=force
        )
        return obstacle

    async def replay_letter(
        self, letter: str, given: RawHeaders, *, force: bool
    ) -> Replayed | Obstacle:
        """Send it again through its route, as that is now; it takes as long as that takes."""
        replayed: Replayed | Obstacle = await self._ask_one(
            "replay_letter", letter, given, patience=None, force=force
        )
        return replayed

    async def _ask_one(
        self,
        what: str,
        *arguments: Any,  # noqa: ANN401 - of any operation
        patience: float | None = _ANSWER_PATIENCE,
        **options: Any,  # noqa: ANN401 - as above
    ) -> Any:  # noqa: ANN401 - as above
        """Let one worker do it, and no other after it: it may have been done.

        Raises StoreSilent if it does not answer, or there is none.
        """
        if not self._crew.present:
            raise StoreSilent
        member = self._crew.present[0]
        try:
            async with asyncio.timeout(patience):
                return await member.ask(what, *arguments, **options)
        except (WorkerGone, TimeoutError):
            _log.warning("worker %d does not answer %s", member.number, what)
            raise StoreSilent from None


def _word(*, is_ready: bool, is_silent: bool) -> str:
    if not is_ready:
        return "starting"
    return "silent" if is_silent else "ready"


def _turns() -> int:
    """A file that is nowhere, for the lock by which workers take turns at the log."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("holdfast-log-turns")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
