"""After an attempt: does another follow, when, and if not, why not.

Three questions, asked in this order, each by a function of its own:

*would*   is this an outcome that the route repeats, and a request that may be repeated?
*may*     do the count, the kept body and the process itself allow it?
*wait*    how long, and is there time for it?

Whoever asks brings time, chance and what is left of everything; :func:`decide` puts
the three together and asks breaker, throttle and budget last, because the budget is
charged by asking. When in doubt, the answer is no.
"""

from collections.abc import Callable
from dataclasses import dataclass

from proxy.policy.attempt import FIRST_FAILURE, FIRST_SERVER_ERROR, FailureKind, RetryDelay
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import ANYWHERE, Leave
from proxy.policy.retry.backoff import delay, lengthened
from proxy.policy.retry.hints import NO_HINT, RetryHint
from proxy.policy.settings import Outcomes, RetrySettings, UpstreamSettings

LEAST_ATTEMPT = 0.01
"""Seconds that must be left for an attempt once the wait before it is over."""

MISDIRECTED = 421
TOO_EARLY = 425
_TOO_MANY = 429
_LEAST_BASE_AFTER_429 = 1.0

# Ways to fail of which the connection can still prove that nothing had been sent.
_PROVABLY_UNSENT = frozenset({FailureKind.RESET, FailureKind.TIMEOUT})


@dataclass(frozen=True, slots=True)
class Request:
    """What of a request matters for repeating it."""

    leave: Leave | VerdictReason
    """Whether its attempts so far allow for another, wherever that may go; or why they do not."""
    early_data: bool = False
    """Whether it came as TLS early data, so that 425 is the client's business (RFC 8470)."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of an attempt."""

    kind: FailureKind | None
    """How it failed; None if a response came."""
    status: int = 0
    sent: bool = True
    """Whether a byte of the request may have reached the upstream."""
    advice: RetryHint = NO_HINT
    is_first: bool = True
    """Whether no attempt was made before it."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything else that bears on whether another attempt may follow."""

    made: int
    """Attempts that count so far: not those that only found a stale connection."""
    time_left: float
    """Seconds until the request's deadline."""
    roll: float
    """Chance, from 0 up to 1."""
    previous: float = 0.0
    """The wait before this attempt; 0 if there was none."""
    was_misdirected: bool = False
    """Whether an earlier attempt was answered with 421."""
    body_lost: VerdictReason | None = None
    """Why the body cannot be sent again, if it cannot."""
    expired: bool = False
    """Whether the deadline itself ended the attempt."""
    shutting_down: bool = False
    client_gone: bool = False
    """Whether only the sake of a key keeps it going."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows an attempt."""

    why: VerdictReason
    pause: RetryDelay | None = None
    """The wait before the next one; None if none follows."""
    leave: Leave = ANYWHERE
    """Where the next one may go, and until when."""


