"""Failed attempts in two categories: what may pass by itself, and what will not.

*Transient* is what a retry is for: no connection, a connection that ended, no answer in
time, a status by which the upstream says that it refused, and those that the route lists.
*Permanent* is the rest: to send the same once more would most likely end the same way.
"""

from enum import StrEnum

from proxy.policy.attempt import FIRST_FAILURE, FailureKind
from proxy.policy.settings import USUAL_OUTCOMES, RetrySettings, UpstreamSettings


class FailureCategory(StrEnum):
    """What to expect of a failure."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


_TRANSIENT = frozenset({FailureKind.CONNECT, FailureKind.RESET, FailureKind.TIMEOUT})


def category(ending: FailureKind | int, transient: frozenset[int]) -> FailureCategory | None:
    """Of an attempt that ended in this kind or status; None if it did not fail.

    *transient* are the statuses that :func:`transient_statuses` has for its route and
    upstream. An attempt that we gave up ourselves has not failed.
    """
    if isinstance(ending, FailureKind):
        if ending is FailureKind.CANCELLED:
            return None
        return FailureCategory.TRANSIENT if ending in _TRANSIENT else FailureCategory.PERMANENT
    if ending in transient:
        return FailureCategory.TRANSIENT
    return FailureCategory.PERMANENT if ending >= FIRST_FAILURE else None


def transient_statuses(retry: RetrySettings | None, upstream: UpstreamSettings) -> frozenset[int]:
    """Those that the route lists, or would by default; and those that the upstream refuses with.

    One that is listed for responses with a hint alone is not among them: how often it
    had one is not counted.
    """
    on = USUAL_OUTCOMES if retry is None else retry.on
    return on.statuses | upstream.refused
