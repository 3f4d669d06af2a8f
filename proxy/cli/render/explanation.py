"""What ``explain`` has to say of one request: found once, told as text or as JSON."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from proxy.cli.render.suggestions import LastAttempt, meaning
from proxy.cli.render.yaml_lines import commented
from proxy.cli.request_args import AskedRequest
from proxy.config import Provenance, Setting
from proxy.config.diagnostics.units import format_duration
from proxy.policy.attempt import FailureKind
from proxy.policy.explain.forecast import AttemptForecast, Ending, Forecast, forecast
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
"""Earlier routes that are all shown; of more those with another path are only counted."""
_ROUTE_ITSELF = ("name", "match", "upstream", "policy")
"""Keys that are told elsewhere than in the policy."""
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
"""Those that bear on what becomes of a request."""


@dataclass(slots=True)
class Explanation:
    """All that can be said of a request under a configuration."""

    asked: AskedRequest
    others: list[tuple[str, str]]
    """Routes that do not take it, each with the reason: those before the one that does, or all."""
    subject: Subject | None
    """None: no route takes it."""
    policy: list[Setting] = field(default_factory=list)
    upstream: list[Setting] = field(default_factory=list)
    words: tuple[str, ...] = ()
    """The outcomes as they were typed."""
    statuses: list[int] = field(default_factory=list)
    """Of the outcomes; 0 for one without a response."""
    hints: list[float | None] = field(default_factory=list)
    """How long each outcome asks to wait."""
    forecast: Forecast | None = None
    """None: no outcomes are given."""

    def play(
        self,
        outcomes: Sequence[ScriptedOutcome],
        words: tuple[str, ...],
        roll: float | None,
        wall: float,
    ) -> None:
        """Find out what happens if the attempts end as *outcomes* say, typed as *words*."""
        if self.subject is None or not outcomes:
            return
        self.words = words
        self.statuses = [outcome.status for outcome in outcomes]
        self.hints = [read_hint(o.status, o.fields, wall).wait for o in outcomes]
        self.forecast = forecast(self.subject, outcomes, roll, wall)

    def lines(self) -> Iterator[str]:
        """The text."""
        asked = self.asked
        yield f"{asked.method} {asked.target}{f' at {asked.host}' if asked.host else ''}"
        yield ""
        yield from self._route_lines()
        if self.subject is None:
            return
        yield ""
        yield "Its policy:"
        yield from commented(_of_note(self.policy), _WIDTH)
        yield ""
        yield f"The upstream {self.subject.upstream.name}:"
        yield from commented(_of_note(self.upstream), _WIDTH)
        yield ""
        limits = _limits(self.subject, self.asked)
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
        for name, why in self.others:
            yield from _wrapped(f"{name}: {why}", "  ", "    ")

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
            yield from _wrapped(_key(subject, way))
            remedies = self._remedies(subject, way)
            if remedies:
                yield f"To have it sent again{'' if len(remedies) == 1 else ', one of'}:"
            for remedy in remedies:
                yield from _wrapped(f"- {remedy}", "  ", "    ")

    def _attempt_lines(
        self, subject: Subject, attempt: AttemptForecast, unjudged: str
    ) -> Iterator[str]:
        status, refused = self.statuses[attempt.number - 1], subject.upstream.refused
        said = "; or ".join(
            str(why) if why is VerdictReason.RETRIED else f"{why} ({meaning(why, status, refused)})"
            for why in attempt.verdicts
            if why is not None
        )
        said = said or unjudged
        yield from _wrapped(
            f"{attempt.number}. {self.words[attempt.number - 1]}: {said}", "  ", "     "
        )
        if attempt.queued[1] > 0:
            yield f"     after {_span(attempt.queued)} in line"
        if attempt.waits:
            sources = dict.fromkeys(pause.source for pause in attempt.waits)
            why_so_long = " or ".join(_SOURCES[source] for source in sources)
            shortest, longest = attempt.waits
            yield f"     wait {_range((shortest.seconds, longest.seconds))} ({why_so_long})"
            if self._stays_at_its_url(subject, attempt.number):
                yield "     then the same URL again: the others do not know its key"

    def _stays_at_its_url(self, subject: Subject, number: int) -> bool:
        """Whether what follows that many attempts may go to one of several URLs only."""
        route, upstream = subject.route, subject.upstream
        if self.forecast is None or len(upstream.origins) == 1 or route.retry is None:
            return False
        attempts = self.forecast.endings[0].timeline.attempts[:number]
        rules = RepeatRules(upstream, route.retry.unsafe, longest_attempt(route))
        leave = rules.permission(subject, attempts, attempts[-1].started)
        return isinstance(leave, RepeatPermission) and bool(leave.url)

    def _end(self, subject: Subject, way: Ending) -> str:
        course = way.timeline
        made = len(course.attempts)
        if course.delay is not None:
            return f"Attempt {made + 1} follows: write one more --outcome to see what comes of it."
        if course.ended == math.inf:
            return "The client waits for as long as it likes: write a timeout to end that."
        after = "at once" if way.ends[1] == 0 else f"after {_span(way.ends)}"
        unused = len(self.words) - made
        rest = f" {_count(unused, 'outcome is', 'outcomes are')} not used." if unused else ""
        return f"The client gets {_answer(subject, way)} {after}.{rest}"

    def _remedies(self, subject: Subject, way: Ending) -> list[str]:
        course = way.timeline
        if not course.attempts or not course.is_over:
            return []
        hint = self.hints[len(course.attempts) - 1]
        return LastAttempt(subject, course.attempts[-1], hint, self.policy).remedies()

    # For programs.

    def as_json(self) -> dict[str, object]:
        """The same for programs; times are in seconds."""
        asked, subject = self.asked, self.subject
        answer: dict[str, object] = {
            "request": {"method": asked.method, "host": asked.host, "target": asked.target},
            "route": None if subject is None else subject.route.name,
            "not_taken_by": [{"route": name, "why": why} for name, why in self.others],
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
                    "remedies": self._remedies(subject, way),
                    "key": way.timeline.key_outcome,
                    "dead_letter": way.timeline.is_kept,
                }
                for way in self.forecast.endings
            ]
        return answer

    def _attempt(self, attempt: AttemptForecast) -> dict[str, object]:
        return {
            "number": attempt.number,
            "outcome": self.words[attempt.number - 1],
            "why": attempt.verdicts,
            "wait": [pause.seconds for pause in attempt.waits],
            "source": [*dict.fromkeys(pause.source for pause in attempt.waits)],
        }


def explain_request(asked: AskedRequest, settings: Settings, origins: Provenance) -> Explanation:
    """Which route takes a request, and under which policy."""
    routes, head = settings.routes, asked.head
    wanted = (asked.method, asked.host, asked.path, head.raw)
    index = RouteTable(tuple(route.match for route in routes)).find(*wanted)
    earlier = routes if index < 0 else routes[:index]
    others = _others([(route, mismatch(route.match, *wanted) or "") for route in earlier], origins)
    if index < 0:
        return Explanation(asked, others, None)
    route = routes[index]
    upstreams = {upstream.name: upstream for upstream in settings.upstreams}
    other = None if route.fallback is None else upstreams.get(route.fallback.upstream)
    subject = Subject(asked.method, head, route, upstreams[route.upstream], other, asked.target)
    of_upstream = origins.of_upstream(route.upstream)
    return Explanation(
        asked,
        others,
        subject,
        origins.of_route(route.name),
        [setting for setting in of_upstream if setting.keys[0] in _UPSTREAM_KEYS],
    )


def _others(found: list[tuple[RouteSettings, str]], origins: Provenance) -> list[tuple[str, str]]:
    told = [(route.name, _discreet(route, why, origins)) for route, why in found]
    elsewhere = [name for name, why in told if why.startswith("the path")]
    if len(told) <= _MOST_OTHERS or not elsewhere:
        return told
    near = [(name, why) for name, why in told if not why.startswith("the path")]
    return [*near, (_count(len(elsewhere), "route", "routes"), "the path is another")]


def _discreet(route: RouteSettings, why: str, origins: Provenance) -> str:
    """*why* without the value of a header that must not be seen."""
    for setting in origins.of_route(route.name) if why.startswith("the header") else ():
        *outer, name = setting.keys
        said = f"the header {name.lower()} is not "
        if outer == ["match", "headers"] and why.startswith(said):
            return f"{said}{setting.value}"
    return why


def _of_note(settings: list[Setting]) -> list[Setting]:
    """Those that say something: not the built-in emptiness, nor what is told elsewhere."""
    told = [
        setting
        for setting in settings
        if setting.keys[0] not in _ROUTE_ITSELF
        and not (setting.is_built_in and setting.value in ([], {}))
    ]
    filled = {s.keys[:depth] for s in told if not s.is_section for depth in range(len(s.keys))}
    return [s for s in told if not s.is_section or s.value is False or s.keys in filled]


# Words.

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
    """``between 0 and 100 ms``, or ``50 ms``."""
    least, most = bounds
    if most >= 120:
        texts = [format_duration(least), format_duration(most)]
        return texts[0] if texts[0] == texts[1] else f"between {texts[0]} and {texts[1]}"
    factor, unit = (1000, "ms") if most < 1 else (1, "s")
    low, high = (f"{round(bound * factor, 3):.4g}" for bound in (least, most))
    return f"{low} {unit}" if low == high else f"between {low} and {high} {unit}"


def _span(bounds: tuple[float, float]) -> str:
    """``0 to 100 ms``."""
    return _range(bounds).removeprefix("between ").replace(" and ", " to ")


def _limits(subject: Subject, asked: AskedRequest) -> str:
    """Which throttles an attempt passes."""
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
    taken = " and ".join(f"{scope} ({_bucket(of, asked)})" for scope, of in throttles)
    return f"Each attempt passes the throttle of {taken}."


def _bucket(settings: ThrottleSettings, asked: AskedRequest) -> str:
    words = []
    for rate in settings.rates:
        per = format_duration(rate.period)
        most, burst = most_in_window(rate, settings.burst), settings.burst
        extra = "" if most == rate.count else f", burst {burst}: at most {most} in any {per}"
        words.append(f"{rate.count} in {per}{extra}")
    if settings.concurrency is not None:
        words.append(f"{settings.concurrency} at a time")
    key = settings.key
    if key is not None and key.source == "client_ip":
        words.append("one bucket for each client address")
    elif key is not None:
        has_value = value_of(key, asked.head.raw, asked.target, "") is not None
        whose = "its own bucket" if has_value else "the bucket of all without a value"
        words.append(f"{whose} by {key.source}:{key.name}")
    return "; ".join(words) or "no rate, only pauses"


def _answer(subject: Subject, way: Ending) -> str:
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


def _key(subject: Subject, way: Ending) -> str:
    """What becomes of the request's key."""
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
            told = f"duplicates get this response for {format_duration(keys.ttl)}"
        case KeyOutcome.UNSTORED, _:
            told = "it ran, and its response is not kept: duplicates get 409"
        case KeyOutcome.AMBIGUOUS, RecordState.HELD:
            told = (
                f"it may have run, so duplicates get 409 for {format_duration(keys.ttl)}, or until "
                f"holdfast keys release"
            )
        case KeyOutcome.AMBIGUOUS, _:
            told = "it may have run, but a later duplicate runs (on_ambiguous: release)"
        case _:
            told = "a later duplicate runs"
    return f"Its key: {course.key_outcome}; {told}."


def _setting(setting: Setting) -> dict[str, object]:
    return {
        "key": ".".join(setting.keys),
        "value": setting.value,
        "where": setting.where,
        "writer": setting.writer or None,
    }
