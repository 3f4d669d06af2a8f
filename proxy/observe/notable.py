"""Which finished requests an operator might ask about, for the log and for ``/attempts``.

Whether a request is notable is tested within the one call that a recorder makes. A request
that is not notable costs that test and nothing else.
"""

from proxy.core.exchange import Exchange
from proxy.observe.logs.access_log import AccessLog
from proxy.observe.metrics.recorders import LogLine
from proxy.observe.recent import Recent
from proxy.policy.reasons import KeyResult

_NOTABLE = frozenset({KeyResult.REPLAYED, KeyResult.JOINED, KeyResult.BYPASSED})
"""What a key may have meant for a request that was not refused, and yet is notable."""


class Notable:
    """Passes notable requests on, and no others."""

    __slots__ = ("_listeners",)

    def __init__(self, *listeners: LogLine) -> None:
        self._listeners = listeners

    def finished(self, route: str, exchange: Exchange) -> None:
        """Pass the request on if anything happened that an operator might ask about.

        That is: we refused it, it failed, its client left, one attempt was not enough,
        it waited in a queue, it is or became a dead letter, or its answer is a fallback or that
        of an earlier request.
        A request that waited between attempts is among them: after such a wait comes another
        attempt, unless the client leaves or we refuse.
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
            for listener in self._listeners:
                listener(route, exchange)


def hook(mode: str, log: AccessLog, recent: Recent) -> LogLine | None:
    """Return what a recorder calls under ``access_log: MODE``; None for ``none``.

    An operator who wants no log wants no memory of requests either: *recent* gets none then.
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
