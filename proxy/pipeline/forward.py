"""The innermost stage: one request to one upstream, and what to say if it fails."""

from proxy.core import Exchange
from proxy.pipeline.deadlines import Deadlines
from proxy.policy.outcome import Attempt, Kind
from proxy.policy.refusal import Reason, Refusal
from proxy.upstream.upstream import Upstream, can_be_sent_again

_ANSWERS = {
    Kind.CONNECT: Refusal(Reason.CONNECT, "No connection to the upstream could be made."),
    Kind.RESET: Refusal(Reason.RESET, "The upstream ended the connection without an answer."),
    Kind.TIMEOUT: Refusal(Reason.TIMEOUT, "The upstream did not answer in time."),
    Kind.PROTOCOL: Refusal(Reason.PROTOCOL, "The upstream's answer breaks the rules of HTTP."),
    Kind.CERTIFICATE: Refusal(Reason.CERTIFICATE, "The upstream's certificate is not trusted."),
    Kind.BUSY: Refusal(Reason.BUSY, "All connections to the upstream are in use."),
    Kind.UNKNOWN: Refusal(Reason.UNKNOWN, "The upstream call failed."),
}

_AFTERWARDS = 0.005
"""Seconds by which dialling outlives the deadline, so that the deadline names the reason."""


class Forward:
    """Sends a request on and relays its response as it comes."""

    __slots__ = ("_deadlines", "_upstream")

    def __init__(self, upstream: Upstream, deadlines: Deadlines | None) -> None:
        self._upstream = upstream
        self._deadlines = deadlines

    async def handle(self, exchange: Exchange) -> Refusal | None:
        """Relay the upstream's response, or say why there is none."""
        deadlines, upstream = self._deadlines, self._upstream
        give_up = ticket = None
        if deadlines is not None:
            give_up = exchange.started + deadlines.timeout + _AFTERWARDS
            ticket = deadlines.start(exchange)
        try:
            attempt = await upstream.attempt(exchange, give_up, fresh=False)
            if attempt.kind is None:
                return None
            if _was_stale(attempt) and (not attempt.sent or can_be_sent_again(exchange)):
                # It ended while it was idle, and we learned of it by sending, or just before.
                attempt = await upstream.attempt(exchange, give_up, fresh=True)
        finally:
            if deadlines is not None and ticket is not None:
                deadlines.finish(ticket)
        if attempt.kind is None or attempt.kind is Kind.TRUNCATED:
            return None
        return _ANSWERS[Kind.TIMEOUT if exchange.expired else attempt.kind]


def _was_stale(attempt: Attempt) -> bool:
    return attempt.kind is Kind.RESET and attempt.reused and not attempt.received
