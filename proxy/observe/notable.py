"""Which finished requests somebody might ask about, for the log and for ``/attempts``.

Whether a request is notable is tested within the one call that a recorder makes. All that
a request costs that is not notable is that test.
"""

from proxy.core.exchange import Exchange
from proxy.observe.logs.access_log import AccessLog
from proxy.observe.metrics.recorders import LogLine
from proxy.observe.recent import Recent
from proxy.policy.reasons import KeyResult

_NOTABLE = frozenset({KeyResult.REPLAYED, KeyResult.JOINED, KeyResult.BYPASSED})
"""What a key may mean that somebody might ask about, where the request was not refused."""


class Notable:
    """Tells others of notable requests, and of no others."""

    __slots__ = ("_told",)

    def __init__(self, *told: LogLine) -> None:
        self._told = told

    def finished(self, route: str, exchange: Exchange) -> None:
        """Pass the request on if anything happened that somebody might ask about.

        That is: we refused it, it failed, its client left, one attempt was not enough,
        it stood in line, it is or became a dead letter, or its answer is a fallback or that
        of an earlier request.
        Whoever waited between attempts is among them: after such a wait comes another
        one, unless the client leaves or we refuse.
        """
        attempts = exchange.attempts
        if (
            exchange.code >= 499
            or exchange.refusal is not None
            or len(attempts) > 1
            or exchange.fallback
            or exchange.dead_letter
            or exchange.key_result in _NOTABLE
            or (attempts and (attempts[0].kind is not None or attempts[0].queued))
        ):
            for tell in self._told:
                tell(route, exchange)


def hook(mode: str, log: AccessLog, recent: Recent) -> LogLine | None:
    """What a recorder shall call under ``access_log: MODE``; for ``none`` nothing.

    Who wants no log wants no memory of requests either: *recent* gets none then.
    """
    if mode == "none":
        return None
    if mode == "notable":
        return Notable(recent.keep, log.write).finished
    keep = Notable(recent.keep).finished

    def write_all(route: str, exchange: Exchange) -> None:
        log.write(route, exchange)
        keep(route, exchange)

    return write_all
