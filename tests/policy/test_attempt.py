"""The record of an attempt: what it says before anything happened, and how it is counted."""

import pytest

from proxy.policy.attempt import Attempt, FailureKind, RetryDelay, outcome_label
from proxy.policy.repeatable import did_not_run


def test_a_new_attempt_has_sent_and_received_nothing() -> None:
    attempt = Attempt(2, "up", 7.0, RetryDelay(0.5, "hint"))
    assert {name: getattr(attempt, name) for name in Attempt.__slots__} == {
        "number": 2,
        "upstream": "up",
        "delay": RetryDelay(0.5, "hint"),
        "queued": 0.0,
        "address": "",
        "url": "",
        "started": 7.0,
        "duration": 0.0,
        "status": 0,
        "kind": None,
        "sent": False,
        "received": False,
        "reused": False,
        "verdict": None,
    }
    assert Attempt(1, "up", 7.0).delay is None


@pytest.mark.parametrize("kind", FailureKind)
def test_an_attempt_that_failed_before_it_was_sent_is_known_not_to_have_run(
    kind: FailureKind,
) -> None:
    attempt = Attempt(1, "up", 0.0)
    attempt.kind = kind
    assert did_not_run(attempt, frozenset())


@pytest.mark.parametrize(
    ("kind", "reused", "received", "stale"),
    [
        pytest.param(FailureKind.RESET, True, False, True, id="ended while idle"),
        pytest.param(FailureKind.RESET, False, False, False, id="a new connection"),
        pytest.param(FailureKind.RESET, True, True, False, id="a byte came back"),
        pytest.param(FailureKind.TIMEOUT, True, False, False, id="another failure"),
        pytest.param(None, True, False, False, id="no failure"),
    ],
)
def test_a_stale_connection(
    kind: FailureKind | None, *, reused: bool, received: bool, stale: bool
) -> None:
    attempt = Attempt(1, "up", 0.0)
    attempt.kind, attempt.reused, attempt.received = kind, reused, received
    assert attempt.found_stale is stale


@pytest.mark.parametrize(
    ("ending", "label"),
    [
        (FailureKind.RESET, "reset"),
        (FailureKind.CANCELLED, "cancelled"),
        (0, "other"),
        (99, "other"),
        (100, "1xx"),
        (199, "1xx"),
        (200, "2xx"),
        (304, "3xx"),
        (499, "4xx"),
        (500, "5xx"),
        (599, "5xx"),
        (600, "other"),
        (999, "other"),
    ],
)
def test_the_label_is_of_a_closed_set(ending: FailureKind | int, label: str) -> None:
    assert outcome_label(ending) == label
    attempt = Attempt(1, "up", 0.0)
    if isinstance(ending, FailureKind):
        # A status may have come before the failure, as with a body that broke off.
        attempt.kind, attempt.status = ending, 200
    else:
        attempt.status = ending
    assert attempt.outcome == label


def test_it_says_which_attempt_it_is() -> None:
    attempt = Attempt(3, "up", 0.0)
    assert repr(attempt) == "<attempt 3 - 0>"
    attempt.address, attempt.kind = "192.0.2.1:80", FailureKind.TIMEOUT
    assert repr(attempt) == "<attempt 3 192.0.2.1:80 timeout>"
