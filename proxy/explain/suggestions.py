"""Suggestions of ``explain``: what could be written to have a request sent again.

They are candidates: a change of the settings, or of the request, with its text. ``remedies.py``
runs each one through the stages, and only those that help are shown. What no run can show to help
is advice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from proxy.config import Setting
from proxy.config.diagnostics.rounding import rounded_down, rounded_up
from proxy.config.diagnostics.units import format_duration, format_size
from proxy.explain.subject import Subject
from proxy.policy.attempt import FIRST_FAILURE, Attempt, FailureKind
from proxy.policy.caller_fields import display_name
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import MAY_CARRY_KEY
from proxy.policy.retry.verdict import MISDIRECTED, TOO_EARLY
from proxy.policy.settings import (
    Backoff,
    HonouredKey,
    Rate,
    RetrySettings,
    ThrottleSettings,
    UnsafeRetries,
)

_NAMEABLE = frozenset(
    {FailureKind.CONNECT, FailureKind.RESET, FailureKind.TIMEOUT, FailureKind.PROTOCOL}
)
"""Kinds of failure that can be listed in ``on``."""
_FACTORS = (2, 5, 20, 100)
"""How many times longer, or shorter, a duration is made until that helps."""
_TIMEOUT_FIELD = b"holdfast-timeout"
_ANY_KEY = b"key"


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """The request under changed settings, or a changed request, and the text that asks for it."""

    text: str
    subject: Subject


Candidate = Sequence[SuggestedChange]
"""One thing to change, ever more of it: the first that helps is the one to suggest."""


@dataclass(frozen=True, slots=True)
class LastAttempt:
    """The last attempt of a request, with everything that affects why none follows."""

    subject: Subject
    attempt: Attempt
    hint: float | None
    """Seconds that the upstream asked to wait."""
    policy: Sequence[Setting]
    """The effective settings of the route."""

    def candidates(self) -> list[Candidate]:
        """Return alternatives that may lead to another attempt; empty if none is needed."""
        find = _CANDIDATES.get(self.attempt.verdict)
        return [] if find is None else [candidate for candidate in find(self) if candidate]

    def advice(self) -> list[str]:
        """Return what may help where no setting does."""
        find = _ADVICE.get((self.attempt.verdict, self.attempt.kind or self.attempt.status))
        find = find or _ADVICE.get((self.attempt.verdict, None))
        return [] if find is None else [find.format(upstream=self.subject.upstream.name)]

    @property
    def retry(self) -> RetrySettings:
        """The route's retries; where they are off, those of ``retry: true``."""
        return self.subject.route.retry or RetrySettings()

    def with_retry(self, text: str, **changes: object) -> SuggestedChange:
        """Return the request on its route with changed retries."""
        retry = replace(self.retry, **changes)  # type: ignore[arg-type]  # the caller names fields
        return self.with_route(text, retry=retry)

    def with_route(self, text: str, **changes: object) -> SuggestedChange:
        """Return the request on its changed route."""
        subject = self.subject
        route = replace(subject.route, **changes)  # type: ignore[arg-type]  # see above
        return SuggestedChange(text, replace(subject, route=route))

    def with_upstream(self, text: str, **changes: object) -> SuggestedChange:
        """Return the request to its changed upstream."""
        subject = self.subject
        upstream = replace(subject.upstream, **changes)  # type: ignore[arg-type]  # see above
        return SuggestedChange(
            f"{text} in upstreams.{upstream.name}", replace(subject, upstream=upstream)
        )


def _switch_on(last: LastAttempt) -> Iterator[Candidate]:
    is_good = last.attempt.kind is None and last.attempt.status < FIRST_FAILURE
    if not (is_good or last.subject.is_tunnelled):
        yield [last.with_retry("write retry: true in the route, in a policy or in defaults")]


def _name_the_outcome(last: LastAttempt) -> Iterator[Candidate]:
    attempt, on = last.attempt, last.retry.on
    if attempt.kind is None:
        if attempt.status >= FIRST_FAILURE:
            on = replace(on, statuses=on.statuses | {attempt.status})
            is_answer = attempt.verdict is not VerdictReason.NOT_RETRYABLE_STATUS
            purpose = " to have it repeated" if is_answer else ""
            yield [last.with_retry(f"write {_with(last, attempt.status)}{purpose}", on=on)]
    elif attempt.kind in _NAMEABLE:
        on = replace(on, names=on.names | {attempt.kind.value})
        yield [last.with_retry(f"write {_with(last, attempt.kind.value)}", on=on)]


