"""The course of one request through the real stages, given the outcomes of its attempts.

The stages are those that serve requests (``simulation/proxy.py``). Around them time is virtual,
chance is a list of rolls, and the upstream does as the outcomes say. There is no other traffic, so
the budget is full, breakers are closed and wait queues are empty.

An attempt takes no time, but for one that times out: that takes all it may.

:func:`simulate` runs one course of chance; ``forecast.py`` runs all that matter.
"""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from proxy.core.client_identity import ClientIdentity
from proxy.core.clientless import ClientlessExchange, CompleteBody
from proxy.core.virtual_time import VirtualClock, VirtualLoop
from proxy.explain.subject import Subject
from proxy.http.refusal import Refusal
from proxy.policy.attempt import Attempt, FailureKind, RetryDelay
from proxy.policy.idempotency.record import RecordState
from proxy.policy.idempotency.retention import KeyOutcome
from proxy.policy.reasons import KeyResult
from proxy.policy.repeatable import may_have_run
from proxy.policy.settings import Settings
from proxy.simulation.proxy import SimulatedProxy
from proxy.simulation.scripted_peer import ScriptedOutcome, ScriptedPeer, accept

_GOOD = ScriptedOutcome(status=200)
_SILENT = ScriptedOutcome(FailureKind.TIMEOUT)
_GRACE = 1.0
"""Seconds after the last limit of a route, beyond which nothing ends a silence any more."""
_KEY_OUTCOMES = {
    RecordState.DONE: KeyOutcome.KEPT,
    RecordState.UNSTORED: KeyOutcome.UNSTORED,
    RecordState.HELD: KeyOutcome.AMBIGUOUS,
}


@dataclass(slots=True)
class Course:
    """What happened to the request up to its end, or until no scripted outcome is left."""

    attempts: list[Attempt] = field(default_factory=list)
    """The attempts at the route's upstream, as the stages recorded them."""
    delay: RetryDelay | None = None
    """The wait before an attempt that would follow, but for which no outcome is left."""
    answer: Refusal | None = None
    """The client's answer, if Holdfast makes it itself."""
    falls_back: bool = False
    key_outcome: KeyOutcome | None = None
    """What becomes of the request's key; None if it has none, or if that is still open."""
    is_handed_off: bool = False
    """Whether the client gets 202, and the request becomes a delivery."""
    is_kept: bool = False
    """Whether the request becomes a dead letter."""
    ended: float = 0.0
    """Seconds from the request's beginning to its end; infinite if nothing ends it."""
    rolls: tuple[float, ...] = (0.0,)
    """What chance gave, for one wait after the other; the last again if there were more."""
    times_left: list[float] = field(default_factory=list)
    """Seconds that the request had left, each time that chance decided about a wait."""

    @property
    def is_over(self) -> bool:
        """Whether the client has its answer."""
        return self.delay is None and self.ended < math.inf


def simulate(
    subject: Subject, outcomes: Sequence[ScriptedOutcome], rolls: Sequence[float], wall: float
) -> Course:
    """Run one course: the waits take *rolls* in turn, the last one again if they run out.

    *wall* is the time at which the request begins, in seconds since the epoch: hints may be
    dates.
    """
    refusal = subject.refusal()
    if refusal is not None:
        return Course(answer=refusal)
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_Run(subject, outcomes, rolls, loop, wall).course())


