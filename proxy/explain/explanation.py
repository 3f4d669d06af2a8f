"""The explanation of one request: one value, which text and JSON are made from.

Route, policy, attempts, endings and suggestions; the sentences about them are made here, so that
both forms say the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.config import Provenance, Setting
from proxy.config.diagnostics.units import format_duration
from proxy.explain.forecast import AttemptForecast, Forecast, PossibleEnding, forecast
from proxy.explain.hand_off import ExplainedHandOff, explain_hand_off
from proxy.explain.remedies import RemedySearch
from proxy.explain.subject import ParsedRequest, Subject
from proxy.policy.attempt import FailureKind
from proxy.policy.idempotency.record import RecordState
from proxy.policy.idempotency.retention import KeyOutcome, state_after
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import RepeatPermission, RepeatRules, longest_attempt
from proxy.policy.retry.hints import read_hint
from proxy.policy.routing.match import RouteTable, mismatch
from proxy.policy.settings import CallerSource, RouteSettings, Settings, ThrottleSettings
from proxy.policy.throttle.caller_key import value_of
from proxy.policy.throttle.pacing import most_in_window
from proxy.policy.verdict_meaning import verdict_meaning
from proxy.simulation.scripted_peer import ScriptedOutcome

_MOST_OTHERS = 12
"""The most earlier routes that are all shown; of more, those with another path are counted."""
_UPSTREAM_KEYS = (
    "urls",
    "connect_timeout",
    "max_connections",
    "honours_key",
    "refused",
    "budget",
    "throttle",
    "breaker",
)
"""Keys of an upstream that affect a request."""


@dataclass(frozen=True, slots=True)
class ExplainedAttempt:
    """One attempt, in all courses of chance that get so far."""

    number: int
    outcome: str
    """What becomes of it, as it was typed."""
    reasons: tuple[VerdictReason, ...]
    """The possible verdicts, the first in most cases; empty if there is none."""
    meaning: tuple[str, ...]
    """What each verdict means."""
    queued: tuple[float, float]
    """Seconds in wait queues before it, at least and at most."""
    wait: tuple[float, ...]
    """Seconds before the next attempt, at least and at most; empty if none follows."""
    source: tuple[str, ...]
    """Who asks for that wait: ``backoff``, ``hint``."""
    same_url: bool
    """Whether the next attempt must go to the same one of several URLs."""


@dataclass(frozen=True, slots=True)
class ExplainedEnding:
    """One way in which the request may end."""

    attempts: int
    text: str
    """What the client gets, and when."""
    seconds: tuple[float, float] | None
    """When the client gets it, at the earliest and at the latest; None if the end is open."""
    remedies: list[str]
    """Alternatives of what to write to have the request sent again: each was tried, and helps."""
    advice: list[str]
    """What may help where no setting does."""
    key: KeyOutcome | None
    """What becomes of the request's idempotency key."""
    key_text: str
    """What that means for duplicates; empty if the request has no key."""
    dead_letter: bool
    """Whether the request is kept as a dead letter."""
    handed_off: bool
    """Whether the request is on disk, to be delivered later."""


