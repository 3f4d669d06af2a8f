"""One request on one connection, and the record of how it ended."""

from asyncio import AbstractEventLoop, Future

from proxy.core import Clock, Exchange
from proxy.policy.outcome import Attempt, Kind
from proxy.policy.response_head import ResponseHead
from proxy.upstream.connection import Connection


class Call:
    """Hands a response from its connection to its exchange, as it arrives.

    All methods are called from the socket's callbacks and never wait: a piece
    of the body is on its way to the client before the loop turns once more.
    Whoever made the call awaits ``done``, which is set exactly once.
    """

    __slots__ = ("_clock", "attempt", "connection", "done", "exchange", "is_over", "is_relaying")

    def __init__(
        self, exchange: Exchange, attempt: Attempt, loop: AbstractEventLoop, clock: Clock
    ) -> None:
        self.exchange = exchange
        self.attempt = attempt
        self._clock = clock
        self.is_over = False
        """Whether the attempt's record is complete."""
        self.is_relaying = False
        """Whether the head has gone to the client."""
        self.connection: Connection | None = None
        self.done: Future[None] = loop.create_future()

    # From the connection.

    def respond(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """The head is here, with the beginning of the body or all of it."""
        self.attempt.status = head.status
        self.is_relaying = True
        if complete:
            # Back in its pool already: a slow client must not pause it any more.
            self.connection = None
        self.exchange.relay_head(head, pieces, complete=complete)
        if complete:
            self._end(None)

    def more(self, pieces: list[bytes], *, complete: bool) -> None:
        """The body goes on, or ends."""
        if complete:
            self.connection = None
        self.exchange.relay_data(pieces, complete=complete)
        if complete:
            self._end(None)

    def switch(self, head: ResponseHead, tail: bytes) -> None:
        """The upstream agreed to switch protocols."""
        self.attempt.status = head.status
        self.is_relaying = True
        self.exchange.relay_tunnel(head, tail)

    def hold_client(self, *, hold: bool) -> None:
        """The upstream's end of a tunnel cannot take more, or can again."""
        self.exchange.hold_client(hold=hold)

    def closed(self, kind: Kind | None) -> None:
        """The connection is gone: *kind* says why, None that all had arrived."""
        if not self.is_over:
            if kind is Kind.TRUNCATED:
                self.exchange.relay_cut()
            self._end(kind)

    # From the client's side (core.Stream).

    def pause(self) -> None:
        """The client reads slower than the upstream sends."""
        if self.connection is not None:
            self.connection.pause_reading()

    def resume(self) -> None:
        """The client has caught up."""
        if self.connection is not None:
            self.connection.resume_reading()

    def write(self, data: bytes) -> None:
        """Bytes of the client's for the tunnel."""
        if self.connection is not None:
            self.connection.write(data)

    def fail(self, kind: Kind) -> None:
        """Give up: close the connection, and end as *kind* unless ended before."""
        if self.connection is not None:
            self.connection.abandon()
        if self.is_relaying and kind is not Kind.CANCELLED:
            kind = Kind.TRUNCATED
        self.closed(kind)

    def _end(self, kind: Kind | None) -> None:
        self.is_over = True
        attempt = self.attempt
        attempt.kind = kind
        attempt.duration = self._clock.monotonic() - attempt.started
        self.connection = None
        if not self.done.done():  # cancelled, if the one who awaited it was
            self.done.set_result(None)
