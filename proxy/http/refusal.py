"""Answers that Holdfast makes itself: each reason with its status and words.

A refusal is a value; ``server/problems.py`` is the only place that turns one
into bytes. The texts are fixed here so that no address, key or credential can
slip into an answer.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class QuotaLeft:
    """One limit and what is left of it, for RateLimit and RateLimit-Policy."""

    name: str
    limit: int
    window: int | None
    """Seconds; None for a limit of calls under way."""
    remaining: int
    reset: int | None
    """Seconds until more is left, where nothing is; None if nobody can tell."""


class RefusalReason(StrEnum):
    """The closed set of reasons, used in problem types, logs and tests alike."""

    BAD_REQUEST = "bad_request"
    KEY_MISSING = "key_missing"
    KEY_INVALID = "key_invalid"
    NO_ROUTE = "no_route"
    METHOD = "method"
    SLOW_CLIENT = "slow_client"
    KEY_IN_FLIGHT = "key_in_flight"
    OUTCOME_UNKNOWN = "outcome_unknown"
    RESULT_NOT_STORED = "result_not_stored"
    BODY_TOO_LARGE = "body_too_large"
    TARGET_TOO_LONG = "target_too_long"
    EXPECTATION = "expectation"
    KEY_MISMATCH = "key_mismatch"
    THROTTLED = "throttled"
    HEADERS_TOO_LARGE = "headers_too_large"
    NOT_IMPLEMENTED = "not_implemented"
    CONNECT = "connect"
    RESET = "reset"
    PROTOCOL = "protocol"
    CERTIFICATE = "certificate"
    UNKNOWN = "unknown"
    BUSY = "busy"
    BREAKER_OPEN = "breaker_open"
    STORE = "store"
    OVERLOAD = "overload"
    DRAINING = "draining"
    TIMEOUT = "timeout"
    VERSION = "version"
    LOOP = "loop"


@dataclass(frozen=True, slots=True)
class _AnswerText:
    status: int
    title: str
    error: str
    """A registered Proxy-Status error type (RFC 9209 2.3)."""
    retry_after: int | None = None


_ANSWERS = {
    RefusalReason.BAD_REQUEST: _AnswerText(400, "Bad request", "http_request_error"),
    RefusalReason.KEY_MISSING: _AnswerText(400, "Idempotency key missing", "http_request_error"),
    RefusalReason.KEY_INVALID: _AnswerText(400, "Idempotency key invalid", "http_request_error"),
    RefusalReason.NO_ROUTE: _AnswerText(404, "No route matches", "destination_not_found"),
    RefusalReason.METHOD: _AnswerText(405, "Method not allowed", "http_request_denied"),
    RefusalReason.SLOW_CLIENT: _AnswerText(
        408, "Request took too long to arrive", "http_request_error"
    ),
    RefusalReason.KEY_IN_FLIGHT: _AnswerText(409, "Still running", "http_request_denied", 1),
    RefusalReason.OUTCOME_UNKNOWN: _AnswerText(409, "Outcome unknown", "http_request_denied"),
    RefusalReason.RESULT_NOT_STORED: _AnswerText(409, "Result not kept", "http_request_denied"),
    RefusalReason.BODY_TOO_LARGE: _AnswerText(413, "Body too large", "http_request_error"),
    RefusalReason.TARGET_TOO_LONG: _AnswerText(
        414, "Request target too long", "http_request_error"
    ),
    RefusalReason.EXPECTATION: _AnswerText(417, "Unknown expectation", "http_request_error"),
    RefusalReason.KEY_MISMATCH: _AnswerText(
        422, "Key used for another request", "http_request_denied"
    ),
    RefusalReason.THROTTLED: _AnswerText(429, "Too many requests", "http_request_denied", 1),
    RefusalReason.HEADERS_TOO_LARGE: _AnswerText(
        431, "Header fields too large", "http_request_error"
    ),
    RefusalReason.NOT_IMPLEMENTED: _AnswerText(501, "Not implemented", "http_request_error"),
    RefusalReason.CONNECT: _AnswerText(502, "Upstream unreachable", "destination_unavailable"),
    RefusalReason.RESET: _AnswerText(
        502, "Upstream closed the connection", "connection_terminated"
    ),
    RefusalReason.PROTOCOL: _AnswerText(
        502, "Upstream sent an invalid response", "http_protocol_error"
    ),
    RefusalReason.CERTIFICATE: _AnswerText(502, "Upstream is not trusted", "tls_certificate_error"),
    RefusalReason.UNKNOWN: _AnswerText(502, "Upstream failed", "proxy_internal_error"),
    RefusalReason.BUSY: _AnswerText(503, "No free connection", "connection_limit_reached", 1),
    RefusalReason.BREAKER_OPEN: _AnswerText(
        503, "Upstream left alone for now", "destination_unavailable", 1
    ),
    RefusalReason.STORE: _AnswerText(503, "The store is out of reach", "proxy_internal_error", 1),
    RefusalReason.OVERLOAD: _AnswerText(503, "Overloaded", "connection_limit_reached", 1),
    RefusalReason.DRAINING: _AnswerText(503, "Shutting down", "proxy_internal_response", 1),
    RefusalReason.TIMEOUT: _AnswerText(504, "Upstream timed out", "http_response_timeout"),
    RefusalReason.VERSION: _AnswerText(505, "HTTP version not supported", "http_request_error"),
    RefusalReason.LOOP: _AnswerText(508, "Loop detected", "proxy_loop_detected"),
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a client gets an answer of our own, and what to tell it."""

    reason: RefusalReason
    detail: str
    """One sentence for the person who reads the answer: what to do instead."""
    close: bool = False
    """Whether the connection can carry no further request."""
    wait: int | None = None
    """Seconds after which to come back, where that is known better than the reason tells."""
    cause: str = ""
    """Which limit it was, of those that give the same reason."""
    quotas: tuple[QuotaLeft, ...] = ()
    """What is left of the limits that were met."""
    record: str = ""
    """The name of the idempotency record that it is about, for an operator."""
    other_status: int | None = None
    """Where a route has its own status for the reason."""

    @property
    def status(self) -> int:
        return self.other_status or _ANSWERS[self.reason].status

    @property
    def title(self) -> str:
        return _ANSWERS[self.reason].title

    @property
    def proxy_error(self) -> str:
        """The registered name for the Proxy-Status field."""
        return _ANSWERS[self.reason].error

    @property
    def retry_after(self) -> int | None:
        """Seconds for Retry-After, or None where it would promise nothing."""
        return _ANSWERS[self.reason].retry_after if self.wait is None else self.wait
