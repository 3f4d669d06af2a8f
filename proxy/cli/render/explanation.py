"""The result of ``explain`` for one request, as text or as JSON."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from proxy.cli.render.suggestions import LastAttempt, meaning
from proxy.cli.render.yaml_lines import commented_yaml
from proxy.cli.request_args import ParsedRequest
from proxy.config import Provenance, Setting
from proxy.config.diagnostics.units import format_duration
from proxy.policy.attempt import FailureKind
from proxy.policy.explain.forecast import AttemptForecast, Forecast, PossibleEnding, forecast
from proxy.policy.explain.subject import Subject
from proxy.policy.explain.timeline import ScriptedOutcome
from proxy.policy.idempotency.record import RecordState
from proxy.policy.idempotency.retention import KeyOutcome, state_after
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import RepeatPermission, RepeatRules, longest_attempt
from proxy.policy.retry.hints import read_hint
from proxy.policy.routing.match import RouteTable, mismatch
from proxy.policy.settings import RouteSettings, Settings, ThrottleSettings
from proxy.policy.throttle.caller_key import value_of
from proxy.policy.throttle.pacing import most_in_window

_WIDTH = 80
_MOST_OTHERS = 12
"""The most earlier routes that are all shown; of more, those with another path are counted."""
_ROUTE_ITSELF = ("name", "match", "upstream", "policy")
"""Keys that are shown elsewhere than in the policy."""
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
    outcome_texts: tuple[str, ...] = ()
    """The outcomes as they were typed."""
    statuses: list[int] = field(default_factory=list)
    """The status of each outcome; 0 for one without a response."""
    hints: list[float | None] = field(default_factory=list)
    """The seconds that each outcome asks to wait; None if it does not."""
    forecast: Forecast | None = None
    """The expected attempts; None if no outcomes are given."""

    def play(
        self,
        outcomes: Sequence[ScriptedOutcome],
        outcome_texts: tuple[str, ...],
        roll: float | None,
        wall: float,
    ) -> None:
        """Forecast what follows if the attempts end with *outcomes*, typed as *outcome_texts*."""
        if self.subject is None or not outcomes:
            return
        self.outcome_texts = outcome_texts
        self.statuses = [outcome.status for outcome in outcomes]
        self.hints = [read_hint(o.status, o.fields, wall).wait for o in outcomes]
        self.forecast = forecast(self.subject, outcomes, roll, wall)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the text."""
        request = self.request
        yield f"{request.method} {request.target}{f' at {request.host}' if request.host else ''}"
        yield ""
        yield from self._route_lines()
        if self.subject is None:
            return
        yield ""
        yield "Its policy:"
        yield from commented_yaml(_relevant(self.policy), _WIDTH)
        yield ""
        yield f"The upstream {self.subject.upstream.name}:"
        yield from commented_yaml(_relevant(self.upstream), _WIDTH)
        yield ""
        limits = _limits(self.subject, self.request)
        if limits:
            yield from _wrapped(limits)
            yield ""
        yield from self._timeline_lines(self.subject)

    def _route_lines(self) -> Iterator[str]:
        if self.subject is None:
            yield "No route matches, so it gets 404 no_route:"
        else:
            matched = next(setting for setting in self.policy if setting.keys == ("match",))
            yield from _wrapped(
                f"The route {self.subject.route.name} ({matched.where}) takes it to the upstream "
                f"{self.subject.upstream.name}."
            )
            if self.others:
                yield "Not taken by those before it:"
        for name, reason in self.others:
            yield from _wrapped(f"{name}: {reason}", "  ", "    ")

    # The timeline.

    def _timeline_lines(self, subject: Subject) -> Iterator[str]:
        if self.forecast is None:
            yield from _wrapped(
                "Write --outcome 503 (say), once for each attempt, to see what would follow."
            )
            return
        yield "What follows, if nobody else is there:"
        unjudged = "nothing ends it" if subject.is_judged else "no verdict: nothing is repeated"
        for attempt in self.forecast.attempts:
            yield from self._attempt_lines(subject, attempt, unjudged)
        for number, way in enumerate(self.forecast.endings):
            yield from _wrapped(("" if number == 0 else "Or: ") + self._end(subject, way))
            if way.timeline.is_kept:
                yield "It is kept as a dead letter."
            yield from _wrapped(_key_text(subject, way))
            suggestions = self._suggestions(subject, way)
            if suggestions:
                yield f"To have it sent again{'' if len(suggestions) == 1 else ', one of'}:"
            for suggestion in suggestions:
                yield from _wrapped(f"- {suggestion}", "  ", "    ")

    def _attempt_lines(
        self, subject: Subject, attempt: AttemptForecast, unjudged: str
    ) -> Iterator[str]:
        status, refused = self.statuses[attempt.number - 1], subject.upstream.refused
        reasons = "; or ".join(
            str(reason)
            if reason is VerdictReason.RETRIED
            else f"{reason} ({meaning(reason, status, refused)})"
            for reason in attempt.verdicts
            if reason is not None
        )
        reasons = reasons or unjudged
        yield from _wrapped(
            f"{attempt.number}. {self.outcome_texts[attempt.number - 1]}: {reasons}", "  ", "     "
        )
        if attempt.queued[1] > 0:
            yield f"     after {_span(attempt.queued)} in line"
        if attempt.waits:
            sources = dict.fromkeys(delay.source for delay in attempt.waits)
            wait_reason = " or ".join(_SOURCES[source] for source in sources)
            shortest, longest = attempt.waits
            yield f"     wait {_range((shortest.seconds, longest.seconds))} ({wait_reason})"
            if self._stays_at_its_url(subject, attempt.number):
                yield "     then the same URL again: the others do not know its key"

    def _stays_at_its_url(self, subject: Subject, number: int) -> bool:
        """Return whether the attempt after *number* must go to the same one of several URLs."""
        route, upstream = subject.route, subject.upstream
        if self.forecast is None or len(upstream.origins) == 1 or route.retry is None:
            return False
        attempts = self.forecast.endings[0].timeline.attempts[:number]
        rules = RepeatRules(upstream, route.retry.unsafe, longest_attempt(route))
        leave = rules.permission(subject, attempts, attempts[-1].started)
        return isinstance(leave, RepeatPermission) and bool(leave.url)

    def _end(self, subject: Subject, way: PossibleEnding) -> str:
        course = way.timeline
        made = len(course.attempts)
        if course.delay is not None:
            return f"Attempt {made + 1} follows: write one more --outcome to see what comes of it."
        if course.ended == math.inf:
            return "The client waits for as long as it likes: write a timeout to end that."
        after = "at once" if way.ends[1] == 0 else f"after {_span(way.ends)}"
        unused = len(self.outcome_texts) - made
        rest = f" {_count(unused, 'outcome is', 'outcomes are')} not used." if unused else ""
        return f"The client gets {_response_text(subject, way)} {after}.{rest}"

    def _suggestions(self, subject: Subject, way: PossibleEnding) -> list[str]:
        course = way.timeline
        if not course.attempts or not course.is_over:
            return []
        hint = self.hints[len(course.attempts) - 1]
        return LastAttempt(subject, course.attempts[-1], hint, self.policy).suggestions()

    # JSON.

    def as_json(self) -> dict[str, object]:
        """Return the explanation as JSON; times are in seconds."""
        request, subject = self.request, self.subject
        answer: dict[str, object] = {
            "request": {"method": request.method, "host": request.host, "target": request.target},
            "route": None if subject is None else subject.route.name,
            "not_taken_by": [{"route": name, "why": reason} for name, reason in self.others],
        }
        if subject is not None:
            answer["policy"] = [_setting(setting) for setting in self.policy]
            answer["upstream"] = [_setting(setting) for setting in self.upstream]
        if subject is not None and self.forecast is not None:
            answer["attempts"] = [self._attempt(attempt) for attempt in self.forecast.attempts]
            answer["endings"] = [
                {
                    "attempts": len(way.timeline.attempts),
                    "text": self._end(subject, way),
                    "remedies": self._suggestions(subject, way),
                    "key": way.timeline.key_outcome,
                    "dead_letter": way.timeline.is_kept,
                }
                for way in self.forecast.endings
            ]
        return answer

    def _attempt(self, attempt: AttemptForecast) -> dict[str, object]:
        return {
            "number": attempt.number,
            "outcome": self.outcome_texts[attempt.number - 1],
            "why": attempt.verdicts,
            "wait": [delay.seconds for delay in attempt.waits],
            "source": [*dict.fromkeys(delay.source for delay in attempt.waits)],
        }


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


