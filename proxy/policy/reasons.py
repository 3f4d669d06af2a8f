"""Why an attempt was the last one, or was not: one closed set of words.

Metrics, logs, ``explain`` and tests all use these.
"""

from enum import StrEnum


class VerdictReason(StrEnum):
    """The verdict on one attempt."""

    SUCCESS = "success"  # at the first attempt
    RECOVERED = "recovered"  # the same after a retry
    RETRIED = "retried"  # another attempt follows
    NOT_RETRYABLE_KIND = "not_retryable_kind"  # it failed in a way that is not listed
    NOT_RETRYABLE_STATUS = "not_retryable_status"  # so did its status
    # It may have run, and may not run twice; or another request may have its key by now.
    NOT_REPEATABLE = "not_repeatable"
    KEY_EXPIRED = "key_expired"  # the upstream may have forgotten the key that made it repeatable
    FINAL_ANSWER = "final_answer"  # the upstream's own replay: another attempt would get the same
    SERVER_SAID_NO = "server_said_no"  # X-Should-Retry: false
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    BUDGET = "budget"  # too many retries to this upstream already
    DEADLINE = "deadline"  # the time left would not do
    HINT_TOO_LONG = "hint_too_long"  # told to wait for longer than we are ready to
    BODY_TOO_LARGE = "body_too_large"  # to be kept for another attempt
    BUFFER_FULL = "buffer_full"  # no memory was left to keep the body in
    RESPONSE_STARTED = "response_started"  # the client has part of the answer
    CLIENT_GONE = "client_gone"
    BREAKER_OPEN = "breaker_open"  # every address is left alone for now
    THROTTLED = "throttled"
    SHUTDOWN = "shutdown"


class KeyResult(StrEnum):
    """What an idempotency key meant for a request. Metric labels and log words, too."""

    NEW = "new"  # it ran
    REPLAYED = "replayed"  # it got what an earlier one was answered
    JOINED = "joined"  # it waited for the first one and got the same
    IN_FLIGHT = "in_flight"  # the first one had not ended
    MISMATCH = "mismatch"  # the key belongs to another request
    MISSING = "missing"  # there is no key, or nobody to whom it belongs, where one is required
    INVALID = "invalid"  # it is no key
    HELD = "held"  # the first one may have run, and a person has to find out
    UNSTORED = "unstored"  # the first one ran, and its response was not kept
    BYPASSED = "bypassed"  # it ran unprotected, because the store did not answer
    LEASE_LOST = "lease_lost"  # it ran, and the key had gone to another one meanwhile
