"""Captures an upstream's response on its way to the client of the request that owns a key.

The response is read ahead of its client and kept, as far as that is allowed, so that no
duplicate loses the result to a client that reads slowly, or leaves. All of it is relayed to the
client as it comes, except for its end, which waits until the store has the whole.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from proxy.core.exchange import Exchange
from proxy.http.response_head import KeptResponse, ResponseHead
from proxy.policy.idempotency.retention import head_to_keep, is_stream_of_events


@dataclass(slots=True, eq=False)
class ResponseCapture(ABC):
    """Keeps one response while it is relayed (core.ports.Receiver)."""

    exchange: Exchange
    _limit: int
    """Bytes of body that are kept at most."""
    status: int = 0
    """Status of the response, once it has begun; 0 before."""
    reads_ahead: bool = True
    """Whether all of the response is being kept, ahead of its client."""
    _head: bytes = b""
    _pieces: list[bytes] = field(default_factory=list)
    _size: int = 0
    _withheld_head: ResponseHead | None = None
    _withheld_pieces: list[bytes] | None = None

    @abstractmethod
    def overflowed(self) -> None:
        """Act on a response that turns out to be too large, or a stream, and is not kept."""

    @abstractmethod
    def outlive_client(self) -> bool:
        """Say whether the request goes on though its client has left."""

    # From the upstream.

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Relay and keep the head, with what has come of the body."""
        exchange = self.exchange
        self.status = head.status
        if not head.has_date:
            exchange.add_date(head)
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
        """Relay and keep more of the body."""
        if complete:
            self._withheld_pieces = pieces
        else:
            self.exchange.relay_data(pieces, complete=False)
        if self.reads_ahead:
            self._keep(pieces)

    def relay_cut(self) -> None:
        """Relay that the body broke off: there is nothing to keep."""
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
        """Keep nothing any more: from here on the client's pace counts (back-pressure)."""
        self.reads_ahead = False
        self._pieces = []
        stream = self.exchange.stream
        if stream is not None and self.exchange.is_behind:
            stream.pause_reading()

    # Once the response has ended.

    def response(self, *, lasts: bool) -> KeptResponse | None:
        """Return the response for duplicates; None if not all of it was kept.

        A response that *lasts* for the ttl of a key leaves out what was true of one moment.
        """
        if not self.reads_ahead or self._withheld_pieces is None:
            return None
        head = head_to_keep(self._head, lasts=lasts)
        return KeptResponse(self.status, head, b"".join(self._pieces))

    def deliver(self) -> None:
        """Relay the withheld end of the response to the client."""
        exchange, head, pieces = self.exchange, self._withheld_head, self._withheld_pieces
        if pieces is None or exchange.client_is_gone:
            return
        if head is not None:
            exchange.relay_head(head, pieces, complete=True)
        else:
            exchange.relay_data(pieces, complete=True)
