"""The throttles that an attempt must pass: its route's rate limit, then its upstream's.

Mostly no request waits. Then all that happens is :meth:`ThrottleChain.try_acquire`, and
an admitted attempt is sent within the same iteration of the event loop.
"""

import asyncio
import math
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.ports import Refused
from proxy.http.refusal import QuotaLeft, Refusal, RefusalReason
from proxy.http.response_head import ResponseHead
from proxy.pipeline.retry_waits import RetryWaits
from proxy.pipeline.throttle.async_limiter import AsyncLimiter
from proxy.pipeline.throttle.throttle import Throttle
from proxy.policy.attempt import FIRST_FAILURE, Attempt
from proxy.policy.failure_answers import DRAINING
from proxy.policy.retry.hints import read_hint
from proxy.policy.retry.verdict import LEAST_ATTEMPT
from proxy.policy.throttle.limiter import NEVER
from proxy.policy.throttle.wait_queue import Reservation, ReservationState, ThrottleCause
from proxy.upstream.call import Judge
from proxy.upstream.upstream import Upstream

_RESERVED_FOR = 0.1
"""Seconds for which a permit of one throttle stays reserved while another's is waited for again."""

_DETAILS = {
    ThrottleCause.MAX_WAIT: "There are more calls than the limit lets through in time.",
    ThrottleCause.QUEUE_FULL: "The limit of calls is reached, and its queue is full.",
    ThrottleCause.DEADLINE: "The limit of calls is reached until after the deadline.",
    ThrottleCause.PAUSED: "The upstream asked for a pause, which is not over.",
}
_NO_STORE = Refusal(RefusalReason.STORE, "The store of the limits is unavailable.")


