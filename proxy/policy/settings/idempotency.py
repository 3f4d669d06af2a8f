"""Settings of a route's idempotency keys."""

from dataclasses import dataclass
from enum import StrEnum

from proxy.policy.settings.validation import (
    above,
    at_least,
    check,
    choose,
    filled,
    lower_case,
    within,
)

NEVER_KEPT_BY_CLASS = frozenset({304, 401, 403, 407, 408, 409, 421, 425, 429})
"""Statuses that a class such as ``4xx`` does not include in ``idempotency.keep``.

Such a response tells of the moment, of the caller or of a request that did not run, not of a
result."""

USUAL_KEPT = frozenset(range(200, 500)) - NEVER_KEPT_BY_CLASS

_MISMATCH_STATUSES = (422, 409)


class InFlightDuplicates(StrEnum):
    """What a duplicate gets while the first request with its key is in flight."""

    WAIT = "wait"
    REJECT = "reject"


class AmbiguousKeys(StrEnum):
    """What becomes of a key whose request may have run, if no response of it was kept."""

    RELEASE = "release"
    HOLD = "hold"


class KeysWithoutStore(StrEnum):
    """How requests with a key are treated while the store does not answer."""

    CLOSED = "closed"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class IdempotencySettings:
    """What makes two requests the same, and what a duplicate gets."""

    header: str = "idempotency-key"
    """Name of the key's header field, in lower case."""
    methods: frozenset[str] = frozenset({"POST", "PATCH"})
    required: bool = False
    ttl: float = 86_400.0
    scope: tuple[str, ...] = ("authorization", "x-api-key")
    """Header fields that tell callers apart, in lower case."""
    scope_required: bool = False
    in_flight: InFlightDuplicates = InFlightDuplicates.WAIT
    mismatch_status: int = 422
    keep: frozenset[int] = USUAL_KEPT
    """Statuses whose response is kept; classes such as 4xx are spelled out."""
    on_ambiguous: AmbiguousKeys = AmbiguousKeys.RELEASE
    lease: float = 30.0
    max_response: int = 1024**2
    on_store_error: KeysWithoutStore = KeysWithoutStore.CLOSED

    def __post_init__(self) -> None:
        lower_case(self, "header", "scope")
        filled(self, "methods", "keep")
        above(self, 0, "ttl", "lease")
        check(self, "scope", "some header", holds=bool(self.scope) or not self.scope_required)
        choose(self, InFlightDuplicates, "in_flight")
        is_known = self.mismatch_status in _MISMATCH_STATUSES
        check(self, "mismatch_status", "422 or 409", holds=is_known)
        within(self, 200, 599, "keep")
        choose(self, AmbiguousKeys, "on_ambiguous")
        at_least(self, 0, "max_response")
        choose(self, KeysWithoutStore, "on_store_error")
