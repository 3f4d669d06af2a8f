"""Settings of a route's idempotency keys."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from proxy.policy.settings.validation import (
    FILLED,
    LOWER_CASE,
    Validated,
    above,
    at_least,
    one_of,
    require,
    within,
)

NEVER_KEPT_BY_CLASS = frozenset({304, 401, 403, 407, 408, 409, 421, 425, 429})
"""Statuses that a class such as ``4xx`` does not include in ``idempotency.keep``.

Such a response tells of the moment, of the caller or of a request that did not run, not of a
result."""

USUAL_KEPT = frozenset(range(200, 500)) - NEVER_KEPT_BY_CLASS


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
class IdempotencySettings(Validated):
    """What makes two requests the same, and what a duplicate gets."""

    header: Annotated[str, LOWER_CASE] = "idempotency-key"
    """Name of the key's header field, in lower case."""
    methods: Annotated[frozenset[str], FILLED] = frozenset({"POST", "PATCH"})
    required: bool = False
    ttl: Annotated[float, above(0)] = 86_400.0
    scope: Annotated[tuple[str, ...], LOWER_CASE] = ("authorization", "x-api-key")
    """Header fields that tell callers apart, in lower case."""
    scope_required: bool = False
    in_flight: InFlightDuplicates = InFlightDuplicates.WAIT
    mismatch_status: Annotated[int, one_of(422, 409)] = 422
    keep: Annotated[frozenset[int], FILLED, within(200, 599)] = USUAL_KEPT
    """Statuses whose response is kept; classes such as 4xx are spelled out."""
    on_ambiguous: AmbiguousKeys = AmbiguousKeys.RELEASE
    lease: Annotated[float, above(0)] = 30.0
    max_response: Annotated[int, at_least(0)] = 1024**2
    on_store_error: KeysWithoutStore = KeysWithoutStore.CLOSED

    def check_fields(self) -> None:
        require(self, "scope", "some header", holds=bool(self.scope) or not self.scope_required)
