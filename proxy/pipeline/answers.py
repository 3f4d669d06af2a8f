"""What to say to a client whose last attempt brought no response."""

from proxy.core import Exchange
from proxy.http.refusal import Refusal, RefusalReason
from proxy.policy.outcome import Attempt, Kind

TOO_LATE = Refusal(RefusalReason.TIMEOUT, "The upstream did not answer in time.")
DRAINING = Refusal(RefusalReason.DRAINING, "This proxy is shutting down.", close=True)

_ANSWERS = {
    Kind.CONNECT: Refusal(RefusalReason.CONNECT, "No connection to the upstream could be made."),
    Kind.RESET: Refusal(
        RefusalReason.RESET, "The upstream ended the connection without an answer."
    ),
    Kind.TIMEOUT: TOO_LATE,
    Kind.PROTOCOL: Refusal(
        RefusalReason.PROTOCOL, "The upstream's answer breaks the rules of HTTP."
    ),
    Kind.CERTIFICATE: Refusal(
        RefusalReason.CERTIFICATE, "The upstream's certificate is not trusted."
    ),
    Kind.BUSY: Refusal(RefusalReason.BUSY, "All connections to the upstream are in use."),
    Kind.UNKNOWN: Refusal(RefusalReason.UNKNOWN, "The upstream call failed."),
}


def answer_for(exchange: Exchange, attempt: Attempt) -> Refusal | None:
    """The answer in place of the response that *attempt* did not bring; None if it did."""
    if attempt.kind is None or attempt.kind is Kind.TRUNCATED:
        return None
    return _ANSWERS[Kind.TIMEOUT if exchange.expired else attempt.kind]
