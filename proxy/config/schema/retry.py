"""Keys of retries and of the fallback."""

from typing import Annotated, Literal

from annotated_types import MinLen

from proxy.config.schema.section import Section, described
from proxy.config.schema.shorthands import Switchable
from proxy.config.values.base import Choice, Name, Number, Text
from proxy.config.values.headers import EditableHeader, HeaderValue
from proxy.config.values.outcomes import BUILT_IN as BUILT_IN_OUTCOMES, OutcomeName, Status
from proxy.config.values.quantities import Duration
from proxy.config.values.retrying import AttemptCount, Jitter, Unsafe
from proxy.policy.settings import BackoffStrategy, JitterStrategy, UnsafeRetries

_NO_ATTEMPT = "leaves no time for any attempt, write none for no limit"


class BackoffKeys(Section):
    """How long to wait before a retry, where the upstream does not say."""

    belongs_to = "retry.backoff"

    strategy: Annotated[BackoffStrategy, Choice(*BackoffStrategy)] = described(
        "How waits grow: exponential (base, base·factor, base·factor², …), linear (base, "
        "base+increment, …), constant, or fibonacci (base, base, 2·base, 3·base, …).",
        "exponential",
    )
    base: Annotated[float, Duration()] = described(
        "The first wait, before it is spread; after a 429 at least 1s.", "100ms"
    )
    factor: Annotated[float, Number(1, 100)] = described("Growth of an exponential wait.", 2)
    increment: Annotated[float | None, Duration()] = described(
        "Growth of a linear wait. Default: the base.", None
    )
    max: Annotated[float, Duration()] = described("No wait of ours is longer.", "30s")
    jitter: Annotated[JitterStrategy | float, Jitter()] = described(
        "How waits are spread, so that callers do not return all at once: full (anything up to the "
        "wait), equal (the upper half), decorrelated (up to three times the last wait), none, or a "
        "number (0.2: 20 % less or more).",
        "full",
    )


class RetryAfterKeys(Section):
    """Whether an upstream may say when to come back."""

    belongs_to = "retry.retry_after"

    max: Annotated[
        float, Duration(zero="would follow no hint, write retry_after: false if that is meant")
    ] = described(
        "Longest wait that is accepted; a longer one ends it, and the client gets the response.",
        "60s",
    )


class RetryKeys(Section):
    """When a request is sent again, and how soon."""

    belongs_to = "retry"

    attempts: Annotated[int, AttemptCount()] = described(
        "How often in total, the first included.", 3
    )
    on: Annotated[list[Annotated[str | int, OutcomeName()]], MinLen(1)] = described(
        "After what: connect, refused, reset, timeout, protocol, statuses, 4xx, 5xx (without 501 "
        "and 505), 403+hint (if the response says when to come back), default (the built-in list).",
        list(BUILT_IN_OUTCOMES),
    )
    unsafe: Annotated[UnsafeRetries, Unsafe()] = described(
        "POST and PATCH: auto (not if they may have run, unless the upstream runs them once), "
        "never (only after connect), always (they may run twice).",
        "auto",
    )
    attempt_timeout: Annotated[float | None, Duration(zero=_NO_ATTEMPT, none=True)] = described(
        "For one attempt up to the response's head; below timeout.", "none"
    )
    backoff: BackoffKeys = described("How long to wait before a retry.", {})
    retry_after: Annotated[RetryAfterKeys | Literal[False], Switchable()] = described(
        "Whether to wait for as long as the upstream says (Retry-After and its kin).", {}
    )


class FallbackKeys(Section):
    """What the client gets in place of a failure."""

    belongs_to = "fallback"
    alternatives = (frozenset({"status", "headers", "body"}), frozenset({"upstream"}))

    on: Annotated[
        list[Annotated[str | int, OutcomeName("replaced", ("breaker_open",))]] | None, MinLen(1)
    ] = described(
        "In place of what: the same words as in retry.on, and breaker_open (every address is left "
        "alone), which default includes here. Default: the route's retry.on and breaker_open.",
        None,
    )
    status: Annotated[int | None, Status(least=200)] = described(
        "Status of a fixed answer, from 200 to 599.", None
    )
    headers: dict[Annotated[str, EditableHeader()], Annotated[str, HeaderValue()]] | None = (
        described("Its header fields.", None)
    )
    body: Annotated[str | None, Text()] = described("Its body.", None)
    upstream: Annotated[str | None, Name()] = described(
        "In place of a fixed answer: another upstream, which is asked once, within the time left. "
        "A request that may have run goes there only if its method may be repeated, or under "
        "unsafe: always.",
        None,
    )
