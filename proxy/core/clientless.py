"""Exchanges without a client, and bodies that are complete: for replays and for simulations.

Such an exchange meets the same stages as any request. No client reads its response: what matters is
its status, and whether all of it came.
"""

from proxy.core.clock import Clock
from proxy.core.date_header import date_line
from proxy.core.exchange import OutgoingExchange
from proxy.core.ports import Refused
from proxy.core.route import Route
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.request_head import RequestHead
from proxy.http.response_head import KeptResponse, ResponseHead
from proxy.policy.attempt import Attempt
from proxy.policy.reasons import VerdictReason
from proxy.policy.settings import FallbackSettings

_TOO_LARGE_TO_KEEP = Refusal(
    RefusalReason.BODY_TOO_LARGE, "With a key the body has to be kept, and it is beyond buffer."
)


class CompleteBody:
    """A body that is in memory from the start (core.ports.RequestBody)."""

    __slots__ = ("_data", "length", "lost")

    def __init__(self, data: bytes, *, too_large: bool = False) -> None:
        """A body that is *too_large* can be sent once only."""
        self._data = data
        self.length = len(data)
        self.lost = VerdictReason.BODY_TOO_LARGE if too_large else None

    def will_be_kept(self) -> bool:
        """Say whether the body can be sent twice."""
        return self.lost is None

    def begin(self) -> bytes | None:
        """Return the whole body, to be sent with the head."""
        return self._data

    def keep(self) -> None:
        """Do nothing: the body stays as it is."""

    def whole(self) -> bytes | None:
        """Return the whole body, if it can be sent twice."""
        return self._data if self.lost is None else None

    async def read_whole(self) -> bytes:
        """Return the whole body; raise Refused if it cannot be sent twice."""
        if self.lost is not None:
            raise Refused(_TOO_LARGE_TO_KEEP)
        return self._data

    def kept(self) -> bytes | None:
        """Return the whole body, if it can be sent twice."""
        return self.whole()

    async def rest(self) -> bytes | None:
        """Return the whole body, if it can be sent twice: there is nothing to wait for."""
        return self.whole()

    def is_behind(self) -> bool:
        """Say whether the client sends too slowly: never, since the body is here."""
        return False

    def stop(self, refusal: Refusal) -> None:
        """Do nothing: the body is not waited for."""

    async def read(self) -> bytes:
        """Return the end of the body: all of it went out with the head."""
        return b""


class ClientlessExchange(OutgoingExchange):
    """An exchange that no client waits for: records what a client would get."""

    __slots__ = ("_clock", "is_cut", "was_truncated")

    def __init__(
        self,
        method: str,
        target: str,
        head: RequestHead,
        route: Route,
        clock: Clock,
        *,
        request_id: str,
        peer: str,
        body: CompleteBody | None,
    ) -> None:
        self._clock = clock
        self.method = method
        self.target = target
        self.raw_headers = head.raw
        self.head = head
        self.http_1_0 = False
        self.request_id = request_id
        self.id_line = b"X-Request-Id: " + request_id.encode()
        self._rest = b""
        self.peer = peer
        self.route = route
        self.body = body
        self.upgrade = False
        self.started = clock.monotonic()
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
        self.code = 0
        self.bytes_sent = 0
        self.is_cut = False
        """Set when the drain has run out of time for the exchange."""
        self.was_truncated = False
        """Whether the response broke off."""

    def finish(self) -> None:
        """Tell the recorder that the exchange is over."""
        self.duration = self._clock.monotonic() - self.started
        self.route.recorder.finished(self)

    @property
    def was_cut_by_drain(self) -> bool:
        """Whether the drain has run out of time for the exchange."""
        return self.is_cut

    # In place of a client.

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Record the status, and count the bytes."""
        del complete
        self.code = head.status
        self.bytes_sent += sum(map(len, pieces))

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """Count the bytes: no client reads the body."""
        del complete
        self.bytes_sent += sum(map(len, pieces))

    def relay_cut(self) -> None:
        """Note that the body broke off."""
        self.was_truncated = True

    def answer(self, refusal: Refusal) -> None:
        """Record the refusal that a client would get."""
        self.refusal = refusal
        self.code = refusal.status

    def answer_fallback(self, fallback: FallbackSettings) -> None:
        """Record the fallback that a client would get, which is no success."""
        self.fallback = True
        self.code = fallback.status

    async def answer_kept(self, response: KeptResponse) -> None:
        """Record the stored response of another request with the same key."""
        self.code = response.status

    def add_date(self, head: ResponseHead) -> None:
        """Give a response the time of its arrival, if it does not tell its own."""
        if not head.has_date:
            head.has_date = True
            head.add(date_line())

    @property
    def is_behind(self) -> bool:
        """Whether the client reads too slowly: never, since there is none."""
        return False

    async def caught_up(self) -> None:
        """Return at once: there is no client to wait for."""

    def detach_client(self) -> None:
        """Do nothing: there is no client that could leave."""

    def begin_wait(self, reason: str) -> None:
        """Note that the exchange waits in a queue, or between two attempts."""
        self.waiting_for = reason

    def end_wait(self) -> None:
        """Note that the wait is over."""
        self.waiting_for = ""

    def answer_options(self) -> None:
        """Do nothing: such an exchange is no OPTIONS request to the proxy."""

    def relay_tunnel(self, head: ResponseHead, tail: bytes) -> None:
        """Record the status of a tunnel, which has no other end here."""
        del tail
        self.code = head.status

    def pause_client_reading(self, *, paused: bool) -> None:
        """Do nothing: there is no client."""
