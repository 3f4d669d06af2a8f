"""Closed sets of reasons: the verdict on an attempt, and what an idempotency key meant.

Metrics, logs, ``explain`` and tests all use these values.
"""

from enum import StrEnum


class VerdictReason(StrEnum):
    """Why an attempt was the last one of its request, or why another follows."""

    SUCCESS = "success"  # at the first attempt
    RECOVERED = "recovered"  # success after a retry
    RETRIED = "retried"  # another attempt follows
    NOT_RETRYABLE_KIND = "not_retryable_kind"  # its failure kind is not listed in retry.on
    NOT_RETRYABLE_STATUS = "not_retryable_status"  # its status is not listed in retry.on
    # It may have run, and may not run twice; or another request may own its key by now.
    NOT_REPEATABLE = "not_repeatable"
    KEY_EXPIRED = "key_expired"  # the upstream may have forgotten the key that made it repeatable
    FINAL_ANSWER = "final_answer"  # the upstream's own replay: another attempt would get the same
    SERVER_SAID_NO = "server_said_no"  # X-Should-Retry: false
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    BUDGET = "budget"  # the upstream's retry budget is used up
    DEADLINE = "deadline"  # not enough time is left
    HINT_TOO_LONG = "hint_too_long"  # the upstream asks for a longer wait than the route allows
    BODY_TOO_LARGE = "body_too_large"  # too large to be kept for another attempt
    BUFFER_FULL = "buffer_full"  # no memory was left to keep the body in
    RESPONSE_STARTED = "response_started"  # the client has part of the response
    CLIENT_GONE = "client_gone"
    BREAKER_OPEN = "breaker_open"  # the breakers of all addresses are open
    THROTTLED = "throttled"
    SHUTDOWN = "shutdown"


class KeyResult(StrEnum):
    """What an idempotency key meant for a request; the values are metric labels, too."""

    NEW = "new"  # the request ran
    REPLAYED = "replayed"  # it got the kept response of an earlier request
    JOINED = "joined"  # it waited for the first request and got the same response
    IN_FLIGHT = "in_flight"  # the first request had not ended
    MISMATCH = "mismatch"  # the key belongs to another request
    MISSING = "missing"  # the key, or the caller to whom it would belong, is required and missing
    INVALID = "invalid"  # the key is malformed
    HELD = "held"  # the first request may have run, and an operator has to find out
    UNSTORED = "unstored"  # the first request ran, and its response was not kept
    BYPASSED = "bypassed"  # the request ran unprotected, because the store did not answer
    LEASE_LOST = "lease_lost"  # the request ran, and another one owned the key meanwhile
