"""What a delivery means for the key of its request."""

from dataclasses import replace

import pytest

from proxy.policy.delivery.key_rules import KeyStanding, KeyTerms, key_standing
from proxy.policy.delivery.words import DeliveryState
from tests.policy.delivery.test_state import DELIVERY

NOW = 10_000.0
FREE, DUPLICATE, MISMATCH, HELD = KeyStanding


@pytest.mark.parametrize(
    ("state", "ran", "holds", "standing"),
    [
        (DeliveryState.WAITING, False, True, DUPLICATE),
        (DeliveryState.SENDING, True, True, DUPLICATE),
        (DeliveryState.RETRYING, True, False, DUPLICATE),
        (DeliveryState.DELIVERED, False, False, DUPLICATE),
        (DeliveryState.FAILED, False, True, FREE),
        (DeliveryState.FAILED, True, True, HELD),
        (DeliveryState.FAILED, True, False, FREE),
        (DeliveryState.CANCELLED, False, True, FREE),
        (DeliveryState.CANCELLED, True, True, HELD),
    ],
)
def test_by_its_state(
    state: DeliveryState,
    ran: bool,  # noqa: FBT001 - a table
    holds: bool,  # noqa: FBT001 - a parameter of the test
    standing: KeyStanding,
) -> None:
    ended = 0.0 if state in {"waiting", "sending", "retrying"} else NOW - 5
    delivery = replace(DELIVERY, state=state, may_have_run=ran, ended=ended, fingerprint=b"a")
    terms = KeyTerms(60.0, holds)
    assert key_standing(delivery, b"a", terms, NOW) is standing
    other = FREE if standing is FREE else MISMATCH
    assert key_standing(delivery, b"b", terms, NOW) is other


def test_a_result_counts_for_as_long_as_a_key_does() -> None:
    delivery = replace(DELIVERY, state=DeliveryState.DELIVERED, ended=NOW, fingerprint=b"a")
    terms = KeyTerms(60.0, holds_ambiguous=True)
    assert key_standing(delivery, b"a", terms, NOW + 59) is DUPLICATE
    assert key_standing(delivery, b"a", terms, NOW + 60) is FREE
