"""One request and what became of it, as every stage sees it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from proxy.core.ports import OwnedKey, QueueEntry, Receiver, RequestBody, Stream
from proxy.core.route import Route
from proxy.http.fields import RawHeaders
from proxy.http.outgoing_request import framing_lines, lines_after_host
from proxy.http.refusal import Refusal
from proxy.http.request_head import RequestHead
from proxy.http.response_head import KeptResponse, ResponseHead
from proxy.http.target import rewrite
from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.reasons import KeyResult
from proxy.policy.settings import FallbackSettings
from proxy.policy.throttle.wait_queue import ThrottleCause


class Exchange(ABC):
    """One request and what became of it.

    The server makes one per request and hands it down the route's chain. The
    stages and the upstream see the client only through this object: what it
    sent as attributes, what it shall get through the methods at the end.
    """

    __slots__ = (
        "asked_timeout",
        "attempt_expired",
        "attempts",
        "body",
        "bytes_sent",
        "capture",
        "client_is_gone",
        "client_wait",
        "code",
        "dead_letter",
        "duration",
        "expired",
        "fallback",
        "key_result",
        "method",
        "owned_key",
        "peer",
        "queue_entry",
        "raw_headers",
        "record",
        "refusal",
        "request_id",
        "route",
        "started",
        "stream",
        "target",
        "upgrade",
        "waiting_for",
        "waiting_since",
    )

    method: str
    target: str
    """Path and query exactly as received, without an authority."""
    raw_headers: RawHeaders
    """Header fields as received."""
    request_id: str
    peer: str
    """The client's address, for the log; empty on a unix socket."""
    route: Route
    body: RequestBody | None
    upgrade: bool
    """Whether the client asks for a protocol switch that the route allows."""
    started: float
    """Monotonic seconds."""
    asked_timeout: float | None
    """Seconds that the client itself grants it (Holdfast-Timeout)."""
    duration: float
    """Seconds from its complete head to the last byte handed over; set when it is over."""
    client_wait: float
    """Seconds spent waiting for the client's own bytes: no deadline counts them."""
    waiting_since: float
    """When the present wait for the client's bytes began; 0 if there is none."""
    attempts: list[Attempt]
    stream: Stream | None
    """The attempt under way, from its first byte to its last."""
    expired: bool
    """Whether the route's timeout has passed."""
    attempt_expired: bool
    """Whether the time for the attempt under way has passed."""
    waiting_for: str
    """What it waits for before an attempt: its turn (``queue``) or ``backoff``; empty: nothing."""
    queue_entry: QueueEntry | None
    """Where it stands in line."""
    refusal: Refusal | None
    """Set if the answer was our own."""
    fallback: bool
    """Whether the client got the route's fallback, or what another upstream said in its place."""
    capture: Receiver | None
    """Gets the upstream's response in place of the client, to keep it and hand it on."""
    owned_key: OwnedKey | None
    """Its idempotency key while it owns one: what is another's by now may not be sent."""
    record: str
    """The name of the record of its idempotency key; empty without one."""
    key_result: KeyResult | None
    """What the key meant for it; None without one."""
    dead_letter: str
    """The id of the letter that it became, or that it comes from; empty without one."""
    client_is_gone: bool
    """Whether it goes on for the sake of its key alone: no attempt follows the one under way."""
    code: int
    """Status that the client got; 499 if it left first; 0 until known."""
    bytes_sent: int
    """Bytes of response body handed to the client."""

    known_record = ""
    """The name of the record that its key goes under, whoever sends it; empty: it is to be found
    out."""
    is_replay = False
    """Whether it is a letter that is sent again: it does not become another one."""
    earlier: Sequence[Attempt] = ()
    """The attempts of earlier runs, if it is a letter that is sent again; started as if by the
    clock of this process."""
    reads_ahead = False
    """The client reads at its own pace, and an upstream waits for it."""

    def outlive_client(self) -> bool:
        """Nobody else wants its response."""
        return False

    def uncounted(self, now: float) -> float:
        """Seconds up to *now* in which we waited for the client's own bytes."""
        waiting = now - self.waiting_since if self.waiting_since else 0.0
        return self.client_wait + waiting

    def expire(self) -> None:
        """The time for the whole exchange is over: end the attempt under way.

        It reaches up to the response's head; after that it means nothing.
        """
        if not self.code:
            self.expired = True
            self.expire_attempt()
            if self.queue_entry is not None:
                self.queue_entry.give_up(ThrottleCause.DEADLINE)

    def expire_attempt(self) -> None:
        """The time for one attempt is over. Means as little once the head is relayed."""
        if not self.code:
            self.attempt_expired = True
            if self.stream is not None:
                self.stream.fail(FailureKind.TIMEOUT)

    @property
    def was_hurried(self) -> bool:
        """Whether it ended because its client grants it less time than its route does."""
        asked, granted = self.asked_timeout, self.route.settings.timeout
        return self.expired and asked is not None and (granted is None or asked < granted)

    @abstractmethod
    def sends_once(self, name: bytes) -> bool:
        """Whether the upstream gets the client's own field *name* (in lower case) once.

        Two keys are none: nobody knows which of them the upstream goes by. Nor does
        one help that is empty, that the route takes out, or that it sets for everybody.
        """

    @property
    @abstractmethod
    def host(self) -> bytes:
        """The host that the client asked, with its port, as sent; empty if it named none."""

    @property
    @abstractmethod
    def scheme(self) -> str:
        """How the client came: http or https."""

    @property
    @abstractmethod
    def was_cut(self) -> bool:
        """Whether it was cancelled because our own time is up, and not by its client."""

    @abstractmethod
    def request_bytes(
        self, authority: bytes, base_path: str, whole: bytes | None, *, preserve_host: bool
    ) -> bytes:
        """The head as it goes on the wire to an upstream at *authority*.

        *whole* is the body if all of it goes out with the head; None if it follows
        in pieces.

        Two calls with the same arguments give the same bytes: no attempt can
        be told from another.
        """

    @abstractmethod
    def answer_options(self) -> None:
        """Say what this proxy itself can do (``OPTIONS *``)."""

    @abstractmethod
    def answer_fallback(self, fallback: FallbackSettings) -> None:
        """Give the client the route's fixed answer in place of a failure."""

    @abstractmethod
    def stamp(self, head: ResponseHead) -> None:
        """Give a response the time of its arrival, if it does not tell its own."""

    @abstractmethod
    async def answer_kept(self, response: KeptResponse) -> None:
        """Give the client what the first request with its key was answered, as fast as it reads."""

    @property
    @abstractmethod
    def is_behind(self) -> bool:
        """Whether its client has yet to read what was sent to it."""

    @abstractmethod
    async def caught_up(self) -> None:
        """Wait until it is behind no longer; one that reads nothing for too long is cut off."""

    @abstractmethod
    def go_on_alone(self) -> None:
        """The client has left; what it began goes on for a while."""

    @abstractmethod
    def begin_wait(self, reason: str) -> None:
        """It waits for *reason* (``queue`` or ``backoff``). A client that leaves ends it."""

    @abstractmethod
    def end_wait(self) -> None:
        """The wait is over."""

    @abstractmethod
    def client_ip(self) -> str:
        """The client's address, as told by proxies that are trusted; empty on a unix socket."""

    @abstractmethod
    def caller(self) -> str:
        """Whose share of a common room it takes: the network of :meth:`client_ip`."""

    @abstractmethod
    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Send the head on, with what has come of the body. No way back after this."""

    @abstractmethod
    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """Send more of the body on."""

    @abstractmethod
    def relay_tunnel(self, head: ResponseHead, tail: bytes) -> None:
        """The upstream switched protocols: from here on bytes go both ways."""

    @abstractmethod
    def block_client(self, *, hold: bool) -> None:
        """Stop reading from the client's end of a tunnel, or go on."""

    @abstractmethod
    def relay_cut(self) -> None:
        """The body broke off: make sure that the client can tell."""


