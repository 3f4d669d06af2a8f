"""What follows an attempt of a delivery, or comes in its place."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.delivery.outcome import DeliveryFacts, DeliveryRules, DeliveryStep
from proxy.policy.delivery.words import DeferralReason, DeliveryEnd, DeliveryState
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import ANYWHERE, RepeatPermission
from proxy.policy.retry.hints import NO_HINT, RetryHint
from proxy.policy.retry.verdict import AttemptResult
from proxy.policy.settings import (
    DeliveryBackoff,
    HandOffSettings,
    HonouredKey,
    JitterStrategy,
    Origin,
    Outcomes,
    UnsafeRetries,
    UpstreamSettings,
)

A, B = "http://a.example", "http://b.example"
URLS = (Origin("http", "a.example", 80), Origin("http", "b.example", 80))
PLAIN = UpstreamSettings("up", URLS)
HONOURS = replace(PLAIN, honours_key=HonouredKey(remembered_for=1000.0))
SHARED = replace(PLAIN, honours_key=HonouredKey(remembered_for=1000.0, is_shared=True))
EXACT = HandOffSettings(
    backoff=DeliveryBackoff(base=10, factor=2, jitter=JitterStrategy.NONE), timeout=30.0
)
NOW, DAY = 5000.0, 86_400.0
WAITING, SENDING, RETRYING, DELIVERED, FAILED, CANCELLED = DeliveryState
CONNECT, RESET, TIMEOUT = FailureKind.CONNECT, FailureKind.RESET, FailureKind.TIMEOUT


@dataclass(frozen=True)
class Request:
    method: str = "POST"
    has_key: bool = False

    def sends_once(self, name: bytes) -> bool:
        return self.has_key and name == b"idempotency-key"


POST, KEYED, PUT = Request(), Request(has_key=True), Request("PUT")


def made(
    ending: FailureKind | int, *, url: str = A, at: float = NOW, sent: bool | None = None
) -> Attempt:
    attempt = Attempt(1, "up", at, url=url)
    if isinstance(ending, FailureKind):
        attempt.kind = ending
        unsent = {CONNECT, FailureKind.BUSY, FailureKind.CERTIFICATE}
        attempt.sent = ending not in unsent if sent is None else sent
    else:
        attempt.status, attempt.sent = ending, True
    return attempt


def facts(request: Request, *attempts: Attempt, **others: Any) -> DeliveryFacts:  # noqa: ANN401 - its fields
    given = {"accepted": NOW, "made": 0, "now": NOW} | others
    return DeliveryFacts(request, attempts=attempts, **given)


def after(
    request: Request,
    ending: FailureKind | int,
    *,
    upstream: UpstreamSettings = PLAIN,
    settings: HandOffSettings = EXACT,
    hint: RetryHint = NO_HINT,
    earlier: tuple[Attempt, ...] = (),
    counts: bool = True,
    sent: bool | None = None,
    **others: Any,  # noqa: ANN401 - facts of any type
) -> DeliveryStep:
    last = made(ending, sent=sent)
    result = AttemptResult(last.kind, last.status, last.sent, hint, not earlier)
    known = facts(request, *earlier, last, **others)
    return DeliveryRules(settings, upstream).after_attempt(known, result, roll=0.5, counts=counts)


RETRIED = DeliveryStep(RETRYING, VerdictReason.RETRIED, NOW + 10, counts=True)


def failed(why: VerdictReason | DeliveryEnd, *, ran: bool, counts: bool = True) -> DeliveryStep:
    return DeliveryStep(FAILED, why, counts=counts, may_have_run=ran)


@pytest.mark.parametrize("status", [200, 201, 204, 299, 303])
def test_delivered(status: int) -> None:
    expected = DeliveryStep(DELIVERED, VerdictReason.SUCCESS, counts=True, may_have_run=True)
    assert after(POST, status) == expected
    recovered = after(POST, status, made=2, earlier=(made(CONNECT),))
    assert recovered == replace(expected, reason=VerdictReason.RECOVERED)


def test_a_body_that_ends_early_does_not_undo_a_success() -> None:
    rules = DeliveryRules(EXACT, PLAIN)
    cut = made(FailureKind.TRUNCATED)
    result = AttemptResult(FailureKind.TRUNCATED, 200)
    assert rules.after_attempt(facts(POST, cut), result, roll=0).state is DELIVERED
    # Of any other response the status decides, and what may have run is not repeated.
    result = AttemptResult(FailureKind.TRUNCATED, 503)
    assert rules.after_attempt(facts(PUT, cut), result, roll=0.5) == RETRIED
    assert rules.after_attempt(facts(POST, cut), result, roll=0) == failed(
        VerdictReason.NOT_REPEATABLE, ran=True
    )


def test_success_is_what_the_file_says() -> None:
    lenient = replace(EXACT, success=frozenset({200, 409}))
    assert after(POST, 409, settings=lenient).state is DELIVERED
    assert after(POST, 204, settings=lenient).reason is VerdictReason.NOT_RETRYABLE_STATUS
    assert after(POST, 303, settings=lenient).reason is DeliveryEnd.REDIRECT


STATUS = VerdictReason.NOT_RETRYABLE_STATUS


@pytest.mark.parametrize(
    ("status", "why", "ran"),
    [
        (400, STATUS, False),
        (401, STATUS, False),
        (403, STATUS, False),
        (404, STATUS, False),
        (410, STATUS, False),
        (422, STATUS, False),
        (501, STATUS, False),
        (507, STATUS, True),
        (301, DeliveryEnd.REDIRECT, True),
        (302, DeliveryEnd.REDIRECT, True),
        (304, DeliveryEnd.REDIRECT, True),
        (307, DeliveryEnd.REDIRECT, False),
        (308, DeliveryEnd.REDIRECT, False),
    ],
)
def test_final_at_once(status: int, why: VerdictReason | DeliveryEnd, *, ran: bool) -> None:
    for request in (POST, KEYED, PUT):
        assert after(request, status, upstream=HONOURS) == failed(why, ran=ran)


@pytest.mark.parametrize(
    ("request_", "ending", "upstream", "expected"),
    [
        # What did not run is sent again, whatever it is.
        (POST, CONNECT, PLAIN, RETRIED),
        (POST, 429, PLAIN, RETRIED),
        (POST, 503, replace(PLAIN, refused=frozenset({429, 503})), RETRIED),
        # What may have run only if that does no harm.
        (PUT, RESET, PLAIN, RETRIED),
        (PUT, TIMEOUT, PLAIN, RETRIED),
        (PUT, 500, PLAIN, RETRIED),
        (Request("DELETE"), 503, PLAIN, RETRIED),
        (KEYED, RESET, HONOURS, RETRIED),
        (KEYED, 500, HONOURS, RETRIED),
        (KEYED, 503, PLAIN, failed(VerdictReason.NOT_REPEATABLE, ran=True)),
        (POST, RESET, HONOURS, failed(VerdictReason.NOT_REPEATABLE, ran=True)),
        (POST, TIMEOUT, PLAIN, failed(VerdictReason.NOT_REPEATABLE, ran=True)),
        (POST, 500, PLAIN, failed(VerdictReason.NOT_REPEATABLE, ran=True)),
        (POST, 408, PLAIN, failed(VerdictReason.NOT_REPEATABLE, ran=False)),
        # Outcomes that are not listed.
        (PUT, FailureKind.PROTOCOL, PLAIN, failed(VerdictReason.NOT_RETRYABLE_KIND, ran=True)),
        (PUT, FailureKind.UNKNOWN, PLAIN, failed(VerdictReason.NOT_RETRYABLE_KIND, ran=True)),
        (
            PUT,
            FailureKind.CERTIFICATE,
            PLAIN,
            failed(VerdictReason.NOT_RETRYABLE_KIND, ran=False, counts=False),
        ),
    ],
)
def test_repeated_or_not(
    request_: Request,
    ending: FailureKind | int,
    upstream: UpstreamSettings,
    expected: DeliveryStep,
) -> None:
    assert after(request_, ending, upstream=upstream) == expected


def test_unsafe_decides_as_in_the_foreground() -> None:
    always = replace(EXACT, unsafe=UnsafeRetries.ALWAYS)
    never = replace(EXACT, unsafe=UnsafeRetries.NEVER)
    assert after(POST, TIMEOUT, settings=always) == RETRIED
    assert after(KEYED, TIMEOUT, settings=never, upstream=HONOURS).state is FAILED
    assert after(POST, 429, settings=never).reason is VerdictReason.NOT_REPEATABLE
    assert after(POST, CONNECT, settings=never) == RETRIED


def test_one_attempt_in_doubt_is_enough() -> None:
    step = after(POST, CONNECT, earlier=(made(RESET),))
    assert step == failed(VerdictReason.NOT_REPEATABLE, ran=True, counts=False)


def test_outcomes_are_those_of_the_file() -> None:
    only = replace(EXACT, retry_on=Outcomes(frozenset({"protocol"}), frozenset({507})))
    assert after(PUT, 507, settings=only) == RETRIED
    assert after(PUT, FailureKind.PROTOCOL, settings=only) == RETRIED
    assert after(PUT, 503, settings=only).reason is STATUS
    assert after(PUT, CONNECT, settings=only).reason is VerdictReason.NOT_RETRYABLE_KIND


@pytest.mark.parametrize(
    ("status", "hint", "why"),
    [
        (503, RetryHint(should_retry=False), VerdictReason.SERVER_SAID_NO),
        (503, RetryHint(is_final=True), VerdictReason.FINAL_ANSWER),
        (404, RetryHint(should_retry=True), VerdictReason.RETRIED),
        (302, RetryHint(should_retry=True), DeliveryEnd.REDIRECT),
    ],
)
def test_the_upstream_has_a_say(status: int, hint: RetryHint, why: object) -> None:
    assert after(PUT, status, hint=hint).reason is why


@pytest.mark.parametrize(
    ("hint", "wait"), [(20.0, 20.0), (30 * 3600.0, DAY), (1.0, 1.0), (0.0, 10.0)]
)
def test_a_refusal_with_a_hint_uses_no_attempt(hint: float, wait: float) -> None:
    given = replace(EXACT, attempts=1)
    step = after(POST, 429, settings=given, hint=RetryHint(wait=hint))
    assert step == DeliveryStep(
        RETRYING,
        due=NOW + wait,
        deferred=DeferralReason.PAUSED,
        pause=NOW + min(hint, DAY),
    )


def test_a_hint_of_what_may_have_run_is_waited_for_and_counted() -> None:
    step = after(PUT, 503, hint=RetryHint(wait=60.0))
    assert step == replace(RETRIED, due=NOW + 60)
    ignored = replace(EXACT, longest_hint=None)
    assert after(PUT, 503, hint=RetryHint(wait=60.0), settings=ignored) == RETRIED
    assert after(POST, 429, hint=RetryHint(wait=60.0), settings=ignored) == RETRIED


def test_attempts_and_age_end_it() -> None:
    thrice = replace(EXACT, attempts=3)
    assert after(PUT, 503, settings=thrice, made=1).due == NOW + 20
    assert after(PUT, 503, settings=thrice, made=2).reason is VerdictReason.ATTEMPTS_EXHAUSTED
    brief = replace(EXACT, give_up_after=15.0)
    assert after(PUT, 503, settings=brief).due == NOW + 10
    assert after(PUT, 503, settings=brief, made=1).reason is DeliveryEnd.GAVE_UP
    late = after(POST, 429, settings=brief, hint=RetryHint(wait=60.0))
    assert late == failed(DeliveryEnd.GAVE_UP, ran=False)


def test_while_the_upstream_is_down_no_attempt_is_used() -> None:
    once = replace(EXACT, attempts=1)
    step = after(PUT, 503, settings=once, counts=False)
    assert step == DeliveryStep(RETRYING, due=NOW, deferred=DeferralReason.UPSTREAM_DOWN)
    unsent = after(POST, CONNECT, settings=once, counts=False)
    assert unsent == replace(step, state=WAITING)
    # Whoever is to blame: what may have run is not repeated.
    assert after(POST, RESET, counts=False) == failed(VerdictReason.NOT_REPEATABLE, ran=True)


def test_no_connection_is_a_deferral() -> None:
    step = after(POST, FailureKind.BUSY, settings=replace(EXACT, attempts=1))
    assert step == DeliveryStep(WAITING, due=NOW + 1, deferred=DeferralReason.BUSY)


@pytest.mark.parametrize(
    ("request_", "sent", "expected"),
    [
        (POST, False, DeliveryStep(WAITING, due=NOW, deferred=DeferralReason.DRAINING)),
        (PUT, True, DeliveryStep(RETRYING, due=NOW, deferred=DeferralReason.DRAINING)),
        (KEYED, True, DeliveryStep(RETRYING, due=NOW, deferred=DeferralReason.DRAINING)),
        (POST, True, failed(DeliveryEnd.UNCERTAIN, ran=True, counts=False)),
    ],
)
def test_cut_off_by_a_shutdown(request_: Request, *, sent: bool, expected: DeliveryStep) -> None:
    assert after(request_, FailureKind.CANCELLED, upstream=HONOURS, sent=sent) == expected


def test_a_key_is_good_for_a_while() -> None:
    first = made(RESET, at=NOW - 950)
    assert after(KEYED, RESET, upstream=HONOURS, earlier=(first,)) == RETRIED
    # 1000 s, less the 30 s of an attempt, less the wait of 10 s:
    older = made(RESET, at=NOW - 961)
    step = after(KEYED, RESET, upstream=HONOURS, earlier=(older,))
    assert step == failed(VerdictReason.KEY_EXPIRED, ran=True)


DIED = Attempt(1, "up", NOW, url=A, sent=True)
"""An attempt whose process died."""


@pytest.mark.parametrize(
    ("request_", "upstream", "why"),
    [
        (PUT, PLAIN, VerdictReason.RETRIED),
        (KEYED, HONOURS, VerdictReason.RETRIED),
        (POST, HONOURS, DeliveryEnd.UNCERTAIN),
        (KEYED, PLAIN, DeliveryEnd.UNCERTAIN),
    ],
)
def test_the_owner_died(request_: Request, upstream: UpstreamSettings, why: object) -> None:
    step = DeliveryRules(EXACT, upstream).owner_died(facts(request_, DIED))
    assert step.reason is why
    if why is DeliveryEnd.UNCERTAIN:
        assert step == failed(DeliveryEnd.UNCERTAIN, ran=True, counts=False)
    else:
        assert (step.state, step.due, step.counts) == (RETRYING, NOW, False)


@pytest.mark.parametrize(
    ("request_", "upstream", "attempts", "expected"),
    [
        pytest.param(POST, PLAIN, (), ANYWHERE, id="the first"),
        pytest.param(POST, PLAIN, (made(CONNECT),), ANYWHERE, id="it did not run"),
        pytest.param(PUT, PLAIN, (made(RESET),), ANYWHERE, id="it does no harm"),
        pytest.param(
            KEYED, HONOURS, (made(RESET),), RepeatPermission(A, 970.0), id="where it may have run"
        ),
        pytest.param(
            KEYED,
            HONOURS,
            (made(CONNECT, url=B), made(RESET)),
            RepeatPermission(A, 970.0),
            id="one",
        ),
        pytest.param(
            KEYED, SHARED, (made(RESET),), RepeatPermission("", 970.0), id="one store of keys"
        ),
    ],
)
def test_where_it_may_be_sent(
    request_: Request,
    upstream: UpstreamSettings,
    attempts: tuple[Attempt, ...],
    expected: RepeatPermission,
) -> None:
    assert DeliveryRules(EXACT, upstream).before_send(facts(request_, *attempts)) == expected


@pytest.mark.parametrize(
    ("upstream", "others", "why"),
    [
        pytest.param(
            replace(HONOURS, origins=URLS[1:]), {}, DeliveryEnd.UNCERTAIN, id="its URL is gone"
        ),
        pytest.param(PLAIN, {}, DeliveryEnd.UNCERTAIN, id="the key is not honoured any more"),
        pytest.param(HONOURS, {"now": NOW + 971}, VerdictReason.KEY_EXPIRED, id="the key is old"),
        pytest.param(
            HONOURS, {"now": NOW + 3 * DAY}, DeliveryEnd.GAVE_UP, id="and so is the delivery"
        ),
    ],
)
def test_where_it_may_not(upstream: UpstreamSettings, others: dict[str, Any], why: object) -> None:
    step = DeliveryRules(EXACT, upstream).before_send(facts(KEYED, made(RESET), **others))
    assert isinstance(step, DeliveryStep)
    assert (step.state, step.reason, step.may_have_run) == (FAILED, why, True)


def test_given_up_without_having_run() -> None:
    rules = DeliveryRules(EXACT, PLAIN)
    old = facts(POST, made(CONNECT), now=NOW + 3 * DAY)
    assert rules.before_send(old) == failed(DeliveryEnd.GAVE_UP, ran=False, counts=False)


def test_a_deferral_ends_with_the_delivery() -> None:
    rules = DeliveryRules(EXACT, PLAIN)
    step = rules.deferred(facts(POST), DeferralReason.NO_ROUTE, NOW + 9 * DAY)
    assert step == DeliveryStep(WAITING, due=NOW + 3 * DAY, deferred=DeferralReason.NO_ROUTE)
    assert rules.deferred(facts(POST, made(429)), DeferralReason.THROTTLED, NOW).state is RETRYING


@pytest.mark.parametrize(
    ("request_", "upstream", "expected"),
    [
        (PUT, PLAIN, ANYWHERE),
        (KEYED, HONOURS, RepeatPermission(A, 970.0)),
        (KEYED, SHARED, RepeatPermission("", 970.0)),
        (KEYED, PLAIN, VerdictReason.NOT_REPEATABLE),
        (POST, HONOURS, VerdictReason.NOT_REPEATABLE),
    ],
)
def test_what_a_canary_may_be(
    request_: Request, upstream: UpstreamSettings, expected: object
) -> None:
    rules = DeliveryRules(EXACT, upstream)
    assert rules.if_in_doubt(facts(request_)) == expected
    assert rules.may_follow(facts(request_)) == ANYWHERE


def test_a_canary_of_an_old_key_is_none() -> None:
    rules, old = DeliveryRules(EXACT, HONOURS), made(RESET, at=NOW - 980, url=B)
    assert rules.if_in_doubt(facts(KEYED, old)) is VerdictReason.KEY_EXPIRED
    young = made(RESET, at=NOW - 80, url=B)
    assert rules.if_in_doubt(facts(KEYED, young)) == RepeatPermission(B, 890.0)
