"""One request as the server sees it: aiohttp on one side, the pipeline on the other.

aiohttp makes one of these in place of its own request class and uses a few names of it
(``aiohttp_adapter/request.py``); everything else is :class:`proxy.core.exchange.Exchange`. How it
is answered is in ``response_writer.py``.
"""

import asyncio

from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from proxy.core.ids import new_request_id
from proxy.http.forwarded import (
    NO_FORWARDED_FIELDS,
    client_address,
    identity_lines,
    is_trusted,
)
from proxy.http.refusal import Refusal
from proxy.http.request_head import RequestHead
from proxy.policy.attempt import Attempt
from proxy.policy.fair_share import network_of
from proxy.server.aiohttp_adapter.request import RequestHooks
from proxy.server.connection import ClientConnection
from proxy.server.response_writer import ResponseWriter


class ClientExchange(ResponseWriter, RequestHooks):
    """One request of one client."""

    __slots__ = (
        "_task",
        "came_in_parts",
        "left_during",
        "message",
        "payload",
        "was_left_waiting",
    )

    def __init__(  # noqa: PLR0915 - a line for each thing that is known of a request
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: ClientConnection,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> None:
        self.message = message
        self.payload = payload
        self.client = protocol
        self.router = router = protocol.server.router
        self.writer = writer
        self._task = task
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
        """What was going on when the client left, where the request went on all the same."""
        self.code = 0
        self.bytes_sent = 0
        self.http_1_0 = False
        self.is_answered = False
        self.was_left_waiting = False
        """Whether the client left while more of its body was waited for."""
        self.keep_alive = not message.should_close
        self._rest = b""
        self._chunked = False
        self._drop_body = False
        self._idle_timer = None
        self.came_in_parts = payload is not EMPTY_PAYLOAD and not payload.is_eof()
        """Whether the body was incomplete when the request began to be served."""
        protocol.exchange = self

    def __repr__(self) -> str:
        return f"<exchange {self.method} {self.route!r} {self.code or 'open'}>"

    def set_request_id(self, request_id: str) -> None:
        """Set the request's id, which goes to the upstream and back to the client."""
        self.request_id = request_id
        self.id_line = b"X-Request-Id: " + request_id.encode()

    def now(self) -> float:
        """Return monotonic seconds."""
        return self.client.clock.monotonic()

    @property
    def scheme(self) -> str:
        """How the client came: http or https."""
        return self.client.scheme

    # Who asked.

    def client_ip(self) -> str:
        """Return the client's address, as told by proxies that are trusted."""
        settings = self.router.settings
        return client_address(
            self.peer,
            self.head.forwarded_fields,
            settings.trusted_proxies,
            trust_unix=settings.trust_unix,
        )

    def caller(self) -> str:
        """Return whose share of a limit the request takes: the network of the client's address."""
        if self.head.forwarded_fields is NO_FORWARDED_FIELDS:
            return self.client.caller
        return network_of(self.client_ip())

    def identity_lines(self) -> bytes:
        """Return the lines that tell the upstream who asked: made once per connection and host."""
        client, head, router = self.client, self.head, self.router
        if head.forwarded_fields is NO_FORWARDED_FIELDS and not head.trusted_only:
            known_router, known_host, lines = client.identity_cache
            if known_router is router and known_host == head.host:
                return lines
            lines = identity_lines(client.peer_address, client.scheme, head.host)
            client.identity_cache = (router, head.host, lines)
            return lines
        settings = router.settings
        trusted = is_trusted(
            client.peer_address, settings.trusted_proxies, trust_unix=settings.trust_unix
        )
        lines = identity_lines(
            client.peer_address, client.scheme, head.host, head.forwarded_fields, trusted=trusted
        )
        return b"\r\n".join((lines, *head.trusted_only)) if trusted else lines

    # Waits, and clients that leave.

    def begin_wait(self, reason: str) -> None:
        """Note that the request waits in the queue or between attempts; watch for a disconnect."""
        self.waiting_for = reason
        self.client.server.disconnect_watch.watch(self.client)

    def end_wait(self) -> None:
        """Note that the wait is over; watch for a disconnect no longer."""
        self.waiting_for = ""
        self.client.server.disconnect_watch.forget(self.client)

    @property
    def phase(self) -> str:
        """What is going on, by the names under which clients that leave are counted."""
        if self.code:
            return "response"
        if self.waiting_for:
            return self.waiting_for
        return "body" if self.was_left_waiting else "upstream"

    def detach_client(self) -> None:
        """Go on for a while though the client has left."""
        self.client_is_gone = True
        self.left_during = self.phase

    def lose_client(self, exc: BaseException) -> None:
        """Tell the reader of the body that the connection is lost."""
        self.was_left_waiting = self.waiting_since > 0
        if not self.payload.is_eof():
            self.payload.set_exception(exc)

    def break_body(self) -> None:
        """Tell the reader of the body that the rest of it is malformed."""
        if self.body is not None:
            self.body.fail()

    # How it ends.

    @property
    def was_cut_by_drain(self) -> bool:
        """Whether the drain has run out of time for the request."""
        return self.client.is_cut

    def refuse(self, refusal: Refusal) -> None:
        """Answer *refusal*, record it and end: the request is not served at all."""
        self.set_request_id(new_request_id())
        self.route.recorder.started()
        self.answer(refusal)
        self.finish()

    def finish(self) -> None:
        """Stop all timers, give back what the body reserved, and tell the recorder."""
        if self._idle_timer is not None:
            self._idle_timer.stop()
            self._idle_timer = None
        if self.waiting_for:
            self.end_wait()
        if self.body is not None:
            self.body.close()
            self.body = None  # it refers to this exchange, and a cycle would have to be found
        self.duration = self.client.clock.monotonic() - self.started
        self.route.recorder.finished(self)
        self.client.end(self)


_NO_FIELDS = RequestHead(())
