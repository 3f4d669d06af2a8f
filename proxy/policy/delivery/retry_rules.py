"""Retries by hand: which delivery a client, or an operator, may have sent at once."""

from enum import StrEnum

from proxy.policy.delivery.words import DeliveryState


class RetryObstacle(StrEnum):
    """Why a delivery is not sent; the values are problem types, all with the status 409."""

    MAY_HAVE_RUN = "delivery_may_have_run"  # and is not repeatable: only an operator, with --force
    UNDER_WAY = "delivery_under_way"
    OVER = "delivery_over"  # it was delivered, or cancelled


class RetryEffect(StrEnum):
    """What it means to retry a delivery."""

    DUE_NOW = "due_now"  # it is open, and goes on at once
    ANEW = "anew"  # it failed, and begins again under its key: new attempts, a new age


_EFFECTS: dict[DeliveryState, RetryEffect | RetryObstacle] = {
    DeliveryState.WAITING: RetryEffect.DUE_NOW,
    DeliveryState.RETRYING: RetryEffect.DUE_NOW,
    DeliveryState.SENDING: RetryObstacle.UNDER_WAY,
    DeliveryState.DELIVERED: RetryObstacle.OVER,
    DeliveryState.CANCELLED: RetryObstacle.OVER,
}


def retry_effect(
    state: DeliveryState, *, may_have_run: bool, is_repeatable: bool, force: bool = False
) -> RetryEffect | RetryObstacle:
    """Return what a retry does to a delivery in *state*, or why it is refused.

    *may_have_run* and *is_repeatable* (now, at the URL that knows its key) are asked for a failed
    one. Only an operator may *force* it; ``--all`` never does, and counts those that need it.
    """
    if state is not DeliveryState.FAILED:
        return _EFFECTS[state]
    if may_have_run and not is_repeatable and not force:
        return RetryObstacle.MAY_HAVE_RUN
    return RetryEffect.ANEW
