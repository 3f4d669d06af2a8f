"""Where an attempt waits for its turn: at its route's throttle, then at its upstream's.

Mostly nobody waits. Then all that happens is :meth:`ThrottleChain.pass_at_once`, and
whoever passes sends within the same turn of the loop.
"""

import asyncio
import math
from collections.abc import Iterable
from contextlib import nullcontext

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
from proxy.policy.throttle.wait_queue import ThrottleCause
from proxy.upstream.call import Judge
from proxy.upstream.upstream import Upstream

_HELD_FOR = 0.1
"""Seconds for which a permit of one throttle is kept for a call that waits for another's again."""

_DETAILS = {
    ThrottleCause.MAX_WAIT: "There are more calls than the limit lets through in time.",
    ThrottleCause.QUEUE_FULL: "Too many calls wait for their turn already.",
    ThrottleCause.DEADLINE: "The turn of this call would come after its deadline.",
    ThrottleCause.PAUSED: "The upstream asked not to be called for a while.",
}
_NO_STORE = Refusal(RefusalReason.STORE, "The limits are kept in a store that does not answer.")


class ThrottleChain:
    """The throttles between a route and an upstream, in the order in which they are passed."""

    __slots__ = ("_gates", "_new_pass", "clock", "loop", "retry_waits", "throttles", "upstream")

    def __init__(
        self,
        throttles: list[Throttle],
        upstream: Upstream,
        retry_waits: RetryWaits,
        clock: Clock,
        *,
        keyed: bool,
    ) -> None:
        """*keyed* if any of the *throttles* tells callers apart."""
        self.upstream = upstream
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.throttles = throttles
        self.retry_waits = retry_waits
        self._gates = None if keyed else [throttle.common for throttle in throttles]
        """The same for every request, if they are."""
        self._new_pass = KeyedPermit if keyed else ChainPermit

    def _gates_for(self, exchange: Exchange) -> Iterable[AsyncLimiter]:
        """One after the other: one that nobody uses for a while is replaced."""
        return self._gates or (throttle.gate_for(exchange) for throttle in self.throttles)

    def pass_at_once(self, exchange: Exchange) -> "ChainPermit | None":
        """The right to send now, if nobody has to be waited for.

        Raises :class:`Refused` if no breaker lets it through.
        """
        gates = self._gates or list(self._gates_for(exchange))
        now = self.clock.monotonic()  # not before: to a new gate nothing was before it
        if self.upstream.endpoints.breakers is not None:
            self._ask_breakers(now)
        for gate in gates:
            if not gate.bucket.take(now):
                break
        else:
            for gate in gates:
                gate.recorder.admitted()
            return self._new_pass(self, exchange, gates)
        for earlier in gates[: gates.index(gate)]:
            earlier.bucket.undo(now)
        return None

    async def enter(self, exchange: Exchange, deadline: float, *, is_retry: bool) -> "ChainPermit":
        """The right to send now, when its turn has come.

        Raises :class:`Refused` if it will not come, or not before *deadline*.
        """
        passed = self._new_pass(self, exchange, [])
        try:
            with self.retry_waits.watch(exchange) if is_retry else nullcontext():
                for gate in self._gates_for(exchange):
                    await self._pass(gate, passed, exchange, deadline)
                await passed.spend(deadline)
        except BaseException:
            passed.close()
            raise
        try:
            self._ask_breakers(self.clock.monotonic())  # a lot may have happened meanwhile
        except Refused:
            passed.close(sent=False)
            raise
        return passed

    async def _pass(
        self, gate: AsyncLimiter, passed: "ChainPermit", exchange: Exchange, deadline: float
    ) -> None:
        """Get a permit of one gate, to be held."""
        now = self.clock.monotonic()
        if gate.bucket.take(now):
            gate.bucket.reserve(now)
            gate.recorder.admitted()
            passed.hold_at(gate)
            return
        hindrance = gate.bucket.refusal(now, deadline - now - LEAST_ATTEMPT)
        if hindrance is not None:
            gate.recorder.refused()
            raise Refused(self.refusal(gate, hindrance.cause, hindrance.wait))
        if gate.is_keyed:
            # One caller's line must not keep all the others of the route waiting. Where the line
            # is everybody's, the route keeps its permits: with no more of its requests in that
            # line than it may send at once, those of other routes get their turn.
            passed.let_go()
        waited = await gate.wait_for_turn(exchange, deadline - LEAST_ATTEMPT)
        if isinstance(waited, ThrottleCause):
            raise Refused(self.refusal(gate, waited))
        passed.queued += waited
        passed.hold_at(gate)

    def would_admit(self, exchange: Exchange, now: float, later: float, time_left: float) -> bool:
        """Whether an attempt that comes *later* would be let in line, as things stand."""
        time_left -= later + LEAST_ATTEMPT
        return not any(
            gate.bucket.refusal(now, time_left, later) for gate in self._gates_for(exchange)
        )

    def refusal(
        self, gate: AsyncLimiter, cause: ThrottleCause, wait: float | None = None
    ) -> Refusal:
        """What to tell a client that does not get through *gate*."""
        if cause is ThrottleCause.DRAINING:
            return DRAINING
        now = self.clock.monotonic()
        if wait is None:
            wait = gate.bucket.wait(now)
        if cause is ThrottleCause.STORE or wait == NEVER:
            return _NO_STORE
        # Whoever comes back then finds that all who are in line now have passed.
        seconds = max(1, math.ceil(wait))
        quotas = gate.bucket.limiter.quotas(now)
        if cause is ThrottleCause.PAUSED and all(quota.remaining for quota in quotas):
            # There is no rate that would tell of it.
            pause = QuotaLeft("pause", limit=0, window=seconds, remaining=0, reset=seconds)
            quotas = (*quotas, pause)
        return Refusal(
            RefusalReason.THROTTLED, _DETAILS[cause], wait=seconds, cause=cause.value, quotas=quotas
        )

    def _ask_breakers(self, now: float) -> None:
        endpoints = self.upstream.endpoints
        if not endpoints.admits(now):
            raise Refused(endpoints.left_alone(now))

    def heed(self, head: ResponseHead, gates: list[AsyncLimiter]) -> None:
        """If the upstream refused a call and said for how long, leave it alone for so long."""
        wait = read_hint(head.status, head.fields(), self.clock.wall()).wait
        if wait:
            now = self.clock.monotonic()
            # A caller's own limit is none of the others' business.
            for gate in [gate for gate in gates if gate.is_keyed] or gates:
                gate.pause(now, wait)


