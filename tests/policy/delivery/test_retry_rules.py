"""Who may have which delivery sent again."""

import pytest

from proxy.policy.delivery.retry_rules import RetryEffect, RetryObstacle, retry_effect
from proxy.policy.delivery.words import DeliveryState

WAITING, SENDING, RETRYING, DELIVERED, FAILED, CANCELLED = DeliveryState
RAN = RetryObstacle.MAY_HAVE_RUN


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("may_have_run", [False, True])
@pytest.mark.parametrize("is_repeatable", [False, True])
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (WAITING, RetryEffect.DUE_NOW),
        (RETRYING, RetryEffect.DUE_NOW),
        (SENDING, RetryObstacle.UNDER_WAY),
        (DELIVERED, RetryObstacle.OVER),
        (CANCELLED, RetryObstacle.OVER),
    ],
)
def test_one_that_has_not_failed(
    state: DeliveryState,
    expected: object,
    force: bool,  # noqa: FBT001 - every combination
    may_have_run: bool,  # noqa: FBT001
    is_repeatable: bool,  # noqa: FBT001
) -> None:
    found = retry_effect(state, may_have_run=may_have_run, is_repeatable=is_repeatable, force=force)
    assert found is expected


@pytest.mark.parametrize(
    ("may_have_run", "is_repeatable", "force", "expected"),
    [
        (False, False, False, RetryEffect.ANEW),
        (False, True, False, RetryEffect.ANEW),
        (True, True, False, RetryEffect.ANEW),
        (True, False, False, RAN),
        (True, False, True, RetryEffect.ANEW),
    ],
)
def test_one_that_failed(
    may_have_run: bool,  # noqa: FBT001 - a table
    is_repeatable: bool,  # noqa: FBT001
    force: bool,  # noqa: FBT001
    expected: object,
) -> None:
    found = retry_effect(
        FAILED, may_have_run=may_have_run, is_repeatable=is_repeatable, force=force
    )
    assert found is expected


def test_the_problem_types() -> None:
    assert [*RetryObstacle] == ["delivery_may_have_run", "delivery_under_way", "delivery_over"]