def _relevant(settings: list[Setting]) -> list[Setting]:
    """Return the settings worth showing: no empty defaults, nothing that is shown elsewhere."""
    shown = [
        setting
        for setting in settings
        if setting.keys[0] not in _ROUTE_ITSELF
        and not (setting.is_built_in and setting.value in ([], {}))
    ]
    filled = {s.keys[:depth] for s in shown if not s.is_section for depth in range(len(s.keys))}
    return [s for s in shown if not s.is_section or s.value is False or s.keys in filled]


# Texts.

_SOURCES = {"backoff": "back-off", "hint": "as the upstream asks"}


def _wrapped(text: str, first: str = "", then: str = "") -> Iterator[str]:
    yield from wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=then,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _range(bounds: tuple[float, float]) -> str:
    """Format a range: ``between 0 and 100 ms``, or ``50 ms``."""
    least, most = bounds
    if most >= 120:
        texts = [format_duration(least), format_duration(most)]
        return texts[0] if texts[0] == texts[1] else f"between {texts[0]} and {texts[1]}"
    factor, unit = (1000, "ms") if most < 1 else (1, "s")
    low, high = (f"{round(bound * factor, 3):.4g}" for bound in (least, most))
    return f"{low} {unit}" if low == high else f"between {low} and {high} {unit}"


def _span(bounds: tuple[float, float]) -> str:
    """Format a range in its short form: ``0 to 100 ms``."""
    return _range(bounds).removeprefix("between ").replace(" and ", " to ")


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
    if key is not None and key.source == "client_ip":
        parts.append("one bucket for each client address")
    elif key is not None:
        has_value = value_of(key, request.head.raw, request.target, "") is not None
        whose = "its own bucket" if has_value else "the bucket of all without a value"
        parts.append(f"{whose} by {key.source}:{key.name}")
    return "; ".join(parts) or "no rate, only pauses"


def _response_text(subject: Subject, way: PossibleEnding) -> str:
    course = way.timeline
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
        return "the part of the response that came, and its connection is cut"
    return f"the upstream's {last.status}{count}"


def _key_text(subject: Subject, way: PossibleEnding) -> str:
    """Describe what happens to the request's idempotency key; empty if it has none."""
    course, keys = way.timeline, subject.route.idempotency
    if keys is None or subject.method not in keys.methods or not course.is_over:
        return ""
    if not subject.is_keyed:
        return f"It has no {keys.header}, so idempotency does nothing here."
    if course.key_outcome is None:
        return "" if course.answer else "Its key: nothing is kept of a fallback."
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


def _setting(setting: Setting) -> dict[str, object]:
    return {
        "key": ".".join(setting.keys),
        "value": setting.value,
        "where": setting.where,
        "writer": setting.writer or None,
    }
