"""Refusals, the answers that Holdfast makes itself: each reason with its status and title.

A refusal is a value; ``server/problems.py`` is the only place that turns one
into bytes. The texts are fixed here so that no address, key or credential can
slip into an answer.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


@dataclass(frozen=True, slots=True)
class QuotaLeft:
    """One rate limit and what is left of it, for RateLimit and RateLimit-Policy."""

    name: str
    limit: int
    window: int | None
    """Seconds; None for a concurrency limit."""
    remaining: int
    reset: int | None
    """Seconds until more is left, where nothing is; None if that is unknown."""


class RefusalReason(StrEnum):
    """The closed set of reasons, used in problem types, logs and tests alike.

    Each has its status, the title of its problem, a registered Proxy-Status error type (RFC 9209
    2.3) and, where it would promise something, the seconds for Retry-After.
    """

    # Defaults for the type checker: RefusalReason("busy") looks a member up, and makes none.
    def __new__(
        cls,
        reason: str,
        status: int = 0,
        heading: str = "",
        proxy_error: str = "",
        retry_after: int | None = None,
    ) -> Self:
        member = str.__new__(cls, reason)
        member._value_ = reason
        member.status, member.heading = status, heading
        member.proxy_error, member.retry_after = proxy_error, retry_after
        return member

    status: int
    heading: str
    proxy_error: str
    retry_after: int | None

    BAD_REQUEST = "bad_request", 400, "Bad request", "http_request_error"
    KEY_MISSING = "key_missing", 400, "Idempotency key missing", "http_request_error"
    KEY_INVALID = "key_invalid", 400, "Idempotency key invalid", "http_request_error"
    NO_ROUTE = "no_route", 404, "No route matches", "destination_not_found"
    METHOD = "method", 405, "Method not allowed", "http_request_denied"
    SLOW_CLIENT = "slow_client", 408, "Request took too long to arrive", "http_request_error"
    KEY_IN_FLIGHT = "key_in_flight", 409, "Still running", "http_request_denied", 1
    OUTCOME_UNKNOWN = "outcome_unknown", 409, "Outcome unknown", "http_request_denied"
    RESULT_NOT_STORED = "result_not_stored", 409, "Result not kept", "http_request_denied"
    MAY_HAVE_RUN = (
        "delivery_may_have_run",
        409,
        "Delivery may have run",
        "http_request_denied",
    )
    UNDER_WAY = "delivery_under_way", 409, "Delivery under way", "http_request_denied", 1
    OVER = "delivery_over", 409, "Delivery over", "http_request_denied"
    BODY_TOO_LARGE = "body_too_large", 413, "Body too large", "http_request_error"
    TARGET_TOO_LONG = "target_too_long", 414, "Request target too long", "http_request_error"
    EXPECTATION = "expectation", 417, "Unknown expectation", "http_request_error"
    KEY_MISMATCH = "key_mismatch", 422, "Key used for another request", "http_request_denied"
    THROTTLED = "throttled", 429, "Too many requests", "http_request_denied", 1
    HEADERS_TOO_LARGE = "headers_too_large", 431, "Header fields too large", "http_request_error"
    NOT_IMPLEMENTED = "not_implemented", 501, "Not implemented", "http_request_error"
    CONNECT = "connect", 502, "Upstream unreachable", "destination_unavailable"
    RESET = "reset", 502, "Upstream closed the connection", "connection_terminated"
    PROTOCOL = "protocol", 502, "Upstream sent an invalid response", "http_protocol_error"
    CERTIFICATE = "certificate", 502, "Upstream is not trusted", "tls_certificate_error"
    UNKNOWN = "unknown", 502, "Upstream failed", "proxy_internal_error"
    BUSY = "busy", 503, "No free connection", "connection_limit_reached", 1
    BREAKER_OPEN = "breaker_open", 503, "Circuit breaker open", "destination_unavailable", 1
    STORE = "store", 503, "Store unavailable", "proxy_internal_error", 1
    OVERLOAD = "overload", 503, "Overloaded", "connection_limit_reached", 1
    DRAINING = "draining", 503, "Shutting down", "proxy_internal_response", 1
    QUEUE_FULL = "queue_full", 503, "No room for another delivery", "proxy_internal_error", 5
    NOT_DURABLE = "not_durable", 503, "Not written to disk", "proxy_internal_error", 1
    TIMEOUT = "timeout", 504, "Upstream timed out", "http_response_timeout"
    VERSION = "version", 505, "HTTP version not supported", "http_request_error"
    LOOP = "loop", 508, "Loop detected", "proxy_loop_detected"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a client gets an answer of the proxy's own, and what to tell it."""

    reason: RefusalReason
    detail: str
    """One sentence for the person who reads the answer: what to do instead."""
    close: bool = False
    """Whether the client's connection is closed: it can carry no further request."""
    wait: int | None = None
    """Seconds for Retry-After, where they are known better than from the reason alone."""
    cause: str = ""
    """What refused the request, or what it was taken for, of those that give the same reason."""
    quotas: tuple[QuotaLeft, ...] = ()
    """What is left of the rate limits that the request met."""
    record: str = ""
    """The name of the idempotency record in question, for an operator."""
    other_status: int | None = None
    """The status that the route has configured for this reason, if it has one."""

    @property
    def status(self) -> int:
        return self.other_status or self.reason.status

    @property
    def title(self) -> str:
        return self.reason.heading

    @property
    def proxy_error(self) -> str:
        """The registered error type for the Proxy-Status field (RFC 9209 2.3)."""
        return self.reason.proxy_error

    @property
    def retry_after(self) -> int | None:
        """Seconds for Retry-After, or None where it would promise nothing."""
        return self.reason.retry_after if self.wait is None else self.wait
