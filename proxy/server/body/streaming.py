"""A request body on its way in, read from aiohttp's parser, and kept while it may be needed.

A body that is here when its request is sent goes out with the head, in one
piece; one that was here already when its request was admitted is in
``buffered.py``. Any other is read piece by piece; on a route that retries each
piece is kept as well, so that another attempt can begin from the first byte while
the rest is still to come. That has two limits: the route's ``buffer`` for one body,
and ``limits.replay_memory`` for all of them. Beyond either the body streams past
once, and what was kept of it is let go.
"""

import asyncio
from dataclasses import dataclass, field

from aiohttp.streams import StreamReader

from proxy.core.ports import Refused
from proxy.http.framing import CHUNKED
from proxy.http.refusal import Refusal, RefusalReason
from proxy.policy.body_rate import SAMPLE_EVERY, BodyRate
from proxy.policy.reasons import VerdictReason
from proxy.server.body.memory_budget import MEMORY_LIMIT, NO_MEMORY, UNREAD_BODY
from proxy.server.body.pieces import Pieces
from proxy.server.body.replay_memory import FairMemory
from proxy.server.body.uploads import UploadExchange
from proxy.server.idle_timer import IdleTimer

TOO_LARGE = Refusal(RefusalReason.BODY_TOO_LARGE, "Send a smaller body.", close=True)
TOO_LARGE_TO_KEEP = Refusal(
    RefusalReason.BODY_TOO_LARGE,
    "Send a smaller body: with a key, all of it has to be kept.",
    close=True,
)
NO_REPLAY_MEMORY = Refusal(
    RefusalReason.OVERLOAD, "There is no room to keep this body. Try again later.", close=True
)
MALFORMED = Refusal(RefusalReason.BAD_REQUEST, "The request's body is malformed.", close=True)
_TOO_SLOW = Refusal(
    RefusalReason.SLOW_CLIENT,
    "The body arrives too slowly. Send it faster, or in parts.",
    close=True,
)
_SILENT = Refusal(
    RefusalReason.SLOW_CLIENT, "The rest of the body did not arrive in time.", close=True
)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_TIME_TO_BEGIN = 1.0
"""Seconds of waiting before a body can be too slow: the first bytes take their time."""

_IN_ONE_GO = 64
"""Kept pieces that are sent before other tasks run."""


def reserve_memory(exchange: UploadExchange, length: int) -> bool:
    """Reserve memory for a body that is still coming; return False if none is left.

    The :class:`StreamingBody` that is made next gives it back.
    """
    memory, caller = exchange.client.server.incoming_memory, exchange.caller()
    size = _memory_for(length)
    return memory.take(caller, size, MEMORY_LIMIT) or memory.reclaim(caller, size, MEMORY_LIMIT)


def _memory_for(length: int) -> int:
    return UNREAD_BODY if length == CHUNKED else min(length, UNREAD_BODY)


