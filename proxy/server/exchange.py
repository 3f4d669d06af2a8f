"""One request as the server sees it: aiohttp on one side, ours on the other.

aiohttp makes one of these in place of its own request class and calls a few
methods of it (at the end); everything else is :class:`proxy.core.exchange.Exchange`.
Responses are written as bytes, head and body in one piece where they come
together.
"""

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from proxy.core.date_header import date_line
from proxy.core.exchange import OutgoingExchange
from proxy.http.forwarded import NO_FORWARDED_FIELDS, client_address
from proxy.http.refusal import Refusal
from proxy.http.request_head import RequestHead
from proxy.http.response_head import KeptResponse, ResponseHead, kept_head
from proxy.http.status_lines import status_line
from proxy.net.unacked import unacked_bytes
from proxy.net.write_coalescer import SMALL
from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.fair_share import network_of
from proxy.policy.settings import FallbackSettings
from proxy.server.body.buffered import BufferedBody
from proxy.server.body.streaming import StreamingBody
from proxy.server.idle_timer import IdleTimer
from proxy.server.problems import ALLOWED, fallback_bytes, problem_bytes
from proxy.server.tunnel import Tunnel

if TYPE_CHECKING:
    from proxy.server.connection import ClientConnection

_RESET_INSTEAD_OF_FIN = struct.pack("ii", 1, 0)
_END_OF_HEAD = (b"", b"")
_PIECE = 64 * 1024
"""Bytes of a kept response that are written at once."""


