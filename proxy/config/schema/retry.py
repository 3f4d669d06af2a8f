"""Keys of retries and of the fallback."""

from proxy.config.schema.section import Key, ListOf, Section, TableOf
from proxy.config.schema.shorthands import SetsKey, Switchable
from proxy.config.values.base import Choice, Name, Number, Text
from proxy.config.values.headers import EditableHeader, HeaderValue, field_lines
from proxy.config.values.outcomes import (
    BUILT_IN as BUILT_IN_OUTCOMES,
    OutcomeName,
    Status,
    outcomes_of,
)
from proxy.config.values.quantities import Duration
from proxy.config.values.retrying import AttemptCount, Jitter, Unsafe
from proxy.policy.settings import Backoff, BackoffStrategy, FallbackSettings, RetrySettings

BACKOFF = Section(
    "BackoffKeys",
    "How long to wait before a retry, where the upstream does not say.",
    belongs_to="retry.backoff",
    settings=Backoff,
    keys={
        "strategy": Key(
            Choice(*BackoffStrategy),
            "How waits grow: exponential (base, base·factor, base·factor², …), linear (base, "
            "base+increment, …), constant, or fibonacci (base, base, 2·base, 3·base, …).",
        ),
        "base": Key(Duration(), "The first wait, before jitter; after a 429 at least 1s."),
        "factor": Key(Number(1, 100), "Growth of an exponential wait."),
        "increment": Key(
            Duration(), "Growth of a linear wait. Default: the base.", examples=("500ms",)
        ),
        "max": Key(
            Duration(), "Longest back-off; a wait that the upstream asks for has retry_after.max."
        ),
        "jitter": Key(
            Jitter(),
            "How waits are randomised, so that callers do not return all at once: full (anything "
            "up to the wait), equal (the upper half), decorrelated (up to three times the last "
            "wait), none, or a number (0.2: 20 % less or more).",
        ),
    },
)

RETRY_AFTER = Section(
    "RetryAfterKeys",
    "Whether an upstream may say when to come back.",
    belongs_to="retry.retry_after",
    settings=RetrySettings,
    shorthands=(Switchable(),),
    keys={
        "max": Key(
            Duration(zero="would follow no hint, write retry_after: false if that is meant"),
            "Longest wait that is accepted; if the upstream asks for more there is no retry, and "
            "the client gets the response.",
            to="longest_hint",
            written="60s",
        ),
    },
)

RETRY = Section(
    "RetryKeys",
    "When a request is sent again, and how soon.",
    belongs_to="retry",
    settings=RetrySettings,
    shorthands=(Switchable(), SetsKey("attempts", named=True)),
    keys={
        "attempts": Key(AttemptCount(), "How often in total, the first included.", examples=(3, 5)),
        "on": Key(
            ListOf(OutcomeName(), can_be_empty=False),
            "After what: connect, refused, reset, timeout, protocol, statuses, 4xx, 5xx (without "
            "501 and 505), 403+hint (if the response says when to come back), default (the "
            "built-in list).",
            make=outcomes_of,
            written=list(BUILT_IN_OUTCOMES),
        ),
        "unsafe": Key(
            Unsafe(),
            "POST and PATCH: auto (not if they may have run, unless the upstream runs them once), "
            "never (only after connect), always (they may run twice).",
        ),
        "attempt_timeout": Key(
            Duration(zero="leaves no time for any attempt, write none for no limit", none=True),
            "For one attempt up to the response's head; below timeout.",
        ),
        "backoff": Key(
            BACKOFF,
            "How long to wait before a retry.",
            examples=({"base": "200ms", "max": "10s"},),
        ),
        "retry_after": Key(
            RETRY_AFTER,
            "Whether to wait for as long as the upstream says (Retry-After and similar fields).",
        ),
    },
)

FALLBACK = Section(
    "FallbackKeys",
    "What the client gets in place of a failure.",
    belongs_to="fallback",
    settings=FallbackSettings,
    make=dict,  # made by the route, whose retry.on is the default of `on`
    shorthands=(Switchable(),),
    alternatives=(frozenset({"status", "headers", "body"}), frozenset({"upstream"})),
    keys={
        "on": Key(
            ListOf(OutcomeName("replaced", ("breaker_open",)), can_be_empty=False),
            "In place of what: the same words as in retry.on, and breaker_open (the breaker of "
            "every address is open), which default includes here. Default: the route's retry.on "
            "and breaker_open.",
            written=None,
        ),
        "status": Key(
            Status(least=200),
            "Status of a fixed answer, from 200 to 599.",
            written=None,
            examples=(503,),
        ),
        "headers": Key(
            TableOf(EditableHeader(), HeaderValue()),
            "Its header fields.",
            make=field_lines,
            written=None,
            examples=({"Content-Type": "application/json"},),
        ),
        "body": Key(Text(), "Its body.", written=None),
        "upstream": Key(
            Name(),
            "In place of a fixed answer: another upstream, which is asked once, within the time "
            "left. A request that may have run goes there only if its method may be repeated, or "
            "under unsafe: always.",
            written=None,
        ),
    },
)
