"""A request played through: its attempts, the reasons, the waits, and what comes of it."""

import math
from dataclasses import replace

import pytest

from proxy.explain.course import Course, simulate
from proxy.explain.subject import Subject
from proxy.http.refusal import RefusalReason
from proxy.policy.idempotency.retention import KeyOutcome
from proxy.policy.settings import (
    USUAL_OUTCOMES,
    BudgetSettings,
    DeadLetterSettings,
    FallbackSettings,
    HonouredKey,
    IdempotencySettings,
    Match,
    Rate,
    RouteSettings,
    ThrottleSettings,
)
from tests.explain.scripted import ROUTE, UPSTREAM, WALL, outcomes, retrying, subject

KEY = "Idempotency-Key: 4711"
HONOURS = replace(UPSTREAM, honours_key=HonouredKey("idempotency-key"))
OTHER = replace(UPSTREAM, name="other")


def play(of: Subject, *script: str, roll: float = 0.5) -> Course:
    return simulate(of, outcomes(*script), [roll], WALL)


def verdicts(course: Course) -> list[str]:
    """The reason for each attempt, with the milliseconds that were waited before it."""
    return [
        f"{'' if a.delay is None else f'{a.delay.seconds * 1000:.0f} '}{a.verdict}"
        for a in course.attempts
    ]


@pytest.mark.parametrize(
    ("of", "script", "expected"),
    [
        pytest.param(subject(), ["200"], ["success"], id="good at once"),
        pytest.param(subject(), ["404"], ["success"], id="an answer like any other"),
        pytest.param(
            subject(), ["503", "reset", "200"], ["retried", "100 retried", "200 recovered"], id="ok"
        ),
        pytest.param(
            subject(), ["503"] * 5, ["retried", "100 retried", "200 attempts_exhausted"], id="count"
        ),
        pytest.param(subject(), ["500"], ["not_retryable_status"], id="not listed"),
        pytest.param(subject(), ["protocol"], ["not_retryable_kind"], id="a kind not listed"),
        pytest.param(subject(), ["certificate"], ["not_retryable_kind"], id="not trusted"),
        pytest.param(subject(), ["truncated"], ["response_started"], id="cut short"),
        pytest.param(subject("POST"), ["503"], ["not_repeatable"], id="POST may have run"),
        pytest.param(
            subject("POST"), ["connect", "200"], ["retried", "100 recovered"], id="never sent"
        ),
        pytest.param(
            subject("POST", KEY),
            ["429 Retry-After: 1", "503"],
            ["retried", "1000 not_repeatable"],
            id="a key",
        ),
        pytest.param(
            subject("POST", KEY, upstream=HONOURS),
            ["reset", "200"],
            ["retried", "100 recovered"],
            id="a key that is honoured",
        ),
        pytest.param(
            subject("POST", KEY, KEY, upstream=HONOURS),
            ["reset"],
            ["not_repeatable"],
            id="two keys",
        ),
        pytest.param(
            subject(), ["429 Retry-After: 2", "200"], ["retried", "2000 recovered"], id="a hint"
        ),
        pytest.param(subject(), ["429 Retry-After: 61"], ["hint_too_long"], id="a long hint"),
        pytest.param(
            subject(),
            [f"429 X-RateLimit-Reset: {WALL + 3:.0f}", "200"],
            ["retried", "3000 recovered"],
            id="a hint that is a date",
        ),
        pytest.param(
            subject("GET", "Holdfast-Timeout: 1s"), ["429 Retry-After: 2"], ["deadline"], id="short"
        ),
        pytest.param(subject(), ["503 X-Should-Retry: false"], ["server_said_no"], id="no"),
        pytest.param(
            subject(), ["418 X-Should-Retry: true", "200"], ["retried", "100 recovered"], id="yes"
        ),
        pytest.param(
            subject(), ["421", "421"], ["retried", "100 attempts_exhausted"], id="421 once"
        ),
        pytest.param(
            subject("GET", "Early-Data: 1"), ["425"], ["not_retryable_status"], id="early"
        ),
        pytest.param(subject(), ["timeout"], ["deadline"], id="all the time there was"),
        pytest.param(
            subject(route=retrying(attempt_timeout=4.0)),
            ["timeout", "timeout", "200"],
            ["retried", "100 retried", "200 recovered"],
            id="one attempt's time",
        ),
        pytest.param(
            subject(route=replace(retrying(attempt_timeout=4.0), timeout=6.0)),
            ["timeout", "timeout"],
            ["retried", "100 deadline"],
            id="the rest of the time",
        ),
        pytest.param(
            subject("PUT", "Content-Length: 2000000"),
            ["503"],
            ["body_too_large"],
            id="a large body",
        ),
        pytest.param(
            subject("PUT", "Content-Length: 2000000"),
            ["connect", "503"],
            ["retried", "100 body_too_large"],
            id="a large body of which nothing was sent",
        ),
        pytest.param(
            subject(upstream=replace(UPSTREAM, budget=BudgetSettings(0.0, 0.1))),
            ["503", "503"],
            ["retried", "100 budget"],
            id="a budget of one retry",
        ),
        pytest.param(subject(route=replace(ROUTE, retry=None)), ["503"], ["None"], id="no retries"),
        pytest.param(
            subject("GET", "Upgrade: websocket", "Connection: upgrade"), ["503"], ["None"], id="ws"
        ),
    ],
)
def test_verdicts_and_waits(of: Subject, script: list[str], expected: list[str]) -> None:
    assert verdicts(play(of, *script)) == expected


