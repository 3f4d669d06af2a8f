"""Settings of retries, back-off, and fallbacks, which a client gets in place of a failure."""

from dataclasses import dataclass
from enum import StrEnum

from proxy.policy.settings.validation import above, at_least, check, choose, within

_OTHER_NAMES = frozenset({"protocol", "breaker_open", "refusals"})


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

    def __post_init__(self) -> None:
        known = _OTHER_NAMES.union(USUAL_KINDS)
        check(self, "names", f"some of {', '.join(sorted(known))}", holds=self.names <= known)
        within(self, 400, 599, "statuses", "hinted")


USUAL_KINDS = ("connect", "refused", "reset", "timeout")
USUAL_STATUSES = (408, 502, 503, 504)
USUAL_OUTCOMES = Outcomes(frozenset(USUAL_KINDS), frozenset(USUAL_STATUSES))
"""What ``default`` stands for in a list of outcomes."""


class BackoffStrategy(StrEnum):
    """How the waits before retries grow."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    CONSTANT = "constant"
    FIBONACCI = "fibonacci"


class JitterStrategy(StrEnum):
    """How waits are spread, so that callers do not return all at once."""

    FULL = "full"
    EQUAL = "equal"
    DECORRELATED = "decorrelated"
    NONE = "none"


class UnsafeRetries(StrEnum):
    """Whether a request is sent again whose method must not run twice."""

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before a retry for which the upstream gave no hint."""

    strategy: BackoffStrategy = BackoffStrategy.EXPONENTIAL
    base: float = 0.1
    factor: float = 2.0
    """Factor of the exponential strategy."""
    increment: float | None = None
    """Increment of the linear strategy; None: the base."""
    max: float = 30.0
    jitter: JitterStrategy | float = JitterStrategy.FULL
    """A strategy, or the share by which a wait may vary."""

    def __post_init__(self) -> None:
        choose(self, BackoffStrategy, "strategy")
        at_least(self, 0, "base", "increment", "max")
        at_least(self, 1, "factor")
        if isinstance(self.jitter, str):
            choose(self, JitterStrategy, "jitter")
        else:
            within(self, 0, 1, "jitter")


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """When a request is sent again, and how soon."""

    attempts: int = 3
    """Attempts in total, the first included."""
    on: Outcomes = USUAL_OUTCOMES
    unsafe: UnsafeRetries = UnsafeRetries.AUTO
    attempt_timeout: float | None = None
    backoff: Backoff = Backoff()
    longest_hint: float | None = 60.0
    """The longest wait that an upstream may ask for; None: its hints are ignored."""

    def __post_init__(self) -> None:
        at_least(self, 1, "attempts")
        choose(self, UnsafeRetries, "unsafe")
        above(self, 0, "attempt_timeout", "longest_hint")


@dataclass(frozen=True, slots=True)
class FallbackSettings:
    """What the client gets instead of a failure: a fixed answer, or another upstream's."""

    on: Outcomes
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    upstream: str = ""
    """The name of the other upstream; empty: the fixed answer."""

    def __post_init__(self) -> None:
        if self.upstream:
            check(self, "status", "0 beside an upstream", holds=not self.status)
        else:
            within(self, 200, 599, "status")
