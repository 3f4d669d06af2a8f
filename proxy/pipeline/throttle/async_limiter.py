"""A bucket with a clock: who waits is woken when its turn comes. One timer per line."""

import asyncio
from collections.abc import Callable

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.recorders import ThrottleRecorder
from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.limiter import Limiter, LimiterListener
from proxy.policy.throttle.wait_queue import ThrottleCause, Waiter, WaitQueue

_GRAIN = 0.001
"""Seconds: no timer is set for less. The loop counts in these."""

_ASKING = 0.005
"""Seconds that it may take to ask a store for permits before it counts as a wait."""

MakeLimiter = Callable[[ThrottleSettings, LimiterListener], Limiter]
"""Where a gate gets its permits from: this process, or a store that others share."""


class AsyncLimiter:
    """One bucket, and those who wait at it."""

    __slots__ = ("_clock", "_loop", "_timer", "bucket", "is_known", "recorder")

    def __init__(
        self,
        settings: ThrottleSettings,
        make_permits: MakeLimiter,
        recorder: ThrottleRecorder,
        clock: Clock,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self.recorder = recorder
        self.is_known = False
        """Whether it is that of one caller, which has proved itself (``caller_table.py``)."""
        self.bucket: WaitQueue[_AsyncWaiter] = WaitQueue(settings, make_permits(settings, self))

    def __repr__(self) -> str:
        return f"<gate {self.bucket!r}>"

    @property
    def is_keyed(self) -> bool:
        """Whether it is for one caller, and not for all."""
        return self.bucket.settings.key is not None

    # Waiting.

    async def wait_for_turn(self, exchange: Exchange, deadline: float) -> float | ThrottleCause:
        """Stand in line: how many seconds it took, or why one's turn will not come.

        Whose turn has come has its place, and its permit is held.
        """
        turn = _AsyncWaiter(self._loop, self._clock.monotonic(), deadline)
        self.bucket.join(turn, turn.entered)
        asks = turn.is_guess
        cause = await self._wait(exchange, turn)
        if cause is not None:
            self.recorder.refused()
            return cause
        waited = self._clock.monotonic() - turn.entered
        if asks and waited < _ASKING:
            self.recorder.admitted()
            return 0.0
        self.recorder.delayed(waited)
        return waited

    async def wait_again(self, exchange: Exchange, deadline: float) -> ThrottleCause | None:
        """The same for one whose turn had come, who has its place and needs another permit."""
        now = self._clock.monotonic()
        if self.bucket.reserve_again(now):
            return None
        turn = _AsyncWaiter(self._loop, now, deadline, has_place=True)
        if not self.bucket.come_back(turn):
            return ThrottleCause.PAUSED
        return await self._wait(exchange, turn)

    async def _wait(self, exchange: Exchange, turn: "_AsyncWaiter") -> ThrottleCause | None:
        line = exchange.queue_entry = _QueueEntry(self, turn)
        exchange.begin_wait("queue")
        try:
            self.look()
            cause = await turn.called
        except asyncio.CancelledError:
            if turn.was_let_out:  # in the very moment in which it left
                self.bucket.lapse()
                if not turn.has_place:
                    self.bucket.vacate()
            line.leave()
            raise
        finally:
            exchange.queue_entry = None
        exchange.end_wait()  # not for one that is cancelled: it shall be known where it was
        return cause

    # The line moves.

    def look(self) -> None:
        """See who is next. Called whenever that may have changed."""
        bucket = self.bucket
        next_look = None
        if bucket.waiting:
            now = self._clock.monotonic()
            served = bucket.serve(now)
            for turn in served.out:
                turn.call(None)
            for turn, cause in served.refused:
                turn.call(cause)
            next_look = bucket.next_look(now)
        # Only now: permits that were asked may have told us to look already.
        self._stop_timer()
        if next_look is not None:
            self._timer = self._loop.call_later(max(next_look, _GRAIN), self.look)

    def pause(self, now: float, seconds: float, *, is_news: bool = True) -> None:
        """Let nobody through for so long; see :meth:`WaitQueue.pause`."""
        for turn in self.bucket.pause(now, seconds, tells_limiter=is_news):
            turn.call(ThrottleCause.PAUSED)
        self.look()

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Other limits hold from now on, for those in line too."""
        self.bucket.change(settings, now)
        self.look()

    def close(self) -> None:
        """The end of everything: nobody waits any more."""
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # From permits that a store shares (policy.permits.PermitsListener).

    def permits_changed(self) -> None:
        """There may be permits now, or it is clear that there are none."""
        self.look()

    def permits_paused(self, until: float) -> None:
        """Another instance was told to wait."""
        now = self._clock.monotonic()
        self.pause(now, until - now, is_news=False)


class _AsyncWaiter(Waiter):
    """One who stands in line, and how it gets to know of its turn."""

    __slots__ = ("called", "has_place")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        entered: float,
        deadline: float,
        *,
        has_place: bool = False,
    ) -> None:
        super().__init__(entered, deadline)
        self.called: asyncio.Future[ThrottleCause | None] = loop.create_future()
        """None once its turn has come, or why it will not."""
        self.has_place = has_place

    @property
    def is_gone(self) -> bool:
        """Whether it knows already, or was cancelled."""
        return self.called.done()

    @property
    def was_let_out(self) -> bool:
        called = self.called
        return called.done() and not called.cancelled() and called.result() is None

    def call(self, cause: ThrottleCause | None) -> None:
        """Its turn has come; or, with a *cause*, it will not."""
        if not self.called.done():
            self.called.set_result(cause)


class _QueueEntry:
    """Where an exchange stands in line (core.Place)."""

    __slots__ = ("_gate", "_turn")

    def __init__(self, gate: AsyncLimiter, turn: _AsyncWaiter) -> None:
        self._gate = gate
        self._turn = turn

    def give_up(self, cause: ThrottleCause) -> None:
        """Wait no longer."""
        self._turn.call(cause)
        self.leave()

    def leave(self) -> None:
        """All behind move up."""
        self._gate.bucket.leave(self._turn)
        self._gate.look()