def throttled(**settings: object) -> RouteSettings:
    throttle = ThrottleSettings(**settings)  # type: ignore[arg-type]  # tests
    return replace(ROUTE, throttle=throttle)


def test_an_attempt_that_would_not_get_its_turn() -> None:
    course = play(subject(route=throttled(rates=(Rate(1, 60.0),), burst=1)), "503", "200")
    assert verdicts(course) == ["throttled"]


def test_time_in_queue_counts() -> None:
    course = play(subject(route=throttled(rates=(Rate(1, 1.0),), burst=1)), "503", "200")
    assert verdicts(course) == ["retried", "100 recovered"]
    # A second, its margin and a millisecond, and 0.1 s of that were the wait between attempts.
    assert course.attempts[1].queued == pytest.approx(0.921, abs=0.001)
    assert course.ended == pytest.approx(1.021, abs=0.001)


def test_a_pause_is_over_when_the_hint_is() -> None:
    course = play(subject(route=throttled()), "429 Retry-After: 2", "200")
    assert verdicts(course) == ["retried", "2000 recovered"]
    assert course.attempts[1].queued < 0.001


def test_no_outcome_is_left() -> None:
    course = play(subject(), "503")
    assert verdicts(course) == ["retried"]
    assert course.delay is not None
    assert not course.is_over
    assert course.answer is None


def test_nothing_ends_a_silence_without_limits() -> None:
    course = play(subject(route=replace(ROUTE, timeout=None)), "timeout", "200")
    assert course.ended == math.inf
    assert not course.is_over


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (["connect"] * 3, RefusalReason.CONNECT),
        (["reset"] * 3, RefusalReason.RESET),
        (["protocol"], RefusalReason.PROTOCOL),
        (["timeout"], RefusalReason.TIMEOUT),
        (["busy"], RefusalReason.BUSY),
        (["truncated"], None),
        (["503"] * 3, None),
    ],
)
def test_what_the_client_gets(script: list[str], reason: RefusalReason | None) -> None:
    answer = play(subject(), *script).answer
    assert (None if answer is None else answer.reason) == reason


KEYED = replace(ROUTE, idempotency=IdempotencySettings())


@pytest.mark.parametrize(
    ("script", "key_outcome"),
    [
        (["201"], KeyOutcome.KEPT),
        (["400"], KeyOutcome.KEPT),
        (["401"], KeyOutcome.FREE),
        (["connect"] * 3, KeyOutcome.FREE),
        (["reset"], KeyOutcome.AMBIGUOUS),
        (["500"], KeyOutcome.AMBIGUOUS),
        (["503"], KeyOutcome.AMBIGUOUS),
        (["429", "429", "429"], KeyOutcome.FREE),
        (["truncated"], KeyOutcome.UNSTORED),
        (["429"], None),
    ],
)
def test_what_becomes_of_a_key(script: list[str], key_outcome: KeyOutcome | None) -> None:
    assert play(subject("POST", KEY, route=KEYED), *script).key_outcome == key_outcome


def test_without_a_key_nothing_becomes_of_it() -> None:
    assert play(subject("POST", route=KEYED), "201").key_outcome is None
    assert play(subject("GET", KEY, route=KEYED), "200").key_outcome is None