class ThrottleChain:
    """The throttles between a route and an upstream, in the order in which they admit."""

    def __init__(
        self,
        throttles: list[Throttle],
        upstream: Upstream,
        retry_waits: RetryWaits,
        clock: Clock,
        *,
        keyed: bool,
    ) -> None:
        """*keyed* if any of the *throttles* has a rate limit per caller."""
        self.upstream = upstream
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.throttles = throttles
        self.retry_waits = retry_waits
        self._limiters = None if keyed else [throttle.common for throttle in throttles]
        """The limiters of every request; None if they differ by caller."""
        self._new_permit = KeyedPermit if keyed else ChainPermit

    def _limiters_for(self, exchange: Exchange) -> Iterable[AsyncLimiter]:
        """Return the limiters one after the other: one that is idle for a while is replaced."""
        return self._limiters or (throttle.limiter_for(exchange) for throttle in self.throttles)

    def try_acquire(self, exchange: Exchange) -> "ChainPermit | None":
        """Return a permit to send now, or None if the attempt has to wait.

        Raises :class:`Refused` if every breaker is open.
        """
        limiters = self._limiters or list(self._limiters_for(exchange))
        now = (
            self.clock.monotonic()
        )  # not earlier: a new limiter knows no time before its own start
        if self.upstream.endpoints.breakers is not None:
            self._check_breakers(now)
        reservations: tuple[Reservation, ...] = ()
        for limiter in limiters:
            reservation = limiter.queue.take(now)
            if reservation is None:
                break
            reservations += (reservation,)
        else:
            for limiter in limiters:
                limiter.recorder.admitted()
            return self._new_permit(self, exchange, limiters, reservations)
        for reservation in reservations:
            reservation.release()
            reservation.close()
        return None

    async def acquire(
        self, exchange: Exchange, deadline: float, *, is_retry: bool
    ) -> "ChainPermit":
        """Wait for all throttles, and return a permit to send now.

        Raises :class:`Refused` if a throttle refuses, or would admit only after *deadline*.
        """
        permit = self._new_permit(self, exchange, [], ())
        try:
            with self.retry_waits.watch(exchange) if is_retry else nullcontext():
                for limiter in self._limiters_for(exchange):
                    await self._acquire_from(limiter, permit, exchange, deadline)
                await permit.commit(deadline)
        except BaseException:
            permit.close()
            raise
        try:
            self._check_breakers(self.clock.monotonic())  # they may have opened during the wait
        except Refused:
            permit.close(sent=False)
            raise
        return permit

    async def _acquire_from(
        self, limiter: AsyncLimiter, permit: "ChainPermit", exchange: Exchange, deadline: float
    ) -> None:
        """Reserve a permit of one limiter for *permit*, waiting if need be."""
        now = self.clock.monotonic()
        reservation = limiter.queue.reserve(now)
        if reservation is not None:
            limiter.recorder.admitted()
            permit.add(limiter, reservation)
            return
        blocked = limiter.queue.refusal(now, deadline - now - LEAST_ATTEMPT)
        if blocked is not None:
            limiter.recorder.refused()
            raise Refused(self.refusal(limiter, blocked.cause, blocked.wait))
        if limiter.is_keyed:
            # One caller's queue must not keep all other callers of the route waiting. Where all
            # callers share the queue, the route keeps its permits: with no more of its requests
            # in that queue than it may send at once, other routes are served as well.
            permit.release()
        decision = await limiter.wait_in_queue(exchange, deadline - LEAST_ATTEMPT)
        if isinstance(decision, ThrottleCause):
            raise Refused(self.refusal(limiter, decision))
        reservation, waited = decision
        permit.queued += waited
        permit.add(limiter, reservation)

    def would_admit(self, exchange: Exchange, now: float, later: float, time_left: float) -> bool:
        """Say whether an attempt *later* seconds from now would be admitted or queued."""
        time_left -= later + LEAST_ATTEMPT
        return not any(
            limiter.queue.refusal(now, time_left, later) for limiter in self._limiters_for(exchange)
        )

    def wait_of(self, exchange: Exchange) -> tuple[float, bool]:
        """Return the seconds until *exchange* would get a permit, and whether that is a pause."""
        return self._longest_wait(self._limiters_for(exchange))

    def common_wait(self) -> tuple[float, bool]:
        """Return the seconds until some attempt would get a permit, and whether that is a pause.

        Where limits differ by caller, none is waited for that is not everybody's.
        """
        if self._limiters is not None:
            return self._longest_wait(self._limiters)
        common = [throttle.common for throttle in self.throttles if throttle.settings.key is None]
        return self._longest_wait(common)

    def _longest_wait(self, limiters: Iterable[AsyncLimiter]) -> tuple[float, bool]:
        now = self.clock.monotonic()
        queues = [limiter.queue for limiter in limiters]
        wait = max((queue.wait(now) for queue in queues), default=0.0)
        return wait, any(now < queue.paused_until for queue in queues)

    def refusal(
        self, limiter: AsyncLimiter, cause: ThrottleCause, wait: float | None = None
    ) -> Refusal:
        """Return the answer for a client that *limiter* refuses."""
        if cause is ThrottleCause.DRAINING:
            return DRAINING
        now = self.clock.monotonic()
        if wait is None:
            wait = limiter.queue.wait(now)
        if cause is ThrottleCause.STORE or wait == NEVER:
            return _NO_STORE
        # A client that comes back then finds the present queue served.
        seconds = max(1, math.ceil(wait))
        quotas = limiter.queue.quotas(now)
        if cause is ThrottleCause.PAUSED and all(quota.remaining for quota in quotas):
            # No rate limit tells the client of the pause, so a quota of its own does.
            pause = QuotaLeft("pause", limit=0, window=seconds, remaining=0, reset=seconds)
            quotas = (*quotas, pause)
        return Refusal(
            RefusalReason.THROTTLED, _DETAILS[cause], wait=seconds, cause=cause.value, quotas=quotas
        )

    def _check_breakers(self, now: float) -> None:
        endpoints = self.upstream.endpoints
        if not endpoints.admits(now):
            raise Refused(endpoints.open_refusal(now))

    def pause_for_hint(self, head: ResponseHead, limiters: list[AsyncLimiter]) -> None:
        """Pause the limiters for as long as the upstream asked when it refused a call."""
        wait = read_hint(head.status, head.fields(), self.clock.wall()).wait
        if wait:
            now = self.clock.monotonic()
            # The limit of one caller does not concern the others.
            for limiter in [limiter for limiter in limiters if limiter.is_keyed] or limiters:
                limiter.pause(now, wait)


