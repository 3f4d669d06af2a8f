"""The worker pool: workers are started, replaced when they die, reloaded and ended together.

The pool also does the load balancing between workers: a connection goes to the worker that has
the fewest. A poll every second is the heartbeat of each worker, and fetches its numbers.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from proxy.app.lifecycle import CannotStart
from proxy.core.clock import Clock
from proxy.observe.metrics.snapshot import ProcessSnapshot
from proxy.observe.metrics.totals import Totals
from proxy.policy.settings import Settings
from proxy.runtime.workers.acceptor import ConnectionAcceptor
from proxy.runtime.workers.fd_passing import FdSender
from proxy.runtime.workers.worker_process import Launch, WorkerGone, WorkerProcess

_FIRST_START = 60.0
"""Seconds that all workers have to be ready at the start."""
_STEADY = 10.0
"""Seconds after which a worker did not die of how it was started."""
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 10.0
"""Seconds before a worker is started in place of one that died soon after its start, again."""
_POLL_EVERY = 1.0
"""Seconds between two polls: what a worker that is killed counted since the last is lost."""
_SCRAPE_PATIENCE = 0.5
"""Seconds that workers have to report their numbers; then their last report counts."""
_RELOAD_PATIENCE = 10.0
"""Seconds that a worker has to apply a configuration, before it is killed and replaced."""
_LITTLE_PATIENCE = 2.0
"""Seconds that a worker has to apply a configuration if it has been silent for a while."""
_GRACE, _HASTE = 5.0, 2.0
"""Seconds beyond the drain timeout that a worker may take to end; and to stop at once."""

_log = logging.getLogger("holdfast")

_T = TypeVar("_T")


class WorkerPool:
    """The workers, each with a number that its successor inherits."""

    def __init__(
        self,
        size: int,
        share: Callable[[int], Settings],
        totals: Totals,
        clock: Clock,
        launch: Launch,
    ) -> None:
        """*share* returns the settings in force for the worker of a number, from 0."""
        self._size = size
        self._share = share
        self._totals = totals
        self._clock = clock
        self._launch = launch
        self.workers: dict[int, WorkerProcess] = {}
        self.acceptor = ConnectionAcceptor(self._least_loaded)
        self._tried = [asyncio.Event() for _ in range(size)]
        """Set, for each number, once the pool has tried to start a worker."""
        self._slots: list[asyncio.Task[None]] = []
        self._polling: asyncio.Task[None] | None = None
        self._has_begun = False
        self._first_failure = ""
        """Why the first worker ended that was never ready; empty: none did, or it did not say."""
        self._ending = asyncio.Event()

    @property
    def serving(self) -> list[WorkerProcess]:
        """Workers that serve; those that answer come first."""
        ready = [worker for worker in self.workers.values() if worker.is_ready]
        return sorted(ready, key=lambda worker: worker.is_silent)

    # Start and graceful shutdown.

    async def start(self) -> None:
        """Start all workers. Raises CannotStart if one cannot serve; then none does."""
        self._slots = [
            asyncio.create_task(self._run_slot(number), name=f"worker {number}")
            for number in range(self._size)
        ]
        try:
            async with asyncio.timeout(_FIRST_START):
                for number in range(self._size):
                    await self._until_ready(number)
        except BaseException as error:
            await self.stop()
            if isinstance(error, TimeoutError):
                raise CannotStart("the workers did not get ready, the log may say why") from None
            raise
        self._has_begun = True
        self._polling = asyncio.create_task(self._keep_polling(), name="worker polls")

    async def _until_ready(self, number: int) -> None:
        await self._tried[number].wait()
        worker = self.workers.get(number)
        if worker is not None:
            await worker.ready.wait()
        if worker is None or not worker.is_ready:
            reason = self._first_failure if worker is None else worker.failure
            raise CannotStart(reason or "a worker ended before it was ready, the log says why")

    async def drain(self, patience: float) -> None:
        """Let workers end what they have begun, for *patience* seconds; then kill the rest.

        No more connections may come.
        """
        self._ending.set()
        for worker in self.workers.values():
            worker.drain()
        await self._wait_for_the_end(patience + _GRACE)

    async def stop(self) -> None:
        """Let all workers end at once."""
        self._ending.set()
        for worker in self.workers.values():
            worker.stop()
        await self._wait_for_the_end(_HASTE)

    async def _wait_for_the_end(self, patience: float) -> None:
        pending = set(self._slots)
        if pending:
            _, pending = await asyncio.wait(pending, timeout=patience)
        for worker in self.workers.values():
            _log.error("worker %d (process %d) does not end: killed", worker.number, worker.pid)
            worker.kill()
        if pending:
            await asyncio.wait(pending)
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait((self._polling,))

    # One slot of the pool: a worker, and its successors.

    async def _run_slot(self, number: int) -> None:
        """Keep a worker with this number running until the pool ends."""
        soon = 0
        while not self._ending.is_set():
            worker = WorkerProcess(number, self._clock, self.acceptor.resume)
            try:
                await worker.start(self._share(number), self._launch)
            except OSError as error:
                _log.error("no worker can be started: %s", error)
                self._tried[number].set()
                if not self._has_begun:
                    return
                soon += 1
                await self._wait_unless_ending(max(_restart_delay(soon), _FIRST_DELAY))
                continue
            self.workers[number] = worker
            self._tried[number].set()
            if self._ending.is_set():
                worker.stop()
            await worker.ended.wait()
            status = await worker.exit_status()
            # In one step, so that a scrape counts its numbers exactly once.
            del self.workers[number]
            if worker.snapshot is not None:
                self._totals.add_ended(worker.snapshot)
            self.acceptor.reassign(worker.close())
            if self._ending.is_set() or not self._has_begun:
                self._first_failure = self._first_failure or worker.failure
                return
            soon = soon + 1 if self._clock.monotonic() - worker.started_at < _STEADY else 0
            self._totals.own.count("holdfast_worker_restarts_total")
            _log.error(
                "worker %d (process %d) %s%s: another takes its place%s",
                number,
                worker.pid,
                _describe_exit(status),
                f" ({worker.failure})" if worker.failure else "",
                f" in {_restart_delay(soon):g} s" if _restart_delay(soon) else "",
            )
            await self._wait_unless_ending(_restart_delay(soon))

    async def _wait_unless_ending(self, seconds: float) -> None:
        """Wait, but no longer than until the pool ends."""
        if not seconds:
            return
        ending = asyncio.ensure_future(self._ending.wait())
        await asyncio.wait((ending,), timeout=seconds)
        ending.cancel()

    # Load balancing.

    def _least_loaded(self) -> FdSender | None:
        """Return the sender of the worker with the fewest connections; equal ones alternate."""
        able = [
            worker
            for worker in self.workers.values()
            if worker.is_ready and worker.fd_sender.has_capacity
        ]
        return min(able, key=_rank).fd_sender if able else None

    # Numbers.

    def snapshots(self) -> list[ProcessSnapshot]:
        """Return the last snapshot that each worker sent."""
        workers = self.workers.values()
        return [worker.snapshot for worker in workers if worker.snapshot is not None]

    async def refresh(self) -> None:
        """Have all workers send a snapshot, as far as they do so in time."""
        await within(_SCRAPE_PATIENCE, [worker.refresh() for worker in self.serving])

    async def _keep_polling(self) -> None:
        while True:
            await asyncio.sleep(_POLL_EVERY)
            await within(_POLL_EVERY, [worker.refresh() for worker in self.serving])
            for worker in self.serving:
                worker.check_heartbeat()

    # Configuration.

    async def reload(self) -> Sequence[str] | None:
        """Have one worker after the other serve with its share of the settings in force.

        Returns None if all do; else the reasons of the first that refuses. A worker that does
        not answer is killed: its successor begins with what is in force.
        """
        for number in range(self._size):
            worker = self.workers.get(number)
            if worker is None:
                continue
            patience = _LITTLE_PATIENCE if worker.is_silent else _RELOAD_PATIENCE
            try:
                async with asyncio.timeout(patience):
                    await worker.ready.wait()
                    in_force, lines = await worker.reload(self._share(number))
            except WorkerGone:
                continue
            except TimeoutError:
                _log.error(
                    "worker %d (process %d) does not take the new configuration: killed",
                    number,
                    worker.pid,
                )
                worker.kill()
                continue
            if not in_force:
                return lines
        return None

    async def roll_back(self) -> None:
        """Have workers that already apply the refused configuration serve as before."""
        for number, worker in tuple(self.workers.items()):
            share = self._share(number)
            if worker.settings == share:
                continue
            try:
                async with asyncio.timeout(_RELOAD_PATIENCE):
                    in_force, _ = await worker.reload(share)
            except (WorkerGone, TimeoutError):
                in_force = False
            if not in_force:
                worker.kill()


def _rank(worker: WorkerProcess) -> tuple[bool, int, int]:
    return worker.is_silent, worker.fd_sender.load, worker.fd_sender.last_sent


def _restart_delay(soon: int) -> float:
    """Return the seconds to wait after so many early deaths; the first is replaced at once."""
    return 0.0 if soon < 2 else min(_FIRST_DELAY * 2.0 ** (soon - 2), _LONGEST_DELAY)


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"was ended by signal {-status}"


async def within(seconds: float, work: Sequence[Coroutine[Any, Any, _T]]) -> set[asyncio.Task[_T]]:
    """Run all of *work* concurrently; return what is done after *seconds*, and cancel the rest."""
    tasks = [asyncio.ensure_future(part) for part in work]
    if not tasks:
        return set()
    done, pending = await asyncio.wait(tasks, timeout=seconds)
    for task in pending:
        task.cancel()
    return done
