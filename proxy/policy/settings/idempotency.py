"""Settings of a route's idempotency keys."""

from dataclasses import dataclass

NEVER_KEPT_BY_CLASS = frozenset({304, 401, 403, 407, 408, 409, 421, 425, 429})
"""Statuses that a class such as ``4xx`` does not include in ``idempotency.keep``.

Such a response tells of the moment, of the caller or of a request that did not run, not of a
result."""

USUAL_KEPT = frozenset(range(200, 500)) - NEVER_KEPT_BY_CLASS


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
    in_flight: str = "wait"
    """``wait`` or ``reject``."""
    mismatch_status: int = 422
    keep: frozenset[int] = USUAL_KEPT
    """Statuses whose response is kept; classes such as 4xx are spelled out."""
    on_ambiguous: str = "release"
    """``release`` or ``hold``."""
    lease: float = 30.0
    max_response: int = 1024**2
    on_store_error: str = "closed"
    """``closed`` or ``open``."""
