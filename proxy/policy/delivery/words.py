"""The closed sets of words that say where a delivery stands, and why."""

from enum import StrEnum


class DeliveryState(StrEnum):
    """Where a delivery stands; the last three are its end."""

    WAITING = "waiting"
    SENDING = "sending"
    RETRYING = "retrying"
    DELIVERED = "delivered"
    FAILED = "failed"
    CANCELLED = "cancelled"


class DeferralReason(StrEnum):
    """Why a delivery that is due was not sent; a deferral costs no attempt."""

    THROTTLED = "throttled"
    PAUSED = "paused"
    BREAKER_OPEN = "breaker_open"
    UPSTREAM_DOWN = "upstream_down"
    BUSY = "busy"
    NO_ROUTE = "no_route"
    DRAINING = "draining"


class DeliveryEnd(StrEnum):
    """Why a delivery ended that no verdict on an attempt ended."""

    GAVE_UP = "gave_up"
    UNCERTAIN = "uncertain"
    CANCELLED = "cancelled"
    NO_ROUTE = "no_route"
    REDIRECT = "redirect"
