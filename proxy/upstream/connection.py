"""One connection to an upstream: bytes out, a checked response in.

httptools parses the head and the chunks. A body of known length needs no
parser: it is counted down and relayed as it came, without a copy. What the
parser lets through is judged in ``http/response_head.py``; what only the
connection can see is judged here:

=====================================  ==========================================
bytes on an idle connection            closed: no request asked for them
bytes before the request has gone out  closed, and the request is not sent
bytes beyond the end of a response     the response is delivered, then closed
a second response in one read          the first is delivered, then closed
1xx                                    not relayed, and not without end
101 that no request asked for          protocol error
end before the head is complete        reset
end inside the body                    truncated
=====================================  ==========================================

Whether a connection may carry another request is decided in :meth:`UpstreamConnection.is_spent`
and nowhere else. It may if nothing of this exchange can reach the next one:

=====================================  ==========================================
the response                           came complete, with nothing behind it, and
                                       neither its version nor ``close`` forbids it
                                       (``http/response_head.py``)
announced a body that must not come    spent: 204, 205, 304, HEAD may bring it later
came before all was sent               spent
came before the upstream's kernel      spent: it may never read the rest, and our next
had everything                         request would wait behind that for ever
is a refusal of a body over 4 KiB      spent: judged by the head alone, perhaps, and the
                                       body lies unread where we cannot see it
=====================================  ==========================================
"""

import asyncio
import logging
import re
import ssl
from dataclasses import dataclass, field
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from proxy.core.exchange import Exchange
from proxy.http.framing import CHUNKED
from proxy.http.response_head import BadResponse, ResponseHead, read_response_head
from proxy.net.unacked import unacked_bytes
from proxy.net.write_coalescer import SMALL, WriteCoalescer
from proxy.policy.attempt import Attempt, FailureKind

_log = logging.getLogger("holdfast")

HEAD_LIMIT = 64 * 1024
"""Most bytes before a final head is complete, interim responses included."""
MOST_INTERIM = 20
"""Most 1xx responses before the final one."""
READ_WITH_HEAD = 4096
"""Bytes of a request's body that any server has read by the time it answers: they come in
the same read as the head, even with the smallest buffers in use."""

_SWITCHING = 101
_FIRST_FINAL = 200
_FIRST_UNSUCCESSFUL = 300

_to_websocket = re.compile(rb"\r\nupgrade:[ \t]*websocket[ \t]*(?=\r\n)", re.IGNORECASE).search

# What the next bytes are.
_IDLE, _HEAD, _COUNT, _CHUNKS, _UNTIL_CLOSE, _TUNNEL = range(6)


class ConnectionOwner(Protocol):
    """The pool that a connection comes from and goes back to."""

    def give_back(self, connection: "UpstreamConnection") -> None:
        """Take back a connection that is idle and fit for another request."""

    def lost(self, connection: "UpstreamConnection") -> None:
        """Forget a connection that is closed."""