@dataclass(slots=True)
class Explanation:
    """The route, policy and expected attempts of a request under a configuration."""

    request: ParsedRequest
    others: list[tuple[str, str]]
    """Routes that do not match, each with the reason: those before the one that does, or all."""
    subject: Subject | None
    """The request with its route and upstream; None if no route matches."""
    policy: list[Setting] = field(default_factory=list)
    upstream: list[Setting] = field(default_factory=list)
    limits: str = ""
    """The throttles (rate limits) that an attempt passes; empty if there are none."""
    hand_off: ExplainedHandOff | None = None
    """Whether it is accepted for later delivery; None if its route does not do so."""
    shows_delivery: bool = False
    """Whether it is shown how it would be delivered."""
    forecast: Forecast | None = None
    """The expected attempts; None if no outcomes are given."""
    attempts: list[ExplainedAttempt] = field(default_factory=list)
    endings: list[ExplainedEnding] = field(default_factory=list)

    @property
    def where(self) -> str:
        """The position in a file where the route that matches was written; empty without one."""
        found = (setting.where for setting in self.policy if setting.keys == ("match",))
        return next(found, "")

    def play(
        self,
        outcomes: Sequence[ScriptedOutcome],
        outcome_texts: tuple[str, ...],
        roll: float | None,
        wall: float,
    ) -> None:
        """Forecast what follows if the attempts end with *outcomes*, typed as *outcome_texts*."""
        subject = self.subject
        if subject is None or not outcomes:
            return
        self.forecast = found = forecast(subject, outcomes, roll, wall)
        first = found.endings[0]
        self.attempts = [
            _attempt(subject, attempt, first, outcomes, outcome_texts[attempt.number - 1])
            for attempt in found.attempts
        ]
        self.endings = [
            _ending(subject, way, outcomes, _search(way, outcomes, self.policy, wall))
            for way in found.endings
        ]

    def to_json(self) -> dict[str, object]:
        """Return the explanation as JSON; times are in seconds."""
        request, subject = self.request, self.subject
        answer: dict[str, object] = {
            "request": {"method": request.method, "host": request.host, "target": request.target},
            "route": None if subject is None else subject.route.name,
            "not_taken_by": [{"route": name, "why": reason} for name, reason in self.others],
        }
        if subject is not None:
            answer["where"] = self.where
            answer["upstream_name"] = subject.upstream.name
            answer["policy"] = [_setting(setting) for setting in self.policy]
            answer["upstream"] = [_setting(setting) for setting in self.upstream]
            answer["limits"] = self.limits
            handed = self.hand_off
            if handed is not None or self.shows_delivery:
                has_delivery = self.shows_delivery
                answer["hand_off"] = handed and handed.as_json(has_delivery=has_delivery)
        if self.forecast is not None:
            answer["attempts"] = [_fields(attempt) for attempt in self.attempts]
            answer["endings"] = [_fields(ending) for ending in self.endings]
        return answer


def explain_request(request: ParsedRequest, settings: Settings, origins: Provenance) -> Explanation:
    """Find the route that matches a request, and its policy."""
    routes, head = settings.routes, request.head
    wanted = (request.method, request.host, request.path, head.raw)
    index = RouteTable(tuple(route.match for route in routes)).find(*wanted)
    earlier = routes if index < 0 else routes[:index]
    others = _others([(route, mismatch(route.match, *wanted) or "") for route in earlier], origins)
    if index < 0:
        return Explanation(request, others, None)
    route = routes[index]
    upstreams = {upstream.name: upstream for upstream in settings.upstreams}
    other = None if route.fallback is None else upstreams.get(route.fallback.upstream)
    subject = Subject(request.method, head, route, upstreams[route.upstream], other, request.target)
    of_upstream = origins.of_upstream(route.upstream)
    return Explanation(
        request,
        others,
        subject,
        origins.of_route(route.name),
        [setting for setting in of_upstream if setting.keys[0] in _UPSTREAM_KEYS],
        _limits(subject, request),
        explain_hand_off(subject),
    )


def _others(found: list[tuple[RouteSettings, str]], origins: Provenance) -> list[tuple[str, str]]:
    reasons = [(route.name, _masked(route, reason, origins)) for route, reason in found]
    with_other_path = [name for name, reason in reasons if reason.startswith("the path")]
    if len(reasons) <= _MOST_OTHERS or not with_other_path:
        return reasons
    near = [(name, reason) for name, reason in reasons if not reason.startswith("the path")]
    return [*near, (_count(len(with_other_path), "route", "routes"), "the path is another")]


def _masked(route: RouteSettings, reason: str, origins: Provenance) -> str:
    """Return *reason* with the value of a secret header masked."""
    for setting in origins.of_route(route.name) if reason.startswith("the header") else ():
        *outer, name = setting.keys
        prefix = f"the header {name.lower()} is not "
        if outer == ["match", "headers"] and reason.startswith(prefix):
            return f"{prefix}{setting.value}"
    return reason


_JSON_NAMES = {"reasons": "why"}
"""Fields that have another name in JSON."""


