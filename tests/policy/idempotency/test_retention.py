"""What becomes of a key, and what is kept of a response."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.idempotency.record import RecordState
from proxy.policy.idempotency.retention import (
    KeyOutcome,
    head_to_keep,
    is_stream_of_events,
    outcome_of_key,
    state_after,
)
from proxy.policy.repeatable import may_have_run
from proxy.policy.settings import (
    NEVER_KEPT_BY_CLASS,
    USUAL_KEPT,
    AmbiguousKeys,
    IdempotencySettings,
)
from tests.vectors.load import cases

RELEASE = IdempotencySettings()
HOLD = IdempotencySettings(on_ambiguous=AmbiguousKeys.HOLD)
REFUSED = {"upstream": frozenset({421, 425, 429}), "other": frozenset[int]()}
FATES = {"store": RecordState.DONE, "hold": RecordState.HELD, "release": None}


def attempt(ending: FailureKind | int, *, sent: bool = True, upstream: str = "upstream") -> Attempt:
    made = Attempt(1, upstream, 0.0)
    made.sent = sent
    if isinstance(ending, FailureKind):
        made.kind = ending
    else:
        made.status = ending
    return made


@pytest.mark.parametrize("case", cases("idempotency_store_policy"))
@pytest.mark.parametrize("settings", [RELEASE, HOLD], ids=["release", "hold"])
def test_the_vectors(case: dict[str, Any], settings: IdempotencySettings) -> None:
    status = case["status"]
    outcome = outcome_of_key(settings, status, [attempt(status)], REFUSED)
    expected = case[f"on_ambiguous_{settings.on_ambiguous}"]
    assert state_after(outcome, settings) == FATES[expected]


@pytest.mark.parametrize("status", range(200, 600))
def test_every_status(status: int) -> None:
    if status < 500:
        expected = KeyOutcome.FREE if status in NEVER_KEPT_BY_CLASS else KeyOutcome.KEPT
    else:
        expected = KeyOutcome.FREE if status in {501, 505} else KeyOutcome.AMBIGUOUS
    assert outcome_of_key(RELEASE, status, [attempt(status)], REFUSED) is expected


@pytest.mark.parametrize("kind", FailureKind)
@pytest.mark.parametrize("sent", [True, False])
def test_every_way_to_fail(kind: FailureKind, sent: bool) -> None:  # noqa: FBT001 - pytest's way
    never_ran = kind in {FailureKind.CONNECT, FailureKind.CERTIFICATE, FailureKind.BUSY}
    expected = KeyOutcome.FREE if never_ran or not sent else KeyOutcome.AMBIGUOUS
    assert outcome_of_key(RELEASE, 0, [attempt(kind, sent=sent)], REFUSED) is expected


def test_nothing_was_tried_at_all() -> None:
    assert outcome_of_key(HOLD, 0, [], REFUSED) is KeyOutcome.FREE


@pytest.mark.parametrize(
    ("before", "last", "outcome"),
    [
        pytest.param(
            FailureKind.TIMEOUT,
            FailureKind.CONNECT,
            KeyOutcome.AMBIGUOUS,
            id="the first may have run",
        ),
        pytest.param(
            FailureKind.RESET, 503, KeyOutcome.AMBIGUOUS, id="whatever was said of the second"
        ),
        pytest.param(500, 429, KeyOutcome.AMBIGUOUS, id="or refused"),
        pytest.param(FailureKind.TIMEOUT, 201, KeyOutcome.KEPT, id="what is kept is kept"),
        pytest.param(FailureKind.CONNECT, 429, KeyOutcome.FREE, id="none of them has run"),
        pytest.param(429, 501, KeyOutcome.FREE, id="nor here"),
        pytest.param(429, 503, KeyOutcome.AMBIGUOUS, id="a 503 proves nothing"),
        pytest.param(503, 429, KeyOutcome.AMBIGUOUS, id="whatever follows it"),
    ],
)
def test_all_attempts_count(
    before: FailureKind | int, last: FailureKind | int, outcome: KeyOutcome
) -> None:
    status = 0 if isinstance(last, FailureKind) else last
    assert outcome_of_key(RELEASE, status, [attempt(before), attempt(last)], REFUSED) is outcome


def test_an_upstream_knows_best_what_it_has_refused() -> None:
    assert may_have_run(attempt(503), frozenset())
    assert not may_have_run(attempt(503), frozenset({503}))
    assert (
        outcome_of_key(HOLD, 503, [attempt(503)], {"upstream": frozenset({503})}) is KeyOutcome.FREE
    )


def broken_off(status: int) -> Attempt:
    made = attempt(FailureKind.TRUNCATED)
    made.status = status
    return made


def test_a_result_that_broke_off_is_one_that_is_not_to_be_had() -> None:
    assert outcome_of_key(RELEASE, 200, [broken_off(200)], REFUSED) is KeyOutcome.UNSTORED
    assert outcome_of_key(RELEASE, 502, [broken_off(502)], REFUSED) is KeyOutcome.AMBIGUOUS


def test_statuses_can_be_named() -> None:
    settings = replace(RELEASE, keep=frozenset({409, 500}))
    assert outcome_of_key(settings, 409, [attempt(409)], REFUSED) is KeyOutcome.KEPT
    assert outcome_of_key(settings, 500, [attempt(500)], REFUSED) is KeyOutcome.KEPT
    assert outcome_of_key(settings, 200, [attempt(200)], REFUSED) is KeyOutcome.FREE


@pytest.mark.parametrize(
    ("attempts", "outcome"),
    [
        pytest.param([429], KeyOutcome.FREE, id="a fixed answer where nothing ran"),
        pytest.param([503], KeyOutcome.AMBIGUOUS, id="a fixed answer where nobody knows"),
        pytest.param(
            [FailureKind.TIMEOUT], KeyOutcome.AMBIGUOUS, id="a fixed answer where it may have run"
        ),
        pytest.param([429, 200], KeyOutcome.AMBIGUOUS, id="another upstream has done it"),
        pytest.param([429, 503], KeyOutcome.AMBIGUOUS, id="or may have"),
        pytest.param([429, 399], KeyOutcome.AMBIGUOUS, id="the last status of a success"),
        pytest.param([429, 400], KeyOutcome.FREE, id="the first of a rejection"),
        pytest.param([429, 404], KeyOutcome.FREE, id="which knew nothing of it"),
    ],
)
def test_what_came_from_elsewhere_is_never_kept(
    attempts: list[FailureKind | int], outcome: KeyOutcome
) -> None:
    first, *others = attempts
    made = [attempt(first), *(attempt(ending, upstream="other") for ending in others)]
    assert outcome_of_key(RELEASE, 200, made, REFUSED, fell_back=True) is outcome


def test_a_fixed_answer_before_any_attempt_sets_the_key_free() -> None:
    assert outcome_of_key(HOLD, 200, [], REFUSED, fell_back=True) is KeyOutcome.FREE


def test_each_upstream_speaks_for_itself() -> None:
    refused = {"upstream": frozenset({503}), "other": frozenset[int]()}
    made = [attempt(503), attempt(503, upstream="other")]
    assert outcome_of_key(HOLD, 503, made, refused, fell_back=True) is KeyOutcome.AMBIGUOUS
    assert (
        outcome_of_key(HOLD, 503, made, dict.fromkeys(refused, frozenset({503}))) is KeyOutcome.FREE
    )


def test_what_is_kept_if_nobody_says() -> None:
    assert {200, 201, 204, 299, 301, 303, 400, 402, 404, 410, 422, 499} <= USUAL_KEPT
    assert not USUAL_KEPT & {100, 304, 401, 403, 407, 408, 409, 421, 425, 429, 500, 503}


@pytest.mark.parametrize(
    ("outcome", "release", "hold"),
    [
        (KeyOutcome.KEPT, RecordState.DONE, RecordState.DONE),
        (KeyOutcome.UNSTORED, RecordState.UNSTORED, RecordState.UNSTORED),
        (KeyOutcome.FREE, None, None),
        (KeyOutcome.AMBIGUOUS, None, RecordState.HELD),
    ],
)
def test_only_the_ambiguous_is_held(
    outcome: KeyOutcome, release: RecordState | None, hold: RecordState | None
) -> None:
    assert state_after(outcome, RELEASE) is release
    assert state_after(outcome, HOLD) is hold


# What is kept of a response.

LINES = [
    b"HTTP/1.1 201 Created",
    b"Content-Type: application/json",
    b"SET-COOKIE: session=1",
    b"Set-Cookie2: old=1",
    b"Date: Tue, 17 Nov 2026 10:00:00 GMT",
    b"Idempotent-Replayed: false",
    b"Location: /v1/charges/7",
    b'ETag: "7"',
    b"Retry-After: 3",
    b"RateLimit-Policy: a;q=1",
    b"X-RateLimit-Reset: 9",
    b"Age: 4",
    b"traceparent: 00-1",
    b"Server-Timing: db;dur=5",
    b"Alt-Svc: h3",
    b"Retry-After-Party: yes",
]


def kept(*, lasts: bool) -> list[bytes]:
    return head_to_keep(b"\r\n".join(LINES), lasts=lasts).split(b"\r\n")


def test_what_lasts() -> None:
    left = [LINES[0], LINES[1], LINES[4], LINES[6], LINES[7], LINES[-1]]
    assert kept(lasts=True) == left


def test_what_is_for_those_who_waited() -> None:
    assert set(LINES) - set(kept(lasts=False)) == {LINES[2], LINES[3], LINES[5]}


def test_a_status_line_is_no_field() -> None:
    assert head_to_keep(b"HTTP/1.1 200 Age: 3", lasts=True) == b"HTTP/1.1 200 Age: 3"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"Content-Type: text/event-stream", True),
        (b"content-type:TEXT/Event-Stream; charset=utf-8", True),
        (b"Content-Type: text/plain", False),
        (b"X-Content-Type: text/event-stream", False),
    ],
)
def test_a_stream_of_events(line: bytes, expected: bool) -> None:  # noqa: FBT001 - pytest's way
    assert is_stream_of_events(b"HTTP/1.1 200 OK\r\n" + line) is expected


ENDINGS = st.one_of(st.sampled_from(FailureKind), st.integers(200, 599))


@given(
    st.lists(st.tuples(ENDINGS, st.booleans(), st.sampled_from(["upstream", "other"])), max_size=3),
    st.integers(200, 599),
    st.frozensets(st.integers(200, 599), min_size=1),
    st.booleans(),
    st.sampled_from([RELEASE, HOLD]),
)
def test_a_whole_response_is_kept_by_its_status_alone(
    earlier: list[tuple[FailureKind | int, bool, str]],
    status: int,
    keep: frozenset[int],
    fell_back: bool,  # noqa: FBT001 - hypothesis passes it so
    settings: IdempotencySettings,
) -> None:
    """KeyOwner.relay_head() goes by these two alone, before it settles at once."""
    attempts = [attempt(ending, sent=sent, upstream=name) for ending, sent, name in earlier]
    attempts.append(attempt(status))
    settings = replace(settings, keep=keep)
    outcome = outcome_of_key(settings, status, attempts, REFUSED, fell_back=fell_back)
    assert (outcome is KeyOutcome.KEPT) == (status in keep and not fell_back)
    assert state_after(KeyOutcome.KEPT, settings) is RecordState.DONE
