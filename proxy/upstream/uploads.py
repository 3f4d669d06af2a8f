"""Pre-empts slow uploads that occupy a connection pool while other requests wait for it.

A connection is taken when a request is sent, and a body that comes slowly keeps it for as long.
That harms no other request until all of ``max_connections`` are taken. Then uploads whose client
is being waited for are pre-empted for requests that wait for a connection:

1. uploads that have brought less than ``limits.body_rate`` lately, whichever caller sends them;
2. uploads of a caller that occupy more than half of all connections, if another caller waits.

The oldest goes first, and gets 408 ``slow_client``. Uploads that wait for the upstream, because
that is behind with reading, stay.
"""

from collections import deque
from collections.abc import Iterable

from proxy.core.exchange import Exchange
from proxy.http.refusal import Refusal, RefusalReason
from proxy.policy.fair_share import FairShare

_PREEMPTED = Refusal(
    RefusalReason.SLOW_CLIENT,
    "The body arrives too slowly, and other requests wait for its connection.",
    close=True,
)


class Uploads:
    """The requests of one address whose bodies are being sent, the oldest first."""

    def __init__(self) -> None:
        self._uploads: dict[Exchange, str] = {}
        self._callers = FairShare[str]()

    def __len__(self) -> int:
        """Return how many uploads there are."""
        return len(self._uploads)

    def begin(self, exchange: Exchange) -> None:
        """Count the body of *exchange*, which occupies a connection from now on."""
        caller = self._uploads[exchange] = exchange.caller()
        self._callers.add(caller, 1)

    def end(self, exchange: Exchange) -> None:
        """Count the body of *exchange* no longer: it is over, or was given up."""
        caller = self._uploads.pop(exchange, None)
        if caller is not None:
            self._callers.give_back(caller, 1)

    def preempt(self, waiting: Iterable[str], connections: int) -> None:
        """End one upload for each waiting request, as far as there are any to blame.

        *waiting* are the callers of the waiting requests, *connections* the size of the pool.
        """
        greedy = self._callers.largest()
        slow: deque[Exchange] = deque()
        others: deque[Exchange] = deque()
        for exchange, sender in self._uploads.items():
            if not exchange.waiting_since or exchange.body is None:
                continue
            if exchange.body.is_behind():
                slow.append(exchange)
            elif sender == greedy:
                others.append(exchange)
        for caller in waiting:
            if slow:
                self._stop(slow.popleft())
            elif not others:
                return
            elif greedy not in {None, caller} and self._callers.used_by(greedy) > connections // 2:
                self._stop(others.popleft())

    def _stop(self, exchange: Exchange) -> None:
        self.end(exchange)
        if exchange.body is not None:
            exchange.body.stop(_PREEMPTED)