def _fields(explained: ExplainedAttempt | ExplainedEnding) -> dict[str, object]:
    """Return all fields, so that nothing that the text has is left out."""
    return {_JSON_NAMES.get(name, name): getattr(explained, name) for name in explained.__slots__}


def _setting(setting: Setting) -> dict[str, object]:
    return {
        "key": ".".join(setting.keys),
        "value": setting.value,
        "where": setting.where,
        "writer": setting.writer or None,
    }


# Attempts.


def _attempt(
    subject: Subject,
    attempt: AttemptForecast,
    first: PossibleEnding,
    outcomes: Sequence[ScriptedOutcome],
    text: str,
) -> ExplainedAttempt:
    status, refused = outcomes[attempt.number - 1].status, subject.upstream.refused
    reasons = tuple(reason for reason in attempt.verdicts if reason is not None)
    return ExplainedAttempt(
        number=attempt.number,
        outcome=text,
        reasons=reasons,
        meaning=tuple(verdict_meaning(reason, status, refused) for reason in reasons),
        queued=attempt.queued,
        wait=tuple(delay.seconds for delay in attempt.waits),
        source=tuple(dict.fromkeys(delay.source for delay in attempt.waits)),
        same_url=bool(attempt.waits) and _stays_at_its_url(subject, first, attempt.number),
    )


def _stays_at_its_url(subject: Subject, first: PossibleEnding, number: int) -> bool:
    """Return whether the attempt after *number* must go to the same one of several URLs."""
    route, upstream = subject.route, subject.upstream
    if len(upstream.origins) == 1 or route.retry is None:
        return False
    attempts = first.course.attempts[:number]
    rules = RepeatRules(upstream, route.retry.unsafe, longest_attempt(route))
    leave = rules.permission(subject, attempts, attempts[-1].started)
    return isinstance(leave, RepeatPermission) and bool(leave.url)


# Endings.


def _search(
    way: PossibleEnding, outcomes: Sequence[ScriptedOutcome], policy: Sequence[Setting], wall: float
) -> RemedySearch | None:
    """Return the search for remedies of an ending; None if it goes on, or never began."""
    course = way.course
    if not (course.attempts and course.is_over) or course.is_handed_off:
        return None
    last = outcomes[len(course.attempts) - 1]
    hint = read_hint(last.status, last.fields, wall).wait
    return RemedySearch(course, outcomes, hint, policy, wall)


def _ending(
    subject: Subject,
    way: PossibleEnding,
    outcomes: Sequence[ScriptedOutcome],
    search: RemedySearch | None,
) -> ExplainedEnding:
    course = way.course
    return ExplainedEnding(
        attempts=len(course.attempts),
        text=_end(subject, way, len(outcomes)),
        seconds=way.ends if course.is_over else None,
        remedies=[] if search is None else search.remedies(subject),
        advice=[] if search is None else search.advice(subject),
        key=course.key_outcome,
        key_text=_key_text(subject, way),
        dead_letter=course.is_kept,
        handed_off=course.is_handed_off,
    )


def _end(subject: Subject, way: PossibleEnding, outcomes: int) -> str:
    course = way.course
    made = len(course.attempts)
    if course.delay is not None:
        return f"Attempt {made + 1} follows: write one more --outcome to see what comes next."
    if course.ended == math.inf:
        return "No timeout ends this, so the client waits until it gives up: write a timeout."
    after = "at once" if way.ends[1] == 0 else f"after {span(way.ends)}"
    unused = outcomes - made
    rest = f" {_count(unused, 'outcome is', 'outcomes are')} not used." if unused else ""
    if course.is_handed_off:
        return f"The client gets 202 {after}, and the request is delivered later.{rest}"
    return f"The client gets {_response_text(subject, way)} {after}.{rest}"


def _response_text(subject: Subject, way: PossibleEnding) -> str:
    course = way.course
    made = len(course.attempts)
    count = f" with Holdfast-Attempts: {made}" if made > 1 else ""
    fallback = subject.route.fallback
    if course.answer is not None:
        refusal = course.answer
        detail = "" if made else f" ({refusal.detail.rstrip('.')})"
        return f"{refusal.status} {refusal.reason} from Holdfast{detail}{count}"
    if course.falls_back and fallback is not None:
        if fallback.upstream:
            return f"what the upstream {fallback.upstream} says, which is asked once,"
        return f"the fallback's {fallback.status}{count}"
    last = course.attempts[-1]
    if last.kind is FailureKind.TRUNCATED:
        return "the part of the response that arrived, and its connection is closed"
    return f"the upstream's {last.status}{count}"


