"""Which dead letters may be replayed, what is kept in them, and their ids."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from proxy.http.refusal import RefusalReason
from proxy.policy.attempt import FailureKind
from proxy.policy.dead_letter import (
    FAILED,
    DeadLetterRules,
    DeadLetterState,
    Missing,
    Obstacle,
    ReplayRun,
    attempts_of,
    credentials_sent,
    dead_letter_id,
    headers_to_keep,
    read_dead_letter_id,
    with_headers,
)
from proxy.policy.retry.hints import RetryHint
from proxy.policy.retry.verdict import AttemptResult
from proxy.policy.settings import (
    USUAL_OUTCOMES,
    DeadLetterSettings,
    Origin,
    Outcomes,
    UpstreamSettings,
)
from tests.support.letters import letter

HEADERS = (
    (b"Host", b"a"),
    (b"AUTHORIZATION", b"s"),
    (b"Connection", b"close"),
    (b"X-A", b"1"),
    (b"x-a", b"2"),
)


def test_every_answer_in_place_of_a_response_is_a_failure_and_nothing_else() -> None:
    ends_otherwise = {FailureKind.TRUNCATED, FailureKind.CANCELLED}
    assert set(FAILED.values()) == set(FailureKind) - ends_otherwise
    assert {reason.value for reason in FAILED} == {kind.value for kind in FAILED.values()}
    assert RefusalReason.THROTTLED not in FAILED
    assert RefusalReason.BREAKER_OPEN not in FAILED
    assert RefusalReason.DRAINING not in FAILED


UPSTREAM = UpstreamSettings("up", (Origin("http", "127.0.0.1", 9),), refused=frozenset({429}))
RULES = DeadLetterRules(DeadLetterSettings(), UPSTREAM)


@pytest.mark.parametrize(
    ("method", "is_tunnel", "expected"),
    [
        ("POST", False, True),
        ("DELETE", False, True),
        ("GET", False, False),
        ("POST", True, False),
        ("GET", True, False),
    ],
)
def test_requests_that_may_become_dead_letters(
    method: str, *, is_tunnel: bool, expected: bool
) -> None:
    assert RULES.may_want(method, is_tunnel=is_tunnel) is expected


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        *((AttemptResult(kind), True) for kind in FAILED.values()),
        pytest.param(AttemptResult(FailureKind.CANCELLED), False, id="the client left"),
        pytest.param(
            AttemptResult(FailureKind.TRUNCATED, 503), False, id="the client has its beginning"
        ),
        pytest.param(AttemptResult(None, 503), True, id="listed"),
        pytest.param(AttemptResult(None, 408), True, id="listed, too"),
        pytest.param(AttemptResult(None, 429), True, id="the upstream refuses with it"),
        pytest.param(AttemptResult(None, 500), False, id="not listed"),
        pytest.param(AttemptResult(None, 404), False, id="the request's own fault"),
        pytest.param(AttemptResult(None, 200), False, id="a success"),
    ],
)
def test_results_that_make_dead_letters(result: AttemptResult, *, expected: bool) -> None:
    assert RULES.wants(result) is expected


@pytest.mark.parametrize(
    ("status", "listed"), [(200, False), (302, False), (399, False), (400, True), (418, True)]
)
def test_no_success_becomes_a_dead_letter(status: int, *, listed: bool) -> None:
    """None can be listed either."""
    on = Outcomes(frozenset(), frozenset({400, 418}))
    rules = DeadLetterRules(DeadLetterSettings(on=on), UPSTREAM)
    assert rules.wants(AttemptResult(None, status)) is listed


def test_a_status_that_counts_only_with_a_hint() -> None:
    on = Outcomes(frozenset(), hinted=frozenset({403}))
    rules = DeadLetterRules(DeadLetterSettings(on=on), UPSTREAM)
    assert rules.heeds_hint(403)
    assert not rules.heeds_hint(503)
    assert rules.wants(AttemptResult(None, 403, hint=RetryHint(5.0)))
    assert not rules.wants(AttemptResult(None, 403))


def test_refusals_become_dead_letters_if_the_file_says_so() -> None:
    assert not RULES.keeps_refusals
    on = replace(USUAL_OUTCOMES, names=USUAL_OUTCOMES.names | {"refusals"})
    assert DeadLetterRules(DeadLetterSettings(on=on), UPSTREAM).keeps_refusals


@pytest.mark.parametrize(
    ("state", "ran", "missing", "plain", "forced"),
    [
        (DeadLetterState.WAITING, False, None, None, None),
        (DeadLetterState.WAITING, True, None, Obstacle.MAY_HAVE_RUN, None),
        (DeadLetterState.UNCERTAIN, True, None, Obstacle.UNCERTAIN, None),
        (DeadLetterState.REPLAYING, False, None, Obstacle.REPLAYING, Obstacle.REPLAYING),
        (DeadLetterState.WAITING, False, Missing.BUFFER_FULL, Obstacle.NO_BODY, Obstacle.NO_BODY),
        (DeadLetterState.UNCERTAIN, True, Missing.TOO_LARGE, Obstacle.NO_BODY, Obstacle.NO_BODY),
    ],
)
def test_what_keeps_a_dead_letter_from_being_replayed(
    state: DeadLetterState,
    missing: Missing | None,
    plain: Obstacle | None,
    forced: Obstacle | None,
    *,
    ran: bool,
) -> None:
    summary = replace(letter().summary, state=state, may_have_run=ran, missing=missing)
    assert summary.obstacle(force=False) is plain
    assert summary.obstacle(force=True) is forced


def test_fields_that_are_kept() -> None:
    kept, dropped = headers_to_keep(
        HEADERS, frozenset({b"connection"}), frozenset({"authorization", "cookie"})
    )
    assert kept == ((b"Host", b"a"), (b"X-A", b"1"), (b"x-a", b"2"))
    assert dropped == ("AUTHORIZATION",)


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        pytest.param([(b"X-A", b"1"), (b"X-B", b"2")], b"x-a:1\nx-b:2", id="two"),
        pytest.param([(b"x-b", b"2"), (b"X-a", b"1")], b"x-a:1\nx-b:2", id="in any order"),
        pytest.param([(b"X-A", b"2"), (b"X-A", b"1")], b"x-a:1\nx-a:2", id="one twice"),
        pytest.param([(b"X-A", b""), (b"X-B", b"2")], b"x-b:2", id="an empty one is none"),
        pytest.param([(b"X-C", b"1"), (b"X-\xc4", b"1")], b"", id="others"),
        pytest.param([], b"", id="none"),
    ],
)
def test_credentials_that_tell_callers_apart(
    headers: list[tuple[bytes, bytes]], sent: bytes
) -> None:
    assert credentials_sent(tuple(headers), frozenset({"x-a", "x-b"})) == sent


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(
            {
                "start": 1_000.5,
                "upstream": "up",
                "url": "http://a",
                "sent": True,
                "outcome": "timeout",
            },
            (-99.5, "up", "http://a", True, 0, FailureKind.TIMEOUT),
            id="a failure",
        ),
        pytest.param(
            {"start": 1_000, "upstream": "up", "url": "", "sent": False, "outcome": "connect"},
            (-100.0, "up", "", False, 0, FailureKind.CONNECT),
            id="nothing was sent",
        ),
        pytest.param(
            {"start": 1_000, "upstream": "up", "sent": True, "status": 503, "outcome": "5xx"},
            (-100.0, "up", "", True, 503, None),
            id="a status",
        ),
        pytest.param(
            {"start": "noon", "status": "503", "sent": 0, "outcome": "lost"},
            (-math.inf, "", "", True, 0, None),
            id="what cannot be read is long past, and may have been sent",
        ),
        pytest.param({}, (-math.inf, "", "", True, 0, None), id="what is missing, too"),
    ],
)
def test_attempts_are_restored_for_a_replay(
    record: dict[str, object], expected: tuple[object, ...]
) -> None:
    (attempt,) = attempts_of(replace(letter(), runs=(ReplayRun(1.0, "failed", (record,)),)), -1_100)
    assert expected == (
        attempt.started,
        attempt.upstream,
        attempt.url,
        attempt.sent,
        attempt.status,
        attempt.kind,
    )


def test_attempts_of_all_runs_are_restored() -> None:
    runs = tuple(
        ReplayRun(1.0, "failed", tuple({"start": start} for start in starts))
        for starts in ((1.0, 2.0), (), (3.0,))
    )
    restored = attempts_of(replace(letter(), runs=runs), 0.0)
    assert [attempt.started for attempt in restored] == [1.0, 2.0, 3.0]


def test_fields_that_are_given_take_the_place_of_their_namesakes() -> None:
    given_fields = ((b"X-a", b"3"), (b"Authorization", b"t"))
    assert with_headers(HEADERS, given_fields) == (
        (b"Host", b"a"),
        (b"Connection", b"close"),
        *given_fields,
    )
    assert with_headers(HEADERS, ()) == HEADERS


@given(st.integers(0, 2**44 - 1), st.integers(0, 2**44 - 1), st.integers(0, 2**36 - 1), st.data())
def test_ids_sort_by_time(first: int, second: int, chance: int, data: st.DataObject) -> None:
    one = dead_letter_id(first, chance)
    other = dead_letter_id(second, data.draw(st.integers(0, 2**36 - 1)))
    if first != second:
        assert (one < other) == (first < second)
    assert read_dead_letter_id(one) == one
    assert read_dead_letter_id(one.upper()) == one


@given(
    st.integers(0, 2**44 - 2),
    st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 5]), st.integers(0, 2**36 - 1)), min_size=2),
)
def test_ids_made_one_after_the_other_sort_so_within_a_millisecond_too(
    start: int, moments: list[tuple[int, int]]
) -> None:
    made, latest = [], ""
    for later, chance in moments:
        start = min(start + later, 2**44 - 2)
        latest = dead_letter_id(start, chance, latest)
        made.append(latest)
    assert made == sorted(set(made))
    assert all(read_dead_letter_id(name) == name for name in made)


def test_an_id_of_an_earlier_time_has_that_time() -> None:
    """The clock was set back, or another time is simulated."""
    latest = dead_letter_id(10, 7)
    assert dead_letter_id(8, 7, latest) == dead_letter_id(8, 7)


@pytest.mark.parametrize(
    "text", ["", "0" * 19, "0" * 21, "g" + "0" * 19, "\u0660" * 20, "../letters"]
)
def test_what_is_no_id(text: str) -> None:
    assert read_dead_letter_id(text) is None
