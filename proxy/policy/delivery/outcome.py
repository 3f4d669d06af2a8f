"""What follows an attempt of a delivery: it is delivered, tried again, deferred, or has failed.

The rules of retries hold here, too: what may have run is sent again only if it is repeatable, by
its method or by a key that the upstream still remembers, at the URL that knows it
(:class:`~proxy.policy.repeatable.RepeatRules`). Times are seconds since the epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.delivery.schedule import deferred_until, gives_up_at, next_try, usable_hint
from proxy.policy.delivery.words import DeferralReason, DeliveryEnd, DeliveryState
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import RepeatPermission, RepeatRules, Sendable, may_have_run
from proxy.policy.retry.verdict import AttemptResult, is_listed
from proxy.policy.settings import HandOffSettings, UpstreamSettings

_TOO_MANY = 429
_WAIT_IF_BUSY = 1.0
"""Seconds after which a delivery is due again that got no connection."""
_FIRST_REDIRECT, _FIRST_CLIENT_ERROR = 300, 400
_NOT_RUN_BY_REDIRECT = frozenset({307, 308})
"""Redirects by which a server asks for the same request elsewhere: it did nothing with this one."""


@dataclass(frozen=True, slots=True)
class DeliveryStep:
    """The state of a delivery after an attempt, or in place of one."""

    state: DeliveryState
    """``delivered``, ``failed``, or, if it goes on, ``retrying``; ``waiting`` if no byte of it was
    ever sent."""
    reason: VerdictReason | DeliveryEnd | None = None
    """Why it ended, or why it is tried again; None if it was deferred."""
    due: float | None = None
    """When it is due; None if it has ended."""
    deferred: DeferralReason | None = None
    """Why it was put off without an attempt being counted; None if it was not."""
    counts: bool = False
    """Whether an attempt is counted."""
    may_have_run: bool = False
    """Whether it may have had its effect, now or before; matters if it failed."""
    pause: float | None = None
    """Until when the upstream asks for no calls at all; None if it does not."""


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    """What is known of a delivery when one of its attempts has ended, or is to begin."""

    request: Sendable
    accepted: float
    made: int
    """Attempts counted so far, without the one that has just ended."""
    attempts: Sequence[Attempt]
    """All attempts of all runs, those while its client waited and the last one included; each
    ``started`` in seconds since the epoch."""
    now: float
    earlier: Sequence[Attempt] = ()
    """Attempts before a person had it sent again: they forbid nothing."""
    previous: float = 0.0
    """Seconds of the wait before the last attempt; 0 if there was none."""


class DeliveryRules:
    """How the deliveries of a route go on."""

    def __init__(self, settings: HandOffSettings, upstream: UpstreamSettings) -> None:
        self.settings = settings
        self.refused = upstream.refused
        self.urls = tuple(map(str, upstream.origins))
        """Where a delivery may be sent to."""
        self._repeat = RepeatRules(upstream, settings.unsafe, settings.timeout)
        self._upstream, self._url = upstream.name, str(upstream.origins[0])

    def before_send(self, facts: DeliveryFacts) -> RepeatPermission | DeliveryStep:
        """Return whether a delivery that is due may be sent, and where; else how it ends.

        Asked with the settings of the moment: an upstream may have lost the URL that knows its key,
        or the key itself may be too old by now.
        """
        if facts.now >= gives_up_at(self.settings, facts.accepted):
            return self.given_up(facts)
        permission = self.may_follow(facts)
        if isinstance(permission, RepeatPermission):
            return permission
        return self._unknown(facts, permission)

    def given_up(self, facts: DeliveryFacts) -> DeliveryStep:
        """Return the end of a delivery that is too old, whatever it waited for."""
        return self._ended(facts, DeliveryEnd.GAVE_UP)

    def owner_died(self, facts: DeliveryFacts) -> DeliveryStep:
        """Return what becomes of a delivery that was being sent when its process died.

        *facts* have an attempt that was sent and has no outcome: only the living can say that
        nothing was sent.
        """
        permission = self.may_follow(facts)
        if isinstance(permission, RepeatPermission):
            return DeliveryStep(DeliveryState.RETRYING, VerdictReason.RETRIED, facts.now)
        return self._unknown(facts, permission)

    def may_follow(self, facts: DeliveryFacts) -> RepeatPermission | VerdictReason:
        """Return whether another attempt may follow those made, where and until when; or why not.

        An operator's or client's retry of a failed delivery asks this.
        """
        return self._repeat.permission(facts.request, facts.attempts, facts.now, facts.earlier)

    def if_in_doubt(self, facts: DeliveryFacts) -> RepeatPermission | VerdictReason:
        """Return whether another attempt may follow one that is made now and may have run.

        A canary must be such a delivery, and one whose process dies is sent again only then.
        """
        in_doubt = self._repeat.in_doubt((*facts.earlier, *facts.attempts))
        attempt = Attempt(0, self._upstream, facts.now)
        attempt.url = in_doubt[-1].url if in_doubt else self._url
        attempt.sent = True
        attempts = (*facts.attempts, attempt)
        return self._repeat.permission(facts.request, attempts, facts.now, facts.earlier)

    def _unknown(self, facts: DeliveryFacts, reason: VerdictReason) -> DeliveryStep:
        """Return the end of a delivery that may have run, and for this *reason* not again."""
        is_late = reason is VerdictReason.KEY_EXPIRED
        return self._ended(facts, reason if is_late else DeliveryEnd.UNCERTAIN)

    def deferred(self, facts: DeliveryFacts, reason: DeferralReason, due: float) -> DeliveryStep:
        """Return the step of a delivery that was not sent now, for *reason*, and is due then."""
        due = min(due, gives_up_at(self.settings, facts.accepted))
        was_sent = any(attempt.sent for attempt in facts.attempts)
        state = DeliveryState.RETRYING if was_sent else DeliveryState.WAITING
        return DeliveryStep(state, due=due, deferred=reason)

    def after_attempt(
        self, facts: DeliveryFacts, result: AttemptResult, *, roll: float, counts: bool = True
    ) -> DeliveryStep:
        """Return what follows an attempt that ended in *result*.

        *roll* is a random number from 0 up to 1. *counts* is False if the upstream was down for
        all (:class:`~proxy.policy.delivery.line.Blame`).
        """
        has_answer = result.kind is None or result.kind is FailureKind.TRUNCATED
        if has_answer and result.status in self.settings.success:
            # A body that ended early does not undo what its head says.
            reason = VerdictReason.RECOVERED if facts.made else VerdictReason.SUCCESS
            return DeliveryStep(DeliveryState.DELIVERED, reason, counts=True, may_have_run=True)
        if result.kind is FailureKind.BUSY:
            return self.deferred(facts, DeferralReason.BUSY, facts.now + _WAIT_IF_BUSY)
        if result.kind is FailureKind.CANCELLED:
            return self._cut_off(facts)
        final = self._final_answer(result) if has_answer else self._final_kind(result)
        return (
            self._ended(facts, final, result)
            if final
            else self._retry(facts, result, roll, counts=counts)
        )

    def _cut_off(self, facts: DeliveryFacts) -> DeliveryStep:
        """Return the step of a delivery that a shutdown cut off: it has not failed."""
        permission = self.may_follow(facts)
        if isinstance(permission, RepeatPermission):
            return self.deferred(facts, DeferralReason.DRAINING, facts.now)
        return self._unknown(facts, permission)

    def _final_answer(self, result: AttemptResult) -> VerdictReason | DeliveryEnd | None:
        """Return why a response is the end of a delivery; None if it may be tried again."""
        status, hint = result.status, result.hint
        if _FIRST_REDIRECT <= status < _FIRST_CLIENT_ERROR:
            return DeliveryEnd.REDIRECT
        if hint.should_retry is False:
            return VerdictReason.SERVER_SAID_NO
        if hint.is_final:
            return VerdictReason.FINAL_ANSWER
        answered = AttemptResult(None, status, result.sent, hint)
        if is_listed(self.settings.retry_on, answered, self.refused) or hint.should_retry is True:
            return None
        return VerdictReason.NOT_RETRYABLE_STATUS

    def _final_kind(self, result: AttemptResult) -> VerdictReason | None:
        is_retried = is_listed(self.settings.retry_on, result, self.refused)
        return None if is_retried else VerdictReason.NOT_RETRYABLE_KIND

    def _retry(
        self, facts: DeliveryFacts, result: AttemptResult, roll: float, *, counts: bool
    ) -> DeliveryStep:
        """Return the next try of a delivery, if it may be sent again and there is time for it."""
        permission = self.may_follow(facts)
        if not isinstance(permission, RepeatPermission):
            return self._ended(facts, permission, result)
        step = self._planned(facts, result, roll, counts=counts)
        if step.due is not None and not permission.allows(step.due - facts.now):
            return self._ended(facts, VerdictReason.KEY_EXPIRED, result)
        return step

    def _planned(
        self, facts: DeliveryFacts, result: AttemptResult, roll: float, *, counts: bool
    ) -> DeliveryStep:
        settings, accepted, now = self.settings, facts.accepted, facts.now
        hint = usable_hint(settings, result.hint.wait)
        was_refused = result.kind is None and result.status in self.refused
        due: float | VerdictReason | DeliveryEnd
        if was_refused and hint is not None:
            due = deferred_until(settings, accepted=accepted, now=now, hint=hint, roll=roll)
        elif not counts:
            return self.deferred(facts, DeferralReason.UPSTREAM_DOWN, now)
        else:
            due = next_try(
                settings,
                accepted=accepted,
                now=now,
                made=facts.made + 1,
                roll=roll,
                previous=facts.previous,
                hint=hint,
                slow_down=result.status == _TOO_MANY,
            )
        if not isinstance(due, float):
            return self._ended(facts, due, result)
        if was_refused and hint is not None:
            return DeliveryStep(
                DeliveryState.RETRYING, due=due, deferred=DeferralReason.PAUSED, pause=now + hint
            )
        return DeliveryStep(DeliveryState.RETRYING, VerdictReason.RETRIED, due, counts=True)

    def _ended(
        self,
        facts: DeliveryFacts,
        reason: VerdictReason | DeliveryEnd,
        result: AttemptResult | None = None,
    ) -> DeliveryStep:
        """Return the failure of a delivery; an attempt that just ended in *result* is counted."""
        return DeliveryStep(
            DeliveryState.FAILED,
            reason,
            counts=result is not None and result.sent,
            may_have_run=self.may_have_run((*facts.earlier, *facts.attempts)),
        )

    def may_have_run(self, attempts: Sequence[Attempt]) -> bool:
        """Whether one of *attempts*, none of them a success, may have had its effect."""
        return any(
            may_have_run(attempt, self.refused)
            or _has_no_outcome(attempt)
            or _may_be_done_by_redirect(attempt)
            for attempt in attempts
        )


def _has_no_outcome(attempt: Attempt) -> bool:
    """Whether the process of *attempt* died before it could say what came of it."""
    return attempt.sent and attempt.kind is None and not attempt.status


def _may_be_done_by_redirect(attempt: Attempt) -> bool:
    """Whether *attempt* was answered as a form is: done, and the result is elsewhere."""
    is_redirect = _FIRST_REDIRECT <= attempt.status < _FIRST_CLIENT_ERROR
    return is_redirect and attempt.status not in _NOT_RUN_BY_REDIRECT