class ActiveCall(Protocol):
    """The request that a connection carries, as far as the connection needs to know it."""

    attempt: Attempt
    exchange: Exchange
    is_relaying: bool
    """Whether the head has gone to the client."""

    def respond(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Take the head, with the beginning of the body or all of it."""

    def more(self, pieces: list[bytes], *, complete: bool) -> None:
        """Take more of the body, or its end."""

    def switch(self, head: ResponseHead, tail: bytes) -> None:
        """Take the head of a 101, and what came behind it."""

    def closed(self, kind: FailureKind | None) -> None:
        """End the call: the connection is gone."""

    def fail(self, kind: FailureKind) -> None:
        """Give the call up, and close the connection."""


@dataclass(slots=True, eq=False, repr=False)
class UpstreamConnection(asyncio.Protocol):
    """One connection to an upstream; carries one call at a time, and is pooled in between."""

    _owner: ConnectionOwner
    _loop: asyncio.AbstractEventLoop
    _coalescer: WriteCoalescer
    keepalive: float
    """Longest idle time in seconds after which the connection may still be used."""
    transport: asyncio.Transport | None = None
    idle_since: float = 0.0
    uses: int = 0
    """How many requests the connection has carried."""
    is_counted: bool = False
    """Whether the pool counts the connection."""
    _call: ActiveCall | None = None
    _mode: int = _IDLE
    _parser: HttpResponseParser | None = None
    _writable: asyncio.Future[None] | None = None
    _reading_paused: bool = False
    _sending: bool = False
    _sent: int = 0
    """Bytes of a request's body that were sent in pieces."""
    _may_be_unread: bool = False
    """Whether the upstream may answer before it has read all of the request."""
    # The response under way.
    _raw: bytes | bytearray = b""
    """What has come of the head."""
    _head_start: int = 0
    _head: ResponseHead | None = None
    _pieces: list[bytes] = field(default_factory=list)
    _body_left: int = 0
    _complete: bool = False
    _interim: int = 0

    def __repr__(self) -> str:
        if self.transport is None:
            return "<connection closed>"
        state = {_IDLE: "idle", _TUNNEL: "tunnel"}.get(self._mode, "busy")
        return f"<connection {state}, {self.uses} uses>"

    @property
    def is_closing(self) -> bool:
        """Whether the connection is closed, or about to be."""
        return self.transport is None or self.transport.is_closing()

    # Sending.

    def send(self, call: ActiveCall, head: bytes, body: bytes, *, more: bool) -> bool:
        """Send a request for *call*. With *more* its body follows through :meth:`write`.

        False if the connection has just ended and nothing was sent.
        """
        transport = self.transport
        if transport is None or transport.is_closing():
            return False
        self._call = call
        self._mode = _HEAD
        self._sending = more
        if self._parser is None:
            self._parser = HttpResponseParser(self)
        self.uses += 1
        size = len(body)
        self._may_be_unread = size > READ_WITH_HEAD
        if more:
            self._may_be_unread = True
            self._sent = 0
            transport.write(head)
        elif size <= SMALL:
            self._coalescer.put(transport, head + body, self._was_not_sent)
        else:
            transport.writelines((head, body))
        return True

    def write(self, data: bytes) -> None:
        """Send more of the request's body, or of the tunnel; ignored by a closed connection."""
        if self.transport is not None:
            self._sent += len(data)
            self.transport.write(data)

    def write_chunk(self, data: bytes) -> None:
        """Send a piece of the request's body, framed as a chunk; ignored by a closed connection."""
        transport = self.transport
        # From Python 3.12 to 3.13.5 asyncio's writelines() registers a writer on a connection that
        # is closing, whose descriptor may soon be another's.
        if transport is not None and not transport.is_closing():
            self._sent += len(data)
            transport.writelines((b"%x\r\n" % len(data), data, b"\r\n"))

    def wrote_all(self) -> None:
        """Note that all of the request's body is written; the upstream may be far behind."""
        self._sending = False
        self._may_be_unread = self._sent > READ_WITH_HEAD

    def is_spent(self, head: ResponseHead) -> bool:
        """Say whether the connection must not be reused after the request that *head* answers.

        The module's docstring has the reasons. A proper answer acknowledges with its own bytes
        all that it answers, so only one that came early finds bytes unacknowledged.
        """
        if not head.reusable:
            return True
        if not self._may_be_unread:
            return False
        if self._sending:
            return True
        return head.status >= _FIRST_UNSUCCESSFUL or unacked_bytes(self.transport) > 0

    @property
    def is_write_blocked(self) -> bool:
        """Whether the upstream is behind with reading (back-pressure)."""
        return self._writable is not None

    async def wait_writable(self, idle_timeout: float | None) -> bool:
        """Wait until the upstream has caught up, or is gone; False if it takes no byte in time."""
        while self._writable is not None:
            unacked = unacked_bytes(self.transport)
            done, _ = await asyncio.wait((self._writable,), timeout=idle_timeout)
            if not done and unacked_bytes(self.transport) == unacked:
                return False
        return True

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()
        if self._mode == _TUNNEL and self._call is not None:
            self._call.exchange.pause_client_reading(paused=True)

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)
        if self._mode == _TUNNEL and self._call is not None:
            self._call.exchange.pause_client_reading(paused=False)

    # Receiving.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def pause_reading(self) -> None:
        if not self._reading_paused and self.transport is not None:
            self._reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused and self.transport is not None:
            self._reading_paused = False
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        call = self._call
        if call is None:
            self.abandon()
            return
        mode = self._mode
        try:
            if mode == _HEAD:
                self._parse_head(call, data)
            elif mode == _COUNT:
                self._count(call, data)
            elif mode == _CHUNKS:
                self._parse_chunks(call, data)
            else:
                call.more([data], complete=False)
        except Exception:  # noqa: BLE001 - whatever it is, a call waits for this response
            # The loop would only log the error, and the call would wait for ever.
            _log.exception("a response could not be handled inside the proxy")
            self.abandon()
            call.fail(FailureKind.UNKNOWN)

    def _count(self, call: ActiveCall, data: bytes) -> None:
        left = self._body_left - len(data)
        if left > 0:
            self._body_left = left
            call.more([data], complete=False)
            return
        if left < 0:
            # RFC 9112 6.3: surplus bytes must never be taken for a response.
            data = data[:left]
        self._finish(self._head, clean=left == 0)  # type: ignore[arg-type]  # it told the length
        call.more([data], complete=True)

    def _parse_head(self, call: ActiveCall, data: bytes) -> None:
        if not self._raw:
            if self.transport in self._coalescer.waiting and self._take_back(call, self.transport):
                self._fail(FailureKind.RESET)
                return
            call.attempt.received = True
            self._raw = data
        elif isinstance(self._raw, bytes):
            self._raw = bytearray(self._raw + data)
        else:
            self._raw += data
        clean = self._feed(call, data)
        head = self._head
        if clean is None:
            return
        if head is None:
            if len(self._raw) > HEAD_LIMIT:
                self._fail(FailureKind.PROTOCOL)
            return
        self._raw = b""
        pieces, self._pieces = self._pieces, []
        complete = self._complete
        if complete:
            self._finish(head, clean=clean)
        elif head.length == CHUNKED:
            self._mode = _CHUNKS
        else:
            # No parser needed for the rest: it is counted, or ends with the connection.
            self._parser = None
            self._mode = _COUNT if head.length >= 0 else _UNTIL_CLOSE
            self._body_left = head.length - sum(map(len, pieces))
        call.respond(head, pieces, complete=complete)

    def _parse_chunks(self, call: ActiveCall, data: bytes) -> None:
        clean = self._feed(call, data)
        if clean is None:
            return
        pieces, self._pieces = self._pieces, []
        complete = self._complete
        if complete and self._head is not None:
            self._finish(self._head, clean=clean)
        if pieces or complete:
            call.more(pieces, complete=complete)

    def _feed(self, call: ActiveCall, data: bytes) -> bool | None:
        """Feed *data* to the parser; False if a surplus is bad, None if the call is over."""
        try:
            self._parser.feed_data(data)  # type: ignore[union-attr]  # there is one in these modes
        except HttpParserUpgrade as upgrade:
            self._switch(call, data[upgrade.args[0] :])
            return None
        except HttpParserError:
            if self._complete:
                return False  # the response is complete, and what follows it belongs to no request
            self._fail(FailureKind.PROTOCOL)
            return None
        return True

    def _switch(self, call: ActiveCall, tail: bytes) -> None:
        head = self._head
        if head is None:
            self._fail(FailureKind.PROTOCOL)
            return
        self._mode = _TUNNEL
        self._parser = None
        call.switch(head, tail)

    # httptools' callbacks. Fields are not among them: one split of the checked
    # head costs less than a call for each, and trailers are not taken at all
    # (RFC 9110 6.5.1: not merged).

    def on_message_begin(self) -> None:
        if self._complete:
            raise BadResponse("more than one response")

    def on_headers_complete(self) -> None:
        raw, start = self._raw, self._head_start
        end = raw.find(b"\r\n\r\n", start)
        if end - start > HEAD_LIMIT or not raw.startswith(b"HTTP/", start):
            raise BadResponse("head")
        exchange = self._call.exchange  # type: ignore[union-attr]  # else nothing is parsed
        status = self._parser.get_status_code()  # type: ignore[union-attr]  # it calls us
        if status < _FIRST_FINAL and status != _SWITCHING:
            self._head_start = end + 4
            self._interim += 1
            if self._interim > MOST_INTERIM:
                raise BadResponse("interim responses without end")
            return
        if status == _SWITCHING and not (exchange.upgrade and _to_websocket(raw, start, end + 2)):
            raise BadResponse("switched to a protocol that was not asked for")
        head = self._head = read_response_head(exchange.method, status, bytes(raw[start:end]))
        if head.length == 0 and status != _SWITCHING:
            # Nothing more will come, whatever a length or coding may say, as after HEAD.
            self._complete = True
            if len(raw) > end + 4:
                head.reusable = False  # yet something came, and more of it may follow

    def on_body(self, data: bytes) -> None:
        if self._head is None or self._head.length == 0:
            raise BadResponse("a body where none can be")
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self._head is not None:
            self._complete = True

    # The end.

    def eof_received(self) -> bool:
        if self._mode == _UNTIL_CLOSE and self._call is not None and self._ended_by_upstream():
            call = self._call
            self._call = None
            call.more([], complete=True)
        return False

    def _ended_by_upstream(self) -> bool:
        """Say whether the upstream itself ended the connection (RFC 9112 9.8).

        Any hop on the way can end TCP; only the peer can end TLS. uvloop reports nothing but
        the peer's end, asyncio's own loop reports both.
        """
        if self.transport is None:
            return False
        tls: ssl.SSLObject | None = self.transport.get_extra_info("ssl_object")
        if tls is None:
            return True
        try:
            return not tls.read(1)
        except ssl.SSLError:
            return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        transport, self.transport = self.transport, None
        if self._writable is not None:
            writable, self._writable = self._writable, None
            if not writable.done():
                writable.set_result(None)
        if transport is not None:
            if self._call is not None:
                self._take_back(self._call, transport)
            self._owner.lost(self)
        kind = FailureKind.TRUNCATED if self._is_relaying() else FailureKind.RESET
        call, self._call = self._call, None
        if call is not None:
            call.closed(None if self._mode == _TUNNEL else kind)

    def abandon(self) -> None:
        """Close at once, without telling the call."""
        if self._call is not None:
            self._take_back(self._call, self.transport)
        self._call = None
        if self.transport is not None:
            self.transport.abort()

    def close(self) -> None:
        """Close a connection that has no call."""
        if self.transport is None:
            return
        # What is left to be sent was answered, and may never be read; a TLS peer
        # may never confirm the end.
        secure = self.transport.get_extra_info("sslcontext") is not None
        if secure or self._sending or self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _take_back(self, call: ActiveCall, transport: asyncio.Transport | None) -> bool:
        """Drop a request that still waits in the write coalescer: no byte of it was sent."""
        if transport is None or not self._coalescer.take_back(transport):
            return False
        call.attempt.sent = False
        return True

    def _was_not_sent(self) -> None:
        """Note that the connection began to close before the coalescer wrote the request."""
        if self._call is not None:
            self._call.attempt.sent = False

    def _is_relaying(self) -> bool:
        return self._call is not None and self._call.is_relaying

    def _fail(self, kind: FailureKind) -> None:
        call = self._call
        if self._is_relaying():
            kind = FailureKind.TRUNCATED
        self.abandon()
        if call is not None:
            call.closed(kind)

    def _finish(self, head: ResponseHead, *, clean: bool) -> None:
        """Return to the pool after a complete response, or close.

        A response is not *clean* if bytes followed it that no request asked for.
        """
        self._call = None
        if not clean or self.is_spent(head):
            self.close()
            return
        if head.length == 0:
            self._parser = None  # the parser may still wait for a body
        if head.keep_alive_timeout is not None:
            self.keepalive = min(self.keepalive, head.keep_alive_timeout)
        self._mode = _IDLE
        self._head = None
        self._head_start = 0
        self._complete = False
        self._interim = 0
        if self._reading_paused:
            # With reading paused just before the end, its next request would hang for ever.
            self.resume_reading()
        self._owner.give_back(self)