BY_PLAN = replace(ROUTE, match=Match(headers=(("x-plan", "a"),)))
REQUIRED = replace(KEYED, idempotency=IdempotencySettings(required=True, scope_required=True))


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (subject("POST", route=REQUIRED), RefusalReason.KEY_MISSING),
        (subject("POST", "Idempotency-Key: a b", route=KEYED), RefusalReason.KEY_INVALID),
        (subject("POST", KEY, KEY, route=KEYED), RefusalReason.KEY_INVALID),
        (subject("POST", KEY, route=REQUIRED), RefusalReason.BAD_REQUEST),
        (subject("POST", KEY, "Authorization: ", route=REQUIRED), RefusalReason.BAD_REQUEST),
        (
            subject("POST", KEY, "X-Api-Key: a", "X-Api-Key: b", route=KEYED),
            RefusalReason.BAD_REQUEST,
        ),
        (subject("GET", "X-Plan: a", "X-Plan: b", route=BY_PLAN), RefusalReason.BAD_REQUEST),
        (
            subject("POST", KEY, "Content-Length: 2000000", route=KEYED),
            RefusalReason.BODY_TOO_LARGE,
        ),
        (
            subject("PUT", "Content-Length: 11", route=replace(ROUTE, max_body=10)),
            RefusalReason.BODY_TOO_LARGE,
        ),
    ],
)
def test_what_is_not_even_tried(of: Subject, reason: RefusalReason) -> None:
    course = play(of, "200")
    assert course.answer is not None
    assert course.answer.reason is reason
    assert course.attempts == []


FIXED = replace(ROUTE, fallback=FallbackSettings(USUAL_OUTCOMES, 200))
ELSEWHERE = replace(ROUTE, fallback=FallbackSettings(USUAL_OUTCOMES, upstream="other"))


@pytest.mark.parametrize(
    ("of", "script", "falls_back"),
    [
        pytest.param(subject(route=FIXED), ["503"] * 3, True, id="a fixed answer"),
        pytest.param(subject("POST", route=FIXED), ["503"], True, id="whatever the request"),
        pytest.param(subject(route=FIXED), ["500"], False, id="not for this status"),
        pytest.param(subject(route=ELSEWHERE, other=OTHER), ["503"] * 3, True, id="elsewhere"),
        pytest.param(
            subject("POST", route=ELSEWHERE, other=OTHER), ["503"], False, id="it may have run"
        ),
        pytest.param(
            subject("POST", route=ELSEWHERE, other=OTHER), ["connect"] * 3, True, id="never sent"
        ),
        pytest.param(
            subject("POST", KEY, route=ELSEWHERE, upstream=HONOURS, other=OTHER),
            ["reset"] * 3,
            False,
            id="the other does not know the key",
        ),
        pytest.param(subject(route=ELSEWHERE, other=OTHER), ["timeout"], False, id="no time"),
    ],
)
def test_fallback(of: Subject, script: list[str], *, falls_back: bool) -> None:
    course = play(of, *script)
    assert course.falls_back == falls_back
    assert course.is_over


LETTERED = replace(ROUTE, dead_letter=DeadLetterSettings())
WEBSOCKETS = replace(ROUTE, dead_letter=DeadLetterSettings(methods=frozenset({"GET"})))


@pytest.mark.parametrize(
    ("of", "script", "is_kept"),
    [
        pytest.param(subject("POST", route=LETTERED), ["503"], True, id="a listed status"),
        pytest.param(subject("POST", route=LETTERED), ["reset"], True, id="no response"),
        pytest.param(subject("POST", route=LETTERED), ["protocol"], True, id="be it not listed"),
        pytest.param(subject("PUT", route=LETTERED), ["timeout"], True, id="too late"),
        pytest.param(subject("PUT", route=LETTERED), ["503", "503"], False, id="not over yet"),
        pytest.param(subject("PUT", route=LETTERED), ["503", "200"], False, id="recovered"),
        pytest.param(subject("POST", route=LETTERED), ["500"], False, id="a status not listed"),
        pytest.param(subject("POST", route=LETTERED), ["429"] * 3, True, id="refused"),
        pytest.param(subject("POST", route=LETTERED), ["truncated"], False, id="cut short"),
        pytest.param(subject("GET", route=LETTERED), ["503"] * 3, False, id="another method"),
        pytest.param(subject("POST"), ["503"], False, id="no dead letters"),
        pytest.param(
            subject("POST", route=replace(LETTERED, retry=None)), ["503"], True, id="no retries"
        ),
        pytest.param(
            subject("POST", route=replace(LETTERED, fallback=FIXED.fallback)),
            ["503"],
            True,
            id="before its fallback",
        ),
        pytest.param(
            subject("POST", "Content-Length: 2", route=replace(LETTERED, max_body=1)),
            ["503"],
            False,
            id="not even tried",
        ),
        pytest.param(subject("GET", route=WEBSOCKETS), ["503"] * 3, True, id="the methods"),
        pytest.param(
            subject("GET", "Upgrade: websocket", "Connection: upgrade", route=WEBSOCKETS),
            ["503"],
            False,
            id="a tunnel",
        ),
    ],
)
def test_what_becomes_a_dead_letter(of: Subject, script: list[str], *, is_kept: bool) -> None:
    assert play(of, *script).is_kept == is_kept
