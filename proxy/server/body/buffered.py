"""A request body that was complete when its request was admitted, as small ones mostly are.

It goes out with the head, in one piece, and so does every further attempt. Nothing is left
of what ``streaming.py`` has to do for a body that comes piece by piece.
"""

from proxy.core.clientless import CompleteBody
from proxy.core.ports import Refused
from proxy.policy.reasons import VerdictReason
from proxy.server.body.streaming import NO_REPLAY_MEMORY, TOO_LARGE_TO_KEEP
from proxy.server.body.uploads import UploadExchange


# speed: same as StreamingBody for a complete body, held by tests/server/body/test_buffered.py;
# saves 23 of 184 calls per small POST.
class BufferedBody(CompleteBody):
    """The complete body of a client's request."""

    __slots__ = ("_caller", "_exchange", "_reserved", "is_kept")

    waits_for_continue = False
    """A client that has sent everything does not wait for 100 Continue."""

    def __init__(self, exchange: UploadExchange, data: bytes) -> None:
        route = exchange.route
        self._exchange = exchange
        self._data = data  # None once the body was let go
        self._caller = ""
        self._reserved = 0
        """Bytes that count against the memory for all: none before the body is first sent."""
        self.length = len(data)
        self.lost = VerdictReason.BODY_TOO_LARGE if self.length > route.settings.buffer else None
        self.is_kept = route.keeps_bodies
        """Whether the body may be needed again."""

    def begin(self) -> bytes:
        """Return all of the body, for one attempt; reserve memory for it if it is to be kept."""
        if self._data is None:
            raise RuntimeError("a body that was let go is asked for again")
        if self.is_kept and not self._reserved and self.lost is None:
            exchange, size = self._exchange, self.length
            memory, caller = exchange.client.server.replay_memory, exchange.caller()
            limit = exchange.settings.limits.replay_memory
            if memory.take(caller, size, limit) or memory.reclaim(caller, size, limit):
                self._reserved = size
                self._caller = caller
            else:
                self.lost = VerdictReason.BUFFER_FULL
        return self._data

    def whole(self) -> bytes | None:
        """Return all of the body, before it is first sent, if it can be kept."""
        self.is_kept = True
        data = self.begin()
        return data if self.lost is None else None

    async def read_whole(self) -> bytes:
        """Return all of the body, before it is first sent; raise Refused if it cannot be kept."""
        data = self.whole()
        if data is None:
            is_full = self.lost is VerdictReason.BUFFER_FULL
            raise Refused(NO_REPLAY_MEMORY if is_full else TOO_LARGE_TO_KEEP)
        return data

    def kept(self) -> bytes | None:
        """Return all of the body if it was kept."""
        return self.begin() if self.is_kept and self.lost is None else None

    async def rest(self) -> bytes | None:
        """Return all of the body if it was kept: there is nothing to wait for."""
        if not self.is_kept:
            self.lost = self.lost or VerdictReason.BODY_TOO_LARGE
        return self.kept()

    def let_go(self) -> None:
        """Forget the body and give its memory back: it will not be sent again."""
        self.is_kept = False
        self._data = None
        if self._reserved:
            self._exchange.client.server.replay_memory.give_back(self._caller, self._reserved)
            self._reserved = 0

    def fail(self) -> None:
        """Do nothing: what follows the body is malformed, not the body."""

    def close(self) -> None:
        """Give back the memory of the body: its exchange is over."""
        if self._reserved:
            self.let_go()
