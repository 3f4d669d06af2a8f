"""What to say to a client whose last attempt brought no response."""

from proxy.core import Exchange
from proxy.policy.outcome import Attempt, Kind
from proxy.policy.refusal import Reason, Refusal

TOO_LATE = Refusal(Reason.TIMEOUT, "The upstream did not answer in time.")
DRAINING = Refusal(Reason.DRAINING, "This proxy is shutting down.", close=True)

_ANSWERS = {
    Kind.CONNECT: Refusal(Reason.CONNECT, "No connection to the upstream could be made."),
    Kind.RESET: Refusal(Reason.RESET, "The upstream ended the connection without an answer."),
    Kind.TIMEOUT: TOO_LATE,
    Kind.PROTOCOL: Refusal(Reason.PROTOCOL, "The upstream's answer breaks the rules of HTTP."),
    Kind.CERTIFICATE: Refusal(Reason.CERTIFICATE, "The upstream's certificate is not trusted."),
    Kind.BUSY: Refusal(Reason.BUSY, "All connections to the upstream are in use."),
    Kind.UNKNOWN: Refusal(Reason.UNKNOWN, "The upstream call failed."),
}


def answer_for(exchange: Exchange, attempt: Attempt) -> Refusal | None:
    """The answer in place of the response that *attempt* did not bring; None if it did."""
    if attempt.kind is None or attempt.kind is Kind.TRUNCATED:
        return None
    return _ANSWERS[Kind.TIMEOUT if exchange.expired else attempt.kind]