class ChainPermit:
    """An attempt whose turn has come (core.Pass).

    Its permits are spent; or left to others, while a connection is made for it, until they are
    needed again; or held, while it waits for those that it lacks.
    """

    __slots__ = (
        "_entrance",
        "_exchange",
        "_gates",
        "_is_aside",
        "_is_spent",
        "_reserved",
        "_timer",
        "queued",
        "then",
    )

    def __init__(
        self, throttle_chain: ThrottleChain, exchange: Exchange, gates: list[AsyncLimiter]
    ) -> None:
        """It has spent a permit at each of the *gates*."""
        self._entrance = throttle_chain
        self._exchange = exchange
        self._gates = gates
        self._reserved: list[AsyncLimiter] = []
        """Where its permit is held."""
        self._is_spent = True
        self._is_aside = False
        """Whether a connection is made for it."""
        self._timer: asyncio.TimerHandle | None = None
        self.queued = 0.0
        self.then: Judge | None = None
        """Who else wants to see the response of a failure."""

    def judge(self, attempt: Attempt, head: ResponseHead) -> bool:
        """See whether everybody shall wait (upstream.call.Judge)."""
        if head.status in self._entrance.upstream.settings.refused:
            self._entrance.heed(head, self._gates)
        return self.then is not None and self.then(attempt, head)

    def hold_at(self, gate: AsyncLimiter) -> None:
        """Its permit of one more gate is held."""
        self._is_spent = False
        self._gates.append(gate)
        self._reserved.append(gate)

    def reserve(self) -> None:
        """The request is not sent yet: nothing is spent on it (core.Pass)."""
        if not self._is_spent:
            return
        self._is_spent = False
        self._is_aside = True
        now = self._entrance.clock.monotonic()
        for gate in self._gates:
            gate.bucket.set_aside(now)

    def _rejoin(self) -> None:
        """No connection is made for it any more."""
        self._is_aside = False
        for gate in self._gates:
            gate.bucket.rejoin()

    def _take_back(self) -> None:
        """What was spent in this very turn was not used after all."""
        self._is_spent = False
        now = self._entrance.clock.monotonic()
        for gate in self._gates:
            gate.bucket.reserve(now)
        self._reserved = self._gates.copy()

    def _hold_for_a_while(self) -> None:
        if self._reserved and self._timer is None:
            self._timer = self._entrance.loop.call_later(_HELD_FOR, self.let_go)

    def let_go(self) -> None:
        """Let others have its permits; it keeps its places."""
        self._stop_timer()
        reserved, self._reserved = self._reserved, []
        for gate in reserved:
            gate.bucket.lapse()
            gate.look()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def use(self, deadline: float) -> None:
        """The request is sent now; if that is not allowed any more, when it is again."""
        if self._is_aside:
            self._rejoin()
        is_retry = len(self._exchange.attempts) > 1  # the present one is on record
        with self._entrance.retry_waits.watch(self._exchange) if is_retry else nullcontext():
            await self.spend(deadline)

    async def spend(self, deadline: float) -> None:
        """Wait where a permit has lapsed, until all of them can be spent."""
        while not self._spend(self._entrance.clock.monotonic()):
            gate = next(gate for gate in self._gates if gate not in self._reserved)
            self._hold_for_a_while()
            cause = await gate.wait_again(self._exchange, deadline - LEAST_ATTEMPT)
            if cause is not None:
                raise Refused(self._entrance.refusal(gate, cause))
            self._reserved.append(gate)
        self._stop_timer()

    def _spend(self, now: float) -> bool:
        """Spend all permits in one moment, or none."""
        if len(self._reserved) < len(self._gates):
            return False
        spent: list[AsyncLimiter] = []
        for gate in self._gates:
            self._reserved.remove(gate)
            if not gate.bucket.spend(now):
                for earlier in spent:
                    earlier.bucket.reserve(now)
                    self._reserved.append(earlier)
                return False
            spent.append(gate)
        self._is_spent = True
        return True

    def close(self, *, sent: bool = True) -> None:
        """The attempt is over: its places are free, and what it did not spend (core.Pass)."""
        if self._is_aside:
            self._rejoin()
        if not sent and self._is_spent:
            self._take_back()
        if self._reserved or self._timer is not None:
            self.let_go()
        for gate in self._gates:
            if gate.bucket.vacate():
                gate.look()


class KeyedPermit(ChainPermit):
    """A pass where a throttle tells callers apart: it hears whose calls are answered well."""

    __slots__ = ()

    def close(self, *, sent: bool = True) -> None:
        """The attempt is over; if its answer was good, its caller has proved itself."""
        super().close(sent=sent)
        attempts = self._exchange.attempts
        if not attempts or not 0 < attempts[-1].status < FIRST_FAILURE:
            return
        for throttle, gate in zip(self._entrance.throttles, self._gates, strict=False):
            throttle.answered_well(self._exchange, gate)
