"""What would happen: a request, the outcomes of its attempts, and chance, played through.

The rules are not repeated here. The same functions that judge a request on the wire
judge this one; what is simulated is the world around them: time passes by adding to a
number, chance is a list of rolls, and the upstream does as the outcomes say. Nobody
else is there, so the budget is full, breakers are closed and no line is long.

An attempt takes no time, but for one that times out: that takes all it may.

:func:`simulate` plays one course of chance; ``forecast.py`` says what others there are.
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
    Request,
    Result,
    RetryRules,
    Situation,
    Verdict,
    decide,
    is_listed,
)
from proxy.policy.settings import RetrySettings, ThrottleSettings
from proxy.policy.throttle.limiter import LocalLimiter
from proxy.policy.throttle.wait_queue import Waiter, WaitQueue

_NOT_SENT = frozenset({FailureKind.CONNECT, FailureKind.CERTIFICATE, FailureKind.BUSY})
_HALVINGS = 24
"""Steps in which a roll is found: to a ten-millionth."""
_GRAIN = 1e-6
"""Seconds to be sure that a permit is there."""


@dataclass(frozen=True, slots=True)
class ScriptedOutcome:
    """What the upstream does to one attempt."""

    kind: FailureKind | None = None
    """How it fails; None: it responds."""
    status: int = 0
    fields: tuple[bytes, ...] = ()
    """Of the response, each as ``b"Name: value"``."""


@dataclass(slots=True)
class Course:
    """What happened, once all is over or no outcome is left."""

    attempts: list[Attempt] = field(default_factory=list)
    """As the proxy itself would have recorded them."""
    pause: RetryDelay | None = None
    """Before the attempt that would follow, but for which no outcome is left."""
    answer: Refusal | None = None
    """What the client gets, if Holdfast makes it."""
    falls_back: bool = False
    fate: KeyOutcome | None = None
    """What becomes of its key; None if it has none, or nobody can tell yet."""
    is_kept: bool = False
    """Whether it becomes a dead letter."""
    ended: float = 0.0
    """Seconds after it began; infinite if nothing ends it."""

    @property
    def is_over(self) -> bool:
        """Whether the client has its answer."""
        return self.pause is None and self.ended < math.inf


AS_LATE_AS_CAN_BE = None
"""In place of a roll: the highest one whose wait still fits into the time left."""


def simulate(
    subject: Subject,
    outcomes: Sequence[ScriptedOutcome],
    rolls: Sequence[float | None],
    wall: float,
) -> Course:
    """Play one course: for the waits chance rolls *rolls*, the last one again if they run out.

    *wall* is the time at which it begins, in seconds since the epoch; hints may be dates.
    """
    return _Play(subject, rolls, wall).until_over(outcomes)


class _Play:
    """One course of events, while it is played."""

    def __init__(self, subject: Subject, rolls: Sequence[float | None], wall: float) -> None:
        self._subject = subject
        self._rolls = rolls
        self._wall = wall
        self._now = 0.0
        self._course = Course()
        self._expired = False
        # An attempt that may go to any URL is taken to go to the first one.
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

    def until_over(self, outcomes: Sequence[ScriptedOutcome]) -> Course:
        course = self._course
        refusal = self._subject.refusal()
        if refusal is not None:
            course.answer = refusal
            return course
        pause: RetryDelay | None = None
        for outcome in outcomes:
            course.pause = None
            attempt = self._attempt(outcome, pause)
            if attempt is None or self._now == math.inf:
                break
            pause = self._judge(attempt, outcome)
            if pause is None:
                break
            course.pause = pause
            self._now += pause.seconds
        course.ended = self._now
        return course

    @property
    def _time_left(self) -> float:
        return self._limit - self._now

    # One attempt.

    def _attempt(self, outcome: ScriptedOutcome, pause: RetryDelay | None) -> Attempt | None:
        """Its record; None if its turn does not come."""
        course = self._course
        queued = self._throttles.enter(self._now, self._time_left)
        if queued is None:
            if course.attempts:
                course.attempts[-1].why = VerdictReason.THROTTLED
            course.answer = Refusal(RefusalReason.THROTTLED, "Its turn would not come in time.")
            course.fate = self._fate(0)
            return None
        self._now += queued
        upstream = self._subject.upstream.name
        attempt = Attempt(len(course.attempts) + 1, upstream, self._now, pause)
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
        course.attempts.append(attempt)
        self._throttles.leave()
        return attempt

    # Deciding.

    def _judge(self, attempt: Attempt, outcome: ScriptedOutcome) -> RetryDelay | None:
        """The wait before the next attempt; None if this was the last, and all is settled."""
        advice = self._heed(outcome)
        result = Result(
            attempt.kind, attempt.status, attempt.sent, advice, is_first=attempt.number == 1
        )
        if self._subject.is_judged:
            verdict = self._verdict(attempt, result)
            attempt.why = verdict.why
            if verdict.pause is not None:
                return verdict.pause
        self._end(attempt, result)
        return None

    def _heed(self, outcome: ScriptedOutcome) -> RetryHint:
        """What the response says about the next attempt, to this request and to everybody."""
        if outcome.kind is not None:
            return NO_HINT
        wall = self._wall + self._now
        if outcome.status in self._subject.upstream.refused:
            told = read_hint(outcome.status, outcome.fields, wall).wait
            self._throttles.pause(self._now, told or 0.0)
        fallback = self._subject.route.fallback
        listens_to = self._rules.statuses | (fallback.on.hinted if fallback else frozenset())
        return read_hint(
            outcome.status, outcome.fields, wall, wants_wait=outcome.status in listens_to
        )

    def _verdict(self, attempt: Attempt, result: Result) -> Verdict:
        subject = self._subject
        names = {name.lower() for name, _ in subject.head.raw}
        leave = self._repeats.leave(subject, self._course.attempts, self._now)
        request = Request(leave, early_data=b"early-data" in names)
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

    def _roll(self, attempt: Attempt, result: Result) -> float:
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

    def _fits(self, attempt: Attempt, result: Result, roll: float) -> bool:
        return isinstance(self._rules.wait(result, self._situation(attempt, roll)), RetryDelay)

    def _situation(self, attempt: Attempt, roll: float) -> Situation:
        earlier = self._course.attempts[:-1]
        is_lost = self._subject.head.length > self._subject.route.buffer
        return Situation(
            made=attempt.number,
            time_left=self._time_left,
            roll=roll,
            previous=0.0 if attempt.pause is None else attempt.pause.seconds,
            was_misdirected=any(before.status == MISDIRECTED for before in earlier),
            body_lost=VerdictReason.BODY_TOO_LARGE if is_lost else None,
            expired=self._expired,
        )

    # Ending.

    def _end(self, attempt: Attempt, result: Result) -> None:
        course, kind = self._course, attempt.kind
        course.falls_back = self._falls_back(result)
        if kind is not None and kind is not FailureKind.TRUNCATED and not course.falls_back:
            course.answer = Refusal(
                RefusalReason.TIMEOUT if self._expired else RefusalReason(kind.value),
                "No response came.",
            )
        course.fate = self._fate(0 if course.answer else attempt.status)
        course.is_kept = self._is_kept(result)

    def _is_kept(self, result: Result) -> bool:
        subject, settings = self._subject, self._subject.route.dead_letter
        if settings is None:
            return False
        rules = DeadLetterRules(settings, subject.upstream)
        may_be = rules.may_want(subject.method, is_tunnel=subject.is_tunnelled)
        return may_be and rules.wants(result)

    def _falls_back(self, result: Result) -> bool:
        subject = self._subject
        fallback = subject.route.fallback
        if fallback is None or not subject.is_judged:
            return False
        if not is_listed(fallback.on, result, subject.upstream.refused):
            return False
        return subject.other is None or self._may_go_elsewhere()

    def _may_go_elsewhere(self) -> bool:
        """Whether there is time for one more attempt, and it does no harm."""
        subject = self._subject
        if self._expired or self._time_left < LEAST_ATTEMPT:
            return False
        attempts = self._course.attempts
        if subject.head.length > subject.route.buffer and any(a.sent for a in attempts):
            return False
        return self._repeats.may_go_elsewhere(subject, attempts)

    def _fate(self, status: int) -> KeyOutcome | None:
        subject, course = self._subject, self._course
        keys = subject.route.idempotency
        if keys is None or not subject.is_keyed:
            return None
        if course.falls_back and subject.other is not None:
            return None
        return outcome_of_key(
            keys,
            status,
            course.attempts,
            {subject.upstream.name: subject.upstream.refused},
            fell_back=course.falls_back,
        )


class _Throttles:
    """The lines that an attempt stands in, the route's first, with nobody else in them."""

    def __init__(self, throttles: list[ThrottleSettings]) -> None:
        self._buckets: list[WaitQueue[Waiter]] = [
            WaitQueue(settings, LocalLimiter(settings, 0.0)) for settings in throttles
        ]

    def enter(self, now: float, time_left: float) -> float | None:
        """Seconds until it has passed all of them; None if it is refused."""
        began = now
        for bucket in self._buckets:
            if bucket.take(now):
                continue
            if bucket.refusal(now, time_left - (now - began) - LEAST_ATTEMPT) is not None:
                return None
            now += bucket.wait(now) + _GRAIN
            if not bucket.take(now):
                return None
        return now - began

    def would_admit(self, now: float, later: float, time_left: float) -> bool:
        left = time_left - later - LEAST_ATTEMPT
        return not any(bucket.refusal(now, left, later) for bucket in self._buckets)

    def leave(self) -> None:
        """The call is over."""
        for bucket in self._buckets:
            bucket.vacate()

    def pause(self, now: float, seconds: float) -> None:
        """The upstream asks to be left alone; a caller's own limit is none of the others'."""
        for bucket in [b for b in self._buckets if b.settings.key] or self._buckets:
            bucket.pause(now, seconds)
