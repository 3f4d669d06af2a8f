"""Which dead letters may be replayed, what is kept in them, and their ids."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from proxy.http.refusal import RefusalReason
from proxy.policy.attempt import FailureKind
from proxy.policy.dead_letter import (
    FAILED,
    DeadLetterState,
    Missing,
    Obstacle,
    dead_letter_id,
    headers_to_keep,
    read_dead_letter_id,
    with_headers,
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


@pytest.mark.parametrize(
    "text", ["", "0" * 19, "0" * 21, "g" + "0" * 19, "\u0660" * 20, "../letters"]
)
def test_what_is_no_id(text: str) -> None:
    assert read_dead_letter_id(text) is None
