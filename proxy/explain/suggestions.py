"""Suggestions of ``explain``: what a reason means, and what to write to get another outcome."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.config import Setting
from proxy.config.diagnostics.rounding import rounded_down, rounded_up
from proxy.config.diagnostics.units import format_duration, format_size
from proxy.explain.subject import Subject
from proxy.policy.attempt import FIRST_FAILURE, Attempt, FailureKind
from proxy.policy.caller_fields import display_name
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import MAY_CARRY_KEY, status_may_have_run
from proxy.policy.retry.verdict import MISDIRECTED, TOO_EARLY
from proxy.policy.settings import HonouredKey, UnsafeRetries

_NAMEABLE = frozenset(
    {FailureKind.CONNECT, FailureKind.RESET, FailureKind.TIMEOUT, FailureKind.PROTOCOL}
)
"""Kinds of failure that can be listed in ``on``."""

MEANINGS = {
    VerdictReason.SUCCESS: "it is an answer for the client",
    VerdictReason.RECOVERED: "it is an answer for the client, after a retry",
    VerdictReason.RETRIED: "another attempt follows",
    VerdictReason.NOT_RETRYABLE_KIND: "retry.on does not name this failure",
    VerdictReason.NOT_RETRYABLE_STATUS: "retry.on does not name this status",
    VerdictReason.NOT_REPEATABLE: "it may have run, and may not run twice",
    VerdictReason.KEY_EXPIRED: "by then the upstream may have forgotten its key (honours_key.for)",
    VerdictReason.FINAL_ANSWER: "the upstream says that any other attempt gets the same answer",
    VerdictReason.SERVER_SAID_NO: "the upstream says not to retry",
    VerdictReason.ATTEMPTS_EXHAUSTED: "it was the last attempt",
    VerdictReason.BUDGET: "the upstream's budget has no retry left",
    VerdictReason.DEADLINE: "the time left is too short for the wait and another attempt",
    VerdictReason.HINT_TOO_LONG: "the upstream asks for a longer wait than retry_after.max",
    VerdictReason.BODY_TOO_LARGE: "the body is larger than buffer, and part of it was sent",
    VerdictReason.RESPONSE_STARTED: "the client has part of the response",
    VerdictReason.THROTTLED: "the throttle would not let another attempt through in time",
}
"""The reasons that a request without concurrent ones can get."""


def meaning(reason: VerdictReason, status: int, refused: frozenset[int]) -> str:
    """Return what *reason* means for an attempt that ended with *status* (0: no response)."""
    if (
        reason is VerdictReason.NOT_REPEATABLE
        and status
        and not status_may_have_run(status, refused)
    ):
        if status in refused:
            return "unsafe: never repeats it only if nothing of it was sent"
        return f"after a {status} only what may run twice is repeated"
    return MEANINGS[reason]


@dataclass(frozen=True, slots=True)
class LastAttempt:
    """The last attempt of a request, with everything that affects why none follows."""

    subject: Subject
    attempt: Attempt
    hint: float | None
    """Seconds that the upstream asked to wait."""
    policy: Sequence[Setting]
    """The effective settings of the route."""

    def suggestions(self) -> list[str]:
        """Return alternatives of what to write for another attempt; empty if none is needed."""
        verdict, name = self.attempt.verdict, self.subject.upstream.name
        if verdict in _FIXED_SUGGESTIONS:
            return [text.format(name=name) for text in _FIXED_SUGGESTIONS[verdict]]
        find = _SUGGESTIONS.get(verdict)
        return [] if find is None else find(self)


def _none_if_off(last: LastAttempt) -> list[str]:
    is_good = last.attempt.kind is None and last.attempt.status < FIRST_FAILURE
    if is_good or last.subject.is_tunnelled:
        return []
    return ["write retry: true in the route, in a policy or in defaults: it is off"]


def _if_it_shall_fail(last: LastAttempt) -> list[str]:
    status = last.attempt.status
    return [f"write {_with(last, status)} to have it repeated"] if status >= FIRST_FAILURE else []


def _name_the_status(last: LastAttempt) -> list[str]:
    if last.attempt.status == TOO_EARLY:
        return ["have the client repeat it: it came as early data"]
    return [f"write {_with(last, last.attempt.status)}"]


def _name_the_kind(last: LastAttempt) -> list[str]:
    kind, upstream = last.attempt.kind, f"upstreams.{last.subject.upstream.name}"
    if kind in _NAMEABLE:
        return [f"write {_with(last, str(kind))}"]
    if kind is FailureKind.CERTIFICATE:
        return [f"correct the tls of {upstream}: it is never repeated"]
    more = "write a larger max_connections or a longer connect_timeout"
    return [f"{more} in {upstream}: it is never repeated"]


def _make_it_repeatable(last: LastAttempt) -> list[str]:
    subject, attempt = last.subject, last.attempt
    upstream, retry = subject.upstream, subject.route.retry
    is_never = retry is not None and retry.unsafe is UnsafeRetries.NEVER
    auto = "write unsafe: auto and " if is_never else ""
    endings = []
    listed = attempt.kind is None and attempt.status in upstream.refused
    if subject.method in MAY_CARRY_KEY and not listed:
        endings.append(_honoured_key(subject, auto))
    if attempt.kind is None:
        statuses = ", ".join(map(str, sorted({*upstream.refused, attempt.status})))
        says_so = f"if its {attempt.status} says that nothing was done"
        if not listed:
            endings.append(
                f"{auto or 'write '}refused: [{statuses}] in upstreams.{upstream.name}, {says_so}"
            )
        elif is_never:
            endings.append(f"write unsafe: auto, {says_so}")
    return [*endings, "write retry: {unsafe: always}, and it may run twice"]


def _honoured_key(subject: Subject, auto: str) -> str:
    """Return what is missing for the upstream to recognise the request by its key."""
    upstream = subject.upstream
    header = (upstream.honours_key or HonouredKey()).header
    steps = []
    if not upstream.honours_key:
        steps.append(f"{auto or 'write '}honours_key: true in upstreams.{upstream.name}")
    elif auto:
        steps.append("write unsafe: auto")
    if not subject.sends_once(header.encode()):
        steps.append(f"send one {display_name(header)}")
    only_if = "" if upstream.honours_key else ", if it runs a request with the same key once"
    return f"{' and '.join(steps)}{only_if}"


def _more_attempts(last: LastAttempt) -> list[str]:
    if last.attempt.status == MISDIRECTED:
        return ["correct the upstream's urls or host: a 421 is repeated once"]
    return [f"write retry: {{attempts: {last.attempt.number + 1}}} or more"]


def _more_time(last: LastAttempt) -> list[str]:
    route, client_timeout = last.subject.route, last.subject.head.timeout
    retry, limit = route.retry, route.timeout
    if client_timeout is not None and (limit is None or client_timeout < limit):
        return ["have the client send a longer Holdfast-Timeout"]
    if last.attempt.kind is FailureKind.TIMEOUT and retry is not None and limit is not None:
        if retry.attempt_timeout is None:
            share = format_duration(rounded_down(limit / max(retry.attempts, 2)))
            return [f"write retry: {{attempt_timeout: {share}}} to leave time for another"]
        return ["write a longer timeout", "write a shorter retry.attempt_timeout"]
    if last.hint is not None:
        return [f"write timeout: {format_duration(rounded_up(last.hint * 2))} (say)"]
    return ["write a longer timeout", "write a shorter retry.backoff"]


def _longer_hints(last: LastAttempt) -> list[str]:
    longest = format_duration(rounded_up(last.hint or 0.0))
    return [f"write retry: {{retry_after: {{max: {longest}}}}} or more, and a timeout beyond it"]


def _larger_buffer(last: LastAttempt) -> list[str]:
    return [f"write buffer: {format_size(last.subject.head.length)} or more"]


_FIXED_SUGGESTIONS: dict[VerdictReason | None, tuple[str, ...]] = {
    VerdictReason.KEY_EXPIRED: (
        "write a longer honours_key: {{for: …}} in upstreams.{name}, if it remembers keys longer",
        "write shorter waits (retry.backoff) or a shorter retry.attempt_timeout",
    ),
    VerdictReason.FINAL_ANSWER: (
        "have the client send a new key, once it knows that the first one did nothing",
    ),
    VerdictReason.SERVER_SAID_NO: ("ask the upstream's owner: nothing in the file changes it",),
    VerdictReason.BUDGET: ("write a larger budget in upstreams.{name}, or budget: false",),
    VerdictReason.THROTTLED: (
        "write a higher rate, a larger burst or a longer max_wait in the throttle",
    ),
}

_SUGGESTIONS: dict[VerdictReason | None, Callable[[LastAttempt], list[str]]] = {
    None: _none_if_off,
    VerdictReason.SUCCESS: _if_it_shall_fail,
    VerdictReason.RECOVERED: _if_it_shall_fail,
    VerdictReason.NOT_RETRYABLE_KIND: _name_the_kind,
    VerdictReason.NOT_RETRYABLE_STATUS: _name_the_status,
    VerdictReason.NOT_REPEATABLE: _make_it_repeatable,
    VerdictReason.ATTEMPTS_EXHAUSTED: _more_attempts,
    VerdictReason.DEADLINE: _more_time,
    VerdictReason.HINT_TOO_LONG: _longer_hints,
    VerdictReason.BODY_TOO_LARGE: _larger_buffer,
}


def _with(last: LastAttempt, outcome: str | int) -> str:
    """Return the list as it is with one more outcome: ``retry: {on: [default, 500]}``."""
    on = next((setting for setting in last.policy if setting.keys == ("retry", "on")), None)
    written = on.value if on is not None and isinstance(on.value, list) else []
    present = ["default"] if on is None or on.is_built_in else written
    return f"retry: {{on: [{', '.join(map(str, [*present, outcome]))}]}}"