class ClientExchange(OutgoingExchange):
    """One request of one client."""

    __slots__ = (
        "_chunked",
        "_drop_body",
        "_silence",
        "_task",
        "came_in_parts",
        "client",
        "is_answered",
        "keep_alive",
        "left_during",
        "message",
        "payload",
        "router",
        "was_left_waiting",
        "writer",
    )

    body: StreamingBody | BufferedBody | None

    def __init__(  # noqa: PLR0915 - a line for each thing that is known of a request
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: "ClientConnection",
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> None:
        self.message = message
        self.payload = payload
        self.client = protocol
        self.router = router = protocol.server.router
        """What was served when it came: a reload does not touch it."""
        self.writer = writer
        self._task: asyncio.Task[None] | None = task
        self.method = message.method
        self.target = message.path
        self.raw_headers = message.raw_headers
        self.request_id = ""
        self.id_line = b""
        self.peer = protocol.peer_address
        self.route = router.unmatched
        self.head = _NO_FIELDS
        self.body = None
        self.upgrade = False
        self.started = protocol.clock.monotonic()
        self.client_timeout = None
        self.duration = 0.0
        self.client_wait = 0.0
        self.waiting_since = 0.0
        self.attempts: list[Attempt] = []
        self.stream = None
        self.expired = False
        self.attempt_expired = False
        self.waiting_for = ""
        self.queue_entry = None
        self.refusal = None
        self.fallback = False
        self.capture = None
        self.owned_key = None
        self.record = ""
        self.key_result = None
        self.dead_letter = ""
        self.client_is_gone = False
        self.left_during = ""
        """What was going on when its client left, where it went on all the same."""
        self.code = 0
        self.bytes_sent = 0
        self.http_1_0 = False
        self.is_answered = False
        """Whether the last byte of a response was written."""
        self.was_left_waiting = False
        """Whether its client left while we waited for more of the body."""
        self.keep_alive = not message.should_close
        self._rest = b""
        self._chunked = False
        self._drop_body = False
        self._silence: IdleTimer | None = None
        self.came_in_parts = payload is not EMPTY_PAYLOAD and not payload.is_eof()
        """Whether its body was not all here when its turn came."""
        protocol.exchange = self

    def __repr__(self) -> str:
        return f"<exchange {self.method} {self.route!r} {self.code or 'open'}>"

    def name(self, request_id: str) -> None:
        """Give it its id, which goes upstream and back."""
        self.request_id = request_id
        self.id_line = b"X-Request-Id: " + request_id.encode()

    def now(self) -> float:
        """Monotonic seconds."""
        return self.client.clock.monotonic()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that the client's connection lives on."""
        return self.client.loop

    @property
    def scheme(self) -> str:
        """How the client came."""
        return self.client.scheme

    @property
    def was_cut_by_drain(self) -> bool:
        """Whether the drain has run out of time for it."""
        return self.client.is_cut

    def begin_wait(self, reason: str) -> None:
        """It waits for its turn, or between two attempts."""
        self.waiting_for = reason
        self.client.server.disconnect_watch.watch(self.client)

    def end_wait(self) -> None:
        """The wait is over."""
        self.waiting_for = ""
        self.client.server.disconnect_watch.forget(self.client)

    def client_ip(self) -> str:
        """The client's address, as told by proxies that are trusted."""
        settings = self.router.settings
        return client_address(
            self.peer,
            self.head.forwarded_fields,
            settings.trusted_proxies,
            trust_unix=settings.trust_unix,
        )

    def caller(self) -> str:
        """Whose share of a common room it takes: the network of that address."""
        if self.head.forwarded_fields is NO_FORWARDED_FIELDS:
            return self.client.caller
        return network_of(self.client_ip())

    def break_body(self) -> None:
        """The rest of the body cannot be read: whoever reads it shall know."""
        if self.body is not None:
            self.body.fail()

    def identity_lines(self) -> bytes:
        """The lines that tell the upstream who asked."""
        return self.client.identity_lines(self)

    # Towards the client.

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Send the head on, with what has come of the body."""
        lines = self._begin_response(head)
        if head.content_length >= 0:
            lines.append(b"Content-Length: %d" % head.content_length)
        elif head.has_body:
            if self.http_1_0:
                self.keep_alive = False  # the end of the connection ends the body
            else:
                self._chunked = True
                lines.append(b"Transfer-Encoding: chunked")
        body = self.body
        if (
            not self.keep_alive
            or self.client.server.is_draining
            # It will not send its body after this, but perhaps a request in its place.
            or (body is not None and body.waits_for_continue)
        ):
            self.keep_alive = False
            lines.append(b"Connection: close")
        lines += _END_OF_HEAD
        if not head.has_body:
            self._drop_body = True
        if body is not None and body.is_kept:
            body.let_go()
        self._send(b"\r\n".join(lines), pieces, complete=complete)
        if not complete:
            self._watch()
            if self.client.writing_paused and self.stream is not None:
                # Paused since an earlier response: nobody will tell us again.
                self.stream.pause_reading()

    def _begin_response(self, head: ResponseHead) -> list[bytes]:
        """The status line and the end-to-end fields, ours among them."""
        self.code = head.status
        if not head.has_date:
            self.add_date(head)
        lines = [head.text, self.id_line]
        if len(self.attempts) > 1:
            lines.append(b"Holdfast-Attempts: %d" % len(self.attempts))
        if self.dead_letter:
            lines.append(b"Holdfast-Dead-Letter: " + self.dead_letter.encode())
        edits = self.route.response_edits
        if edits is not None:
            first, *fields = b"\r\n".join(lines).split(b"\r\n")
            lines = [first, *edits.apply(fields)]
        hop = self.router.hop
        lines.append(head.via_line(hop) if head.via else hop.via)
        return lines

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """Send more of the body on."""
        self._send(b"", pieces, complete=complete)
        if self._silence is not None:
            self._silence.moved()

    def _send(self, head: bytes, pieces: list[bytes], *, complete: bool) -> None:
        """Write *head* and then *pieces*, framed as the head promised."""
        self.is_answered = complete
        if self._drop_body:
            pieces = []
        size = 0
        for piece in pieces:
            size += len(piece)
        self.bytes_sent += size
        if self._chunked:
            if size:
                pieces = [b"%x\r\n" % size, *pieces, b"\r\n"]
            if complete:
                pieces = [*pieces, b"0\r\n\r\n"]
        if size > SMALL:
            self._write_many([head, *pieces] if head else pieces)
        elif head and complete and self.keep_alive:
            self._write(head + b"".join(pieces), at_once=False)
        else:
            self._write(head + b"".join(pieces))

    def relay_tunnel(self, head: ResponseHead, tail: bytes) -> None:
        """The upstream switched protocols: bytes go both ways from here on."""
        self.keep_alive = False
        lines = self._begin_response(head)
        lines += (b"Connection: Upgrade", b"Upgrade: websocket", *_END_OF_HEAD)
        self._write(b"\r\n".join(lines) + tail)
        self._watch()
        self.client.set_parser(Tunnel(self))  # type: ignore[arg-type]  # all that aiohttp calls

    def from_tunnel(self, data: bytes) -> None:
        """Bytes of the client's for the upstream."""
        if self._silence is not None:
            self._silence.moved()
        if self.stream is not None:
            self.stream.write(data)

    def pause_client_reading(self, *, paused: bool) -> None:
        """Stop reading from the client's end of a tunnel, or go on."""
        transport = self.client.transport
        if transport is not None and not transport.is_closing():
            if paused:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def relay_cut(self) -> None:
        """The body broke off: end the connection so that the client can tell.

        A plain close would look like the proper end of a body that has no
        length of its own, so the connection is reset.
        """
        self.keep_alive = False
        self.is_answered = True  # with the clearest answer that is left
        transport = self.client.transport
        if transport is not None:
            sock = transport.get_extra_info("socket")
            if sock is not None and sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_INSTEAD_OF_FIN)
            transport.abort()

    def answer(self, refusal: Refusal) -> None:
        """Give the client an answer of our own."""
        self.refusal = refusal
        self._settle_keep_alive(close=refusal.close)
        answer = problem_bytes(
            refusal,
            self.router.hop,
            method=self.method,
            request_id=self.request_id,
            attempts=self.attempts,
            dead_letter=self.dead_letter,
            close=not self.keep_alive,
        )
        self._answer(refusal.status, answer)

    def add_date(self, head: ResponseHead) -> None:
        """Give a response the time of its arrival, if it does not tell its own."""
        if not head.has_date:
            head.has_date = True
            head.add(date_line())

    async def answer_kept(self, response: KeptResponse) -> None:
        """Give the client what the first request with its key was answered, as fast as it reads.

        All who get it share one body. A piece of it is made when the one before has gone out, so
        that a crowd that does not read costs what a crowd costs on any other route.
        """
        head, body = kept_head(response), response.body
        size = len(body) if head.has_body else 0
        first = bytes(body[:_PIECE])
        self.relay_head(head, [first] if first else [], complete=size <= _PIECE)
        for start in range(_PIECE, size, _PIECE):
            if self.is_behind:
                await self.caught_up()
            end = start + _PIECE
            self.relay_data([bytes(body[start:end])], complete=end >= size)
        if self.is_behind:
            await self.caught_up()

    @property
    def is_behind(self) -> bool:
        """Whether its client has yet to read what was sent to it."""
        return self.client.writing_paused

    async def caught_up(self) -> None:
        """Wait until it is behind no longer; one that reads nothing for too long is cut off."""
        transport, limit = self.client.transport, self.route.settings.idle_timeout
        if transport is None or transport.is_closing() or not self.client.writing_paused:
            return
        if self._silence is not None:
            self._silence.stop()
            self._silence = None
        if limit is not None:
            self._silence = IdleTimer(self.loop, limit, transport.abort, self._unsent)
        is_whole, self.is_answered = self.is_answered, False  # who knows whether it arrives
        await self.client.until_read()
        self.is_answered = is_whole

    def detach_client(self) -> None:
        """The client has left; what it began goes on for a while."""
        self.client_is_gone = True
        self.left_during = self.phase

    @property
    def phase(self) -> str:
        """What is going on, in the words of those who count clients that leave."""
        if self.code:
            return "response"
        if self.waiting_for:
            return self.waiting_for
        return "body" if self.was_left_waiting else "upstream"

    def answer_fallback(self, fallback: FallbackSettings) -> None:
        """Give the client the route's fixed answer in place of a failure."""
        self.fallback = True
        self._settle_keep_alive(close=False)
        answer = fallback_bytes(
            fallback,
            self.router.hop,
            method=self.method,
            request_id=self.request_id,
            attempts=self.attempts,
            dead_letter=self.dead_letter,
            close=not self.keep_alive,
        )
        self._answer(fallback.status, answer)

    def answer_options(self) -> None:
        """Say what this server itself can do (``OPTIONS *``)."""
        self._settle_keep_alive(close=False)
        lines = [status_line(204, b""), ALLOWED, date_line(), self.id_line]
        if not self.keep_alive:
            lines.append(b"Connection: close")
        self._answer(204, b"\r\n".join((*lines, *_END_OF_HEAD)))

    def _settle_keep_alive(self, *, close: bool) -> None:
        """Whether the connection can go on after an answer of our own."""
        # A client that waits for our word will not send its body now, and what
        # it sends instead would be taken for that body.
        waits = self.body is not None and self.body.waits_for_continue
        if close or waits or self.client.server.is_draining:
            self.keep_alive = False

    def _answer(self, status: int, data: bytes) -> None:
        self.code = status
        self.is_answered = True
        self._write(data)
        if self.body is not None and self.body.waits_for_continue:
            self.client.force_close()  # aiohttp would wait for a body that will not come

    def write_interim(self, line: bytes) -> None:
        """An interim response, which is no answer yet."""
        self._write(line)

    # The two that write to a client; nothing else does.

    def _write(self, data: bytes, *, at_once: bool = True) -> None:
        transport = self.client.transport
        # Gone, its handler is about to hear of it.
        if data and transport is not None and not transport.is_closing():
            # Else aiohttp, unaware of what was written, would append an error
            # page of its own if this request came to grief.
            self.writer.output_size += len(data)
            if at_once:
                transport.write(data)
            else:
                self.client.server.coalescer.put(transport, data)

    def _write_many(self, buffers: list[bytes]) -> None:
        transport = self.client.transport
        if transport is not None and not transport.is_closing():
            self.writer.output_size += 1  # anything but nothing
            transport.writelines(buffers)

    def _watch(self) -> None:
        limit = self.route.settings.idle_timeout
        if limit is not None:
            self._silence = IdleTimer(self.loop, limit, self._fell_silent, self._unsent)

    def _unsent(self) -> int:
        """Bytes that the client has not taken yet: shrinking, it is reading."""
        return unacked_bytes(self.client.transport)

    def _fell_silent(self) -> None:
        if self.stream is not None:
            self.stream.fail(FailureKind.TRUNCATED)

    def finish(self) -> None:
        """It is over: stop what watches, and tell the recorder."""
        if self._silence is not None:
            self._silence.stop()
            self._silence = None
        if self.waiting_for:
            self.end_wait()
        if self.body is not None:
            self.body.close()
            self.body = None  # it knows us, and a cycle would have to be found
        self.duration = self.client.clock.monotonic() - self.started
        self.route.recorder.finished(self)
        self.client.end(self)

    def lose_client(self, exc: BaseException) -> None:
        """The connection is lost; whoever reads the body shall know."""
        self.was_left_waiting = self.waiting_since > 0
        if not self.payload.is_eof():
            self.payload.set_exception(exc)

    def cancel(self) -> None:
        """End it where it is (the drain's time is up)."""
        if self._task is not None:
            self._task.cancel()

    # What aiohttp asks of a request.

    def _finish(self) -> None:
        """aiohttp: the handler has returned."""

    def _cancel(self, exc: BaseException) -> None:
        """aiohttp: the connection is lost, in the middle of an error."""

    @property
    def protocol(self) -> "ClientConnection":
        """The client's connection, by aiohttp's name for it."""
        return self.client

    @property
    def remote(self) -> str:
        """The client's address, by aiohttp's name for it."""
        return self.peer


_NO_FIELDS = RequestHead(())
