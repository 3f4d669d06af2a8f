"""Keys of hand-off: what is accepted for later, how it is delivered, and the room for it."""

from proxy.config.schema.retry import BACKOFF
from proxy.config.schema.section import Key, ListOf, Section
from proxy.config.schema.shorthands import ListSetsKey, OneOrMore, SetsKey, Switchable
from proxy.config.values.base import Integer
from proxy.config.values.hand_off import (
    CREDENTIALS,
    WHEN,
    DeliveredStatus,
    DeliveryAttempts,
    StatusPath,
    delivered_statuses,
)
from proxy.config.values.outcomes import OutcomeName, outcomes_of
from proxy.config.values.paths import Method
from proxy.config.values.quantities import Duration, Size
from proxy.config.values.retrying import Unsafe
from proxy.policy.settings import (
    MOST_DELIVERIES_UNDER_WAY,
    DeliveriesSettings,
    DeliveryBackoff,
    HandOffSettings,
)

DELIVERY_BACKOFF = Section(
    "DeliveryBackoffKeys",
    "How long to wait before a delivery is tried again, where the upstream does not say.",
    belongs_to="hand_off.retry.backoff",
    settings=DeliveryBackoff,
    shorthands=(ListSetsKey("waits"),),
    alternatives=(frozenset(BACKOFF.keys) - {"jitter"}, frozenset({"waits"})),
    keys={
        **BACKOFF.keys,
        "waits": Key(
            ListOf(
                Duration(zero="is no wait, write 5s (say)", example="5s"),
                can_be_empty=False,
            ),
            "In place of the other keys: the wait before the second try, the third and so on; the "
            "last one repeats.",
            written=None,
            examples=(["5s", "5m", "30m", "2h"],),
        ),
    },
)

DELIVERY_RETRY_AFTER = Section(
    "DeliveryRetryAfterKeys",
    "Whether an upstream may say when to come back.",
    belongs_to="hand_off.retry.retry_after",
    settings=HandOffSettings,
    shorthands=(Switchable(),),
    keys={
        "max": Key(
            Duration(zero="would follow no hint, write retry_after: false if that is meant"),
            "Longest wait that is accepted; if the upstream asks for more, this is waited for.",
            to="longest_hint",
            written="24h",
        ),
    },
)

DELIVERY_RETRY = Section(
    "DeliveryRetryKeys",
    "When a delivery is tried again, and how soon. The route's own retry does not apply to it.",
    belongs_to="hand_off.retry",
    settings=HandOffSettings,
    keys={
        "on": Key(
            ListOf(OutcomeName(), can_be_empty=False),
            "After what, in the words of retry.on.",
            to="retry_on",
            make=outcomes_of,
            written=["default", 500],
        ),
        "unsafe": Key(
            Unsafe(),
            "POST and PATCH: auto (not if they may have run, unless the upstream runs them once), "
            "never (only after connect), always (they may run twice). Default: the route's "
            "retry.unsafe.",
            written=None,
            examples=("auto",),
        ),
        "backoff": Key(
            DELIVERY_BACKOFF,
            "How long to wait before the next try: a mapping, or a list of durations whose last "
            "one repeats.",
            examples=({"base": "2m", "max": "12h"}, ["5s", "5m", "30m", "2h"]),
        ),
        "retry_after": Key(
            DELIVERY_RETRY_AFTER,
            "Whether to wait for as long as the upstream says (Retry-After and similar fields).",
        ),
    },
)

HAND_OFF = Section(
    "HandOffKeys",
    "Which requests are accepted with 202, kept on disk and delivered in the background, and how.",
    belongs_to="hand_off",
    settings=HandOffSettings,
    make=dict,  # made by the route, whose timeout and retry.unsafe are defaults here
    shorthands=(Switchable(), SetsKey("when", listed=True, named=True)),
    keys={
        "when": Key(
            ListOf(WHEN, OneOrMore(), can_be_empty=False),
            "Which requests: asked (the client says Prefer: respond-async), failed (all attempts "
            "failed, and another does no harm), always; or a list of them.",
            make=frozenset,
            written=["asked"],
            examples=("always", ["asked", "failed"]),
        ),
        "methods": Key(
            ListOf(Method(), can_be_empty=False),
            "Requests of these methods are handed off; others are served as ever.",
            make=frozenset,
            written=["POST", "PUT", "PATCH", "DELETE"],
        ),
        "max_body": Key(
            Size(),
            "Largest body that is handed off; a request with a larger one is served as ever, or "
            "gets 413 where all are handed off.",
        ),
        "give_up_after": Key(
            Duration(
                zero="would deliver nothing, write 3d (say)", units=("d", "h", "s"), example="3d"
            ),
            "Age at which a delivery fails, whatever it waits for; attempts may end it earlier.",
        ),
        "attempts": Key(
            DeliveryAttempts(),
            "How often it is tried in total, or none. Tries while the upstream is down for all, "
            "and waits for a limit, do not count.",
        ),
        "retry": Key(DELIVERY_RETRY, "When it is tried again, and how soon."),
        "timeout": Key(
            Duration(zero="leaves no time for any attempt, write none for no limit", none=True),
            "For one attempt up to the response's head. Default: the route's timeout.",
            written=None,
        ),
        "success": Key(
            ListOf(DeliveredStatus(), can_be_empty=False),
            "Statuses by which it is delivered. Any other 3xx is a failure for good: no redirect "
            "is followed.",
            make=delivered_statuses,
            written=["2xx", 303],
        ),
        "concurrency": Key(
            Integer(1, MOST_DELIVERIES_UNDER_WAY, zero="would deliver nothing, write 1 or more"),
            "Most deliveries of the route under way.",
        ),
        "keep_response": Key(
            Size(),
            "How much of the upstream's answer is kept for the client that asks for it; of a "
            "larger one only status and header fields.",
        ),
        "ttl": Key(
            Duration(zero="keeps no answer, write 24h (say)", units=("h", "s"), example="24h"),
            "How long an ended delivery can be asked for.",
            written="24h",
        ),
        "credentials": Key(
            CREDENTIALS,
            "A request with Authorization, Proxy-Authorization, Cookie or X-Api-Key that "
            "headers.request neither sets nor removes: refuse (it is not handed off), store (they "
            "are kept until it has ended), drop (it is sent without).",
        ),
    },
)

DELIVERIES = Section(
    "DeliveriesKeys",
    "Where clients ask for what was handed off, and the room for it.",
    belongs_to="deliveries, at the top of the file",
    settings=DeliveriesSettings,
    keys={
        "status": Key(
            StatusPath(),
            "Path on the listeners at which clients ask for their deliveries, before any route; "
            "false for none.",
        ),
        "entries": Key(
            Integer(1, 100_000_000, zero="would accept nothing, write 100000 (say)"),
            "Most deliveries, open and failed; beyond it nothing is handed off.",
        ),
        "bytes": Key(Size(least=1024), "Most bytes of them on disk; beyond it likewise."),
    },
)
