"""The verdict after an attempt: does a retry follow, when, and if not, why not.

Three steps, each a function of plain values. The caller gathers the facts before a step, because
some take time to find out, and goes on to the next one only if a retry is still possible:

=============================  ============================================================
:meth:`RetryRules.by_outcome`  :class:`RequestFacts`, :class:`AttemptResult`: is this an outcome
                               that the route repeats, and may the request be repeated?
:meth:`RetryRules.plan`        :class:`Situation`: do the number of attempts, the kept body and
                               the process itself allow it? How long is the wait, and is there
                               time for it?
:func:`decide`                 :class:`Outlook`: would breaker, throttle and budget let the
                               attempt through once that wait is over?
=============================  ============================================================

Nothing is charged here: the caller charges the budget for a retry that was decided. When in doubt,
the answer is no.
"""

from dataclasses import dataclass

from proxy.policy.attempt import FIRST_FAILURE, FIRST_SERVER_ERROR, FailureKind, RetryDelay
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import ANYWHERE, RepeatPermission
from proxy.policy.retry.backoff import backoff_delay, spread_hint
from proxy.policy.retry.hints import NO_HINT, RetryHint
from proxy.policy.settings import JitterStrategy, Outcomes, RetrySettings, UpstreamSettings

LEAST_ATTEMPT = 0.01
"""Seconds that must be left for an attempt once the wait before it is over."""

MISDIRECTED = 421
TOO_EARLY = 425
_TOO_MANY = 429
_LEAST_BASE_AFTER_429 = 1.0
_NO_JITTER = JitterStrategy.NONE

# Failure kinds for which the connection can still prove that nothing had been sent.
_PROVABLY_UNSENT = frozenset({FailureKind.RESET, FailureKind.TIMEOUT})


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The facts about a request that matter for a retry."""

    permission: RepeatPermission | VerdictReason
    """Whether, and where, another attempt may follow those made so far; or why not."""
    early_data: bool = False
    """Whether the request came as TLS early data, so that the client handles a 425 (RFC 8470)."""


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """How an attempt ended."""

    kind: FailureKind | None
    """How the attempt failed; None if a response came."""
    status: int = 0
    sent: bool = True
    """Whether a byte of the request may have reached the upstream."""
    hint: RetryHint = NO_HINT
    is_first: bool = True
    """Whether no attempt was made before this one."""


@dataclass(frozen=True, slots=True)
class Situation:
    """How a request stands after an attempt: what bears on a retry besides the attempt's result."""

    made: int
    """Attempts made so far, without those that only found a stale connection."""
    time_left: float
    """Seconds until the request's deadline."""
    roll: float
    """A random number from 0 up to 1."""
    previous: float = 0.0
    """Seconds of the wait before this attempt; 0 if there was none."""
    was_misdirected: bool = False
    """Whether an earlier attempt was answered with 421."""
    body_lost: VerdictReason | None = None
    """Why the body cannot be sent again; None if it can."""
    expired: bool = False
    """Whether the request's deadline itself ended the attempt."""
    shutting_down: bool = False
    client_gone: bool = False
    """Whether the client left and the request goes on for the sake of its key alone."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What another attempt would meet, once the wait that is planned before it is over."""

    breaker_admits: bool = True
    """Whether the breaker of an address that it may go to would admit it."""
    throttle_admits: bool = True
    """Whether the throttles would admit it, or queue it and release it in time."""
    budget_allows: bool = True
    """Whether the retry budget has a retry left."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision after an attempt: whether another follows, when, where, and why."""

    reason: VerdictReason
    delay: RetryDelay | None = None
    """The wait before the next attempt; None if none follows."""
    permission: RepeatPermission = ANYWHERE
    """Where the next attempt may go, and until when it may begin."""


