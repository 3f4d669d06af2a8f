"""The simulated timeline of a request, given the outcomes of its attempts and the rolls of chance.

The rules are not repeated here. The same functions that decide about a request on the wire
decide about this one; what is simulated is the world around them: time passes by adding to
a number, chance is a list of rolls, and the upstream does as the outcomes say. There is no
other traffic, so the budget is full, breakers are closed and wait queues are empty.

An attempt takes no time, but for one that times out: that takes all it may.

:func:`simulate` plays one course of chance; ``forecast.py`` plays all that matter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.http.refusal import Refusal, RefusalReason
from proxy.policy.attempt import Attempt, FailureKind, RetryDelay
from proxy.policy.dead_letter import DeadLetterRules
from proxy.policy.explain.subject import Subject
from proxy.policy.idempotency.retention import KeyOutcome, outcome_of_key
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import RepeatRules, longest_attempt
from proxy.policy.retry.budget import Budget
from proxy.policy.retry.hints import NO_HINT, RetryHint, read_hint
from proxy.policy.retry.verdict import (
    LEAST_ATTEMPT,
    MISDIRECTED,
    AttemptResult,
    RequestFacts,
    RetryRules,
    Situation,
    Verdict,
    decide,
    is_listed,
)
from proxy.policy.settings import RetrySettings, ThrottleSettings
from proxy.policy.throttle.limiter import local_limiters
from proxy.policy.throttle.wait_queue import Reservation, Waiter, WaitQueue

_NOT_SENT = frozenset({FailureKind.CONNECT, FailureKind.CERTIFICATE, FailureKind.BUSY})
_HALVINGS = 24
"""Steps of the bisection for a roll: to a ten-millionth."""
_GRAIN = 1e-6
"""Seconds added to a queue's wait, so that rounding does not leave the permit just out of reach."""


@dataclass(frozen=True, slots=True)
class ScriptedOutcome:
    """What the upstream does to one attempt."""

    kind: FailureKind | None = None
    """How the attempt fails; None: a response comes."""
    status: int = 0
    fields: tuple[bytes, ...] = ()
    """Fields of the response, each as ``b"Name: value"``."""


@dataclass(slots=True)
class Timeline:
    """What happened to the request up to its end, or until no scripted outcome is left."""

    attempts: list[Attempt] = field(default_factory=list)
    """The attempts, as the proxy itself would have recorded them."""
    delay: RetryDelay | None = None
    """The wait before an attempt that would follow, but for which no outcome is left."""
    answer: Refusal | None = None
    """The client's answer, if Holdfast makes it itself."""
    falls_back: bool = False
    key_outcome: KeyOutcome | None = None
    """What becomes of the request's key; None if it has none, or if that is still open."""
    is_kept: bool = False
    """Whether the request becomes a dead letter."""
    ended: float = 0.0
    """Seconds from the request's beginning to its end; infinite if nothing ends it."""

    @property
    def is_over(self) -> bool:
        """Whether the client has its answer."""
        return self.delay is None and self.ended < math.inf


AS_LATE_AS_CAN_BE = None
"""In place of a roll: the highest one whose wait still fits into the time left."""


def simulate(
    subject: Subject,
    outcomes: Sequence[ScriptedOutcome],
    rolls: Sequence[float | None],
    wall: float,
) -> Timeline:
    """Simulate one timeline: the waits take *rolls* in turn, the last one again if they run out.

    *wall* is the time at which the request begins, in seconds since the epoch: hints may be
    dates.
    """
    return _Simulation(subject, rolls, wall).until_over(outcomes)


