"""Keys of idempotency."""

from typing import Annotated

from annotated_types import MinLen

from proxy.config.schema.section import Section, described
from proxy.config.schema.shorthands import JoinedByColon, OneOrMore
from proxy.config.values.base import Switch
from proxy.config.values.idempotency import (
    IN_FLIGHT,
    KEPT_CLASSES,
    ON_AMBIGUOUS,
    ON_KEY_STORE_ERROR,
    CallerHeader,
    KeptStatus,
    KeyedMethod,
    MismatchStatus,
    RequestKeyHeader,
)
from proxy.config.values.quantities import Duration, Size
from proxy.policy.settings import AmbiguousKeys, InFlightDuplicates, KeysWithoutStore

_NO_RESULT = "keeps no result, write 24h (say), or idempotency: false if that is meant"
_NO_LEASE = "is too short to be renewed in time, write 1s or more"


class IdempotencyKeys(Section):
    """What makes two requests the same, and what a duplicate gets."""

    belongs_to = "idempotency"

    header: Annotated[str, RequestKeyHeader()] = described(
        "The header field that carries the key.", "Idempotency-Key"
    )
    methods: Annotated[list[Annotated[str, KeyedMethod()]], MinLen(1)] = described(
        "On which methods a key counts: POST, PATCH, PUT, DELETE.", ["POST", "PATCH"]
    )
    required: Annotated[bool, Switch()] = described(
        "Whether such a request needs a key; without one 400.", default=False
    )
    ttl: Annotated[float, Duration(zero=_NO_RESULT)] = described(
        "How long a key is known after its request has ended: its result is kept, then the same "
        "key is a new one. A request that itself takes longer than this loses its key.",
        "24h",
    )
    scope: Annotated[
        list[Annotated[str, CallerHeader(), JoinedByColon(before="")]],
        OneOrMore(nothing="write [] if all callers are to share their keys"),
    ] = described(
        "What tells callers apart, each with keys of its own: the hash of these header fields. "
        "One that is there twice: 400. Those with none of them share theirs; [] for everybody.",
        ["header:Authorization", "header:X-Api-Key"],
    )
    scope_required: Annotated[bool, Switch()] = described(
        "Whether a request with a key needs a value in one of them; without 400.", default=False
    )
    in_flight: Annotated[InFlightDuplicates, IN_FLIGHT] = described(
        "A duplicate while the first one is under way: wait (gets its result) or reject (409).",
        "wait",
    )
    mismatch_status: Annotated[int, MismatchStatus()] = described(
        "For a key that comes back with another request: 422 or 409.", 422
    )
    keep: Annotated[list[Annotated[str | int, KeptStatus()]], MinLen(1)] = described(
        "Statuses whose response is kept: numbers, 2xx, 3xx, 4xx, 5xx. A class leaves out 304, "
        "401, 403, 407, 408, 409, 421, 425 and 429; a number does not.",
        list(KEPT_CLASSES),
    )
    on_ambiguous: Annotated[AmbiguousKeys, ON_AMBIGUOUS] = described(
        "It may have run and nothing was kept: release (a later duplicate runs) or hold (409 until "
        "ttl is over, or until the key is released by hand).",
        "release",
    )
    lease: Annotated[float, Duration(zero=_NO_LEASE, least=1.0)] = described(
        "How long a key belongs to an instance that says nothing more. Renewed every third of it "
        "while the request runs; whoever could not renew it in time sends nothing any more.",
        "30s",
    )
    max_response: Annotated[int, Size()] = described(
        "Largest response that is kept; a larger one is delivered, and duplicates get 409.", "1MiB"
    )
    on_store_error: Annotated[KeysWithoutStore, ON_KEY_STORE_ERROR] = described(
        "While the store does not answer: closed (503) or open (the request runs, and a duplicate "
        "too).",
        "closed",
    )