class RetryRules:
    """A route's retry settings, and what its upstream promises."""

    __slots__ = ("refused", "retry", "statuses")

    def __init__(self, retry: RetrySettings, upstream: UpstreamSettings) -> None:
        self.retry = retry
        self.refused = upstream.refused
        self.statuses = retry.on.statuses | retry.on.hinted | upstream.refused
        """Those after which another attempt may follow unless the upstream itself objects."""

    def would(self, request: Request, result: Result) -> VerdictReason | None:
        """Why this outcome of this request is not repeated; None if it is."""
        if result.kind is None:
            return self._would_after_response(request, result)
        kind = result.kind
        if kind is FailureKind.TRUNCATED:
            return VerdictReason.RESPONSE_STARTED
        if kind is FailureKind.CANCELLED:
            return VerdictReason.CLIENT_GONE
        if not is_listed(self.retry.on, result, self.refused):
            return VerdictReason.NOT_RETRYABLE_KIND
        return request.leave if isinstance(request.leave, VerdictReason) else None

    def _would_after_response(self, request: Request, result: Result) -> VerdictReason | None:
        status, advice = result.status, result.advice
        listed = is_listed(self.retry.on, result, self.refused) or advice.should_retry is True
        if status < FIRST_FAILURE or not (listed or status >= FIRST_SERVER_ERROR):
            return VerdictReason.SUCCESS
        if advice.should_retry is False:
            return VerdictReason.SERVER_SAID_NO
        if advice.is_final:
            return VerdictReason.FINAL_ANSWER
        if not listed or (status == TOO_EARLY and request.early_data):
            return VerdictReason.NOT_RETRYABLE_STATUS
        return request.leave if isinstance(request.leave, VerdictReason) else None

    def may(self, result: Result, situation: Situation) -> VerdictReason | None:
        """Why no further attempt may be made, whatever the wait; None if one may."""
        if situation.client_gone:
            return VerdictReason.CLIENT_GONE
        if situation.expired:
            return VerdictReason.DEADLINE
        # RFC 9110 15.5.20: once, on another connection.
        again_misdirected = result.status == MISDIRECTED and situation.was_misdirected
        if situation.made >= self.retry.attempts or again_misdirected:
            return VerdictReason.ATTEMPTS_EXHAUSTED
        if result.sent and situation.body_lost is not None:
            return situation.body_lost
        return VerdictReason.SHUTDOWN if situation.shutting_down else None

    def wait(self, result: Result, situation: Situation) -> RetryDelay | VerdictReason:
        """How long to wait before the next attempt, or why that cannot be waited for."""
        retry = self.retry
        hint = None if retry.longest_hint is None else result.advice.wait
        told_nothing = result.status == _TOO_MANY and hint is None
        backoff = delay(
            retry.backoff,
            situation.made,
            situation.previous,
            situation.roll,
            least_base=_LEAST_BASE_AFTER_429 if told_nothing else 0.0,
        )
        spread = 0.0 if retry.backoff.jitter == "none" else situation.roll
        return choose_wait(
            backoff, hint, time_left=situation.time_left, longest=retry.longest_hint, roll=spread
        )


def is_listed(on: Outcomes, result: Result, refused: frozenset[int]) -> bool:
    """Whether *on* names this outcome."""
    kind = result.kind
    if kind is not None:
        unsent = not result.sent and kind in _PROVABLY_UNSENT
        return kind.value in on.words or (unsent and FailureKind.CONNECT.value in on.words)
    status = result.status
    return (
        status in on.statuses
        or (status in refused and "refused" in on.words)
        or (status in on.hinted and result.advice.wait is not None)
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
    """Bring our own wait, the upstream's and the deadline together.

    A hint is a floor: never shortened, spread only on top, and not waited for at
    all if it is beyond *longest* or the time left. What we add to it gives way
    to the deadline.
    """
    room = time_left - least_attempt
    if hint is None:
        return VerdictReason.DEADLINE if backoff > room else RetryDelay(backoff, "backoff")
    if longest is not None and hint > longest:
        return VerdictReason.HINT_TOO_LONG
    if hint > room:
        return VerdictReason.DEADLINE
    # At most half of what is left beyond the hint: the attempt needs time, too.
    seconds = min(max(backoff, lengthened(hint, roll)), hint + (room - hint) / 2)
    return RetryDelay(seconds, "hint" if hint >= backoff else "backoff")


def decide(
    rules: RetryRules,
    request: Request,
    result: Result,
    look: Callable[[], Situation],
    *,
    breaker_admits: Callable[[float], bool],
    throttle_admits: Callable[[float], bool],
    take_budget: Callable[[], bool],
) -> Verdict:
    """Whether another attempt follows, and when.

    *look* tells the situation, if that comes to matter; *breaker_admits* whether an
    address would be tried that many seconds from now; *throttle_admits* whether the
    limits would let an attempt in line by then; *take_budget* charges the budget for a
    retry if it has one left.
    """
    why = rules.would(request, result)
    if why is not None:
        return Verdict(
            VerdictReason.RECOVERED if why is VerdictReason.SUCCESS and not result.is_first else why
        )
    situation = look()
    why = rules.may(result, situation)
    if why is not None:
        return Verdict(why)
    pause = rules.wait(result, situation)
    if isinstance(pause, VerdictReason):
        return Verdict(pause)
    leave = request.leave if isinstance(request.leave, Leave) else ANYWHERE
    obstacles = (
        (leave.allows, VerdictReason.KEY_EXPIRED),
        (breaker_admits, VerdictReason.BREAKER_OPEN),
        (throttle_admits, VerdictReason.THROTTLED),
    )
    for admits, why_not in obstacles:
        if not admits(pause.seconds):
            return Verdict(why_not)
    if not take_budget():
        return Verdict(VerdictReason.BUDGET)
    return Verdict(VerdictReason.RETRIED, pause, leave)