class _Run:
    """One run of a request, up to its end."""

    def __init__(
        self,
        subject: Subject,
        outcomes: Sequence[ScriptedOutcome],
        rolls: Sequence[float],
        loop: VirtualLoop,
        wall: float,
    ) -> None:
        self._subject = subject
        self._outcomes = iter(outcomes)
        self._rolls = rolls
        self._loop = loop
        self._clock = VirtualClock(loop, self._roll, wall)
        self._course = Course(rolls=tuple(rolls))
        self._is_endless = False
        self._lacks_outcome = False

    async def course(self) -> Course:
        """Serve the request, and tell what became of it."""
        subject = self._subject
        settings = Settings(upstreams=subject.upstreams, routes=(subject.route,))
        proxy = SimulatedProxy(settings, self._loop, self._clock)
        await proxy.start(self._accept)
        self._exchange = exchange = ClientlessExchange(
            subject.method,
            subject.target,
            subject.head,
            proxy.routes[0],
            self._clock,
            settings=settings,
            request_id="simulated",
            identity=ClientIdentity("127.0.0.1", "http"),
            body=self._body(),
            client_timeout=subject.head.timeout,
            upgrade=subject.is_tunnelled,
        )
        self._serving = asyncio.create_task(proxy.serve(exchange))
        with suppress(asyncio.CancelledError):
            await self._serving
        course = self._read(exchange)
        if course.is_over:
            course.is_kept = bool(exchange.dead_letter)
            course.key_outcome = await self._key_outcome(proxy)
        proxy.close()
        return course

    def _body(self) -> CompleteBody | None:
        """Return a body of the request's length; beyond ``buffer`` all lengths are alike."""
        length, buffer = self._subject.head.length, self._subject.route.buffer
        if not length:
            return None
        return CompleteBody(bytes(min(max(length, 0), buffer + 1)), too_large=length > buffer)

    # The upstream's side, and chance.

    def _accept(self) -> ScriptedPeer:
        """Return the peer of the next attempt; stop the run if no outcome is left for it."""
        if self._exchange.attempts[-1].upstream != self._subject.upstream.name:
            return accept(_GOOD, self._wait_for_limit)
        outcome = next(self._outcomes, None)
        if outcome is None:
            self._lacks_outcome = True
            self._serving.cancel()
        return accept(outcome or _SILENT, self._wait_for_limit)

    def _wait_for_limit(self) -> None:
        """Give every limit of the route time to end a silence: if none does, none will."""
        exchange, route = self._exchange, self._subject.route
        limits = (
            exchange.client_timeout,
            route.timeout,
            None if route.retry is None else route.retry.attempt_timeout,
        )
        longest = max(filter(None, limits), default=0.0)
        self._loop.call_later(longest + _GRACE, self._end_silence, len(exchange.attempts))

    def _end_silence(self, attempts: int) -> None:
        if attempts == len(self._exchange.attempts) and not self._serving.done():
            self._is_endless = True
            self._serving.cancel()

    def _roll(self) -> float:
        exchange, route = self._exchange, self._subject.route
        limits = [t for t in (exchange.client_timeout, route.timeout) if t is not None]
        passed = self._clock.monotonic() - exchange.started
        self._course.times_left.append(min(limits, default=math.inf) - passed)
        return self._rolls[min(len(exchange.attempts), len(self._rolls)) - 1]

    # What became of it.

    def _read(self, exchange: ClientlessExchange) -> Course:
        course, name = self._course, self._subject.upstream.name
        course.attempts = [a for a in exchange.attempts if a.upstream == name]
        if self._lacks_outcome:
            course.delay = course.attempts.pop().delay
        course.answer = exchange.refusal
        course.falls_back = exchange.fallback
        course.is_handed_off = bool(exchange.hand_off and exchange.hand_off.delivery_id)
        course.ended = self._clock.monotonic() - exchange.started
        if self._is_endless:
            course.ended = math.inf
            course.attempts[-1].verdict = None  # none was reached
        return course

    async def _key_outcome(self, proxy: SimulatedProxy) -> KeyOutcome | None:
        """Return what the store knows of the key; the state of a key that is free has no record."""
        exchange, subject = self._exchange, self._subject
        if exchange.key_result is not KeyResult.NEW:
            return None
        if exchange.fallback and subject.other is not None:
            return None
        record = await proxy.store.show(exchange.record)
        if record is not None:
            return _KEY_OUTCOMES[record.state]
        refused = {upstream.name: upstream.refused for upstream in subject.upstreams}
        ran = any(may_have_run(a, refused[a.upstream]) for a in exchange.attempts)
        return KeyOutcome.AMBIGUOUS if ran else KeyOutcome.FREE
