"""A rate limiter that requests can await: its wait queue, with one timer for all waiters."""

import asyncio
from collections.abc import Callable

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.recorders import ThrottleRecorder
from proxy.policy.settings import ThrottleSettings
from proxy.policy.throttle.limiter import LimiterListener, Limiters
from proxy.policy.throttle.wait_queue import Reservation, ThrottleCause, Waiter, WaitQueue

_SHORTEST_TIMER = 0.001
"""Seconds: no timer is set for less, since the loop counts in milliseconds."""

_STORE_ROUND_TRIP = 0.005
"""Seconds that asking a store for permits may take before it counts as a wait."""

MakeLimiters = Callable[[ThrottleSettings, LimiterListener], Limiters]
"""Makes the limiters behind a queue: of this process, or of a store that others share."""


class AsyncLimiter:
    """The limiters of one bucket, and the requests that wait for them."""

    __slots__ = ("_clock", "_loop", "_timer", "is_known", "queue", "recorder")

    def __init__(
        self,
        settings: ThrottleSettings,
        make_limiters: MakeLimiters,
        recorder: ThrottleRecorder,
        clock: Clock,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self.recorder = recorder
        self.is_known = False
        """Whether the limiter is that of one caller that is known (``caller_table.py``)."""
        self.queue: WaitQueue[_AsyncWaiter] = WaitQueue(settings, make_limiters(settings, self))

    def __repr__(self) -> str:
        return f"<limiter {self.queue!r}>"

    @property
    def is_keyed(self) -> bool:
        """Whether the limiter is for one caller, and not for all."""
        return self.queue.settings.key is not None

    # Waiting.

    async def wait_in_queue(
        self, exchange: Exchange, deadline: float
    ) -> tuple[Reservation, float] | ThrottleCause:
        """Wait in the queue; return a reservation and the seconds that took, or why it is refused.

        Its permit is reserved.
        """
        waiter = _AsyncWaiter(self._loop, self._clock.monotonic(), deadline)
        self.queue.join(waiter, waiter.entered)
        asks_store = waiter.is_guess
        try:
            decision = await self._wait(exchange, waiter)
        except asyncio.CancelledError:
            # It may have been admitted in the very moment in which it was cancelled.
            reservation = waiter.admitted
            if reservation is not None and reservation.close():
                self.serve_queue()
            raise
        if isinstance(decision, ThrottleCause):
            self.recorder.refused()
            return decision
        waited = self._clock.monotonic() - waiter.entered
        if asks_store and waited < _STORE_ROUND_TRIP:
            self.recorder.admitted()
            return decision, 0.0
        self.recorder.delayed(waited)
        return decision, waited

    async def wait_for_permit_again(
        self, reservation: Reservation, exchange: Exchange, deadline: float
    ) -> ThrottleCause | None:
        """Wait for another permit for *reservation*, whose own is gone."""
        now = self._clock.monotonic()
        if self.queue.reserve_again(reservation, now):
            return None
        waiter = _AsyncWaiter(self._loop, now, deadline, reservation)
        if not self.queue.come_back(waiter):
            return ThrottleCause.PAUSED
        decision = await self._wait(exchange, waiter)
        return decision if isinstance(decision, ThrottleCause) else None

    async def _wait(
        self, exchange: Exchange, waiter: "_AsyncWaiter"
    ) -> Reservation | ThrottleCause:
        entry = exchange.queue_entry = _QueueEntry(self, waiter)
        exchange.begin_wait("queue")
        try:
            self.serve_queue()
            decision = await waiter.decision
        except asyncio.CancelledError:
            entry.leave()
            raise
        finally:
            exchange.queue_entry = None
        exchange.end_wait()  # not after a cancellation: the log shall say what it waited for
        return decision

    # Moving the queue.

    def serve_queue(self) -> None:
        """Admit or refuse waiters as far as possible; called whenever that may have changed."""
        queue = self.queue
        next_look = None
        if queue.waiting:
            now = self._clock.monotonic()
            served = queue.serve(now)
            for waiter, reservation in served.out:
                waiter.decide(reservation)
            for waiter, cause in served.refused:
                waiter.decide(cause)
            next_look = queue.next_look(now)
        # Only now: asking a shared limiter may have called this method already.
        self._stop_timer()
        if next_look is not None:
            self._timer = self._loop.call_later(max(next_look, _SHORTEST_TIMER), self.serve_queue)

    def pause(self, now: float, seconds: float, *, tells_limiter: bool = True) -> None:
        """Admit no request for so many seconds; see :meth:`WaitQueue.pause`."""
        for waiter in self.queue.pause(now, seconds, tells_limiter=tells_limiter):
            waiter.decide(ThrottleCause.PAUSED)
        self.serve_queue()

    def change(self, settings: ThrottleSettings, now: float) -> None:
        """Apply other limits from now on, to waiting requests too."""
        self.queue.change(settings, now)
        self.serve_queue()

    def close(self) -> None:
        """Stop the timer: no request waits any more."""
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # From a limiter that a store shares (policy.throttle.limiter.LimiterListener).

    def permits_changed(self) -> None:
        """Serve the queue: there may be permits now, or it is clear that there are none."""
        self.serve_queue()

    def permits_paused(self, until: float) -> None:
        """Pause as well: the upstream told another instance to wait."""
        now = self._clock.monotonic()
        self.pause(now, until - now, tells_limiter=False)


class _AsyncWaiter(Waiter):
    """A request in the queue, which awaits the decision about it."""

    __slots__ = ("decision",)

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        entered: float,
        deadline: float,
        reservation: Reservation | None = None,
    ) -> None:
        super().__init__(entered, deadline, reservation)
        self.decision: asyncio.Future[Reservation | ThrottleCause] = loop.create_future()
        """The reservation of a request that is admitted, or why it is refused."""

    @property
    def is_gone(self) -> bool:
        """Whether the decision is made, or the waiter was cancelled."""
        return self.decision.done()

    @property
    def admitted(self) -> Reservation | None:
        """The reservation, if one was given, whether it was fetched or not."""
        if not self.decision.done() or self.decision.cancelled():
            return None
        decision = self.decision.result()
        return decision if isinstance(decision, Reservation) else None

    def decide(self, decision: Reservation | ThrottleCause) -> None:
        """Admit the waiter with its reservation, or refuse it for a cause."""
        if not self.decision.done():
            self.decision.set_result(decision)


class _QueueEntry:
    """The entry of one exchange in the queue (core.ports.QueueEntry)."""

    __slots__ = ("_limiter", "_waiter")

    def __init__(self, limiter: AsyncLimiter, waiter: _AsyncWaiter) -> None:
        self._limiter = limiter
        self._waiter = waiter

    def give_up(self, cause: ThrottleCause) -> None:
        """Refuse the waiter for *cause*, and leave the queue."""
        self._waiter.decide(cause)
        self.leave()

    def leave(self) -> None:
        """Leave the queue, so that all behind move up."""
        self._limiter.queue.leave(self._waiter)
        self._limiter.serve_queue()
