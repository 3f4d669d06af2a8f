"""Settings of retries, back-off, and fallbacks, which a client gets in place of a failure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from proxy.policy.settings.validation import STATUS, Validated, above, at_least, require, within

_OTHER_NAMES = frozenset({"protocol", "breaker_open", "refusals"})


@dataclass(frozen=True, slots=True)
class Outcomes(Validated):
    """A list such as ``on: [connect, 503, 5xx, 403+hint]``, sorted for look-up."""

    names: frozenset[str]
    """Failure kinds (connect, refused, reset, timeout, protocol); for a fallback also
    breaker_open, and for dead letters :data:`REFUSALS`."""
    statuses: Annotated[frozenset[int], STATUS] = frozenset()
    """Statuses; classes such as 5xx are spelled out."""
    hinted: Annotated[frozenset[int], STATUS] = frozenset()
    """Statuses that count only if the response has a retry hint."""

    def check_fields(self) -> None:
        known = _OTHER_NAMES.union(USUAL_KINDS)
        require(self, "names", f"some of {', '.join(sorted(known))}", holds=self.names <= known)


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
class Backoff(Validated):
    """How long to wait before a retry for which the upstream gave no hint."""

    strategy: BackoffStrategy = BackoffStrategy.EXPONENTIAL
    base: Annotated[float, at_least(0)] = 0.1
    factor: Annotated[float, at_least(1)] = 2.0
    """Factor of the exponential strategy."""
    increment: Annotated[float | None, at_least(0)] = None
    """Increment of the linear strategy; None: the base."""
    max: Annotated[float, at_least(0)] = 30.0
    jitter: Annotated[JitterStrategy | float, within(0, 1)] = JitterStrategy.FULL
    """A strategy, or the share by which a wait may vary."""


@dataclass(frozen=True, slots=True)
class RetrySettings(Validated):
    """When a request is sent again, and how soon."""

    attempts: Annotated[int, at_least(1)] = 3
    """Attempts in total, the first included."""
    on: Outcomes = USUAL_OUTCOMES
    unsafe: UnsafeRetries = UnsafeRetries.AUTO
    attempt_timeout: Annotated[float | None, above(0)] = None
    backoff: Backoff = Backoff()
    longest_hint: Annotated[float | None, above(0)] = 60.0
    """The longest wait that an upstream may ask for; None: its hints are ignored."""


@dataclass(frozen=True, slots=True)
class FallbackSettings(Validated):
    """What the client gets instead of a failure: a fixed answer, or another upstream's."""

    on: Outcomes
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    upstream: str = ""
    """The name of the other upstream; empty: the fixed answer."""

    def check_fields(self) -> None:
        holds = not self.status if self.upstream else 200 <= self.status < 600
        require(self, "status", "from 200 to 599, or 0 beside an upstream", holds=holds)
