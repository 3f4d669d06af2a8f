"""Ids of requests, of the owners of idempotency keys, of dead letters and of deliveries."""

from itertools import count
from random import getrandbits
from secrets import randbits, token_urlsafe

from proxy.policy.dead_letter import DELIVERY_PREFIX, dead_letter_id


def new_request_id() -> str:
    """Return an id that no other request of this or another process has."""
    return _PROCESS + str(next(_request_numbers))


# One part tells processes apart, and every start of one, the other the requests of a
# process. Drawing 128 bits for each request costs three times as much.
_PROCESS = f"{getrandbits(96):024x}-"
_request_numbers = count(1)


def new_owner_token() -> str:
    """Return a token by which the owner of a key, or of a lease, proves that it is still the same.

    The store compares it; no client or operator gets to see it.
    """
    return _OWNER + str(next(_token_numbers))


_OWNER = f"{getrandbits(128):032x}-"
_token_numbers = count(1)


class _DeadLetterIds:
    """The ids of the dead letters of this process: each is the successor of the one before."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest = ""

    def new(self, wall: float) -> str:
        """Return the id of a dead letter that is written at *wall*; it cannot be guessed."""
        self._latest = dead_letter_id(int(wall * 1000), randbits(36), self._latest)
        return self._latest


new_dead_letter_id = _DeadLetterIds().new


def new_delivery_id() -> str:
    """Return the id of a delivery: 128 random bits, so whoever has it was told."""
    return DELIVERY_PREFIX + token_urlsafe(16)
