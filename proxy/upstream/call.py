"""One request on one connection: relays the response, and records how it ended.

The relay applies back-pressure: while the client reads slower than the upstream sends, nothing
more is read from the upstream, unless the receiver reads ahead.
"""

from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import Callable

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.ports import Receiver
from proxy.http.response_head import ResponseHead
from proxy.policy.attempt import FIRST_FAILURE, Attempt, FailureKind
from proxy.upstream.breakers import BreakerReport
from proxy.upstream.connection import UpstreamConnection

Judge = Callable[[Attempt, ResponseHead], bool]
"""Asked about a response that tells of a failure: True discards it, unseen by the client."""

DISCARD_BYTES = 64 * 1024
DISCARD_TIME = 0.05
"""How much of a discarded response is read, and for how long, to keep its connection."""


class Call:
    """Relays a response from its connection to its exchange, as it arrives.

    All methods are called from the socket's callbacks and never wait: a piece
    of the body is on its way to the client within the same iteration of the loop.
    The caller awaits ``done``, which is set exactly once.
    """

    __slots__ = (
        "_clock",
        "_discard_timer",
        "_judge",
        "_loop",
        "_receiver",
        "_to_discard",
        "attempt",
        "connection",
        "done",
        "exchange",
        "has_begun",
        "is_over",
        "is_relaying",
        "report",
    )

    def __init__(
        self,
        exchange: Exchange,
        attempt: Attempt,
        judge: Judge | None,
        loop: AbstractEventLoop,
        clock: Clock,
    ) -> None:
        self.exchange = exchange
        self._receiver: Receiver = exchange.capture or exchange
        """Gets the response."""
        self.attempt = attempt
        self.report: BreakerReport | None = None
        """Reports the outcome to the breaker of the address, if it has one."""
        self._judge = judge
        self._loop = loop
        self._clock = clock
        self._discard_timer: TimerHandle | None = None
        """Set once the response is discarded: ends the reading of its rest."""
        self._to_discard = DISCARD_BYTES
        self.has_begun = False
        """Whether the request was handed to a connection."""
        self.is_over = False
        """Whether the attempt's record is complete."""
        self.is_relaying = False
        """Whether the head has gone to the client."""
        self.connection: UpstreamConnection | None = None
        self.done: Future[None] = loop.create_future()

    # From the connection.

    def respond(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Relay or discard the head, with the beginning of the body or all of it."""
        status = self.attempt.status = head.status
        if self.report is not None:
            self.report.answered(status)
        if status >= FIRST_FAILURE and self._judge is not None and self._judge(self.attempt, head):
            self._discard(head, complete=complete)
            return
        self.is_relaying = True
        if complete:
            # Back in its pool already: a slow client must not stop its reading any more.
            self.connection = None
        self._receiver.relay_head(head, pieces, complete=complete)
        if complete:
            self._end(None)

    def _discard(self, head: ResponseHead, *, complete: bool) -> None:
        """Discard a response that the client will not see.

        A short rest is read, since a new connection costs more than that; a long or
        slow rest is not worth it.
        """
        connection = self.connection
        if complete or connection is None:
            self._end(None)
        elif connection.is_spent(head):
            connection.abandon()
            self._end(None)
        else:
            self._discard_timer = self._loop.call_later(
                DISCARD_TIME, self.fail, FailureKind.TIMEOUT
            )

    def more(self, pieces: list[bytes], *, complete: bool) -> None:
        """Relay or discard more of the body, or its end."""
        if self._discard_timer is not None:
            self._to_discard -= sum(map(len, pieces))
            if complete:
                self._end(None)
            elif self._to_discard < 0:
                self.fail(FailureKind.TRUNCATED)
            return
        if complete:
            self.connection = None
        self._receiver.relay_data(pieces, complete=complete)
        if complete:
            self._end(None)

    def switch(self, head: ResponseHead, tail: bytes) -> None:
        """Relay the upstream's consent to switch protocols: the connection becomes a tunnel."""
        self.attempt.status = head.status
        if self.report is not None:
            self.report.answered(head.status)
        self.is_relaying = True
        self.exchange.relay_tunnel(head, tail)

    def closed(self, kind: FailureKind | None) -> None:
        """End the call: the connection is gone. *kind* says why, None that all had arrived."""
        if self.is_over:
            return
        if self._discard_timer is not None:
            kind = None  # the head counted, not the rest of the response
        elif kind is FailureKind.TRUNCATED:
            self._receiver.relay_cut()
        self._end(kind)

    async def end_without_client(self, error: BaseException) -> None:
        """Give up a call whose client is gone, and raise *error*.

        If the receiver wants the response all the same, the call ends as if nothing had happened.
        """
        try:
            if not self.has_begun or not self._receiver.outlive_client():
                raise error
            if (
                not self.is_over
            ):  # it may have ended in the iteration of the loop in which its client left
                self.done = self._loop.create_future()
                await self.done
        finally:
            if not self.is_over:
                self.fail(FailureKind.CANCELLED)

    # From the client's side (core.ports.Stream).

    def pause_reading(self) -> None:
        """Stop reading from the upstream (back-pressure): the client reads slower than it sends."""
        if self.connection is not None and not self._receiver.reads_ahead:
            self.connection.pause_reading()

    def resume_reading(self) -> None:
        """Read from the upstream again: the client has caught up."""
        if self.connection is not None:
            self.connection.resume_reading()

    def write(self, data: bytes) -> None:
        """Send bytes of the client through the tunnel."""
        if self.connection is not None:
            self.connection.write(data)

    def fail(self, kind: FailureKind) -> None:
        """Give the call up: close the connection, and end as *kind* unless ended before."""
        if self.connection is not None:
            self.connection.abandon()
        if self.is_relaying and kind is not FailureKind.CANCELLED:
            kind = FailureKind.TRUNCATED
        self.closed(kind)

    def _end(self, kind: FailureKind | None) -> None:
        self.is_over = True
        attempt = self.attempt
        attempt.kind = kind
        attempt.duration = self._clock.monotonic() - attempt.started
        self.connection = None
        if self._discard_timer is not None:
            self._discard_timer.cancel()
        if self.report is not None:
            exchange = self.exchange
            hurried = kind is FailureKind.TIMEOUT and exchange.client_timeout_passed
            self.report.ended(attempt, blame=not (hurried or exchange.waiting_since))
        if not self.done.done():  # it is cancelled if its caller was
            self.done.set_result(None)
