"""As many workers as there should be: started, replaced when they die, ended together."""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from proxy.app.lifecycle import CannotStart
from proxy.core.clock import Clock
from proxy.observe.metrics.process_snapshot import ProcessSnapshot
from proxy.observe.metrics.totals import Totals
from proxy.policy.settings import Settings
from proxy.runtime.workers.acceptor import ConnectionAcceptor
from proxy.runtime.workers.fd_passing import FdSender
from proxy.runtime.workers.worker_process import Launch, WorkerGone, WorkerProcess

_FIRST_START = 60.0
"""Seconds that all workers have to be ready at the start."""
_STEADY = 10.0
"""Seconds after which a worker did not die of how it was started."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
"""Seconds before another one takes the place of one that died soon after its start, again."""
_READ_EVERY = 1.0
"""Seconds between two readings: what a worker that is killed counted since is lost."""
_SCRAPE_PATIENCE = 0.5
"""Seconds that workers have to tell their numbers; then the last that are known must do."""
_RELOAD_PATIENCE = 10.0
"""Seconds that a worker has to take up a configuration, before another one takes its place."""
_LITTLE_PATIENCE = 2.0
"""The same, for one that has not answered for a while already."""
_GRACE, _HASTE = 5.0, 2.0
"""Seconds beyond its own time that a worker may take to end; and when it shall end at once."""

_log = logging.getLogger("holdfast")


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
        """*share* has the settings in force for the worker of a number, from 0."""
        self._size = size
        self._share = share
        self._totals = totals
        self._clock = clock
        self._launch = launch
        self.members: dict[int, WorkerProcess] = {}
        self.dealer = ConnectionAcceptor(self._next)
        self._tried = [asyncio.Event() for _ in range(size)]
        """For each number: it was tried to start a worker."""
        self._keeping: list[asyncio.Task[None]] = []
        self._reading: asyncio.Task[None] | None = None
        self._has_begun = False
        self._ending = asyncio.Event()

    @property
    def present(self) -> list[WorkerProcess]:
        """Those that serve, the ones that answer first."""
        ready = [member for member in self.members.values() if member.is_ready]
        return sorted(ready, key=lambda member: member.is_silent)

    # Start and end.

    async def start(self) -> None:
        """Start all of them. Raises CannotStart if one cannot serve; then none does."""
        self._keeping = [
            asyncio.create_task(self._keep(number), name=f"worker {number}")
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
        self._reading = asyncio.create_task(self._keep_reading(), name="readings")

    async def _until_ready(self, number: int) -> None:
        await self._tried[number].wait()
        member = self.members.get(number)
        if member is not None:
            await member.ready.wait()
        if member is None or not member.is_ready:
            why = member.failure if member is not None else ""
            raise CannotStart(why or "a worker ended before it was ready, the log says why")

    async def drain(self, patience: float) -> None:
        """Let all end what they have begun, for *patience* seconds; then end those that are left.

        No more connections may come.
        """
        self._ending.set()
        for member in self.members.values():
            member.drain()
        await self._wait_for_the_end(patience + _GRACE)

    async def stop(self) -> None:
        """Let all end at once."""
        self._ending.set()
        for member in self.members.values():
            member.stop()
        await self._wait_for_the_end(_HASTE)

    async def _wait_for_the_end(self, patience: float) -> None:
        pending = set(self._keeping)
        if pending:
            _, pending = await asyncio.wait(pending, timeout=patience)
        for member in self.members.values():
            _log.error("worker %d (process %d) does not end: killed", member.number, member.pid)
            member.kill()
        if pending:
            await asyncio.wait(pending)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))

    # The life of one place in the crew.

    async def _keep(self, number: int) -> None:
        """Have a worker with this number, until the end."""
        soon = 0
        while not self._ending.is_set():
            member = WorkerProcess(number, self._clock, self.dealer.resume)
            try:
                await member.start(self._share(number), self._launch)
            except OSError as error:
                _log.error("no worker can be started: %s", error)
                self._tried[number].set()
                if not self._has_begun:
                    return
                soon += 1
                await self._pause(max(_pause(soon), _FIRST_PAUSE))
                continue
            self.members[number] = member
            self._tried[number].set()
            if self._ending.is_set():
                member.stop()
            await member.ended.wait()
            status = await member.buried()
            # In one step, so that nobody sees its numbers twice, or not at all.
            del self.members[number]
            if member.reading is not None:
                self._totals.bury(member.reading)
            self.dealer.reassign(member.close())
            if self._ending.is_set() or not self._has_begun:
                return
            soon = soon + 1 if self._clock.monotonic() - member.born < _STEADY else 0
            self._totals.restarts += 1
            _log.error(
                "worker %d (process %d) %s%s: another takes its place%s",
                number,
                member.pid,
                _ending(status),
                f" ({member.failure})" if member.failure else "",
                f" in {_pause(soon):g} s" if _pause(soon) else "",
            )
            await self._pause(_pause(soon))

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        if not seconds:
            return
        ending = asyncio.ensure_future(self._ending.wait())
        await asyncio.wait((ending,), timeout=seconds)
        ending.cancel()

    # Who gets the next connection.

    def _next(self) -> FdSender | None:
        """That of the one with the fewest connections; of several alike they take turns."""
        able = [
            member for member in self.members.values() if member.is_ready and member.hatch.has_room
        ]
        return min(able, key=_rank).hatch if able else None

    # Numbers.

    def readings(self) -> list[ProcessSnapshot]:
        """The last that each told."""
        members = self.members.values()
        return [member.reading for member in members if member.reading is not None]

    async def refresh(self) -> None:
        """Have all tell their numbers, as far as they do so in time."""
        await _within(_SCRAPE_PATIENCE, [member.refresh() for member in self.present])

    async def _keep_reading(self) -> None:
        while True:
            await asyncio.sleep(_READ_EVERY)
            await _within(_READ_EVERY, [member.refresh() for member in self.present])
            for member in self.present:
                member.look()

    # Configuration.

    async def reload(self) -> Sequence[str] | None:
        """Have one after the other serve with its share of what is in force now.

        None if all do; else what the first that does not has to say. One that does not answer
        is ended: who takes its place begins with what is in force.
        """
        for number in range(self._size):
            member = self.members.get(number)
            if member is None:
                continue
            patience = _LITTLE_PATIENCE if member.is_silent else _RELOAD_PATIENCE
            try:
                async with asyncio.timeout(patience):
                    await member.ready.wait()
                    in_force, lines = await member.reload(self._share(number))
            except WorkerGone:
                continue
            except TimeoutError:
                _log.error(
                    "worker %d (process %d) does not take the new configuration: killed",
                    number,
                    member.pid,
                )
                member.kill()
                continue
            if not in_force:
                return lines
        return None

    async def take_back(self) -> None:
        """Have those serve as before that already serve otherwise."""
        for number, member in tuple(self.members.items()):
            share = self._share(number)
            if member.settings == share:
                continue
            try:
                async with asyncio.timeout(_RELOAD_PATIENCE):
                    in_force, _ = await member.reload(share)
            except (WorkerGone, TimeoutError):
                in_force = False
            if not in_force:
                member.kill()


def _rank(member: WorkerProcess) -> tuple[bool, int, int]:
    return member.is_silent, member.hatch.load, member.hatch.last_given


def _pause(soon: int) -> float:
    """Seconds, after so many deaths soon after the start: the first is replaced at once."""
    return 0.0 if soon < 2 else min(_FIRST_PAUSE * 2.0 ** (soon - 2), _LONGEST_PAUSE)


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"was ended by signal {-status}"


async def _within(seconds: float, work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all of it at the same time, as far as it gets done."""
    tasks = [asyncio.ensure_future(part) for part in work]
    if not tasks:
        return
    _, pending = await asyncio.wait(tasks, timeout=seconds)
    for task in pending:
        task.cancel()