class OutgoingExchange(Exchange):
    """The half of an exchange that faces the upstream."""

    __slots__ = ("_rest", "head", "http_1_0", "id_line")

    head: RequestHead
    http_1_0: bool
    """Whether the client speaks the older version."""
    id_line: bytes
    """The request's id as a field."""
    _rest: bytes
    """Everything after Host, once it was sent; empty before."""

    @abstractmethod
    def identity_lines(self) -> bytes:
        """The lines that tell the upstream who asked."""

    @property
    def host(self) -> bytes:
        """The host that the client asked."""
        return self.head.host

    def sends_once(self, name: bytes) -> bool:
        """Whether the upstream gets the client's own field *name* once."""
        return self.head.sends_once(name, self.route.request_edits)

    def request_bytes(
        self, authority: bytes, base_path: str, whole: bytes | None, *, preserve_host: bool
    ) -> bytes:
        """The head as it goes on the wire; see :class:`proxy.core.exchange.Exchange`."""
        rest = self._rest
        if not rest:
            length = None if self.body is None else self.body.length
            if whole is not None and length is not None:
                length = len(whole)
            rest = self._rest = lines_after_host(
                self.method,
                self.head,
                self.route.request_edits,
                framing_lines(self.method, length, upgrade=self.upgrade),
                self.identity_lines(),
                self.id_line,
                b"1.0" if self.http_1_0 else b"1.1",
            )
        host = self.head.host if preserve_host and self.head.host else authority
        target, strip_prefix = self.target, self.route.settings.strip_prefix
        if strip_prefix or base_path:
            target = rewrite(target, strip_prefix, base_path)
        start = f"{self.method} {target} HTTP/1.1\r\nHost: "
        return start.encode("utf-8", "surrogateescape") + host + b"\r\n" + rest