@dataclass(slots=True, eq=False)
class ChainPermit:
    """The permit of one attempt to send, from all throttles of its chain (core.ports.SendPermit).

    It has a reservation at each limiter. Their permits are *committed*; or left to other attempts,
    while a connection is made for this one, until they are needed again; or *reserved*, while the
    attempt waits for the others.
    """

    _chain: ThrottleChain
    _exchange: Exchange
    _limiters: list[AsyncLimiter]
    _reservations: tuple[Reservation, ...]
    """One for each of the limiters."""
    queued: float = 0.0
    next_judge: Judge | None = None
    """Judges the response of a failure next."""
    _timer: asyncio.TimerHandle | None = None

    def judge(self, attempt: Attempt, head: ResponseHead) -> bool:
        """Pause the limiters if the upstream asks for it (upstream.call.Judge)."""
        if head.status in self._chain.upstream.settings.refused:
            self._chain.pause_for_hint(head, self._limiters)
        return self.next_judge is not None and self.next_judge(attempt, head)

    def add(self, limiter: AsyncLimiter, reservation: Reservation) -> None:
        """Add the reservation at another limiter."""
        self._limiters.append(limiter)
        self._reservations += (reservation,)

    def reserve(self) -> None:
        """Set the committed permits aside while a connection is made (core.ports.SendPermit)."""
        now = self._chain.clock.monotonic()
        for reservation in self._reservations:
            reservation.set_aside(now)

    def release(self) -> None:
        """Leave the permits to other attempts; the concurrency slots stay taken."""
        self._stop_timer()
        for reservation in self._reservations:
            if reservation.release():
                self._limiter_of(reservation).serve_queue()

    def _limiter_of(self, reservation: Reservation) -> AsyncLimiter:
        return self._limiters[self._reservations.index(reservation)]

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def use(self, deadline: float) -> None:
        """Commit the permits for a send right now; wait if the limits forbid it meanwhile."""
        for reservation in self._reservations:
            reservation.release()  # they were aside: no connection is made any more
        is_retry = len(self._exchange.attempts) > 1  # the present one is on record
        with self._chain.retry_waits.watch(self._exchange) if is_retry else nullcontext():
            await self.commit(deadline)

    async def commit(self, deadline: float) -> None:
        """Commit all permits in one moment; wait where one is gone."""
        while not self._commit(self._chain.clock.monotonic()):
            reservation = next(filter(_has_no_permit, self._reservations))
            limiter = self._limiter_of(reservation)
            if self._timer is None and len(self._reservations) > 1:
                self._timer = self._chain.loop.call_later(_RESERVED_FOR, self.release)
            cause = await limiter.wait_for_permit_again(
                reservation, self._exchange, deadline - LEAST_ATTEMPT
            )
            if cause is not None:
                raise Refused(self._chain.refusal(limiter, cause))
        self._stop_timer()

    def _commit(self, now: float) -> bool:
        """Commit all permits, or none; return whether they are committed."""
        if any(map(_has_no_permit, self._reservations)):
            return False
        for position, reservation in enumerate(self._reservations):
            if not reservation.commit(now):
                for earlier in self._reservations[:position]:
                    earlier.release()
                return False
        return True

    def close(self, *, sent: bool = True) -> None:
        """Free the slots of an attempt that is over, and what it did not spend (core.ports)."""
        if self._timer is not None:
            self._stop_timer()
        for reservation in self._reservations:
            if not sent:
                reservation.release()
            if reservation.close():
                self._limiter_of(reservation).serve_queue()


def _has_no_permit(reservation: Reservation) -> bool:
    return reservation.state is ReservationState.RELEASED


class KeyedPermit(ChainPermit):
    """A permit where a throttle has a limit per caller: records whose calls succeed."""

    __slots__ = ()

    def close(self, *, sent: bool = True) -> None:
        """Close the permit; an answer below 400 proves that its caller is real."""
        super().close(sent=sent)
        attempts = self._exchange.attempts
        if not attempts or not 0 < attempts[-1].status < FIRST_FAILURE:
            return
        for throttle, limiter in zip(self._chain.throttles, self._limiters, strict=False):
            throttle.record_success(self._exchange, limiter)
