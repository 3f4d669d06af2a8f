"""What a client gets when the last attempt brought no response."""

import pytest

from proxy.http.refusal import RefusalReason
from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.failure_answers import answer_for


@pytest.mark.parametrize(
    ("kind", "reason", "status"),
    [
        (FailureKind.CONNECT, RefusalReason.CONNECT, 502),
        (FailureKind.RESET, RefusalReason.RESET, 502),
        (FailureKind.TIMEOUT, RefusalReason.TIMEOUT, 504),
        (FailureKind.PROTOCOL, RefusalReason.PROTOCOL, 502),
        (FailureKind.CERTIFICATE, RefusalReason.CERTIFICATE, 502),
        (FailureKind.BUSY, RefusalReason.BUSY, 503),
        (FailureKind.UNKNOWN, RefusalReason.UNKNOWN, 502),
    ],
)
def test_each_failure_has_its_answer_unless_the_time_was_up(
    kind: FailureKind, reason: RefusalReason, status: int
) -> None:
    attempt = Attempt(1, "up", 0.0)
    attempt.kind = kind
    answer = answer_for(attempt, expired=False)
    assert answer is not None
    assert (answer.reason, answer.status) == (reason, status)
    late = answer_for(attempt, expired=True)
    assert late is not None
    assert (late.reason, late.status) == (RefusalReason.TIMEOUT, 504)


@pytest.mark.parametrize("kind", [None, FailureKind.TRUNCATED])
@pytest.mark.parametrize("expired", [False, True])
def test_a_response_needs_no_answer(kind: FailureKind | None, *, expired: bool) -> None:
    attempt = Attempt(1, "up", 0.0)
    attempt.status, attempt.kind = 200, kind
    assert answer_for(attempt, expired=expired) is None