@dataclass(slots=True, eq=False)
class StreamingBody:
    """Implements :class:`proxy.core.ports.RequestBody` for a body that is still coming."""

    _exchange: UploadExchange
    _payload: StreamReader
    length: int
    waits_for_continue: bool
    """Whether the client waits for 100 Continue before it sends (Expect)."""
    lost: VerdictReason | None = None
    """Why the body could not be sent a second time; None as long as it could."""
    _limit: int | None = field(init=False)
    """Most bytes that the route lets a body have; None: any number."""
    _seen: int = 0
    _idle_timer: IdleTimer | None = None
    _rate: BodyRate | None = None
    """Set when the body is first waited for, if there is a rate that it must keep to."""
    _rate_timer: asyncio.TimerHandle | None = None
    _whole: bytes | None = None
    _streams: bool = False
    """Whether the body goes out in pieces: settled when it is first sent."""
    is_kept: bool = field(init=False)
    """Whether the body may be needed again."""
    _will_be_resent: bool = False
    """Whether another attempt is certain to send the body again."""
    _ahead: bytes = b""
    """What came since that is certain: the first that is read after what is kept."""
    _buffer: int = field(init=False)
    """Most bytes of a body that is kept."""
    _kept: Pieces | None = None
    _memory: FairMemory = field(init=False)
    _caller: str = field(init=False)
    _has_memory: bool = True
    """Whether memory is reserved for the body as one that is still coming."""
    _reserved: int = 0
    """Bytes that are kept, and count against the memory for all."""
    _is_read_whole: bool = False
    """Whether the body is being read for a request that waits for all of it."""

    def __post_init__(self) -> None:
        exchange, route = self._exchange, self._exchange.route
        self._limit, self._buffer = route.settings.max_body, route.settings.buffer
        self.is_kept = route.keeps_bodies
        self._memory = exchange.client.server.replay_memory
        self._caller = exchange.caller()
        exchange.client.server.incoming_memory.register(self._caller, self.yield_incoming)

    def will_be_kept(self) -> bool:
        """Whether the body could be sent a second time once it was sent, as far as is known."""
        if self.lost is not None or self.length > self._buffer:
            return False
        return self.is_kept or (not self._streams and self._payload.is_eof())

    def begin(self) -> bytes | None:
        """Start from the first byte; return all of the body if it was here when first asked for.

        A body that was once sent piece by piece is never whole any more, even if
        no piece came: its head has told the upstream to expect pieces.
        """
        if self._kept is not None:
            self._kept.rewind()
        self._will_be_resent = False
        if self._whole is None and not self._streams:
            if not self._payload.is_eof():
                self._streams = True
            else:
                self.waits_for_continue = False
                whole = self._whole = self._payload.read_nowait()
                self._count(len(whole))
                if self.is_kept or len(whole) > self._buffer:
                    self._reserve(len(whole))
        return self._whole

    def whole(self) -> bytes | None:
        """Return all of the body, before it is first sent, if it is here and can be kept."""
        if self.length > self._buffer or not self._payload.is_eof():
            return None
        self.is_kept = True
        whole = self.begin()
        return None if self.lost is not None else whole

    async def read_whole(self) -> bytes:
        """Return all of the body, before it is first sent; raise Refused if it cannot be kept."""
        self.is_kept = True
        if self.length > self._buffer:
            raise Refused(TOO_LARGE_TO_KEEP)
        if not self._payload.is_eof():
            pieces = []
            self._is_read_whole = True
            while data := await self._receive():
                if not self._reserve(len(data)):
                    break
                pieces.append(data)
            self._is_read_whole = False
            self._whole = b"".join(pieces)
        whole = self.begin()
        if self.lost is not None or whole is None:
            is_full = self.lost is VerdictReason.BUFFER_FULL
            raise Refused(NO_REPLAY_MEMORY if is_full else TOO_LARGE_TO_KEEP)
        return whole

    def kept(self) -> bytes | None:
        """Return all of the body if all has come and was kept."""
        if not self.is_kept or self.lost is not None:
            return None
        if not self._streams:
            return self.begin() if self._whole is not None or self._payload.is_eof() else None
        if self._ahead or not self._payload.at_eof():
            return None
        return b"" if self._kept is None else self._kept.all()

    async def rest(self) -> bytes | None:
        """Wait for the rest of the body, and return all of it if it was kept."""
        if not self.is_kept or self.length > self._buffer:
            self.lost = self.lost or VerdictReason.BODY_TOO_LARGE
        if self.lost is not None:
            return None
        found = self.kept()
        if found is not None:
            return found
        self.begin()
        while await self.read():
            if not self.is_kept:
                break  # lost: there is no use in the rest
        return self.kept()

    def keep(self) -> None:
        """Give up nothing that is kept of the body from here on: it will be sent again.

        Its reader is about to be stopped, but may be awake already and take in one
        more piece. That one waits, as if it had not been read yet: whether there is
        memory to keep it is for the next attempt to see.
        """
        self._will_be_resent = True

    async def read(self) -> bytes:
        """Return the next piece, or nothing at the end."""
        if self._kept is not None and self._kept.has_next:
            return await self._read_kept(self._kept)
        if self._ahead and not self._will_be_resent:
            data, self._ahead = self._ahead, b""
        else:
            data = await self._receive()
        if self._will_be_resent:
            self._ahead += data
        elif data:
            self._keep(data)
        return data

    async def _read_kept(self, kept: Pieces) -> bytes:
        if kept.number % _IN_ONE_GO == _IN_ONE_GO - 1:
            await asyncio.sleep(0)  # they come without waiting, while other tasks wait
        piece = kept.take()
        if not self.is_kept:
            self.let_go()  # no further attempt will need it
        return piece

    async def _receive(self) -> bytes:
        exchange = self._exchange
        if self.waits_for_continue:
            # Only now is it certain that the body is wanted.
            self.waits_for_continue = False
            exchange.write_interim(_CONTINUE)
        exchange.waiting_since = exchange.now()
        self._watch()
        try:
            data = await self._payload.readany()
        except Refused:
            raise
        except Exception as error:
            raise Refused(MALFORMED) from error
        finally:
            exchange.client_wait += exchange.now() - exchange.waiting_since
            exchange.waiting_since = 0.0
        self._count(len(data))
        if self._payload.at_eof():
            self._release_incoming()
        return data

    def _keep(self, data: bytes) -> None:
        if self.lost is None and self.is_kept and self._reserve(len(data)):
            if self._kept is None:
                self._kept = Pieces()
            self._kept.add(data)
            return
        self.lost = self.lost or VerdictReason.BODY_TOO_LARGE
        self.let_go()

    def _reserve(self, size: int) -> bool:
        """Whether *size* more bytes may be kept; if not, the body is lost from here on."""
        # Of a body that announces more than fits, not even the beginning is kept.
        if max(self._seen, self.length) > self._buffer:
            self.lost = VerdictReason.BODY_TOO_LARGE
            return False
        if not self.is_kept:
            return True  # not for long: it goes out with its head
        caller, memory = self._caller, self._memory
        limit = self._exchange.settings.limits.replay_memory
        if not (memory.take(caller, size, limit) or memory.reclaim(caller, size, limit)):
            self.lost = VerdictReason.BUFFER_FULL
            return False
        if size and not self._reserved:
            memory.register(caller, self.yield_kept)
        self._reserved += size
        return True

    def yield_kept(self, *, if_slow: bool) -> bool:
        """Yield the memory of what is kept to another body; False if that is needed.

        What is kept of a complete body is needed: its request has a time of its own in which it
        ends. With *if_slow* also False unless the body comes too slowly.
        """
        if self._will_be_resent or self._whole is not None or self._payload.is_eof():
            return False
        if if_slow and not self.is_behind():
            return False
        if self._is_read_whole:
            self._payload.set_exception(Refused(NO_REPLAY_MEMORY))
        elif self._kept is None or self._kept.has_next:
            return False  # the body is being sent again
        self.lost = VerdictReason.BUFFER_FULL
        self.let_go()
        return True

    def let_go(self) -> None:
        """Forget the body, but for what the present attempt needs: it will not be sent again."""
        self.is_kept = False
        if self._kept is None or not self._kept.has_next:
            self._kept = None
            if self._whole is not None:
                self._whole = None
                self._streams = True  # a body that is gone is not whole any more
            if self._reserved:
                self._memory.unregister(self._caller, self.yield_kept)
                self._memory.give_back(self._caller, self._reserved)
                self._reserved = 0

    def is_behind(self) -> bool:
        """Whether the body is waited for, and has lately come below the rate it must keep to."""
        exchange, rate = self._exchange, self._rate
        if rate is None or not exchange.waiting_since:
            return False
        waited = exchange.waited_for_client(exchange.now())
        return waited >= _TIME_TO_BEGIN and rate.is_behind(waited, self._seen)

    def stop(self, refusal: Refusal) -> None:
        """Wait for the body no longer: its reader gets *refusal*."""
        self._payload.set_exception(Refused(refusal))

    def fail(self) -> None:
        """Tell the reader of the body that the parser gave up on the rest."""
        self._payload.set_exception(Refused(MALFORMED))

    def _release_incoming(self) -> None:
        if self._has_memory:
            self._has_memory = False
            memory = self._exchange.client.server.incoming_memory
            memory.unregister(self._caller, self.yield_incoming)
            memory.give_back(self._caller, _memory_for(self.length))

    def yield_incoming(self, *, if_slow: bool) -> bool:
        """Stop the upload for the sake of another request; False unless its client is waited for.

        With *if_slow* also False unless the body comes too slowly.
        """
        if not self._exchange.waiting_since or (if_slow and not self.is_behind()):
            return False
        self.stop(NO_MEMORY)
        self._release_incoming()
        return True

    def close(self) -> None:
        """Stop all timers and give all memory back: the exchange is over."""
        self._release_incoming()
        if self._reserved:
            self._kept = None
            self.let_go()
        if self._idle_timer is not None:
            self._idle_timer.stop()
            self._idle_timer = None
        if self._rate_timer is not None:
            self._rate_timer.cancel()
            self._rate_timer = None

    def _watch(self) -> None:
        exchange = self._exchange
        limit = exchange.route.settings.idle_timeout
        if self._idle_timer is not None:
            self._idle_timer.touch()
        elif limit is not None:
            self._idle_timer = IdleTimer(exchange.loop, limit, self._on_idle)
        if self._rate is None and (rate := exchange.settings.limits.body_rate) is not None:
            self._rate = BodyRate(rate)
            self._rate_timer = exchange.loop.call_later(SAMPLE_EVERY, self._sample_rate)

    def _sample_rate(self) -> None:
        """Take a sample of the body's rate: one timer, and nothing per piece."""
        exchange, rate = self._exchange, self._rate
        self._rate_timer = exchange.loop.call_later(SAMPLE_EVERY, self._sample_rate)
        if rate is None or not rate.is_too_slow(
            exchange.waited_for_client(exchange.now()), self._seen
        ):
            return
        if exchange.waiting_since:
            self._payload.set_exception(Refused(_TOO_SLOW))

    def _on_idle(self) -> None:
        self._idle_timer = None
        # If the client was not waited for, the client is not slow.
        if self._exchange.waiting_since:
            self._payload.set_exception(Refused(_SILENT))

    def _count(self, size: int) -> None:
        self._seen += size
        if self._limit is not None and self._seen > self._limit:
            raise Refused(TOO_LARGE)
