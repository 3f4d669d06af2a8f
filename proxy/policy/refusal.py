"""Answers that Holdfast makes itself: each reason with its status and words.

A refusal is a value; ``server/problems.py`` is the only place that turns one
into bytes. The texts are fixed here so that no address, key or credential can
slip into an answer.
"""

from dataclasses import dataclass
from enum import StrEnum

from proxy.policy.permits import Quota


class Reason(StrEnum):
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
class _Answer:
    status: int
    title: str
    error: str
    """A registered Proxy-Status error type (RFC 9209 2.3)."""
    retry_after: int | None = None


_ANSWERS = {
    Reason.BAD_REQUEST: _Answer(400, "Bad request", "http_request_error"),
    Reason.KEY_MISSING: _Answer(400, "Idempotency key missing", "http_request_error"),
    Reason.KEY_INVALID: _Answer(400, "Idempotency key invalid", "http_request_error"),
    Reason.NO_ROUTE: _Answer(404, "No route matches", "destination_not_found"),
    Reason.METHOD: _Answer(405, "Method not allowed", "http_request_denied"),
    Reason.SLOW_CLIENT: _Answer(408, "Request took too long to arrive", "http_request_error"),
    Reason.KEY_IN_FLIGHT: _Answer(409, "Still running", "http_request_denied", 1),
    Reason.OUTCOME_UNKNOWN: _Answer(409, "Outcome unknown", "http_request_denied"),
    Reason.RESULT_NOT_STORED: _Answer(409, "Result not kept", "http_request_denied"),
    Reason.BODY_TOO_LARGE: _Answer(413, "Body too large", "http_request_error"),
    Reason.TARGET_TOO_LONG: _Answer(414, "Request target too long", "http_request_error"),
    Reason.EXPECTATION: _Answer(417, "Unknown expectation", "http_request_error"),
    Reason.KEY_MISMATCH: _Answer(422, "Key used for another request", "http_request_denied"),
    Reason.THROTTLED: _Answer(429, "Too many requests", "http_request_denied", 1),
    Reason.HEADERS_TOO_LARGE: _Answer(431, "Header fields too large", "http_request_error"),
    Reason.NOT_IMPLEMENTED: _Answer(501, "Not implemented", "http_request_error"),
    Reason.CONNECT: _Answer(502, "Upstream unreachable", "destination_unavailable"),
    Reason.RESET: _Answer(502, "Upstream closed the connection", "connection_terminated"),
    Reason.PROTOCOL: _Answer(502, "Upstream sent an invalid response", "http_protocol_error"),
    Reason.CERTIFICATE: _Answer(502, "Upstream is not trusted", "tls_certificate_error"),
    Reason.UNKNOWN: _Answer(502, "Upstream failed", "proxy_internal_error"),
    Reason.BUSY: _Answer(503, "No free connection", "connection_limit_reached", 1),
    Reason.BREAKER_OPEN: _Answer(503, "Upstream left alone for now", "destination_unavailable", 1),
    Reason.STORE: _Answer(503, "The store is out of reach", "proxy_internal_error", 1),
    Reason.OVERLOAD: _Answer(503, "Overloaded", "connection_limit_reached", 1),
    Reason.DRAINING: _Answer(503, "Shutting down", "proxy_internal_response", 1),
    Reason.TIMEOUT: _Answer(504, "Upstream timed out", "http_response_timeout"),
    Reason.VERSION: _Answer(505, "HTTP version not supported", "http_request_error"),
    Reason.LOOP: _Answer(508, "Loop detected", "proxy_loop_detected"),
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a client gets an answer of our own, and what to tell it."""

    reason: Reason
    detail: str
    """One sentence for the person who reads the answer: what to do instead."""
    close: bool = False
    """Whether the connection can carry no further request."""
    wait: int | None = None
    """Seconds after which to come back, where that is known better than the reason tells."""
    cause: str = ""
    """Which limit it was, of those that give the same reason."""
    quotas: tuple[Quota, ...] = ()
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