def _make_it_repeatable(last: LastAttempt) -> Iterator[Candidate]:
    subject, attempt = last.subject, last.attempt
    upstream = subject.upstream
    is_never = last.retry.unsafe is UnsafeRetries.NEVER
    auto = "unsafe: auto and " if is_never else ""
    as_auto = last
    if is_never:
        changed = last.with_retry("write unsafe: auto", unsafe=UnsafeRetries.AUTO)
        as_auto = replace(last, subject=changed.subject)
    if subject.method in MAY_CARRY_KEY:
        yield [_with_honoured_key(as_auto, auto)]
    if attempt.kind is None:
        says_so = f", if its {attempt.status} says that nothing was done"
        if attempt.status in upstream.refused:
            yield [SuggestedChange(f"write unsafe: auto{says_so}", as_auto.subject)]
        else:
            refused = upstream.refused | {attempt.status}
            listed = ", ".join(map(str, sorted(refused)))
            change = as_auto.with_upstream(f"write {auto}refused: [{listed}]", refused=refused)
            yield [replace(change, text=change.text + says_so)]
    text = "write retry: {unsafe: always}, and it may run twice"
    yield [last.with_retry(text, unsafe=UnsafeRetries.ALWAYS)]


def _with_honoured_key(last: LastAttempt, auto: str) -> SuggestedChange:
    """Return what is missing for the upstream to recognise the request by its key."""
    subject, upstream = last.subject, last.subject.upstream
    key = upstream.honours_key or HonouredKey()
    steps = []
    if upstream.honours_key is None:
        change = last.with_upstream(f"write {auto}honours_key: true", honours_key=key)
        steps.append(change.text)
        subject = change.subject
    elif auto:
        steps.append("write unsafe: auto")
    if not subject.sends_once(key.header.encode()):
        steps.append(f"send one {display_name(key.header)}")
        subject = subject.with_field(key.header.encode(), _ANY_KEY)
    only_if = "" if upstream.honours_key else ", if it runs a request with the same key once"
    return SuggestedChange(f"{' and '.join(steps)}{only_if}", subject)


def _more_attempts(last: LastAttempt) -> Iterator[Candidate]:
    if last.subject.route.retry is None:
        yield from _switch_on(last)
    elif last.attempt.status != MISDIRECTED:
        more = last.attempt.number + 1
        yield [last.with_retry(f"write retry: {{attempts: {more}}} or more", attempts=more)]


def _more_time(last: LastAttempt) -> Iterator[Candidate]:
    client_timeout, limit = last.subject.head.timeout, last.subject.route.timeout
    present = min((time for time in (client_timeout, limit) if time is not None), default=None)
    if present is None:
        return
    is_silent = last.attempt.kind is FailureKind.TIMEOUT
    if is_silent and last.retry.attempt_timeout is None:
        share = rounded_down(present / max(last.retry.attempts, 2))
        if share > 0:
            text = f"write retry: {{attempt_timeout: {format_duration(share)}}} to leave time"
            yield [last.with_retry(f"{text} for another", attempt_timeout=share)]
        return
    least = present if last.hint is None else max(last.hint, present / 2)
    longer = [rounded_up(least * factor) for factor in _FACTORS]
    if present == limit:
        yield [
            last.with_route(f"write timeout: {format_duration(seconds)} (say)", timeout=seconds)
            for seconds in longer
        ]
    else:
        text = "have the client send a longer Holdfast-Timeout"
        values = [b"%dms" % (seconds * 1000) for seconds in longer]
        yield [
            SuggestedChange(text, last.subject.with_field(_TIMEOUT_FIELD, value))
            for value in values
        ]
    if is_silent:
        yield list(_shorter_attempts(last))
    elif last.hint is None:
        yield list(_shorter_waits(last))


def _shorter_attempts(last: LastAttempt) -> Iterator[SuggestedChange]:
    limits = (last.retry.attempt_timeout, last.subject.route.timeout)
    present = min((limit for limit in limits if limit is not None), default=0.0)
    for factor in _FACTORS:
        seconds = rounded_down(present / factor)
        if seconds > 0:
            text = f"write retry: {{attempt_timeout: {format_duration(seconds)}}} (say)"
            yield last.with_retry(text, attempt_timeout=seconds)


def _shorter_waits(last: LastAttempt) -> Iterator[SuggestedChange]:
    backoff: Backoff = last.retry.backoff
    for factor in _FACTORS:
        base = rounded_down(backoff.base / factor)
        if base > 0:
            text = f"write retry: {{backoff: {{base: {format_duration(base)}}}}} (say)"
            yield last.with_retry(text, backoff=replace(backoff, base=base))


def _longer_hints(last: LastAttempt) -> Iterator[Candidate]:
    longest = rounded_up(last.hint or 0.0)
    if longest > 0:
        text = f"write retry: {{retry_after: {{max: {format_duration(longest)}}}}} or more"
        yield [last.with_retry(text, longest_hint=longest)]


def _larger_buffer(last: LastAttempt) -> Iterator[Candidate]:
    length = last.subject.head.length
    if length > 0:
        yield [last.with_route(f"write buffer: {format_size(length)} or more", buffer=length)]


