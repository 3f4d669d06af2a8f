"""What became of one attempt, in a word that alone decides what may follow.

Every attempt at an upstream ends in exactly one :class:`FailureKind`, or in a response
that was relayed whole. The kind is chosen from what was seen on the wire (was a
byte sent, did a byte come back), never from the text of an error.
"""

from dataclasses import dataclass
from enum import StrEnum

from proxy.policy.reasons import VerdictReason

FIRST_FAILURE = 400
"""From this status on a response is not what the client hoped for."""
FIRST_SERVER_ERROR = 500


class FailureKind(StrEnum):
    """How an attempt failed. The values are metric labels and log words."""

    CONNECT = "connect"  # DNS, refused, connect timeout, TLS handshake
    RESET = "reset"  # the connection ended before a response head
    TIMEOUT = "timeout"  # no response head in time
    PROTOCOL = "protocol"  # a response that breaks HTTP
    CERTIFICATE = "certificate"  # the peer is not whom we trust
    BUSY = "busy"  # no free connection within connect_timeout
    TRUNCATED = "truncated"  # the body ended early, after the head was relayed
    UNKNOWN = "unknown"  # anything else
    CANCELLED = "cancelled"  # we gave it up: the client left, or sent a bad body. No failure

    @property
    def may_have_run(self) -> bool:
        """Whether the upstream may have acted on the request."""
        return self not in _NEVER_SENT


_NEVER_SENT = frozenset({FailureKind.CONNECT, FailureKind.CERTIFICATE, FailureKind.BUSY})


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """A wait before an attempt."""

    seconds: float
    source: str
    """``backoff`` if we chose it, ``hint`` if the upstream asked for it."""


class Attempt:
    """The record of one try: filled in once, then never changed or merged."""

    __slots__ = (
        "address",
        "duration",
        "kind",
        "number",
        "pause",
        "queued",
        "received",
        "reused",
        "sent",
        "started",
        "status",
        "upstream",
        "url",
        "why",
    )

    def __init__(
        self, number: int, upstream: str, started: float, pause: RetryDelay | None = None
    ) -> None:
        self.number = number
        """Counted from 1 within its request."""
        self.upstream = upstream
        """Name of the upstream in the configuration."""
        self.pause = pause
        """The wait before it, if there was one."""
        self.queued = 0.0
        """Seconds it stood in line before it was let out."""
        self.address = ""
        """The address that was tried, once one was chosen."""
        self.url = ""
        """The URL of the upstream that it went to, once an address was chosen."""
        self.started = started
        """Monotonic seconds."""
        self.duration = 0.0
        """Seconds until the last byte of the response, or the failure."""
        self.status = 0
        """Status of the response; 0 while no head came."""
        self.kind: FailureKind | None = None
        """How it failed; None if the whole response arrived."""
        self.sent = False
        """Whether a byte of the request was handed to the connection."""
        self.received = False
        """Whether a byte of the response came back."""
        self.reused = False
        """Whether it went over a connection that had served before."""
        self.why: VerdictReason | None = None
        """Why it was the last, or was not; None on a route that does not retry."""

    @property
    def found_stale(self) -> bool:
        """Whether it only found that its connection had ended while it was idle."""
        return self.kind is FailureKind.RESET and self.reused and not self.received

    @property
    def outcome(self) -> str:
        """The metric label: a kind, or the class of the status (``2xx``)."""
        return outcome_label(self.kind or self.status)

    def __repr__(self) -> str:
        return f"<attempt {self.number} {self.address or '-'} {self.kind or self.status}>"


def outcome_label(ending: FailureKind | int) -> str:
    """One word of a closed set for how an attempt ended: its kind, or else its status."""
    if isinstance(ending, FailureKind):
        return ending.value
    return STATUS_CLASSES[ending // 100] if 100 <= ending < 600 else "other"


STATUS_CLASSES = ("0xx", "1xx", "2xx", "3xx", "4xx", "5xx")
