"""A letter that is sent again: an exchange without a client.

It meets the same stages as any request. Nobody reads its response: what matters is its
status, and whether all of it came.
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
    """The body of a letter (core.RequestBody): all of it is here."""

    __slots__ = ("_data", "length", "lost")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)
        self.lost: VerdictReason | None = None

    def will_be_kept(self) -> bool:
        """It is."""
        return True

    def begin(self) -> bytes | None:
        """All of it, with the head."""
        return self._data

    def keep(self) -> None:
        """It stays."""

    def whole(self) -> bytes:
        """All of it."""
        return self._data

    async def read_whole(self) -> bytes:
        """All of it."""
        return self._data

    def kept(self) -> bytes | None:
        """All of it."""
        return self._data

    async def rest(self) -> bytes | None:
        """All of it."""
        return self._data

    def is_behind(self) -> bool:
        """All of it is here."""
        return False

    def stop(self, refusal: Refusal) -> None:
        """Nothing is waited for."""

    async def read(self) -> bytes:
        """It went out with the head."""
        return b""


def read_dead_letter(
    letter: DeadLetter, given: RawHeaders, route: Route, settings: Settings, clock: Clock
) -> "ReplayExchange | Refusal":
    """The exchange of *letter* on *route*, with the header fields that were *given* besides."""
    headers = with_headers(letter.headers, given)
    head = read_request_head(headers, http_1_0=False, hop=hop_for(settings))
    if isinstance(head, Refusal):
        return head
    if route.single_fields is not None:
        # Another configuration than today's may have let it in.
        refusal = route.single_fields.refusal(headers, letter.summary.target)
        if refusal is not None:
            return refusal
    exchange = ReplayExchange(letter, head, route, settings, clock)
    keys = route.settings.idempotency
    has_own_key = keys is not None and any(
        name.lower() == keys.header.encode() for name, _ in given
    )
    # With a key of one's own it is one's own request.
    exchange.known_record = "" if has_own_key else letter.record
    return exchange


class ReplayExchange(OutgoingExchange):
    """One replay of one letter."""

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
        self, letter: DeadLetter, head: RequestHead, route: Route, settings: Settings, clock: Clock
    ) -> None:
        outline = letter.summary
        self._clock = clock
        self._settings = settings
        self._scheme = letter.scheme
        self.method = outline.method
        self.target = outline.target
        self.raw_headers = head.raw
        self.head = head
        self.http_1_0 = False
        self.request_id = outline.request_id
        self.id_line = b"X-Request-Id: " + outline.request_id.encode()
        self._rest = b""
        self.peer = letter.peer
        self.route = route
        self.body = DeadLetterBody(letter.body) if letter.body else None
        self.upgrade = False
        self.started = clock.monotonic()
        self.client_timeout = None
        self.duration = 0.0
        self.client_wait = 0.0
        self.waiting_since = 0.0
        self.attempts: list[Attempt] = []
        self.earlier_attempts = attempts_of(letter, clock.monotonic() - clock.wall())
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
        self.dead_letter = letter.id
        self.client_is_gone = False
        self.code = 0
        self.bytes_sent = 0
        self.is_cut = False
        """Set when the drain has run out of time for it."""
        self.was_truncated = False
        """Whether the response broke off."""

    def __repr__(self) -> str:
        return f"<replay of {self.dead_letter} {self.code or 'open'}>"

    def finish(self) -> None:
        """It is over: tell the recorder."""
        self.duration = self._clock.monotonic() - self.started
        self.route.recorder.finished(self)

    # What it is to its upstream: the request that its client once sent.

    @property
    def scheme(self) -> str:
        """How its client came."""
        return self._scheme

    @property
    def was_cut_by_drain(self) -> bool:
        """Whether our own time is up."""
        return self.is_cut

    def identity_lines(self) -> bytes:
        """The lines that tell the upstream who once asked."""
        head, settings = self.head, self._settings
        if head.forwarded_fields is NO_FORWARDED_FIELDS and not head.trusted_only:
            return identity_lines(self.peer, self._scheme, head.host)
        trusted = is_trusted(self.peer, settings.trusted_proxies, trust_unix=settings.trust_unix)
        lines = identity_lines(
            self.peer, self._scheme, head.host, head.forwarded_fields, trusted=trusted
        )
        return b"\r\n".join((lines, *head.trusted_only)) if trusted else lines

    def client_ip(self) -> str:
        """The address of its client, as told by proxies that are trusted."""
        settings = self._settings
        return client_address(
            self.peer,
            self.head.forwarded_fields,
            settings.trusted_proxies,
            trust_unix=settings.trust_unix,
        )

    def caller(self) -> str:
        """The network of that address."""
        return network_of(self.client_ip())

    # In place of a client.

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Its status is all that matters."""
        del complete
        self.code = head.status
        self.bytes_sent += sum(map(len, pieces))

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """Nobody reads it."""
        del complete
        self.bytes_sent += sum(map(len, pieces))

    def relay_cut(self) -> None:
        """The body broke off."""
        self.was_truncated = True

    def answer(self, refusal: Refusal) -> None:
        """What a client would be told."""
        self.refusal = refusal
        self.code = refusal.status

    def answer_fallback(self, fallback: FallbackSettings) -> None:
        """What a client would get instead, which does not make it a success."""
        self.fallback = True
        self.code = fallback.status

    async def answer_kept(self, response: KeptResponse) -> None:
        """Another request with its key was answered meanwhile."""
        self.code = response.status

    def add_date(self, head: ResponseHead) -> None:
        """Give a response the time of its arrival, if it does not tell its own."""
        if not head.has_date:
            head.has_date = True
            head.add(date_line())

    @property
    def is_behind(self) -> bool:
        """Nobody is."""
        return False

    async def caught_up(self) -> None:
        """At once."""

    def detach_client(self) -> None:
        """It does so anyway."""

    def begin_wait(self, reason: str) -> None:
        """It waits for its turn, or between two attempts."""
        self.waiting_for = reason

    def end_wait(self) -> None:
        """The wait is over."""
        self.waiting_for = ""

    def answer_options(self) -> None:
        """No letter asks what we can do."""

    def relay_tunnel(self, head: ResponseHead, tail: bytes) -> None:
        """No letter asks for a tunnel."""

    def pause_client_reading(self, *, paused: bool) -> None:
        """There is none."""