def _longer_memory(last: LastAttempt) -> Iterator[Candidate]:
    key = last.subject.upstream.honours_key
    if key is not None:
        longer = [rounded_up(key.remembered_for * factor) for factor in _FACTORS]
        changes = [
            last.with_upstream(
                f"write a longer honours_key: {{for: {format_duration(seconds)}}} (say)",
                honours_key=replace(key, remembered_for=seconds),
            )
            for seconds in longer
        ]
        yield [replace(c, text=f"{c.text}, if it remembers keys for so long") for c in changes]
    yield list(_shorter_waits(last))
    yield list(_shorter_attempts(last))


def _more_budget(last: LastAttempt) -> Iterator[Candidate]:
    present = last.subject.upstream.budget
    if present is not None:
        larger = replace(present, min_per_second=max(10.0, present.min_per_second * 2))
        text = f"write budget: {{min_per_second: {larger.min_per_second:g}}} (say)"
        yield [last.with_upstream(text, budget=larger)]
    yield [last.with_upstream("write budget: false", budget=None)]


def _looser_throttle(last: LastAttempt) -> Iterator[Candidate]:
    route, upstream = last.subject.route, last.subject.upstream
    if route.throttle is not None:
        for changes in _looser(route.throttle, last.attempt.number):
            yield [
                last.with_route(f"{text} in the route's throttle", throttle=throttle)
                for text, throttle in changes
            ]
    if upstream.throttle is not None:
        for changes in _looser(upstream.throttle, last.attempt.number):
            yield [
                last.with_upstream(f"{text} in the throttle", throttle=throttle)
                for text, throttle in changes
            ]


def _looser(throttle: ThrottleSettings, made: int) -> Iterator[list[tuple[str, ThrottleSettings]]]:
    """Yield a longer wait, a larger burst and a higher rate, ever more of each."""
    wait = throttle.max_wait
    if wait is not None:
        longer = [rounded_up(max(wait, 1.0) * factor) for factor in _FACTORS]
        yield [
            (
                f"write max_wait: {format_duration(seconds)} (say)",
                replace(throttle, max_wait=seconds),
            )
            for seconds in longer
        ]
    if throttle.burst is not None:
        burst = throttle.burst + made
        yield [(f"write burst: {burst} or more", replace(throttle, burst=burst))]
    if throttle.rates:
        yield [
            (
                f"write a rate {factor} times as high (say)",
                replace(throttle, rates=tuple(_times(rate, factor) for rate in throttle.rates)),
            )
            for factor in _FACTORS
        ]


def _times(rate: Rate, factor: int) -> Rate:
    return replace(rate, count=rate.count * factor)


_CANDIDATES: dict[VerdictReason | None, Callable[[LastAttempt], Iterator[Candidate]]] = {
    None: _switch_on,
    VerdictReason.SUCCESS: _name_the_outcome,
    VerdictReason.RECOVERED: _name_the_outcome,
    VerdictReason.NOT_RETRYABLE_KIND: _name_the_outcome,
    VerdictReason.NOT_RETRYABLE_STATUS: _name_the_outcome,
    VerdictReason.NOT_REPEATABLE: _make_it_repeatable,
    VerdictReason.KEY_EXPIRED: _longer_memory,
    VerdictReason.ATTEMPTS_EXHAUSTED: _more_attempts,
    VerdictReason.BUDGET: _more_budget,
    VerdictReason.DEADLINE: _more_time,
    VerdictReason.HINT_TOO_LONG: _longer_hints,
    VerdictReason.BODY_TOO_LARGE: _larger_buffer,
    VerdictReason.THROTTLED: _looser_throttle,
}


_ADVICE: dict[tuple[VerdictReason | None, FailureKind | int | None], str] = {
    (VerdictReason.NOT_RETRYABLE_KIND, FailureKind.CERTIFICATE): (
        "correct the tls of upstreams.{upstream}: it is never repeated"
    ),
    (VerdictReason.NOT_RETRYABLE_KIND, FailureKind.BUSY): (
        "write a larger max_connections or a longer connect_timeout in upstreams.{upstream}: it is "
        "never repeated"
    ),
    (VerdictReason.NOT_RETRYABLE_STATUS, TOO_EARLY): (
        "have the client repeat it: it came as early data"
    ),
    (VerdictReason.ATTEMPTS_EXHAUSTED, MISDIRECTED): (
        "correct the upstream's urls or host: a 421 is repeated once"
    ),
    (VerdictReason.FINAL_ANSWER, None): (
        "have the client send a new key, once it knows that the first one did nothing"
    ),
    (
        VerdictReason.SERVER_SAID_NO,
        None,
    ): "ask the upstream's owner: nothing in the file changes it",
}
"""What may help where no setting does, by the verdict, and by how the attempt ended if that
matters."""


def _with(last: LastAttempt, outcome: str | int) -> str:
    """Return the list as it is with one more outcome: ``retry: {on: [default, 500]}``."""
    on = next((setting for setting in last.policy if setting.keys == ("retry", "on")), None)
    written = on.value if on is not None and isinstance(on.value, list) else []
    present = ["default"] if on is None or on.is_built_in else written
    return f"retry: {{on: [{', '.join(map(str, [*present, outcome]))}]}}"
