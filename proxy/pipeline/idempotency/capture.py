"""Between an upstream's response and the client of the request that owns a key.

The response is read ahead of its client and kept, as far as that is allowed, so that a
client that reads slowly, or leaves, costs nobody the result. All of it goes on to the client
as it comes, but for its end: that waits until the store has the whole.
"""

from abc import ABC, abstractmethod

from proxy.core.exchange import Exchange
from proxy.http.response_head import KeptResponse, ResponseHead
from proxy.policy.idempotency.retention import head_to_keep, is_stream_of_events


class ResponseCapture(ABC):
    """Keeps one response while it is relayed (core.Receiver)."""

    __slots__ = (
        "_head",
        "_limit",
        "_pieces",
        "_size",
        "_withheld_head",
        "_withheld_pieces",
        "exchange",
        "reads_ahead",
        "status",
    )

    def __init__(self, exchange: Exchange, limit: int) -> None:
        """Up to *limit* bytes of body are kept."""
        self.exchange = exchange
        self._limit = limit
        self.status = 0
        """Of the response, once it has begun."""
        self.reads_ahead = True
        """Whether all of it is being kept."""
        self._head = b""
        self._pieces: list[bytes] = []
        self._size = 0
        self._withheld_head: ResponseHead | None = None
        self._withheld_pieces: list[bytes] | None = None

    @abstractmethod
    def overflowed(self) -> None:
        """The response turns out to be one that is not kept."""

    @abstractmethod
    def outlive_client(self) -> bool:
        """The client has left: whether its request goes on all the same."""

    # From the upstream.

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """The head, with what has come of the body."""
        exchange = self.exchange
        self.status = head.status
        if not head.has_date:
            exchange.stamp(head)
        self._head = head.text
        if complete:
            self._withheld_head, self._withheld_pieces = head, pieces
        else:
            exchange.relay_head(head, pieces, complete=False)
        if (head.has_body and head.content_length > self._limit) or is_stream_of_events(head.text):
            self._overflow()
        elif pieces and self.reads_ahead:
            self._keep(pieces)

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """More of the body."""
        if complete:
            self._withheld_pieces = pieces
        else:
            self.exchange.relay_data(pieces, complete=False)
        if self.reads_ahead:
            self._keep(pieces)

    def relay_cut(self) -> None:
        """The body broke off: there is nothing to keep."""
        self.exchange.relay_cut()

    def _keep(self, pieces: list[bytes]) -> None:
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        if self._size > self._limit:
            self._overflow()

    def _overflow(self) -> None:
        if self.reads_ahead:
            self.stop_keeping()
            self.overflowed()

    def stop_keeping(self) -> None:
        """Keep nothing of it: from here on it goes at its client's pace."""
        self.reads_ahead = False
        self._pieces = []
        stream = self.exchange.stream
        if stream is not None and self.exchange.is_behind:
            stream.pause_reading()

    # Once it has ended.

    def response(self, *, lasts: bool) -> KeptResponse | None:
        """What has come, for duplicates; None if not all of it was kept.

        What *lasts* for the time of a key leaves out what was true of one moment.
        """
        if not self.reads_ahead or self._withheld_pieces is None:
            return None
        head = head_to_keep(self._head, lasts=lasts)
        return KeptResponse(self.status, head, b"".join(self._pieces))

    def deliver(self) -> None:
        """Let the client have the end of it."""
        exchange, head, pieces = self.exchange, self._withheld_head, self._withheld_pieces
        if pieces is None or exchange.client_is_gone:
            return
        if head is not None:
            exchange.relay_head(head, pieces, complete=True)
        else:
            exchange.relay_data(pieces, complete=True)