def _key_text(subject: Subject, way: PossibleEnding) -> str:
    """Describe what happens to the request's idempotency key; empty if it has none."""
    course, keys = way.course, subject.route.idempotency
    if keys is None or subject.method not in keys.methods or not course.is_over:
        return ""
    if not subject.is_keyed:
        return f"It has no {keys.header}, so idempotency does nothing here."
    if course.key_outcome is None:
        return "" if course.answer else "Its key: nothing is kept of a fallback."
    if course.is_handed_off:
        return (
            "Its key: duplicates get the same 202 until the delivery has ended, and for "
            f"{format_duration(keys.ttl)} after that."
        )
    state = state_after(course.key_outcome, keys)
    match course.key_outcome, state:
        case KeyOutcome.KEPT, _:
            text = f"duplicates get this response for {format_duration(keys.ttl)}"
        case KeyOutcome.UNSTORED, _:
            text = "it ran, and its response is not kept: duplicates get 409"
        case KeyOutcome.AMBIGUOUS, RecordState.HELD:
            text = (
                f"it may have run, so duplicates get 409 for {format_duration(keys.ttl)}, or until "
                f"holdfast keys release"
            )
        case KeyOutcome.AMBIGUOUS, _:
            text = "it may have run, but a later duplicate runs (on_ambiguous: release)"
        case _:
            text = "a later duplicate runs"
    return f"Its key: {course.key_outcome}; {text}."


# Throttles.


def _limits(subject: Subject, request: ParsedRequest) -> str:
    """Describe the throttles (rate limits) that apply to an attempt; empty if there are none."""
    route, upstream = subject.route, subject.upstream
    throttles = [
        (scope, settings)
        for scope, settings in (
            (f"the route {route.name}", route.throttle),
            (f"the upstream {upstream.name}", upstream.throttle),
        )
        if settings is not None
    ]
    if not throttles:
        return ""
    taken = " and ".join(f"{scope} ({_throttle_text(of, request)})" for scope, of in throttles)
    return f"Each attempt passes the throttle of {taken}."


def _throttle_text(settings: ThrottleSettings, request: ParsedRequest) -> str:
    parts = []
    for rate in settings.rates:
        per = format_duration(rate.period)
        most, burst = most_in_window(rate, settings.burst), settings.burst
        extra = "" if most == rate.count else f", burst {burst}: at most {most} in any {per}"
        parts.append(f"{rate.count} in {per}{extra}")
    if settings.concurrency is not None:
        parts.append(f"{settings.concurrency} at a time")
    key = settings.key
    if key is not None and key.source is CallerSource.CLIENT_IP:
        parts.append("one bucket for each client address")
    elif key is not None:
        has_value = value_of(key, request.head.raw, request.target, "") is not None
        whose = "its own bucket" if has_value else "the bucket that all without a value share"
        parts.append(f"{whose} by {key.source}:{key.name}")
    return "; ".join(parts) or "no rate, only pauses"


# Numbers.


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def time_range(bounds: tuple[float, float]) -> str:
    """Format a range: ``between 0 and 100 ms``, or ``50 ms``."""
    least, most = bounds
    if most >= 120:
        texts = [format_duration(least), format_duration(most)]
        return texts[0] if texts[0] == texts[1] else f"between {texts[0]} and {texts[1]}"
    factor, unit = (1000, "ms") if most < 1 else (1, "s")
    low, high = (f"{round(bound * factor, 3):.4g}" for bound in (least, most))
    return f"{low} {unit}" if low == high else f"between {low} and {high} {unit}"


def span(bounds: tuple[float, float]) -> str:
    """Format a range in its short form: ``0 to 100 ms``."""
    return time_range(bounds).removeprefix("between ").replace(" and ", " to ")
