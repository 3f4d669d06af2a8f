"""Whether another attempt follows: every reason, and the order in which they are asked."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

from proxy.policy.attempt import Attempt, FailureKind, RetryDelay
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import ANYWHERE, RepeatPermission, RepeatRules
from proxy.policy.retry.hints import NO_HINT, RetryHint
from proxy.policy.retry.verdict import (
    LEAST_ATTEMPT,
    AttemptResult,
    Outlook,
    RequestFacts,
    RetryRules,
    Situation,
    Verdict,
    choose_wait,
    decide,
)
from proxy.policy.settings import (
    Backoff,
    BackoffStrategy,
    HonouredKey,
    JitterStrategy,
    Origin,
    Outcomes,
    RetrySettings,
    UpstreamSettings,
)
from tests.vectors.load import cases

CALM = Situation(made=1, time_left=30.0, roll=0.0)


@dataclass(frozen=True)
class Asked:
    """A request, before anything is known of its attempts."""

    method: str
    has_key: bool = False
    early_data: bool = False

    def sends_once(self, name: bytes) -> bool:
        return self.has_key and name == b"idempotency-key"


GET = Asked("GET")
POST = Asked("POST")
KEYED = Asked("POST", has_key=True)


class Rules(RetryRules):
    """With those of repeating."""

    def __init__(self, retry: RetrySettings, upstream: UpstreamSettings) -> None:
        super().__init__(retry, upstream)
        self.repeats = RepeatRules(upstream, retry.unsafe, 0.0)

    def of(self, asked: Asked, result: AttemptResult) -> RequestFacts:
        """The request once its first attempt has ended."""
        attempt = Attempt(1, "u", 0.0)
        attempt.kind, attempt.status, attempt.sent = result.kind, result.status, result.sent
        attempt.url = "http://a.example"
        return RequestFacts(
            self.repeats.permission(asked, [attempt], 0.0), early_data=asked.early_data
        )


def rules(
    *,
    honours_key: HonouredKey | None = None,
    refused: frozenset[int] = frozenset({421, 425, 429}),
    **retry: Any,  # noqa: ANN401 - whatever RetrySettings takes
) -> Rules:
    urls = (Origin("http", "a.example", 80),)
    upstream = UpstreamSettings("u", urls, honours_key=honours_key, refused=refused)
    return Rules(RetrySettings(**retry), upstream)


def verdict(
    asked: Asked,
    result: AttemptResult,
    situation: Situation = CALM,
    by: Rules | None = None,
    *,
    breaker: bool = True,
    throttle: bool = True,
    budget: bool = True,
) -> Verdict:
    """The verdict by all steps, one after the other."""
    by = by or rules()
    permission = by.by_outcome(by.of(asked, result), result)
    if isinstance(permission, VerdictReason):
        return Verdict(permission)
    delay = by.plan(result, situation)
    if isinstance(delay, VerdictReason):
        return Verdict(delay)
    return decide(delay, permission, Outlook(breaker, throttle, budget))


# The shared vectors.

EVENTS: dict[str, AttemptResult] = {
    "connect_refused": AttemptResult(FailureKind.CONNECT, sent=False),
    "connect_timeout": AttemptResult(FailureKind.CONNECT, sent=False),
    "tls_handshake_failure": AttemptResult(FailureKind.CONNECT, sent=False),
    "write_failed_before_any_byte_sent": AttemptResult(FailureKind.RESET, sent=False),
    "reset_before_response_reused_connection": AttemptResult(FailureKind.RESET),
    "read_timeout": AttemptResult(FailureKind.TIMEOUT),
    "total_deadline_exceeded": AttemptResult(FailureKind.TIMEOUT),
    "malformed_response": AttemptResult(FailureKind.PROTOCOL),
    "client_disconnected": AttemptResult(FailureKind.CANCELLED),
    "upgrade_101": AttemptResult(None, 101),
    "request_body_not_replayable": AttemptResult(None, 503),
}


@pytest.mark.parametrize("case", cases("retry_decision"))
def test_the_decisions_of_the_vectors(case: dict[str, Any]) -> None:
    event = case["event"]
    if event.startswith("status_"):
        result = AttemptResult(None, int(event.split("_")[1]))
    else:
        result = EVENTS[event]
    by = rules(
        honours_key=HonouredKey() if case.get("honours_key") else None,
        unsafe=case.get("unsafe", "auto"),
        refused=frozenset(case.get("refused", (421, 425, 429))),
    )
    request = Asked(
        case["method"],
        has_key=case.get("idempotency_key", False),
        early_data=case.get("early_data", False),
    )
    situation = replace(
        CALM,
        expired=event == "total_deadline_exceeded",
        body_lost=VerdictReason.BODY_TOO_LARGE if event == "request_body_not_replayable" else None,
    )
    reached = verdict(request, result, situation, by, budget="budget_empty" not in event)
    assert (reached.reason is VerdictReason.RETRIED) == (case["expect"] == "retry"), reached


@pytest.mark.parametrize("case", cases("delay_choice"))
def test_the_waits_of_the_vectors(case: dict[str, Any]) -> None:
    hint = None if case["hint"] == "ignore" else case["hint"]
    if case.get("client_gone"):
        assert (
            verdict(GET, AttemptResult(FailureKind.CANCELLED)).reason is VerdictReason.CLIENT_GONE
        )
        assert case["expect"] == "abort"
        return
    chosen = choose_wait(
        case["computed"],
        hint,
        time_left=case["remaining"],
        longest=case["cap"],
        roll=0.0,
        least_attempt=case.get("min_attempt_time", 0.0),
    )
    if case["expect"] == "give_up":
        assert isinstance(chosen, VerdictReason)
    else:
        assert isinstance(chosen, RetryDelay)
        assert chosen.seconds == case["expect"]


# Every reason.

MISDIRECTED = AttemptResult(None, 421)
LISTED = AttemptResult(None, 503)
LATE = AttemptResult(None, 503, hint=RetryHint(wait=20.0))


def final(status: int, *, should_retry: bool | None = None) -> AttemptResult:
    return AttemptResult(None, status, hint=RetryHint(should_retry=should_retry, is_final=True))


def with_hint(
    status: int, *, wait: float | None = None, should_retry: bool | None = None
) -> AttemptResult:
    return AttemptResult(None, status, hint=RetryHint(wait, should_retry))


@pytest.mark.parametrize(
    ("request_", "result", "reason"),
    [
        pytest.param(GET, AttemptResult(None, 200), VerdictReason.SUCCESS, id="a good answer"),
        pytest.param(
            GET, AttemptResult(None, 301), VerdictReason.SUCCESS, id="a redirect is for the client"
        ),
        pytest.param(
            GET, AttemptResult(None, 404), VerdictReason.SUCCESS, id="an answer that says no"
        ),
        pytest.param(
            GET, AttemptResult(None, 409), VerdictReason.SUCCESS, id="a conflict stays one"
        ),
        pytest.param(
            GET,
            AttemptResult(None, 500),
            VerdictReason.NOT_RETRYABLE_STATUS,
            id="500 is not listed",
        ),
        pytest.param(
            GET, AttemptResult(None, 501), VerdictReason.NOT_RETRYABLE_STATUS, id="501 will stay so"
        ),
        pytest.param(GET, LISTED, VerdictReason.RETRIED, id="503 is listed"),
        pytest.param(GET, AttemptResult(None, 408), VerdictReason.RETRIED, id="408 is listed"),
        pytest.param(
            POST, LISTED, VerdictReason.NOT_REPEATABLE, id="a POST may have run before its 503"
        ),
        pytest.param(
            KEYED, LISTED, VerdictReason.NOT_REPEATABLE, id="a key by itself proves nothing"
        ),
        pytest.param(
            Asked("PURGE", has_key=True),
            LISTED,
            VerdictReason.NOT_REPEATABLE,
            id="not any method's key",
        ),
        pytest.param(
            KEYED, AttemptResult(None, 502), VerdictReason.NOT_REPEATABLE, id="but not after 502"
        ),
        pytest.param(
            POST, AttemptResult(None, 429), VerdictReason.RETRIED, id="a refused POST did not run"
        ),
        pytest.param(Asked("get"), LISTED, VerdictReason.NOT_REPEATABLE, id="get is not GET"),
        pytest.param(
            GET, AttemptResult(FailureKind.RESET), VerdictReason.RETRIED, id="a GET after a reset"
        ),
        pytest.param(
            POST,
            AttemptResult(FailureKind.RESET),
            VerdictReason.NOT_REPEATABLE,
            id="a POST after a reset",
        ),
        pytest.param(
            POST,
            AttemptResult(FailureKind.RESET, sent=False),
            VerdictReason.RETRIED,
            id="a POST of which nothing left",
        ),
        pytest.param(
            POST,
            AttemptResult(FailureKind.TIMEOUT),
            VerdictReason.NOT_REPEATABLE,
            id="a POST after silence",
        ),
        pytest.param(
            POST,
            AttemptResult(FailureKind.TIMEOUT, sent=False),
            VerdictReason.RETRIED,
            id="a POST that waited in vain",
        ),
        pytest.param(
            POST,
            AttemptResult(FailureKind.CONNECT, sent=False),
            VerdictReason.RETRIED,
            id="nothing was sent",
        ),
        pytest.param(
            GET,
            AttemptResult(FailureKind.PROTOCOL),
            VerdictReason.NOT_RETRYABLE_KIND,
            id="nonsense",
        ),
        pytest.param(
            GET,
            AttemptResult(FailureKind.CERTIFICATE, sent=False),
            VerdictReason.NOT_RETRYABLE_KIND,
            id="a stranger",
        ),
        pytest.param(
            GET,
            AttemptResult(FailureKind.BUSY, sent=False),
            VerdictReason.NOT_RETRYABLE_KIND,
            id="no place",
        ),
        pytest.param(
            GET,
            AttemptResult(FailureKind.UNKNOWN),
            VerdictReason.NOT_RETRYABLE_KIND,
            id="who knows",
        ),
        pytest.param(
            GET,
            AttemptResult(FailureKind.TRUNCATED, 200),
            VerdictReason.RESPONSE_STARTED,
            id="cut short",
        ),
        pytest.param(
            GET,
            AttemptResult(FailureKind.CANCELLED),
            VerdictReason.CLIENT_GONE,
            id="nobody waits for it",
        ),
        pytest.param(
            GET,
            with_hint(503, should_retry=False),
            VerdictReason.SERVER_SAID_NO,
            id="told not to retry",
        ),
        pytest.param(
            GET,
            with_hint(500, should_retry=False),
            VerdictReason.SERVER_SAID_NO,
            id="told so after 500, too",
        ),
        pytest.param(
            GET,
            with_hint(404, should_retry=False),
            VerdictReason.SUCCESS,
            id="a no to what nobody asked",
        ),
        pytest.param(
            GET, with_hint(409, should_retry=True), VerdictReason.RETRIED, id="told to retry a 409"
        ),
        pytest.param(
            POST,
            with_hint(409, should_retry=True),
            VerdictReason.NOT_REPEATABLE,
            id="but not for a POST",
        ),
        pytest.param(
            GET, final(503), VerdictReason.FINAL_ANSWER, id="what the upstream itself replays"
        ),
        pytest.param(GET, final(500), VerdictReason.FINAL_ANSWER, id="listed or not"),
        pytest.param(GET, final(429), VerdictReason.FINAL_ANSWER, id="refused or not"),
        pytest.param(GET, final(404), VerdictReason.SUCCESS, id="a replay of what is no failure"),
        pytest.param(
            GET,
            final(503, should_retry=True),
            VerdictReason.FINAL_ANSWER,
            id="whatever else it says",
        ),
        pytest.param(
            GET,
            with_hint(200, should_retry=True),
            VerdictReason.SUCCESS,
            id="a good answer is good enough",
        ),
        pytest.param(
            Asked("GET", early_data=True),
            AttemptResult(None, 425),
            VerdictReason.NOT_RETRYABLE_STATUS,
            id="too early is the client's business if its data was early",
        ),
        pytest.param(
            GET, with_hint(503, wait=61.0), VerdictReason.HINT_TOO_LONG, id="told to wait too long"
        ),
        pytest.param(
            GET, with_hint(503, wait=45.0), VerdictReason.DEADLINE, id="told to wait past the end"
        ),
    ],
)
def test_by_default(request_: Asked, result: AttemptResult, reason: VerdictReason) -> None:
    assert verdict(request_, result).reason is reason


@pytest.mark.parametrize(
    ("situation", "reason"),
    [
        pytest.param(replace(CALM, expired=True), VerdictReason.DEADLINE, id="the time was up"),
        pytest.param(
            replace(CALM, made=3), VerdictReason.ATTEMPTS_EXHAUSTED, id="it was the last one"
        ),
        pytest.param(
            replace(CALM, body_lost=VerdictReason.BODY_TOO_LARGE),
            VerdictReason.BODY_TOO_LARGE,
            id="no body is left",
        ),
        pytest.param(
            replace(CALM, body_lost=VerdictReason.BUFFER_FULL),
            VerdictReason.BUFFER_FULL,
            id="no memory was left",
        ),
        pytest.param(
            replace(CALM, shutting_down=True), VerdictReason.SHUTDOWN, id="we are leaving"
        ),
        pytest.param(
            replace(CALM, time_left=LEAST_ATTEMPT / 2),
            VerdictReason.DEADLINE,
            id="no time for an attempt",
        ),
        pytest.param(replace(CALM, time_left=-1.0), VerdictReason.DEADLINE, id="no time at all"),
    ],
)
def test_what_may_stand_in_the_way(situation: Situation, reason: VerdictReason) -> None:
    assert verdict(GET, LISTED, situation) == Verdict(reason)


def test_a_body_that_was_not_sent_is_not_lost() -> None:
    situation = replace(CALM, body_lost=VerdictReason.BODY_TOO_LARGE)
    assert (
        verdict(POST, AttemptResult(FailureKind.CONNECT, sent=False), situation).reason
        is VerdictReason.RETRIED
    )


@pytest.mark.parametrize(
    ("outlook", "reason"),
    [
        (Outlook(), VerdictReason.RETRIED),
        (Outlook(budget_allows=False), VerdictReason.BUDGET),
        (Outlook(throttle_admits=False), VerdictReason.THROTTLED),
        (Outlook(throttle_admits=False, budget_allows=False), VerdictReason.THROTTLED),
        (Outlook(breaker_admits=False), VerdictReason.BREAKER_OPEN),
        (Outlook(breaker_admits=False, throttle_admits=False), VerdictReason.BREAKER_OPEN),
        (Outlook(breaker_admits=False, budget_allows=False), VerdictReason.BREAKER_OPEN),
    ],
)
def test_what_the_attempt_would_meet(outlook: Outlook, reason: VerdictReason) -> None:
    delay = RetryDelay(2.0, "backoff")
    reached = decide(delay, ANYWHERE, outlook)
    assert reached.reason is reason
    assert reached.delay == (delay if reason is VerdictReason.RETRIED else None)
    # A key that does not last until then comes first.
    late = decide(delay, RepeatPermission(within=1.9), outlook)
    assert late == Verdict(VerdictReason.KEY_EXPIRED)
    in_time = RepeatPermission("http://a.example", within=2.0)
    assert decide(delay, in_time, Outlook()) == Verdict(VerdictReason.RETRIED, delay, in_time)


def test_success_after_a_retry_is_called_recovered() -> None:
    assert verdict(GET, AttemptResult(None, 404, is_first=False)).reason is VerdictReason.RECOVERED


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (AttemptResult(None, 404), VerdictReason.SUCCESS),
        (AttemptResult(None, 500), VerdictReason.NOT_RETRYABLE_STATUS),
        (AttemptResult(FailureKind.PROTOCOL), VerdictReason.NOT_RETRYABLE_KIND),
    ],
)
def test_an_outcome_that_is_not_repeated_decides_alone(
    result: AttemptResult, reason: VerdictReason
) -> None:
    assert rules().by_outcome(rules().of(GET, result), result) is reason


def test_misdirected_is_tried_once_more() -> None:
    assert verdict(POST, MISDIRECTED).reason is VerdictReason.RETRIED
    again = replace(CALM, made=2, was_misdirected=True)
    assert verdict(POST, MISDIRECTED, again).reason is VerdictReason.ATTEMPTS_EXHAUSTED


# What the file may say.


@pytest.mark.parametrize(
    ("unsafe", "request_", "result", "reason"),
    [
        ("never", POST, AttemptResult(FailureKind.CONNECT, sent=False), VerdictReason.RETRIED),
        ("never", POST, AttemptResult(None, 429), VerdictReason.NOT_REPEATABLE),
        ("never", KEYED, LISTED, VerdictReason.NOT_REPEATABLE),
        ("never", KEYED, AttemptResult(FailureKind.RESET), VerdictReason.NOT_REPEATABLE),
        ("never", GET, LISTED, VerdictReason.RETRIED),
        ("auto", KEYED, AttemptResult(FailureKind.RESET), VerdictReason.RETRIED),
        (
            "auto",
            Asked("PATCH", has_key=True),
            AttemptResult(FailureKind.TIMEOUT),
            VerdictReason.RETRIED,
        ),
        ("auto", POST, AttemptResult(FailureKind.RESET), VerdictReason.NOT_REPEATABLE),
        ("always", POST, AttemptResult(FailureKind.RESET), VerdictReason.RETRIED),
        ("always", Asked("PURGE"), AttemptResult(FailureKind.TIMEOUT), VerdictReason.RETRIED),
        ("always", POST, AttemptResult(FailureKind.PROTOCOL), VerdictReason.NOT_RETRYABLE_KIND),
    ],
)
def test_unsafe(unsafe: str, request_: Asked, result: AttemptResult, reason: VerdictReason) -> None:
    by = rules(unsafe=unsafe, honours_key=HonouredKey())
    assert verdict(request_, result, by=by).reason is reason


@pytest.mark.parametrize(
    ("on", "result", "reason"),
    [
        (
            Outcomes(frozenset({"protocol"})),
            AttemptResult(FailureKind.PROTOCOL),
            VerdictReason.RETRIED,
        ),
        (
            Outcomes(frozenset({"protocol"})),
            AttemptResult(FailureKind.RESET),
            VerdictReason.NOT_RETRYABLE_KIND,
        ),
        (
            Outcomes(frozenset({"connect"})),
            AttemptResult(FailureKind.RESET, sent=False),
            VerdictReason.RETRIED,
        ),
        (
            Outcomes(frozenset({"reset"})),
            AttemptResult(FailureKind.RESET, sent=False),
            VerdictReason.RETRIED,
        ),
        (
            Outcomes(frozenset({"connect"})),
            AttemptResult(FailureKind.BUSY, sent=False),
            VerdictReason.NOT_RETRYABLE_KIND,
        ),
        (Outcomes(frozenset(), frozenset({429})), AttemptResult(None, 429), VerdictReason.RETRIED),
        (Outcomes(frozenset(), frozenset({400})), AttemptResult(None, 400), VerdictReason.RETRIED),
        (Outcomes(frozenset()), AttemptResult(None, 429), VerdictReason.SUCCESS),
        (
            Outcomes(frozenset(), hinted=frozenset({403})),
            AttemptResult(None, 403),
            VerdictReason.SUCCESS,
        ),
        (
            Outcomes(frozenset(), hinted=frozenset({403})),
            with_hint(403, wait=1.0),
            VerdictReason.RETRIED,
        ),
    ],
)
def test_on(on: Outcomes, result: AttemptResult, reason: VerdictReason) -> None:
    assert verdict(GET, result, by=rules(on=on)).reason is reason


def test_the_statuses_after_which_another_attempt_may_follow() -> None:
    on = Outcomes(frozenset(), frozenset({500, 503}), hinted=frozenset({403, 503}))
    assert rules(on=on, refused=frozenset({429, 500})).statuses == {403, 429, 500, 503}


def test_a_listed_status_that_is_a_refusal_is_repeated_for_every_method() -> None:
    by = rules(on=Outcomes(frozenset(), frozenset({429, 500})))
    assert verdict(POST, AttemptResult(None, 429), by=by).reason is VerdictReason.RETRIED
    assert verdict(POST, AttemptResult(None, 500), by=by).reason is VerdictReason.NOT_REPEATABLE


# Waiting.


def waits(
    result: AttemptResult,
    situation: Situation = CALM,
    **retry: Any,  # noqa: ANN401 - as rules
) -> RetryDelay | VerdictReason:
    return rules(**retry).wait(result, situation)


def test_a_hint_is_a_floor_and_spread_only_on_top() -> None:
    hinted = with_hint(503, wait=2.0)
    assert waits(hinted) == RetryDelay(2.0, "hint")
    assert waits(hinted, replace(CALM, roll=0.5)) == RetryDelay(2.5, "hint")
    none = Backoff(jitter=JitterStrategy.NONE)
    assert waits(hinted, replace(CALM, roll=0.5), backoff=none) == RetryDelay(2.0, "hint")


def test_what_is_added_to_a_hint_gives_way_to_the_deadline() -> None:
    situation = replace(CALM, roll=0.99, time_left=20.0 + LEAST_ATTEMPT + 1.0)
    assert waits(LATE, situation) == RetryDelay(20.5, "hint")
    assert waits(LATE, replace(situation, time_left=20.0)) is VerdictReason.DEADLINE


def test_our_own_wait_rules_if_it_is_longer() -> None:
    backoff = Backoff(BackoffStrategy.CONSTANT, base=4.0, jitter=JitterStrategy.NONE)
    assert waits(with_hint(503, wait=2.0), backoff=backoff) == RetryDelay(4.0, "backoff")


def test_hints_can_be_switched_off() -> None:
    backoff = Backoff(BackoffStrategy.CONSTANT, base=0.25, jitter=JitterStrategy.NONE)
    assert waits(LATE, backoff=backoff, longest_hint=None) == RetryDelay(0.25, "backoff")


def test_after_429_without_a_hint_the_base_is_a_second() -> None:
    none = Backoff(base=0.1, jitter=JitterStrategy.NONE)
    assert waits(AttemptResult(None, 429), backoff=none) == RetryDelay(1.0, "backoff")
    assert waits(AttemptResult(None, 429), replace(CALM, made=2), backoff=none) == RetryDelay(
        2.0, "backoff"
    )
    assert waits(with_hint(429, wait=0.0), backoff=none) == RetryDelay(0.1, "backoff")
    unheard = waits(with_hint(429, wait=5.0), backoff=none, longest_hint=None)
    assert unheard == RetryDelay(1.0, "backoff")


def test_a_wait_that_would_use_up_the_time_is_not_begun() -> None:
    backoff = Backoff(BackoffStrategy.CONSTANT, base=8.0, jitter=JitterStrategy.NONE)
    assert waits(LISTED, replace(CALM, time_left=5.0), backoff=backoff) is VerdictReason.DEADLINE
    assert waits(LISTED, replace(CALM, time_left=math.inf), backoff=backoff) == RetryDelay(
        8.0, "backoff"
    )


@pytest.mark.parametrize(
    ("backoff", "hint", "longest", "chosen"),
    [
        pytest.param(2.0, None, None, RetryDelay(2.0, "backoff"), id="all the time that is left"),
        pytest.param(2.001, None, None, VerdictReason.DEADLINE, id="and more"),
        pytest.param(0.0, 2.0, None, RetryDelay(2.0, "hint"), id="a hint of all that is left"),
        pytest.param(0.0, 2.001, None, VerdictReason.DEADLINE, id="and of more"),
        pytest.param(0.0, 1.0, 1.0, RetryDelay(1.0, "hint"), id="the longest hint"),
        pytest.param(0.0, 1.001, 1.0, VerdictReason.HINT_TOO_LONG, id="and a longer one"),
        pytest.param(1.0, 1.0, None, RetryDelay(1.0, "hint"), id="a hint as long as ours"),
    ],
)
def test_the_longest_waits(
    backoff: float, hint: float | None, longest: float | None, chosen: RetryDelay | VerdictReason
) -> None:
    wait = choose_wait(backoff, hint, time_left=2.25, longest=longest, roll=0.0, least_attempt=0.25)
    assert wait == chosen


def test_no_fields_are_no_hint() -> None:
    assert AttemptResult(None, 503).hint is NO_HINT
