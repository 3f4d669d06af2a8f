"""Answers about a delivery: 202 with where to ask, or why there is none."""

import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime

from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import KeptResponse, ResponseHead, own_head
from proxy.policy.delivery.state import Delivery
from proxy.policy.idempotency.stored_response import BadResult, unpack
from proxy.stores.deliveries.ports import NoCapacity

_ACCEPTED = 202

NOT_DURABLE = Refusal(
    RefusalReason.NOT_DURABLE,
    "The request could not be written to disk. Send it again later, with the same key.",
)
_NO_ROOM = "There is no room for another delivery. Send it again later."
_CALLER_HAS_ITS_SHARE = (
    "Your deliveries take all the room that one caller may have. Send it again when some have "
    "ended."
)


def accepted_as(name: str, stored: bytes | KeptResponse) -> str:
    """Return the id of the delivery of which a key's result tells; empty if it tells of none.

    *name* is that of the key's record; *stored* is its result, as the store has it or unpacked.
    """
    if isinstance(stored, bytes):
        try:
            result = unpack(name, stored)
        except BadResult:
            return ""
        if not isinstance(result, KeptResponse):
            return ""
        stored = result
    found = _find_delivery(stored.head) if stored.status == _ACCEPTED else None
    return "" if found is None else found[1].decode("latin-1")


_find_delivery = re.compile(rb"\r\nHoldfast-Delivery: (\S+)").search


def too_large(*, is_read: bool) -> Refusal:
    """Refuse a request whose body cannot be kept; one that is not read ends its connection."""
    return Refusal(
        RefusalReason.BODY_TOO_LARGE,
        "Send a smaller body: all of it has to be kept until it is delivered.",
        close=not is_read,
    )


def queue_full(no_capacity: NoCapacity, wait: int) -> Refusal:
    """Refuse a request for which there is no room, for *wait* seconds at least."""
    detail = _CALLER_HAS_ITS_SHARE if no_capacity.cause == "caller" else _NO_ROOM
    return Refusal(RefusalReason.QUEUE_FULL, detail, wait=wait, cause=no_capacity.cause.value)


def accepted(
    method: str,
    delivery: Delivery,
    status_path: str | None,
    *,
    now: float,
    applied: bytes = b"",
    is_replayed: bool = False,
) -> tuple[ResponseHead, bytes]:
    """Return the answer to a request that was accepted as *delivery*, at *now*.

    *applied* is the value of Preference-Applied, empty if the client asked for nothing.
    """
    where = None if status_path is None else f"{status_path}/{delivery.id}"
    reported = {
        "delivery": delivery.id,
        "state": delivery.state.value,
        "accepted": timestamp(delivery.accepted),
        "gives_up": timestamp(delivery.gives_up),
    }
    if where is not None:
        reported["status"] = where
    body = json.dumps(reported).encode()
    fields = [
        b"Content-Type: application/json",
        b"Cache-Control: no-store",
        b"Vary: Prefer",
        b"Holdfast-Delivery: " + delivery.id.encode(),
    ]
    if where is not None:
        fields.append(b"Location: " + where.encode())
        fields.append(b"Retry-After: %d" % ask_again_after(delivery, now))
    if applied:
        fields.append(b"Preference-Applied: " + applied)
    if is_replayed:
        fields.append(b"Idempotent-Replayed: true")
    return own_head(method, _ACCEPTED, fields, len(body)), body


_LEAST_WAIT = 1
_WHILE_SENDING = 2
"""Seconds after which it makes sense to ask for a delivery that is being sent."""


def ask_again_after(delivery: Delivery, now: float) -> int:
    """Return the seconds after which a delivery that is open may have changed."""
    wait = delivery.due - now
    return max(math.ceil(wait), _LEAST_WAIT) if wait > 0 else _WHILE_SENDING


def timestamp(seconds: float) -> str:
    """Write seconds since the epoch as in RFC 3339, in UTC."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def with_preference(fields: Iterable[bytes], applied: bytes) -> list[bytes]:
    """Return the *fields* of an upstream's answer, with what of Prefer was *applied*."""
    return [*fields, b"Preference-Applied: " + applied, b"Vary: Prefer"]
