"""Withholds a failing response until it is known whether its request is handed off instead."""

from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.ports import Receiver
from proxy.http.response_head import ResponseHead
from proxy.policy.attempt import FIRST_FAILURE
from proxy.policy.retry.hints import NO_HINT, RetryHint, read_hint

_LONGEST = 64 * 1024
"""Bytes of a failing response that are withheld; a longer one goes to the client."""


class WithheldFailure:
    """Between an upstream's response and its receiver (core.ports.Receiver).

    A response that is no failure is relayed at once.
    """

    __slots__ = ("_clock", "_exchange", "_outer", "_pieces", "_size", "head", "hint", "is_cut")

    def __init__(self, exchange: Exchange, outer: Receiver, clock: Clock) -> None:
        self._exchange = exchange
        self._outer = outer
        self._clock = clock
        self.head: ResponseHead | None = None
        """The head while it is withheld; None before and after."""
        self.hint: RetryHint = NO_HINT
        """How long the upstream asks us to wait, in the response that is withheld."""
        self.is_cut = False
        """Whether the body of the withheld response broke off."""
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def reads_ahead(self) -> bool:
        """Whether all of the response is taken at once: while it is withheld, it is."""
        return self.head is not None or self._outer.reads_ahead

    def outlive_client(self) -> bool:
        """Ask the receiver behind this one whether the request outlives its client."""
        return self._outer.outlive_client()

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Relay the head, or withhold it if it tells of a failure."""
        if head.status < FIRST_FAILURE or self._exchange.fallback:
            self._outer.relay_head(head, pieces, complete=complete)
            return
        self.head = head
        self.hint = read_hint(head.status, head.fields(), self._clock.wall())
        if not complete:
            self._exchange.code = head.status  # the time for the whole exchange ends here
        self.relay_data(pieces, complete=complete)

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """Relay more of the body, or withhold it behind its head."""
        if self.head is None:
            self._outer.relay_data(pieces, complete=complete)
            return
        self._pieces = self._pieces + pieces
        self._size += sum(map(len, pieces))
        if self._size > _LONGEST:
            self.release(complete=complete)

    def relay_cut(self) -> None:
        """Relay that the body broke off, or note it behind a withheld head."""
        if self.head is None:
            self._outer.relay_cut()
        else:
            self.is_cut = True

    def release(self, *, complete: bool = True) -> None:
        """Relay what is withheld: the request is not handed off."""
        head, self.head = self.head, None
        if head is None:
            return
        self._outer.relay_head(head, self._pieces, complete=complete and not self.is_cut)
        self._pieces = []
        if self.is_cut:
            self._outer.relay_cut()
