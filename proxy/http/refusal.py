"""Refusals, the answers that Holdfast makes itself: each reason with its status and title.

A refusal is a value; ``server/problems.py`` is the only place that turns one
into bytes. The texts are fixed here so that no address, key or credential can
slip into an answer.
"""

from dataclasses import dataclass
from enum import StrEnum


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
class _ProblemText:
    status: int
    title: str
    error: str
    """A registered Proxy-Status error type (RFC 9209 2.3)."""
    retry_after: int | None = None


_PROBLEMS = {
    RefusalReason.BAD_REQUEST: _ProblemText(400, "Bad request", "http_request_error"),
    RefusalReason.KEY_MISSING: _ProblemText(400, "Idempotency key missing", "http_request_error"),
    RefusalReason.KEY_INVALID: _ProblemText(400, "Idempotency key invalid", "http_request_error"),
    RefusalReason.NO_ROUTE: _ProblemText(404, "No route matches", "destination_not_found"),
    RefusalReason.METHOD: _ProblemText(405, "Method not allowed", "http_request_denied"),
    RefusalReason.SLOW_CLIENT: _ProblemText(
        408, "Request took too long to arrive", "http_request_error"
    ),
    RefusalReason.KEY_IN_FLIGHT: _ProblemText(409, "Still running", "http_request_denied", 1),
    RefusalReason.OUTCOME_UNKNOWN: _ProblemText(409, "Outcome unknown", "http_request_denied"),
    RefusalReason.RESULT_NOT_STORED: _ProblemText(409, "Result not kept", "http_request_denied"),
    RefusalReason.BODY_TOO_LARGE: _ProblemText(413, "Body too large", "http_request_error"),
    RefusalReason.TARGET_TOO_LONG: _ProblemText(
        414, "Request target too long", "http_request_error"
    ),
    RefusalReason.EXPECTATION: _ProblemText(417, "Unknown expectation", "http_request_error"),
    RefusalReason.KEY_MISMATCH: _ProblemText(
        422, "Key used for another request", "http_request_denied"
    ),
    RefusalReason.THROTTLED: _ProblemText(429, "Too many requests", "http_request_denied", 1),
    RefusalReason.HEADERS_TOO_LARGE: _ProblemText(
        431, "Header fields too large", "http_request_error"
    ),
    RefusalReason.NOT_IMPLEMENTED: _ProblemText(501, "Not implemented", "http_request_error"),
    RefusalReason.CONNECT: _ProblemText(502, "Upstream unreachable", "destination_unavailable"),
    RefusalReason.RESET: _ProblemText(
        502, "Upstream closed the connection", "connection_terminated"
    ),
    RefusalReason.PROTOCOL: _ProblemText(
        502, "Upstream sent an invalid response", "http_protocol_error"
    ),
    RefusalReason.CERTIFICATE: _ProblemText(
        502, "Upstream is not trusted", "tls_certificate_error"
    ),
    RefusalReason.UNKNOWN: _ProblemText(502, "Upstream failed", "proxy_internal_error"),
    RefusalReason.BUSY: _ProblemText(503, "No free connection", "connection_limit_reached", 1),
    RefusalReason.BREAKER_OPEN: _ProblemText(
        503, "Upstream left alone for now", "destination_unavailable", 1
    ),
    RefusalReason.STORE: _ProblemText(503, "The store is out of reach", "proxy_internal_error", 1),
    RefusalReason.OVERLOAD: _ProblemText(503, "Overloaded", "connection_limit_reached", 1),
    RefusalReason.DRAINING: _ProblemText(503, "Shutting down", "proxy_internal_response", 1),
    RefusalReason.TIMEOUT: _ProblemText(504, "Upstream timed out", "http_response_timeout"),
    RefusalReason.VERSION: _ProblemText(505, "HTTP version not supported", "http_request_error"),
    RefusalReason.LOOP: _ProblemText(508, "Loop detected", "proxy_loop_detected"),
}


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
    """The limit that refused the request, of those that give the same reason."""
    quotas: tuple[QuotaLeft, ...] = ()
    """What is left of the rate limits that the request met."""
    record: str = ""
    """The name of the idempotency record in question, for an operator."""
    other_status: int | None = None
    """The status that the route has configured for this reason, if it has one."""

    @property
    def status(self) -> int:
        return self.other_status or _PROBLEMS[self.reason].status

    @property
    def title(self) -> str:
        return _PROBLEMS[self.reason].title

    @property
    def proxy_error(self) -> str:
        """The registered error type for the Proxy-Status field (RFC 9209 2.3)."""
        return _PROBLEMS[self.reason].error

    @property
    def retry_after(self) -> int | None:
        """Seconds for Retry-After, or None where it would promise nothing."""
        return _PROBLEMS[self.reason].retry_after if self.wait is None else self.wait
