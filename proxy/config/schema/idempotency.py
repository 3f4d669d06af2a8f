"""Keys of idempotency."""

from collections.abc import Iterable

from proxy.config.schema.section import Key, ListOf, Section
from proxy.config.schema.shorthands import OneOrMore, Switchable
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
    all_kept_statuses,
)
from proxy.config.values.quantities import Duration, Size
from proxy.policy.settings import IdempotencySettings


def _each_once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


IDEMPOTENCY = Section(
    "IdempotencyKeys",
    "What makes two requests the same, and what a duplicate gets.",
    belongs_to="idempotency",
    settings=IdempotencySettings,
    shorthands=(Switchable(),),
    keys={
        "header": Key(
            RequestKeyHeader(),
            "The header field that carries the key.",
            make=str.lower,
            written="Idempotency-Key",
        ),
        "methods": Key(
            ListOf(KeyedMethod(), can_be_empty=False),
            "Methods whose requests can have a key: POST, PATCH, PUT, DELETE.",
            make=frozenset,
            written=["POST", "PATCH"],
        ),
        "required": Key(Switch(), "Whether such a request must have a key; without one 400."),
        "ttl": Key(
            Duration(
                zero="keeps no result, write 24h (say), or idempotency: false if that is meant"
            ),
            "How long a key is known after its request has ended: its result is kept, then the "
            "same key is a new one. A request that itself takes longer than this loses its key.",
            written="24h",
        ),
        "scope": Key(
            ListOf(
                CallerHeader(), OneOrMore(nothing="write [] if all callers are to share their keys")
            ),
            "Header fields that tell callers apart, by the hash of their values; each caller has "
            "keys of its own. A field that occurs twice: 400. Callers without any of them share "
            "their keys. []: all callers share them.",
            make=_each_once,
            written=["header:Authorization", "header:X-Api-Key"],
        ),
        "scope_required": Key(
            Switch(),
            "Whether a request with a key needs a value in one of the fields of scope; without "
            "one 400.",
        ),
        "in_flight": Key(
            IN_FLIGHT,
            "A duplicate while the first request is in flight: wait (gets its result) or reject "
            "(409).",
        ),
        "mismatch_status": Key(
            MismatchStatus(), "Status for a key that is reused with another request: 422 or 409."
        ),
        "keep": Key(
            ListOf(KeptStatus(), can_be_empty=False),
            "Statuses whose response is kept: numbers, 2xx, 3xx, 4xx, 5xx. A class leaves out 304, "
            "401, 403, 407, 408, 409, 421, 425 and 429; a number does not.",
            make=all_kept_statuses,
            written=list(KEPT_CLASSES),
        ),
        "on_ambiguous": Key(
            ON_AMBIGUOUS,
            "When a request may have run and no result was kept: release (a later duplicate runs) "
            "or hold (409 until ttl is over, or until the key is released by hand).",
        ),
        "lease": Key(
            Duration(zero="is too short to be renewed in time, write 1s or more", least=1.0),
            "How long a key belongs to its instance without a renewal. It is renewed every third "
            "of this time while the request runs; an instance that could not renew it in time "
            "sends nothing more.",
        ),
        "max_response": Key(
            Size(),
            "Largest response that is kept; a larger one is delivered, and duplicates get 409.",
        ),
        "on_store_error": Key(
            ON_KEY_STORE_ERROR,
            "While the store does not answer: closed (503) or open (the request runs, and a "
            "duplicate too).",
        ),
    },
)
