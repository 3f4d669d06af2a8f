"""The record of one attempt at an upstream, and the kinds of failure that it may end in.

Every attempt ends in exactly one :class:`FailureKind`, or in a response that was relayed
whole; that alone decides what may follow. The kind is chosen from what was seen on the
wire (was a byte sent, did a byte come back), never from the text of an error.
"""

from dataclasses import dataclass
from enum import StrEnum

from proxy.policy.reasons import VerdictReason

FIRST_FAILURE = 400
"""Responses from this status on (4xx, 5xx) count as failed attempts."""
FIRST_SERVER_ERROR = 500


class FailureKind(StrEnum):
    """How an attempt failed. The values are metric labels and appear in the log."""

    CONNECT = "connect"  # DNS, refused, connect timeout, TLS handshake
    RESET = "reset"  # the connection ended before a response head
    TIMEOUT = "timeout"  # no response head in time
    PROTOCOL = "protocol"  # a response that breaks HTTP
    CERTIFICATE = "certificate"  # the peer's certificate is not trusted
    BUSY = "busy"  # no free connection within connect_timeout
    TRUNCATED = "truncated"  # the body ended early, after the head was relayed
    UNKNOWN = "unknown"  # anything else
    CANCELLED = "cancelled"  # the proxy aborted it: the client left, or sent a bad body. No failure

    @property
    def may_have_run(self) -> bool:
        """Whether the upstream may have acted on the request."""
        return self not in _NEVER_SENT


_NEVER_SENT = frozenset({FailureKind.CONNECT, FailureKind.CERTIFICATE, FailureKind.BUSY})


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """A wait before a retry."""

    seconds: float
    source: str
    """``backoff`` if the proxy chose it, ``hint`` if the upstream asked for it."""


@dataclass(slots=True, eq=False, repr=False)
class Attempt:
    """The record of one attempt: filled in once, then never changed or merged."""

    number: int
    """Number of the attempt within its request, from 1."""
    upstream: str
    """Name of the upstream in the configuration."""
    started: float
    """Monotonic seconds."""
    delay: RetryDelay | None = None
    """The wait before this attempt, if it is a retry that waited."""
    queued: float = 0.0
    """Seconds in throttles' wait queues before the attempt was admitted."""
    address: str = ""
    """The address that was tried, once one was chosen."""
    url: str = ""
    """The upstream's URL that was tried, once an address was chosen."""
    duration: float = 0.0
    """Seconds until the last byte of the response, or the failure."""
    status: int = 0
    """Status of the response; 0 as long as no head has come."""
    kind: FailureKind | None = None
    """How the attempt failed; None if the whole response arrived."""
    sent: bool = False
    """Whether a byte of the request was handed to the connection."""
    received: bool = False
    """Whether a byte of the response came back."""
    reused: bool = False
    """Whether the connection came from the connection pool and had served before."""
    verdict: VerdictReason | None = None
    """Why a retry followed, or did not; None on a route that does not retry."""

    @property
    def found_stale(self) -> bool:
        """Whether the attempt only found that its pooled connection had ended while idle."""
        return self.kind is FailureKind.RESET and self.reused and not self.received

    @property
    def outcome(self) -> str:
        """The metric label: a failure kind, or the class of the status (``2xx``)."""
        return outcome_label(self.kind or self.status)

    def __repr__(self) -> str:
        return f"<attempt {self.number} {self.address or '-'} {self.kind or self.status}>"


def outcome_label(ending: FailureKind | int) -> str:
    """Return the metric label, of a closed set, for an attempt's failure kind or status."""
    if isinstance(ending, FailureKind):
        return ending.value
    return STATUS_CLASSES[ending // 100] if 100 <= ending < 600 else "other"


STATUS_CLASSES = ("0xx", "1xx", "2xx", "3xx", "4xx", "5xx")
