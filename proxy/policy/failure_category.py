"""Failed attempts in two categories: transient failures may pass by themselves, permanent do not.

*Transient* is what a retry is for: no connection, a connection that ended, no answer in
time, a status by which the upstream says that it refused, and those that the route lists.
*Permanent* is the rest: to send the same request again would most likely end the same way.
"""

from enum import StrEnum

from proxy.policy.attempt import FIRST_FAILURE, FailureKind
from proxy.policy.settings import USUAL_OUTCOMES, RetrySettings, UpstreamSettings


class FailureCategory(StrEnum):
    """Whether a failure may pass by itself."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


_TRANSIENT = frozenset({FailureKind.CONNECT, FailureKind.RESET, FailureKind.TIMEOUT})


def category(ending: FailureKind | int, transient: frozenset[int]) -> FailureCategory | None:
    """Return the category of an attempt that ended in this kind or status; None if it succeeded.

    *transient* are the statuses that :func:`transient_statuses` returns for its route and
    upstream. An attempt that the proxy itself aborted has not failed.
    """
    if isinstance(ending, FailureKind):
        if ending is FailureKind.CANCELLED:
            return None
        return FailureCategory.TRANSIENT if ending in _TRANSIENT else FailureCategory.PERMANENT
    if ending in transient:
        return FailureCategory.TRANSIENT
    return FailureCategory.PERMANENT if ending >= FIRST_FAILURE else None


def transient_statuses(retry: RetrySettings | None, upstream: UpstreamSettings) -> frozenset[int]:
    """Return the statuses that the route retries on, or the default ones, and the upstream's.

    The upstream's are those by which it says that it refused. A status that is listed only for
    responses with a hint is not among them: how often it came with one is not counted.
    """
    on = USUAL_OUTCOMES if retry is None else retry.on
    return on.statuses | upstream.refused
