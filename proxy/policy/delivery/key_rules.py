"""What a delivery means for the idempotency key that its request had.

The file of the deliveries is the truth about such keys: the record of a key may be lost with the
memory of a process, or may outlive the delivery's failure.
"""

from dataclasses import dataclass
from enum import Enum

from proxy.policy.delivery.state import Delivery
from proxy.policy.delivery.words import DeliveryState


class KeyStanding(Enum):
    """What a request gets whose key a delivery has."""

    FREE = "free"  # it may run
    DUPLICATE = "duplicate"  # the delivery's 202
    MISMATCH = "mismatch"  # the key belongs to another request
    HELD = "held"  # the delivery may have run, and nobody knows


@dataclass(frozen=True, slots=True)
class KeyTerms:
    """How long a key counts, and what becomes of one whose request may have run."""

    ttl: float
    """Seconds for which a delivered request is the result of its key."""
    holds_ambiguous: bool
    """Whether a key is held whose request failed and may have run; else it is free."""


def key_standing(
    delivery: Delivery, fingerprint: bytes, terms: KeyTerms, now: float
) -> KeyStanding:
    """Return what a request with *fingerprint* gets, whose key is that of *delivery*.

    *now* is in seconds since the epoch, as the times of the delivery are.
    """
    if delivery.state is DeliveryState.DELIVERED:
        standing = KeyStanding.DUPLICATE if now < delivery.ended + terms.ttl else KeyStanding.FREE
    elif delivery.is_open:
        standing = KeyStanding.DUPLICATE
    elif delivery.may_have_run and terms.holds_ambiguous:
        standing = KeyStanding.HELD
    else:
        standing = KeyStanding.FREE
    is_other = standing is not KeyStanding.FREE and delivery.fingerprint != fingerprint
    return KeyStanding.MISMATCH if is_other else standing
