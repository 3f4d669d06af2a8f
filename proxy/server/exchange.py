"""One request as the server sees it: aiohttp on one side, the pipeline on the other.

aiohttp makes one of these in place of its own request class and uses a few names of it
(``aiohttp_adapter/request.py``); everything else is :class:`proxy.core.exchange.Exchange`. How it
is answered is in ``response_writer.py``.
"""

import asyncio

from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from proxy.core.exchange import Exchange
from proxy.core.ids import new_request_id
from proxy.http.refusal import Refusal
from proxy.server.aiohttp_adapter.request import RequestHooks
from proxy.server.ports import ServedConnection
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

    client: ServedConnection

    def __init__(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: ServedConnection,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> None:
        server = protocol.server
        router = server.router
        Exchange.__init__(  # super() takes longer
            self,
            message.method,
            message.path,
            message.raw_headers,
            protocol.identity,
            router.unmatched,
            router.settings,
            server.clock.monotonic(),
        )
        self.message = message
        self.payload = payload
        self._task = task
        self.left_during = ""
        """What was going on when the client left, where the request went on all the same."""
        self.was_left_waiting = False
        """Whether the client left while more of its body was waited for."""
        self.came_in_parts = payload is not EMPTY_PAYLOAD and not payload.is_eof()
        """Whether the body was incomplete when the request began to be served."""
        # Of the writer: a method of its own for them would be one more call per request.
        self.client = protocol
        self.router = router
        self.writer = writer
        self.keep_alive = not message.should_close
        self.is_answered = False
        self._chunked = False
        self._drop_body = False
        self._idle_timer = None
        protocol.exchange = self

    def __repr__(self) -> str:
        return f"<exchange {self.method} {self.route!r} {self.code or 'open'}>"

    def now(self) -> float:
        """Return monotonic seconds."""
        return self.client.server.clock.monotonic()

    # Waits, and clients that leave.

    def begin_wait(self, reason: str) -> None:
        """Note that the request waits in the queue or between attempts; watch for a disconnect."""
        super().begin_wait(reason)
        self.client.server.disconnect_watch.watch(self.client)

    def end_wait(self) -> None:
        """Note that the wait is over; watch for a disconnect no longer."""
        super().end_wait()
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
        super().detach_client()
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
        self.duration = self.client.server.clock.monotonic() - self.started
        self.route.recorder.finished(self)
        self.client.end(self)
