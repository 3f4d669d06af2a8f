"""Which requests are handed off: asked for, always, or because all attempts failed.

The checks come in one order: method, credentials, size, then room. The key is checked between
credentials and size by the stage of idempotency, as for every request.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from proxy.http.refusal import RefusalReason
from proxy.policy.attempt import Attempt
from proxy.policy.dead_letter import FAILED
from proxy.policy.repeatable import MAY_CARRY_KEY, RepeatPermission, RepeatRules, Sendable
from proxy.policy.retry.verdict import AttemptResult, is_listed
from proxy.policy.settings import (
    CREDENTIAL_FIELDS,
    HandOffCredentials,
    HandOffSettings,
    HandOffWhen,
    RouteSettings,
    UpstreamSettings,
)

_NEVER_SENT = "proxy-authorization"
"""Meant for this proxy: neither stored nor sent on, whatever the file says."""


# No free connection is a limit of our own. A drain ends the wait for another attempt.
_FAILURES = {None, RefusalReason.DRAINING, *FAILED} - {RefusalReason.BUSY}
"""What a client would get, if the upstream failed: its response (None), or one of these."""


class NotHandedOff(StrEnum):
    """Why a request is not handed off."""

    NOT_ASKED = "not_asked"
    METHOD = "method"
    CREDENTIALS = "credentials"
    TOO_LARGE = "too_large"
    # Of a request that failed:
    CLIENT_GONE = "client_gone"
    OWN_ANSWER = "own_answer"  # it was not the upstream that failed
    NOT_RETRYABLE = "not_retryable"  # its failure is none after which a delivery is tried again
    MAY_HAVE_RUN = "may_have_run"  # and is not repeatable
    BODY_LOST = "body_lost"  # its body was not kept whole


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Whether a request is handed off before anything is sent; if not, why."""

    when: HandOffWhen | None
    """Why it is handed off; None if it is not."""
    obstacle: NotHandedOff | None = None
    """Why it is not; None if it is."""
    is_forced: bool = False
    """Whether it is refused if it cannot be handed off; if not, it is served as ever."""
    fields: tuple[str, ...] = ()
    """Credentials, in lower case, that are the obstacle."""


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A request whose attempts, while its client waited, have all failed."""

    request: Sendable
    attempts: Sequence[Attempt]
    """All of them, those at a fallback upstream included."""
    result: AttemptResult | None
    """How the last one ended; None if none was made."""
    refusal: RefusalReason | None
    """The answer of the proxy's own that the client would get; None if it is the upstream's."""
    client_gone: bool
    size: int | None
    """Bytes of the body if it was kept whole; None if it was not."""
    now: float
    """On the clock of the attempts."""


class HandOffRules:
    """Which requests of a route are handed off, and with what."""

    def __init__(self, route: RouteSettings, upstream: UpstreamSettings) -> None:
        """Take a *route* that hands off, and its upstream."""
        self.settings = route.hand_off or HandOffSettings()
        self._repeat = RepeatRules(upstream, self.settings.unsafe, self.settings.timeout)
        self._refused = upstream.refused
        self._key = upstream.honours_key
        edits = route.request_headers
        edited = {name.lower() for name, _ in edits.set}.union(edits.remove)
        self._edited = frozenset(edited)
        self._credentials = CREDENTIAL_FIELDS - edited
        """Fields that would come from the client."""

    def accept(
        self, method: str, names: Iterable[str], length: int | None, *, is_asked: bool
    ) -> Acceptance:
        """Return whether a request is handed off, before anything of it is sent.

        *names* are those of its header fields in lower case, *length* is that of its body, None if
        that is unknown yet. *is_asked*: the client says ``Prefer: respond-async``.
        """
        settings = self.settings
        is_forced = HandOffWhen.ALWAYS in settings.when
        if method not in settings.methods:
            return Acceptance(None, NotHandedOff.METHOD)
        if is_asked and HandOffWhen.ASKED in settings.when:
            when = HandOffWhen.ASKED
        elif is_forced:
            when = HandOffWhen.ALWAYS
        else:
            return Acceptance(None, NotHandedOff.NOT_ASKED)
        refused = self.refused_credentials(names)
        if refused:
            return Acceptance(None, NotHandedOff.CREDENTIALS, is_forced, refused)
        if length is not None and not self.fits(length):
            return Acceptance(None, NotHandedOff.TOO_LARGE, is_forced)
        return Acceptance(when, is_forced=is_forced)

    def fits(self, size: int) -> bool:
        """Whether a body of *size* bytes may be handed off."""
        return size <= self.settings.max_body

    def refused_credentials(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of the fields *names* because of which a request is not handed off."""
        if self.settings.credentials is not HandOffCredentials.REFUSE:
            return ()
        return tuple(sorted(self._credentials.intersection(names)))

    def fields_left_out(self) -> frozenset[str]:
        """Return the fields, in lower case, of a request that are not stored with its delivery."""
        if self.settings.credentials is HandOffCredentials.STORE:
            return frozenset({_NEVER_SENT})
        return CREDENTIAL_FIELDS

    def fields_to_wipe(self) -> frozenset[str]:
        """Return the fields, in lower case, that are wiped when a delivery has ended."""
        return CREDENTIAL_FIELDS

    def after_failure(self, failed: FailedRequest, names: Iterable[str]) -> NotHandedOff | None:
        """Return why a request that *failed* is not handed off; None if it is.

        *names* are those of its header fields in lower case.
        """
        settings = self.settings
        if HandOffWhen.FAILED not in settings.when:
            return NotHandedOff.NOT_ASKED
        if failed.request.method not in settings.methods:
            return NotHandedOff.METHOD
        if self.refused_credentials(names):
            return NotHandedOff.CREDENTIALS
        return self._failure_obstacle(failed) or self._body_obstacle(failed.size)

    def _body_obstacle(self, size: int | None) -> NotHandedOff | None:
        if size is None:
            return NotHandedOff.BODY_LOST
        return None if self.fits(size) else NotHandedOff.TOO_LARGE

    def _failure_obstacle(self, failed: FailedRequest) -> NotHandedOff | None:
        refusal, result = failed.refusal, failed.result
        if failed.client_gone:
            return NotHandedOff.CLIENT_GONE
        # An open breaker is the upstream's doing, too: it failed others before.
        if refusal is not RefusalReason.BREAKER_OPEN:
            if result is None or refusal not in _FAILURES:
                return NotHandedOff.OWN_ANSWER
            if not self._is_retried(result):
                return NotHandedOff.NOT_RETRYABLE
        permission = self._repeat.permission(failed.request, failed.attempts, failed.now)
        may_follow = isinstance(permission, RepeatPermission)
        return None if may_follow else NotHandedOff.MAY_HAVE_RUN

    def _is_retried(self, result: AttemptResult) -> bool:
        """Whether a delivery is tried again after *result*."""
        hint = result.hint
        if hint.should_retry is False or hint.is_final:
            return False
        is_listed_now = is_listed(self.settings.retry_on, result, self._refused)
        return is_listed_now or (result.kind is None and hint.should_retry is True)

    def added_key(
        self, method: str, names: Iterable[str], attempts: Sequence[Attempt]
    ) -> str | None:
        """Return the field, in lower case, in which the delivery's id becomes its key; None: none.

        Only where the upstream honours a key, the client sent none, and no byte of the request has
        gone out: what was sent without a key stays without one. *names* are those of the request's
        header fields in lower case.
        """
        key = self._key
        if key is None or method not in MAY_CARRY_KEY:
            return None
        is_taken = key.header in self._edited or key.header in names
        was_sent = any(attempt.sent for attempt in attempts)
        return None if is_taken or was_sent else key.header
