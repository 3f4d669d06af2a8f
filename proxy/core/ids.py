"""Names for requests, owners and dead letters."""

from itertools import count
from random import getrandbits
from secrets import randbits

from proxy.policy.dead_letter import dead_letter_id


def new_request_id() -> str:
    """A name that no other request of this or another process has."""
    return _RUN + str(next(_numbers))


# One part tells the runs of all processes apart, the other the requests of one
# run. Drawing 128 bits for each request costs three times as much.
_RUN = f"{getrandbits(96):024x}-"
_numbers = count(1)


def new_token() -> str:
    """What shows that somebody is who it was before. Nobody outside gets to know it."""
    return _OWNER + str(next(_tokens))


_OWNER = f"{getrandbits(128):032x}-"
_tokens = count(1)


def new_dead_letter_id(wall: float) -> str:
    """The id of a dead letter that is written at *wall*; nobody can guess one."""
    return dead_letter_id(int(wall * 1000), randbits(36))
