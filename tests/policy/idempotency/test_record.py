"""The rules of one key: every state, every claim."""

import pytest

from proxy.policy.idempotency.record import (
    Claim,
    ClaimAnswer,
    Claimed,
    Ending,
    Record,
    RecordState,
    claim,
    is_owned,
    new_record,
    renew,
    revoke,
    settle,
    shown,
)

NOW, WALL = 50.0, 1_000_000.0
SAME, OTHER = b"s" * 32, b"o" * 32
ASK = Claim("name", "me", SAME, "charges", lease=30.0, ttl=100.0, takes_over=True)
THEIRS = Record(
    RecordState.IN_FLIGHT,
    "them",
    SAME,
    "charges",
    WALL - 5,
    lease_until=NOW + 25,
    expires=WALL + 95,
)


def ask(record: Record | None, **changes: object) -> tuple[Record | None, Claimed]:
    return claim(record, ASK._replace(**changes), now=NOW, wall=WALL)  # type: ignore[arg-type]  # any field


def test_nobody_has_it() -> None:
    record, claimed = ask(None)
    assert claimed == Claimed(ClaimAnswer.NEW)
    assert record == Record(
        RecordState.IN_FLIGHT, "me", SAME, "charges", WALL, lease_until=NOW + 30, expires=WALL + 130
    )


@pytest.mark.parametrize("caller", ["", "somebody"])
def test_a_new_record_is_what_a_claim_makes(caller: str) -> None:
    record = new_record(ASK._replace(caller=caller), now=NOW, wall=WALL)
    assert ask(None, caller=caller) == (record, Claimed(ClaimAnswer.NEW))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (RecordState.IN_FLIGHT, Claimed(ClaimAnswer.BUSY, "them", 25.0)),
        (RecordState.DONE, Claimed(ClaimAnswer.DONE, result=b"result")),
        (RecordState.UNSTORED, Claimed(ClaimAnswer.UNSTORED, result=b"result")),
        (RecordState.HELD, Claimed(ClaimAnswer.HELD, result=b"result")),
    ],
)
def test_somebody_has_it(state: RecordState, expected: Claimed) -> None:
    before = THEIRS._replace(state=state, result=b"result")
    after = before._replace(waits=state is RecordState.IN_FLIGHT)
    assert ask(before) == (after, expected)
    assert ask(after) == (after, expected), "it is noted once"


@pytest.mark.parametrize("state", RecordState)
def test_another_request_is_a_mismatch_before_anything_else(state: RecordState) -> None:
    before = THEIRS._replace(state=state, lease_until=NOW - 1)
    assert ask(before, fingerprint=OTHER) == (before, Claimed(ClaimAnswer.MISMATCH))


@pytest.mark.parametrize("state", RecordState)
@pytest.mark.parametrize("fingerprint", [SAME, OTHER])
def test_what_has_expired_was_never_there(state: RecordState, fingerprint: bytes) -> None:
    before = THEIRS._replace(state=state, lease_until=NOW, expires=WALL)
    record, claimed = ask(before, fingerprint=fingerprint)
    assert claimed == Claimed(ClaimAnswer.NEW)
    assert is_owned(record, "me")


@pytest.mark.parametrize("fingerprint", [SAME, OTHER])
def test_what_is_in_flight_does_not_expire(fingerprint: bytes) -> None:
    before = THEIRS._replace(expires=WALL - 1e9)
    record, claimed = ask(before, fingerprint=fingerprint)
    assert record == before._replace(waits=fingerprint is SAME)
    assert claimed.answer is (ClaimAnswer.BUSY if fingerprint is SAME else ClaimAnswer.MISMATCH)


def test_it_belongs_to_whom_its_end_says() -> None:
    record, _ = ask(None, caller="10.0.0.1")
    assert record is not None
    assert record.caller == "10.0.0.1"
    for told, caller in (("", "10.0.0.1"), ("me", "me")):
        after = settle(record, Ending(RecordState.DONE, 1.0, b"x", told), wall=WALL)
        assert after is not None
        assert (after.caller, after.waits) == (caller, False)


def test_an_owner_that_fell_silent_is_followed() -> None:
    silent = THEIRS._replace(lease_until=NOW)
    record, claimed = ask(silent)
    assert claimed.answer is ClaimAnswer.NEW
    assert is_owned(record, "me")
    assert not is_owned(record, "them")


def test_or_its_key_is_left_to_a_person() -> None:
    silent = THEIRS._replace(lease_until=NOW)
    assert ask(silent, takes_over=False) == (silent, Claimed(ClaimAnswer.HELD))


def test_how_it_ends() -> None:
    done = settle(THEIRS, Ending(RecordState.DONE, 7.0, b"result"), wall=WALL)
    ended = THEIRS._replace(owner="", lease_until=0.0, expires=WALL + 7)
    assert done == ended._replace(state=RecordState.DONE, result=b"result")
    held = settle(THEIRS, Ending(RecordState.HELD, 7.0, b"for those who waited"), wall=WALL)
    assert held == ended._replace(state=RecordState.HELD)
    assert settle(THEIRS, Ending(None, 7.0), wall=WALL) is None


def test_a_lease_is_renewed() -> None:
    renewed = renew(THEIRS, 30.0, 100.0, now=NOW, wall=WALL)
    assert renewed == THEIRS._replace(lease_until=NOW + 30, expires=WALL + 130)


def test_a_key_is_taken_from_its_owner() -> None:
    taken = revoke(THEIRS)
    assert taken == THEIRS._replace(state=RecordState.HELD, owner="", lease_until=0.0)
    assert not is_owned(taken, "them")
    assert ask(taken)[1] == Claimed(ClaimAnswer.HELD), "whoever may take over"
    assert revoke(THEIRS._replace(waits=True)) == taken, "none waits for it any more"


@pytest.mark.parametrize("state", [RecordState.DONE, RecordState.UNSTORED, RecordState.HELD])
def test_what_has_ended_belongs_to_nobody(state: RecordState) -> None:
    assert is_owned(THEIRS, "them")
    assert not is_owned(THEIRS, "me")
    assert not is_owned(None, "them")
    assert not is_owned(THEIRS._replace(state=state), "them")


def test_what_a_person_is_told() -> None:
    told = shown(THEIRS, now=NOW)
    assert (told.state, told.route, told.lease_left) == (RecordState.IN_FLIGHT, "charges", 25.0)
    assert (told.created, told.expires, told.size) == (WALL - 5, WALL + 95, 0)
    done = shown(THEIRS._replace(state=RecordState.DONE, result=b"result"), now=NOW)
    assert (done.state, done.lease_left, done.size) == (RecordState.DONE, 0.0, 6)
    assert shown(THEIRS._replace(lease_until=NOW), now=NOW).state is RecordState.HELD
