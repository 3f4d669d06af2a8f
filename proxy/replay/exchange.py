"""The exchange of a dead letter that is replayed, without a client.

The replay meets the same stages as any request. No client reads its response: what matters is
its status, and whether all of it came.
"""

from proxy.core.clock import Clock
from proxy.core.date_header import date_line
from proxy.core.exchange import OutgoingExchange
from proxy.core.route import Route
from proxy.http.fields import RawHeaders
from proxy.http.forwarded import NO_FORWARDED_FIELDS, client_address, identity_lines, is_trusted
from proxy.http.refusal import Refusal
from proxy.http.request_head import RequestHead, read_request_head
from proxy.http.response_head import KeptResponse, ResponseHead
from proxy.policy.attempt import Attempt
from proxy.policy.caller_fields import hop_for
from proxy.policy.dead_letter import DeadLetter, attempts_of, with_headers
from proxy.policy.fair_share import network_of
from proxy.policy.reasons import VerdictReason
from proxy.policy.settings import FallbackSettings, Settings


class DeadLetterBody:
    """The body of a dead letter, all of it in memory (core.ports.RequestBody)."""

    __slots__ = ("_data", "length", "lost")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)
        self.lost: VerdictReason | None = None

    def will_be_kept(self) -> bool:
        """Say whether the body can be sent twice: always."""
        return True

    def begin(self) -> bytes | None:
        """Return the whole body, to be sent with the head."""
        return self._data

    def keep(self) -> None:
        """Do nothing: the body is kept in any case."""

    def whole(self) -> bytes:
        """Return the whole body."""
        return self._data

    async def read_whole(self) -> bytes:
        """Return the whole body."""
        return self._data

    def kept(self) -> bytes | None:
        """Return the whole body."""
        return self._data

    async def rest(self) -> bytes | None:
        """Return the whole body."""
        return self._data

    def is_behind(self) -> bool:
        """Say whether the client sends too slowly: never, since the body is here."""
        return False

    def stop(self, refusal: Refusal) -> None:
        """Do nothing: the body is not waited for."""

    async def read(self) -> bytes:
        """Return the end of the body: all of it went out with the head."""
        return b""


def read_dead_letter(
    dead_letter: DeadLetter, given: RawHeaders, route: Route, settings: Settings, clock: Clock
) -> "ReplayExchange | Refusal":
    """Make the exchange of *dead_letter* on *route*, with the header fields *given* besides."""
    headers = with_headers(dead_letter.headers, given)
    head = read_request_head(headers, http_1_0=False, hop=hop_for(settings))
    if isinstance(head, Refusal):
        return head
    if route.single_fields is not None:
        # Another configuration than today's may have accepted it.
        refusal = route.single_fields.refusal(headers, dead_letter.summary.target)
        if refusal is not None:
            return refusal
    exchange = ReplayExchange(dead_letter, head, route, settings, clock)
    keys = route.settings.idempotency
    has_own_key = keys is not None and any(
        name.lower() == keys.header.encode() for name, _ in given
    )
    # With a key that the operator gave, it is a request of its own.
    exchange.known_record = "" if has_own_key else dead_letter.record
    return exchange


class ReplayExchange(OutgoingExchange):
    """One replay of one dead letter."""

    __slots__ = (
        "_clock",
        "_scheme",
        "_settings",
        "earlier_attempts",
        "is_cut",
        "known_record",
        "was_truncated",
    )

    is_replay = True

    def __init__(
        self,
        dead_letter: DeadLetter,
        head: RequestHead,
        route: Route,
        settings: Settings,
        clock: Clock,
    ) -> None:
        summary = dead_letter.summary
        self._clock = clock
        self._settings = settings
        self._scheme = dead_letter.scheme
        self.method = summary.method
        self.target = summary.target
        self.raw_headers = head.raw
        self.head = head
        self.http_1_0 = False
        self.request_id = summary.request_id
        self.id_line = b"X-Request-Id: " + summary.request_id.encode()
        self._rest = b""
        self.peer = dead_letter.peer
        self.route = route
        self.body = DeadLetterBody(dead_letter.body) if dead_letter.body else None
        self.upgrade = False
        self.started = clock.monotonic()
        self.client_timeout = None
        self.duration = 0.0
        self.client_wait = 0.0
        self.waiting_since = 0.0
        self.attempts: list[Attempt] = []
        self.earlier_attempts = attempts_of(dead_letter, clock.monotonic() - clock.wall())
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
        self.known_record = ""
        self.key_result = None
        self.dead_letter = dead_letter.id
        self.client_is_gone = False
        self.code = 0
        self.bytes_sent = 0
        self.is_cut = False
        """Set when the drain has run out of time for the replay."""
        self.was_truncated = False
        """Whether the response broke off."""

    def __repr__(self) -> str:
        return f"<replay of {self.dead_letter} {self.code or 'open'}>"

    def finish(self) -> None:
        """Tell the recorder that the replay is over."""
        self.duration = self._clock.monotonic() - self.started
        self.route.recorder.finished(self)

    # To the upstream: the request that the client once sent.

    @property
    def scheme(self) -> str:
        """The scheme by which the client once came."""
        return self._scheme

    @property
    def was_cut_by_drain(self) -> bool:
        """Whether the drain has run out of time for the replay."""
        return self.is_cut

    def identity_lines(self) -> bytes:
        """Return the header lines that tell the upstream of the original client."""
        head, settings = self.head, self._settings
        if head.forwarded_fields is NO_FORWARDED_FIELDS and not head.trusted_only:
            return identity_lines(self.peer, self._scheme, head.host)
        trusted = is_trusted(self.peer, settings.trusted_proxies, trust_unix=settings.trust_unix)
        lines = identity_lines(
            self.peer, self._scheme, head.host, head.forwarded_fields, trusted=trusted
        )
        return b"\r\n".join((lines, *head.trusted_only)) if trusted else lines

    def client_ip(self) -> str:
        """Return the address of the original client, as told by trusted proxies."""
        settings = self._settings
        return client_address(
            self.peer,
            self.head.forwarded_fields,
            settings.trusted_proxies,
            trust_unix=settings.trust_unix,
        )

    def caller(self) -> str:
        """Return the network of the original client's address."""
        return network_of(self.client_ip())

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
        """Do nothing: a replay has no client that could leave."""

    def begin_wait(self, reason: str) -> None:
        """Note that the replay waits in a queue, or between two attempts."""
        self.waiting_for = reason

    def end_wait(self) -> None:
        """Note that the wait is over."""
        self.waiting_for = ""

    def answer_options(self) -> None:
        """Do nothing: no dead letter is an OPTIONS request to the proxy."""

    def relay_tunnel(self, head: ResponseHead, tail: bytes) -> None:
        """Do nothing: no dead letter asks for a tunnel."""

    def pause_client_reading(self, *, paused: bool) -> None:
        """Do nothing: there is no client."""