class _Simulation:
    """The simulation of one timeline, while it runs."""

    def __init__(self, subject: Subject, rolls: Sequence[float | None], wall: float) -> None:
        self._subject = subject
        self._rolls = rolls
        self._wall = wall
        self._now = 0.0
        self._timeline = Timeline()
        self._expired = False
        # An attempt that may go to any URL is assumed to go to the first one.
        self._url = str(subject.upstream.origins[0]) if subject.upstream.origins else ""
        route, upstream = subject.route, subject.upstream
        self._rules = RetryRules(route.retry or RetrySettings(attempts=1), upstream)
        self._repeats = RepeatRules(upstream, self._rules.retry.unsafe, longest_attempt(route))
        asked, most = subject.head.timeout, route.timeout
        limits = [limit for limit in (asked, most) if limit is not None]
        self._limit = min(limits, default=math.inf)
        self._budget: Budget | None = None
        if route.retry is not None and route.retry.attempts > 1 and upstream.budget is not None:
            self._budget = Budget(upstream.budget)
            self._budget.first(self._now)
        self._throttles = _Throttles([t for t in (route.throttle, upstream.throttle) if t])

    def until_over(self, outcomes: Sequence[ScriptedOutcome]) -> Timeline:
        timeline = self._timeline
        refusal = self._subject.refusal()
        if refusal is not None:
            timeline.answer = refusal
            return timeline
        delay: RetryDelay | None = None
        for outcome in outcomes:
            timeline.delay = None
            attempt = self._attempt(outcome, delay)
            if attempt is None or self._now == math.inf:
                break
            delay = self._judge(attempt, outcome)
            if delay is None:
                break
            timeline.delay = delay
            self._now += delay.seconds
        timeline.ended = self._now
        return timeline

    @property
    def _time_left(self) -> float:
        return self._limit - self._now

    # One attempt.

    def _attempt(self, outcome: ScriptedOutcome, delay: RetryDelay | None) -> Attempt | None:
        """Record one attempt; return None if a throttle refuses it."""
        timeline = self._timeline
        queued = self._throttles.enter(self._now, self._time_left)
        if queued is None:
            if timeline.attempts:
                timeline.attempts[-1].verdict = VerdictReason.THROTTLED
            timeline.answer = Refusal(RefusalReason.THROTTLED, "Its turn would not come in time.")
            timeline.key_outcome = self._key_outcome(0)
            return None
        self._now += queued
        upstream = self._subject.upstream.name
        attempt = Attempt(len(timeline.attempts) + 1, upstream, self._now, delay)
        attempt.queued = queued
        attempt.url = self._url
        attempt.kind, attempt.status = outcome.kind, outcome.status
        attempt.sent = outcome.kind not in _NOT_SENT
        attempt.received = outcome.status != 0
        if outcome.kind is FailureKind.TIMEOUT:
            retry = self._subject.route.retry
            limit = math.inf if retry is None else retry.attempt_timeout or math.inf
            self._expired = limit >= self._time_left
            attempt.duration = min(limit, self._time_left)
            self._now += attempt.duration
        timeline.attempts.append(attempt)
        self._throttles.release()
        return attempt

    # Deciding.

    def _judge(self, attempt: Attempt, outcome: ScriptedOutcome) -> RetryDelay | None:
        """Return the wait before the next attempt; None if this was the last: all is decided."""
        hint = self._read_hint(outcome)
        result = AttemptResult(
            attempt.kind, attempt.status, attempt.sent, hint, is_first=attempt.number == 1
        )
        if self._subject.is_judged:
            verdict = self._verdict(attempt, result)
            attempt.verdict = verdict.reason
            if verdict.delay is not None:
                return verdict.delay
        self._end(attempt, result)
        return None

    def _read_hint(self, outcome: ScriptedOutcome) -> RetryHint:
        """Read the response's hint for this request, and pause the throttles by it."""
        if outcome.kind is not None:
            return NO_HINT
        wall = self._wall + self._now
        if outcome.status in self._subject.upstream.refused:
            wait = read_hint(outcome.status, outcome.fields, wall).wait
            self._throttles.pause(self._now, wait or 0.0)
        fallback = self._subject.route.fallback
        heeded = self._rules.statuses | (fallback.on.hinted if fallback else frozenset())
        return read_hint(outcome.status, outcome.fields, wall, wants_wait=outcome.status in heeded)

    def _verdict(self, attempt: Attempt, result: AttemptResult) -> Verdict:
        subject = self._subject
        names = {name.lower() for name, _ in subject.head.raw}
        permission = self._repeats.permission(subject, self._timeline.attempts, self._now)
        request = RequestFacts(permission, early_data=b"early-data" in names)
        budget = self._budget
        return decide(
            self._rules,
            request,
            result,
            lambda: self._situation(attempt, self._roll(attempt, result)),
            breaker_admits=lambda _: True,
            throttle_admits=lambda wait: self._throttles.would_admit(
                self._now, wait, self._time_left
            ),
            take_budget=lambda: budget is None or budget.take(self._now),
        )

    def _roll(self, attempt: Attempt, result: AttemptResult) -> float:
        roll = self._rolls[min(attempt.number, len(self._rolls)) - 1]
        if roll is not AS_LATE_AS_CAN_BE:
            return roll
        if self._fits(attempt, result, 1.0):
            return 1.0
        fitting, too_high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (fitting + too_high) / 2
            if self._fits(attempt, result, middle):
                fitting = middle
            else:
                too_high = middle
        return fitting

    def _fits(self, attempt: Attempt, result: AttemptResult, roll: float) -> bool:
        return isinstance(self._rules.wait(result, self._situation(attempt, roll)), RetryDelay)

    def _situation(self, attempt: Attempt, roll: float) -> Situation:
        earlier = self._timeline.attempts[:-1]
        is_lost = self._subject.head.length > self._subject.route.buffer
        return Situation(
            made=attempt.number,
            time_left=self._time_left,
            roll=roll,
            previous=0.0 if attempt.delay is None else attempt.delay.seconds,
            was_misdirected=any(before.status == MISDIRECTED for before in earlier),
            body_lost=VerdictReason.BODY_TOO_LARGE if is_lost else None,
            expired=self._expired,
        )

    # Ending.

    def _end(self, attempt: Attempt, result: AttemptResult) -> None:
        timeline, kind = self._timeline, attempt.kind
        timeline.falls_back = self._falls_back(result)
        if kind is not None and kind is not FailureKind.TRUNCATED and not timeline.falls_back:
            timeline.answer = Refusal(
                RefusalReason.TIMEOUT if self._expired else RefusalReason(kind.value),
                "No response came.",
            )
        timeline.key_outcome = self._key_outcome(0 if timeline.answer else attempt.status)
        timeline.is_kept = self._is_kept(result)

    def _is_kept(self, result: AttemptResult) -> bool:
        subject, settings = self._subject, self._subject.route.dead_letter
        if settings is None:
            return False
        rules = DeadLetterRules(settings, subject.upstream)
        may_be = rules.may_want(subject.method, is_tunnel=subject.is_tunnelled)
        return may_be and rules.wants(result)

    def _falls_back(self, result: AttemptResult) -> bool:
        subject = self._subject
        fallback = subject.route.fallback
        if fallback is None or not subject.is_judged:
            return False
        if not is_listed(fallback.on, result, subject.upstream.refused):
            return False
        return subject.other is None or self._may_go_elsewhere()

    def _may_go_elsewhere(self) -> bool:
        """Whether there is time for an attempt at the fallback upstream, and it does no harm."""
        subject = self._subject
        if self._expired or self._time_left < LEAST_ATTEMPT:
            return False
        attempts = self._timeline.attempts
        if subject.head.length > subject.route.buffer and any(a.sent for a in attempts):
            return False
        return self._repeats.may_go_elsewhere(subject, attempts)

    def _key_outcome(self, status: int) -> KeyOutcome | None:
        subject, timeline = self._subject, self._timeline
        keys = subject.route.idempotency
        if keys is None or not subject.is_keyed:
            return None
        if timeline.falls_back and subject.other is not None:
            return None
        return outcome_of_key(
            keys,
            status,
            timeline.attempts,
            {subject.upstream.name: subject.upstream.refused},
            fell_back=timeline.falls_back,
        )


