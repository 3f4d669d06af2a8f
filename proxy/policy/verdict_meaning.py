"""What the reasons of verdicts mean, a sentence for each: the only place where they are written.

``explain``, ``/attempts``, dead letters, and the commands that print these all take them from here.
"""

from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import status_may_have_run

MEANINGS = {
    VerdictReason.SUCCESS: "it is an answer for the client",
    VerdictReason.RECOVERED: "it is an answer for the client, after a retry",
    VerdictReason.RETRIED: "another attempt follows",
    VerdictReason.NOT_RETRYABLE_KIND: "retry.on does not name this failure",
    VerdictReason.NOT_RETRYABLE_STATUS: "retry.on does not name this status",
    VerdictReason.NOT_REPEATABLE: "it may have run, and may not run twice",
    VerdictReason.KEY_EXPIRED: "by then the upstream may have forgotten its key (honours_key.for)",
    VerdictReason.FINAL_ANSWER: "the upstream says that any other attempt gets the same answer",
    VerdictReason.SERVER_SAID_NO: "the upstream says not to retry",
    VerdictReason.ATTEMPTS_EXHAUSTED: "it was the last attempt",
    VerdictReason.BUDGET: "the upstream's budget has no retry left",
    VerdictReason.DEADLINE: "the time left is too short for the wait and another attempt",
    VerdictReason.HINT_TOO_LONG: "the upstream asks for a longer wait than retry_after.max",
    VerdictReason.BODY_TOO_LARGE: "the body is larger than buffer, and part of it was sent",
    VerdictReason.BUFFER_FULL: "the body was not kept: limits.replay_memory was used up",
    VerdictReason.RESPONSE_STARTED: "the client has part of the response",
    VerdictReason.CLIENT_GONE: "the client left",
    VerdictReason.BREAKER_OPEN: "the breakers of all addresses of the upstream are open",
    VerdictReason.THROTTLED: "the throttle would not let another attempt through in time",
    VerdictReason.SHUTDOWN: "Holdfast is shutting down",
}
_KEY_LOST = "another request may have its key by now"


def verdict_meaning(
    reason: VerdictReason,
    status: int = 0,
    refused: frozenset[int] = frozenset(),
    *,
    key_lost: bool = False,
) -> str:
    """Return what *reason* means for an attempt that ended with *status* (0: no response).

    *refused* are the statuses by which the upstream says that nothing was done; *key_lost* tells
    that the request had lost its idempotency key.
    """
    if reason is not VerdictReason.NOT_REPEATABLE:
        return MEANINGS[reason]
    if key_lost:
        return _KEY_LOST
    if not status or status_may_have_run(status, refused):
        return MEANINGS[reason]
    if status in refused:
        return "unsafe: never repeats it only if nothing of it was sent"
    return f"after a {status} only what may run twice is repeated"