class RetryRules:
    """A route's retry settings, and the statuses by which its upstream refuses."""

    def __init__(self, retry: RetrySettings, upstream: UpstreamSettings) -> None:
        self.retry = retry
        self.refused = upstream.refused
        self.statuses = retry.on.statuses | retry.on.hinted | upstream.refused
        """Statuses after which another attempt may follow unless the upstream itself objects."""

    def by_outcome(
        self, request: RequestFacts, result: AttemptResult
    ) -> RepeatPermission | VerdictReason:
        """Return the permission to repeat this request after this outcome, or why it is not."""
        reason = self._unrepeatable_reason(request, result)
        if reason is VerdictReason.SUCCESS and not result.is_first:
            return VerdictReason.RECOVERED
        return reason or request.permission

    def _unrepeatable_reason(
        self, request: RequestFacts, result: AttemptResult
    ) -> VerdictReason | None:
        """Return why no request is repeated after this outcome; None if one may be."""
        if result.kind is None:
            return self._unrepeatable_response(request, result)
        kind = result.kind
        if kind is FailureKind.TRUNCATED:
            return VerdictReason.RESPONSE_STARTED
        if kind is FailureKind.CANCELLED:
            return VerdictReason.CLIENT_GONE
        if not is_listed(self.retry.on, result, self.refused):
            return VerdictReason.NOT_RETRYABLE_KIND
        return None

    def _unrepeatable_response(
        self, request: RequestFacts, result: AttemptResult
    ) -> VerdictReason | None:
        status, hint = result.status, result.hint
        listed = is_listed(self.retry.on, result, self.refused) or hint.should_retry is True
        if status < FIRST_FAILURE or not (listed or status >= FIRST_SERVER_ERROR):
            return VerdictReason.SUCCESS
        if hint.should_retry is False:
            return VerdictReason.SERVER_SAID_NO
        if hint.is_final:
            return VerdictReason.FINAL_ANSWER
        if not listed or (status == TOO_EARLY and request.early_data):
            return VerdictReason.NOT_RETRYABLE_STATUS
        return None

    def plan(self, result: AttemptResult, situation: Situation) -> RetryDelay | VerdictReason:
        """Return the wait before another attempt, or why the request's situation forbids one."""
        return self._blocked_reason(result, situation) or self.wait(result, situation)

    def _blocked_reason(self, result: AttemptResult, situation: Situation) -> VerdictReason | None:
        """Return why no further attempt can be made, whatever the wait; None if one can."""
        if situation.client_gone:
            return VerdictReason.CLIENT_GONE
        if situation.expired:
            return VerdictReason.DEADLINE
        # RFC 9110 15.5.20: a 421 is retried once, on another connection.
        again_misdirected = result.status == MISDIRECTED and situation.was_misdirected
        if situation.made >= self.retry.attempts or again_misdirected:
            return VerdictReason.ATTEMPTS_EXHAUSTED
        if result.sent and situation.body_lost is not None:
            return situation.body_lost
        return VerdictReason.SHUTDOWN if situation.shutting_down else None

    def wait(self, result: AttemptResult, situation: Situation) -> RetryDelay | VerdictReason:
        """Return the wait before the next attempt, or why it would be too long."""
        retry = self.retry
        hint = None if retry.longest_hint is None else result.hint.wait
        lacks_hint = result.status == _TOO_MANY and hint is None
        backoff = backoff_delay(
            retry.backoff,
            situation.made,
            situation.previous,
            situation.roll,
            least_base=_LEAST_BASE_AFTER_429 if lacks_hint else 0.0,
        )
        spread = 0.0 if retry.backoff.jitter is _NO_JITTER else situation.roll
        return choose_wait(
            backoff, hint, time_left=situation.time_left, longest=retry.longest_hint, roll=spread
        )


def is_listed(on: Outcomes, result: AttemptResult, refused: frozenset[int]) -> bool:
    """Whether *on* lists this outcome."""
    kind = result.kind
    if kind is not None:
        unsent = not result.sent and kind in _PROVABLY_UNSENT
        return kind.value in on.names or (unsent and FailureKind.CONNECT.value in on.names)
    status = result.status
    return (
        status in on.statuses
        or (status in refused and "refused" in on.names)
        or (status in on.hinted and result.hint.wait is not None)
    )


def choose_wait(
    backoff: float,
    hint: float | None,
    *,
    time_left: float,
    longest: float | None,
    roll: float,
    least_attempt: float = LEAST_ATTEMPT,
) -> RetryDelay | VerdictReason:
    """Combine the back-off, the upstream's hint and the deadline to one wait.

    A hint is a floor: never shortened, jittered only on top, and not waited for at
    all if it is beyond *longest* or the time left. What is added to it gives way
    to the deadline.
    """
    most = time_left - least_attempt
    if hint is None:
        return VerdictReason.DEADLINE if backoff > most else RetryDelay(backoff, "backoff")
    if longest is not None and hint > longest:
        return VerdictReason.HINT_TOO_LONG
    if hint > most:
        return VerdictReason.DEADLINE
    # Add at most half of the time left beyond the hint: the attempt needs time, too.
    seconds = min(max(backoff, spread_hint(hint, roll)), hint + (most - hint) / 2)
    return RetryDelay(seconds, "hint" if hint >= backoff else "backoff")


def decide(delay: RetryDelay, permission: RepeatPermission, outlook: Outlook) -> Verdict:
    """Decide whether the attempt that is planned after *delay* follows."""
    obstacles = (
        (permission.allows(delay.seconds), VerdictReason.KEY_EXPIRED),
        (outlook.breaker_admits, VerdictReason.BREAKER_OPEN),
        (outlook.throttle_admits, VerdictReason.THROTTLED),
        (outlook.budget_allows, VerdictReason.BUDGET),
    )
    for is_out_of_the_way, reason in obstacles:
        if not is_out_of_the_way:
            return Verdict(reason)
    return Verdict(VerdictReason.RETRIED, delay, permission)