class _Throttles:
    """The wait queues of an attempt, the route's first, without any other traffic."""

    def __init__(self, throttles: list[ThrottleSettings]) -> None:
        self._queues: list[WaitQueue[Waiter]] = [
            WaitQueue(settings, local_limiters(settings, 0.0)) for settings in throttles
        ]
        self._reserved: list[Reservation] = []

    def enter(self, now: float, time_left: float) -> float | None:
        """Return the seconds until all queues have admitted the attempt; None if one refuses."""
        began = now
        for queue in self._queues:
            reservation = queue.take(now)
            if reservation is None:
                if queue.refusal(now, time_left - (now - began) - LEAST_ATTEMPT) is not None:
                    return None
                now += queue.wait(now) + _GRAIN
                reservation = queue.take(now)
            if reservation is None:
                return None
            self._reserved.append(reservation)
        return now - began

    def would_admit(self, now: float, later: float, time_left: float) -> bool:
        left = time_left - later - LEAST_ATTEMPT
        return not any(queue.refusal(now, left, later) for queue in self._queues)

    def release(self) -> None:
        """Release the concurrency slots of an attempt that has ended."""
        while self._reserved:
            self._reserved.pop().close()

    def pause(self, now: float, seconds: float) -> None:
        """Pause for an upstream that asks for it: the throttles with a key, or else all.

        A pause that one caller's own rate limit caused must not stop the other callers.
        """
        for queue in [q for q in self._queues if q.settings.key] or self._queues:
            queue.pause(now, seconds)
