"""A request body that was all here when its request was admitted, as small ones mostly are.

It goes out with the head, in one piece, and so does every further attempt. Nothing is left
of what ``body.py`` has to do for a body that comes piece by piece: that would take another
ten calls.
"""

from typing import TYPE_CHECKING

from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from proxy.core.ports import Refused
from proxy.http.forwarded import NO_FORWARDED_FIELDS
from proxy.http.refusal import Refusal
from proxy.policy.reasons import VerdictReason
from proxy.server.body.streaming import NO_ROOM, TOO_LARGE_TO_KEEP

if TYPE_CHECKING:
    from proxy.server.exchange import ClientExchange


class BufferedBody:
    """Implements :class:`proxy.core.ports.RequestBody`."""

    __slots__ = ("_caller", "_data", "_exchange", "_reserved", "is_kept", "length", "lost")

    waits_for_continue = False
    """Nobody waits for our word who has sent everything."""

    def __init__(self, exchange: "ClientExchange", data: bytes) -> None:
        route = exchange.route
        self._exchange = exchange
        self._data: bytes | None = data
        """None once it was let go."""
        self._caller = ""
        self._reserved = 0
        """Bytes that count against the memory for all: none before it is first sent."""
        self.length = len(data)
        self.lost = VerdictReason.BODY_TOO_LARGE if self.length > route.settings.buffer else None
        """Why it could not be sent a second time; None as long as it could."""
        self.is_kept = route.keeps_bodies
        """Whether it may be needed again."""

    def will_be_kept(self) -> bool:
        """Whether it could be sent a second time once it was sent."""
        return self.lost is None

    def begin(self) -> bytes:
        """All of it."""
        if self._data is None:
            raise RuntimeError("a body that was let go is asked for again")
        if self.is_kept and not self._reserved and self.lost is None:
            exchange, size = self._exchange, self.length
            client, limit = exchange.client, exchange.router.settings.limits.replay_memory
            memory, caller = client.server.replay_memory, client.caller
            if exchange.head.forwarded_fields is not NO_FORWARDED_FIELDS:
                caller = exchange.caller()
            if memory.take(caller, size, limit) or memory.make_room(caller, size, limit):
                self._reserved = size
                self._caller = caller
            else:
                self.lost = VerdictReason.BUFFER_FULL
        return self._data

    def keep(self) -> None:
        """It stays as it is."""

    def whole(self) -> bytes | None:
        """All of it, if it can be kept."""
        self.is_kept = True
        data = self.begin()
        return data if self.lost is None else None

    async def read_whole(self) -> bytes:
        """The same, or the reason why not."""
        data = self.whole()
        if data is None:
            raise Refused(NO_ROOM if self.lost is VerdictReason.BUFFER_FULL else TOO_LARGE_TO_KEEP)
        return data

    def kept(self) -> bytes | None:
        """All of it, if it was kept."""
        return self.begin() if self.is_kept and self.lost is None else None

    async def rest(self) -> bytes | None:
        """The same: there is nothing to wait for."""
        if not self.is_kept:
            self.lost = self.lost or VerdictReason.BODY_TOO_LARGE
        return self.kept()

    def is_behind(self) -> bool:
        """All of it is here."""
        return False

    def stop(self, refusal: Refusal) -> None:
        """Nothing is waited for."""

    async def read(self) -> bytes:
        """Nothing follows."""
        return b""

    def let_go(self) -> None:
        """It will not be sent again."""
        self.is_kept = False
        self._data = None
        if self._reserved:
            self._exchange.client.server.replay_memory.give_back(self._caller, self._reserved)
            self._reserved = 0

    def fail(self) -> None:
        """What follows it is malformed, which is not its fault."""

    def close(self) -> None:
        """Nobody needs it any more."""
        if self._reserved:
            self.let_go()


def take_whole(payload: StreamReader) -> bytes:
    """All of a body that is here.

    Mostly it came in one piece. That one is taken as it is: ``read_nowait()`` asks a timer
    and splits chunks, which takes 5,000 instructions, and there is no flow left to control.
    """
    if payload is EMPTY_PAYLOAD:
        return b""  # a length that aiohttp does not go by: that of an upgrade
    pieces = payload._buffer  # noqa: SLF001 - has its contract test
    if len(pieces) == 1 and not payload._buffer_offset:  # noqa: SLF001 - as above
        return pieces.popleft()
    return payload.read_nowait()
