"""Settings of retries, back-off, and fallbacks, which a client gets in place of a failure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcomes:
    """A list such as ``on: [connect, 503, 5xx, 403+hint]``, sorted for look-up."""

    names: frozenset[str]
    """Failure kinds (connect, refused, reset, timeout, protocol); for a fallback also
    breaker_open, and for dead letters :data:`REFUSALS`."""
    statuses: frozenset[int] = frozenset()
    """Statuses; classes such as 5xx are spelled out."""
    hinted: frozenset[int] = frozenset()
    """Statuses that count only if the response has a retry hint."""


USUAL_KINDS = ("connect", "refused", "reset", "timeout")
USUAL_STATUSES = (408, 502, 503, 504)
USUAL_OUTCOMES = Outcomes(frozenset(USUAL_KINDS), frozenset(USUAL_STATUSES))
"""What ``default`` stands for in a list of outcomes."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before a retry for which the upstream gave no hint."""

    strategy: str = "exponential"
    """``exponential``, ``linear``, ``constant`` or ``fibonacci``."""
    base: float = 0.1
    factor: float = 2.0
    """Factor of the exponential strategy."""
    increment: float | None = None
    """Increment of the linear strategy; None: the base."""
    max: float = 30.0
    jitter: str | float = "full"
    """``full``, ``equal``, ``decorrelated``, ``none``, or the share by which a wait may vary."""


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """When a request is sent again, and how soon."""

    attempts: int = 3
    """Attempts in total, the first included."""
    on: Outcomes = USUAL_OUTCOMES
    unsafe: str = "auto"
    """``auto``, ``never`` or ``always``."""
    attempt_timeout: float | None = None
    backoff: Backoff = Backoff()
    longest_hint: float | None = 60.0
    """The longest wait that an upstream may ask for; None: its hints are ignored."""


@dataclass(frozen=True, slots=True)
class FallbackSettings:
    """What the client gets instead of a failure: a fixed answer, or another upstream's."""

    on: Outcomes
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    upstream: str = ""
    """The name of the other upstream; empty: the fixed answer."""
