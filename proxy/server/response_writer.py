"""Writes responses to the client: the half of an exchange that faces it.

Responses are written as bytes, head and body in one piece where they come together. A base class
of :class:`~proxy.server.exchange.ClientExchange` and not an object beside it: that would take
another call per piece.
"""

import asyncio
import socket
import struct

from aiohttp.abc import AbstractStreamWriter

from proxy.core.date_header import date_line
from proxy.core.exchange import Exchange
from proxy.http.refusal import Refusal
from proxy.http.response_head import KeptResponse, ResponseHead, kept_head, status_line
from proxy.net.unacked import unacked_bytes
from proxy.net.write_coalescer import SMALL
from proxy.policy.attempt import FailureKind
from proxy.policy.settings import FallbackSettings
from proxy.server.body.buffered import BufferedBody
from proxy.server.body.streaming import StreamingBody
from proxy.server.idle_timer import IdleTimer
from proxy.server.ports import ExchangeConnection
from proxy.server.problems import ALLOWED, fallback_bytes, problem_bytes
from proxy.server.router import Router

_RESET_INSTEAD_OF_FIN = struct.pack("ii", 1, 0)
_END_OF_HEAD = (b"", b"")
_PIECE = 64 * 1024
"""Bytes of a kept response that are written at once."""


class ResponseWriter(Exchange):
    """An exchange that can be answered: by the upstream's response, or by one of our own."""

    __slots__ = (
        "_chunked",
        "_drop_body",
        "_idle_timer",
        "client",
        "is_answered",
        "keep_alive",
        "router",
        "writer",
    )

    body: StreamingBody | BufferedBody | None
    client: ExchangeConnection
    """The connection that the request came by."""
    router: Router
    """The routes that were served when the request came: a reload does not touch them."""
    writer: AbstractStreamWriter
    """aiohttp's: told how much was written, nothing else."""
    keep_alive: bool
    """Whether another request may follow on the connection."""
    is_answered: bool
    """Whether the last byte of a response was written."""
    _chunked: bool
    """Whether the response's body is sent in chunks."""
    _drop_body: bool
    """Whether the response has no body, whatever comes of one."""
    _idle_timer: IdleTimer | None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the client's connection."""
        return self.client.server.loop

    # The upstream's response.

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
            # The client will not send its body after this, but perhaps a request instead.
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
            self._start_idle_timer()
            if self.client.writing_paused and self.stream is not None:
                # Paused since an earlier response: pause_writing() is not called again.
                self.stream.pause_reading()

    def _begin_response(self, head: ResponseHead) -> list[bytes]:
        """Return the status line and the end-to-end fields, ours among them."""
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
        if self._idle_timer is not None:
            self._idle_timer.touch()

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

    def relay_cut(self) -> None:
        """Reset the connection, so that the client can tell that the body broke off.

        A plain close would look like the proper end of a body that has no
        length of its own.
        """
        self.keep_alive = False
        self.is_answered = True  # with the clearest answer that is left
        transport = self.client.transport
        if transport is not None:
            sock = transport.get_extra_info("socket")
            if sock is not None and sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_INSTEAD_OF_FIN)
            transport.abort()

    # A tunnel: the upstream switched protocols.

    def relay_tunnel(self, head: ResponseHead, tail: bytes) -> None:
        """Send the head on; bytes go both ways from here on."""
        self.keep_alive = False
        lines = self._begin_response(head)
        lines += (b"Connection: Upgrade", b"Upgrade: websocket", *_END_OF_HEAD)
        self._write(b"\r\n".join(lines) + tail)
        self._start_idle_timer()
        self.client.open_tunnel(self.from_tunnel)

    def from_tunnel(self, data: bytes) -> None:
        """Send bytes of the client's to the upstream."""
        if self._idle_timer is not None:
            self._idle_timer.touch()
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

    # A kept response: what the first request with the same idempotency key was answered.

    async def answer_kept(self, response: KeptResponse) -> None:
        """Give the client *response*, as fast as it reads.

        All clients that get it share one body. A piece of it is made when the one before has
        gone out, so that a crowd that does not read costs what a crowd costs on any other route.
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
        """Whether the client has yet to read what was sent to it."""
        return self.client.writing_paused

    async def caught_up(self) -> None:
        """Wait until the client is behind no longer; cut it off if it reads nothing for long."""
        transport, limit = self.client.transport, self.route.settings.idle_timeout
        if transport is None or transport.is_closing() or not self.client.writing_paused:
            return
        if self._idle_timer is not None:
            self._idle_timer.stop()
            self._idle_timer = None
        if limit is not None:
            self._idle_timer = IdleTimer(self.loop, limit, transport.abort, self._unacked)
        is_whole, self.is_answered = self.is_answered, False  # it may not arrive
        await self.client.until_read()
        self.is_answered = is_whole

    # Answers of our own.

    def answer(self, refusal: Refusal) -> None:
        """Answer with *refusal*."""
        self.refusal = refusal
        self._settle_keep_alive(close=refusal.close)
        answer = problem_bytes(refusal, self, self.router.hop, close=not self.keep_alive)
        self._answer(refusal.status, answer)

    def answer_fallback(self, fallback: FallbackSettings) -> None:
        """Give the client the route's fixed answer in place of a failure."""
        self.fallback = True
        self._settle_keep_alive(close=False)
        answer = fallback_bytes(fallback, self, self.router.hop, close=not self.keep_alive)
        self._answer(fallback.status, answer)

    def answer_options(self) -> None:
        """Say what this server itself can do (``OPTIONS *``)."""
        self._settle_keep_alive(close=False)
        lines = [status_line(204, b""), ALLOWED, date_line(), self.id_line]
        if not self.keep_alive:
            lines.append(b"Connection: close")
        self._answer(204, b"\r\n".join((*lines, *_END_OF_HEAD)))

    def _settle_keep_alive(self, *, close: bool) -> None:
        """Decide whether the connection can go on after an answer of our own."""
        # A client that waits for 100 Continue will not send its body now, and what
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
        """Send an interim response, which is no answer yet."""
        self._write(line)

    # The two methods that write to a client; nothing else does.

    def _write(self, data: bytes, *, at_once: bool = True) -> None:
        transport = self.client.transport
        # If the client is gone, the handler is about to be cancelled.
        if data and transport is not None and not transport.is_closing():
            # Else aiohttp, unaware of what was written, would append an error
            # page of its own if this request failed.
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

    # The idle timeout of a response's body.

    def _start_idle_timer(self) -> None:
        limit = self.route.settings.idle_timeout
        if limit is not None:
            self._idle_timer = IdleTimer(self.loop, limit, self._on_idle, self._unacked)

    def _unacked(self) -> int:
        """Return the bytes that the client has not taken yet: while they shrink, it reads."""
        return unacked_bytes(self.client.transport)

    def _on_idle(self) -> None:
        if self.stream is not None:
            self.stream.fail(FailureKind.TRUNCATED)
