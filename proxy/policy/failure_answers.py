"""The refusals that a client gets when the last attempt brought no response."""

from proxy.http.refusal import Refusal, RefusalReason
from proxy.policy.attempt import Attempt, FailureKind

TOO_LATE = Refusal(RefusalReason.TIMEOUT, "The upstream did not answer in time.")
DRAINING = Refusal(RefusalReason.DRAINING, "This proxy is shutting down.", close=True)

ANSWERS = {
    FailureKind.CONNECT: Refusal(
        RefusalReason.CONNECT, "No connection to the upstream could be made."
    ),
    FailureKind.RESET: Refusal(
        RefusalReason.RESET, "The upstream ended the connection without an answer."
    ),
    FailureKind.TIMEOUT: TOO_LATE,
    FailureKind.PROTOCOL: Refusal(
        RefusalReason.PROTOCOL, "The upstream's answer breaks the rules of HTTP."
    ),
    FailureKind.CERTIFICATE: Refusal(
        RefusalReason.CERTIFICATE, "The upstream's certificate is not trusted."
    ),
    FailureKind.BUSY: Refusal(RefusalReason.BUSY, "All connections to the upstream are in use."),
    FailureKind.UNKNOWN: Refusal(RefusalReason.UNKNOWN, "The upstream call failed."),
}
"""What the client gets after an attempt that failed so, before any response."""


def answer_for(attempt: Attempt, *, expired: bool) -> Refusal | None:
    """Return the refusal for an *attempt* without a response; None if it brought one.

    *expired* says that the timeout of the whole exchange ended the attempt.
    """
    if attempt.kind is None or attempt.kind is FailureKind.TRUNCATED:
        return None
    return ANSWERS[FailureKind.TIMEOUT if expired else attempt.kind]
