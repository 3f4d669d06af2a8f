"""Which requests do no harm if they run twice."""

from collections.abc import Iterable

from proxy.policy.outcome import Attempt

# RFC 9110 9.2.2. TRACE is idempotent too, but is never forwarded.
REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})

MAY_CARRY_KEY = frozenset({"POST", "PATCH"})
"""Methods for which a key can make the difference."""


def is_repeatable(method: str, unsafe: str, *, carries_honoured_key: bool) -> bool:
    """Whether a request does no harm if it runs twice.

    *unsafe* is the route's setting: ``auto`` goes by the method and the key,
    ``never`` by the method alone, and ``always`` lets all of them run twice.
    """
    if method in REPEATABLE_METHODS or unsafe == "always":
        return True
    return carries_honoured_key and method in MAY_CARRY_KEY and unsafe != "never"


def may_have_run_before(attempts: Iterable[Attempt], unsafe: str, refused: frozenset[int]) -> bool:
    """Whether one of *attempts*, none of which was good, may have had its effect.

    *refused* are the statuses by which their upstream says that it did not do the work.
    """
    return any(_may_have_run(attempt, unsafe, refused) for attempt in attempts if attempt.sent)


def _may_have_run(attempt: Attempt, unsafe: str, refused: frozenset[int]) -> bool:
    if attempt.kind is not None:
        return attempt.kind.may_have_run
    # ``unsafe: never`` takes no upstream's word for it.
    return unsafe == "never" or attempt.status not in refused
