"""Retries, back-off, and what a client gets in place of a failure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcomes:
    """A list such as ``on: [connect, 503, 5xx, 403+hint]``, sorted for look-up."""

    words: frozenset[str]
    """Kinds (connect, refused, reset, timeout, protocol); for a fallback also breaker_open, and
    for dead letters :data:`REFUSALS`."""
    statuses: frozenset[int] = frozenset()
    """Classes are spelled out."""
    hinted: frozenset[int] = frozenset()
    """Statuses that count only if the response says when to come back."""


USUAL_KINDS = ("connect", "refused", "reset", "timeout")
USUAL_STATUSES = (408, 502, 503, 504)
USUAL_OUTCOMES = Outcomes(frozenset(USUAL_KINDS), frozenset(USUAL_STATUSES))
"""What ``default`` stands for in a list of outcomes."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before a retry that nobody told us to wait for."""

    strategy: str = "exponential"
    """``exponential``, ``linear``, ``constant`` or ``fibonacci``."""
    base: float = 0.1
    factor: float = 2.0
    """For exponential."""
    increment: float | None = None
    """For linear; None: the base."""
    max: float = 30.0
    jitter: str | float = "full"
    """``full``, ``equal``, ``decorrelated``, ``none``, or the share by which it may vary."""


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """When a request is sent again, and how soon."""

    attempts: int = 3
    """In total, the first included."""
    on: Outcomes = USUAL_OUTCOMES
    unsafe: str = "auto"
    """``auto``, ``never`` or ``always``."""
    attempt_timeout: float | None = None
    backoff: Backoff = Backoff()
    longest_hint: float | None = 60.0
    """The longest wait that an upstream may ask for; None: it is not listened to."""


@dataclass(frozen=True, slots=True)
class FallbackSettings:
    """What the client gets instead of a failure: a fixed answer, or another upstream's."""

    on: Outcomes
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    upstream: str = ""
    """Its name; empty: the fixed answer."""
