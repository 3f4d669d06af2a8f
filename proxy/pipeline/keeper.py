"""Between an upstream's response and the client of the request that owns a key.

The response is read ahead of its client and kept, as far as that is allowed, so that a
client that reads slowly, or leaves, costs nobody the result. All of it goes on to the client
as it comes, but for its end: that waits until the store has the whole.
"""

from collections.abc import Callable

from proxy.core import Exchange
from proxy.policy.keeping import is_stream_of_events, lines_to_keep
from proxy.policy.outcome import Kind
from proxy.policy.response_head import ResponseHead
from proxy.policy.results import KeptResponse


class Keeper:
    """Keeps one response while it is relayed (core.Receiver)."""

    __slots__ = (
        "_exchange",
        "_limit",
        "_lines",
        "_overflowed",
        "_pieces",
        "_size",
        "_withheld_head",
        "_withheld_pieces",
        "is_over",
        "reads_ahead",
        "status",
    )

    def __init__(self, exchange: Exchange, limit: int, overflowed: Callable[[int], None]) -> None:
        """Up to *limit* bytes are kept; *overflowed* is told if it turns out to be more."""
        self._exchange = exchange
        self._limit = limit
        self._overflowed = overflowed
        self.status = 0
        """Of the response, once it has begun."""
        self.reads_ahead = True
        """Whether all of it is being kept."""
        self.is_over = False
        """Whether nothing more will come."""
        self._lines: list[bytes] = []
        self._pieces: list[bytes] = []
        self._size = 0
        self._withheld_head: ResponseHead | None = None
        self._withheld_pieces: list[bytes] | None = None

    @property
    def is_worth_waiting_for(self) -> bool:
        """Whether there will be something to keep, if one lets it go on without its client."""
        return self.is_over or (self.reads_ahead and self._exchange.stream is not None)

    # From the upstream (core.Receiver).

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """The head, with what has come of the body."""
        exchange = self._exchange
        self.status = head.status
        exchange.stamp(head)
        self._lines = head.lines.copy()
        if complete:
            self._withheld_head, self._withheld_pieces = head, pieces
        else:
            exchange.relay_head(head, pieces, complete=False)
        if (head.has_body and head.content_length > self._limit) or is_stream_of_events(
            self._lines
        ):
            self._stop_keeping()
        else:
            self._keep(pieces)

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """More of the body."""
        if complete:
            self._withheld_pieces = pieces
        else:
            self._exchange.relay_data(pieces, complete=False)
        if self.reads_ahead:
            self._keep(pieces)

    def relay_cut(self) -> None:
        """The body broke off: there is nothing to keep."""
        self._exchange.relay_cut()

    def _keep(self, pieces: list[bytes]) -> None:
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        if self._size > self._limit:
            self._stop_keeping()

    def _stop_keeping(self) -> None:
        """It is more than may be kept: from here on it goes at its client's pace."""
        self.reads_ahead = False
        self._pieces = []
        exchange, stream = self._exchange, self._exchange.stream
        if stream is not None and exchange.client_is_gone:
            stream.fail(Kind.CANCELLED)
        elif stream is not None and exchange.is_behind:
            stream.pause()
        self._overflowed(self.status)

    # For the one who owns the key.

    def response(self, *, lasts: bool) -> KeptResponse | None:
        """What has come, for duplicates; None if not all of it was kept.

        What *lasts* for the time of a key leaves out what was true of one moment.
        """
        if not self.reads_ahead or self._withheld_pieces is None:
            return None
        lines = lines_to_keep(self._lines, lasts=lasts)
        return KeptResponse(self.status, lines, b"".join(self._pieces))

    def deliver(self) -> None:
        """Let the client have the end of it."""
        exchange, head, pieces = self._exchange, self._withheld_head, self._withheld_pieces
        if pieces is None or exchange.client_is_gone:
            return
        if head is not None:
            exchange.relay_head(head, pieces, complete=True)
        else:
            exchange.relay_data(pieces, complete=True)
