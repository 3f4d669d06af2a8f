"""The exchange: one request and its outcome, as every stage of the pipeline sees it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from proxy.core.ports import OwnedKey, QueueEntry, Receiver, RequestBody, Stream
from proxy.core.route import Route
from proxy.http.fields import RawHeaders
from proxy.http.outgoing_request import framing_lines, lines_after_host
from proxy.http.refusal import Refusal
from proxy.http.request_head import RequestHead
from proxy.http.response_head import KeptResponse, ResponseHead
from proxy.http.target import rewrite_target
from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.reasons import KeyResult
from proxy.policy.settings import FallbackSettings
from proxy.policy.throttle.wait_queue import ThrottleCause


class Exchange(ABC):
    """One request and its outcome.

    The server makes one per request and hands it down the route's pipeline; ``replay`` makes one
    for each replay of a dead letter. The stages and the upstream see the client only through this
    object: what the client sent as attributes, what it gets through the abstract methods.

    The exchange's class (``server/exchange.py``, ``core/clientless.py``: "maker") gives every
    attribute its first value. After that an attribute has these writers and no others:

    =================  ==============================  ===========================================
    attribute          who writes it                   when
    =================  ==============================  ===========================================
    method             maker                           at birth
    raw_headers        maker                           at birth
    peer               maker                           at birth
    target             maker; server/admission         without its authority, before routing
    request_id         maker; server/admission         once the head is read
    head, http_1_0     maker; server/admission         once the head is read
    client_timeout     maker; server/admission         once the head is read
    route              maker; server/admission         once a route has matched
    body               maker; server/admission         once the route's limits allow it
    body               server/exchange                 None, at the end
    upgrade            maker; server/admission         once the route is known
    started            maker; server/serve             anew if earlier answers had to be read first
    waiting_since      server/body                     at each wait for the client's bytes
    client_wait        server/body                     after each wait for the client's bytes
    attempts           upstream                        appended when an attempt begins
    stream             upstream                        from an attempt's first byte sent to its end
    expired            core, :meth:`expire`            at the route's or client's timeout
    attempt_expired    core, :meth:`expire_attempt`    at the attempt's timeout
    attempt_expired    pipeline/single_attempt         False, after each attempt
    waiting_for        maker, :meth:`begin_wait`       when a stage begins or ends a wait
    queue_entry        pipeline/throttle               while the attempt is in a wait queue
    owned_key          pipeline/idempotency            while the request owns its key
    capture            pipeline/idempotency            while the request owns its key
    capture            pipeline/dead_letters           while a dead letter may have to be written
    record             pipeline/idempotency            once the key is read
    known_record       replay                          at birth
    earlier_attempts   replay                          at birth
    key_result         pipeline/idempotency            once the store has answered, or refused
    dead_letter        replay; pipeline/dead_letters   at birth; once it is on disk
    client_is_gone     maker, :meth:`detach_client`    when the client left and its request goes on
    fallback           maker; pipeline/retry_session   when the fallback answers
    refusal            maker, ``answer``               when the proxy answers itself
    code               maker                           when a response head is relayed or made
    code               pipeline/dead_letters           when the head is known, before it is relayed
    code               server/serve, replay/service    499, when the client left; or was cut
    bytes_sent         maker                           with every piece of the response's body
    duration           maker                           at the end
    =================  ==============================  ===========================================
    """

    __slots__ = (
        "attempt_expired",
        "attempts",
        "body",
        "bytes_sent",
        "capture",
        "client_is_gone",
        "client_timeout",
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
    """The address of the client's connection, for the log; empty on a unix socket."""
    route: Route
    body: RequestBody | None
    upgrade: bool
    """Whether the client asks for a protocol switch that the route allows."""
    started: float
    """Monotonic seconds."""
    client_timeout: float | None
    """Seconds that the client itself grants the exchange (Holdfast-Timeout)."""
    duration: float
    """Seconds from the complete head to the last byte written; set at the end."""
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
    """What the request waits for before an attempt: ``queue`` (a throttle's wait queue) or
    ``backoff``; empty if it does not wait."""
    queue_entry: QueueEntry | None
    """The request's entry in a throttle's wait queue; None if it is in none."""
    refusal: Refusal | None
    """Set if the proxy answered itself."""
    fallback: bool
    """Whether the client got the route's fallback: a fixed answer, or another upstream's."""
    capture: Receiver | None
    """Receives the upstream's response in place of the client, to keep it and relay it."""
    owned_key: OwnedKey | None
    """The idempotency key while this request owns it: without ownership it may not be sent."""
    record: str
    """The name of the record of its idempotency key; empty without one."""
    key_result: KeyResult | None
    """What the key meant for this request; None without one."""
    dead_letter: str
    """The id of the dead letter that it became, or of which it is a replay; empty without one."""
    client_is_gone: bool
    """Whether the client left and the request goes on for the sake of its key alone: no attempt
    follows the one under way."""
    code: int
    """Status that the client got; 499 if it left first; 0 until known."""
    bytes_sent: int
    """Bytes of response body written to the client."""

    known_record = ""
    """The name of the record of its key, whoever sends the request (a replay belongs to the caller
    of the first request); empty: the name follows from the key and the caller."""
    is_replay = False
    """Whether it is the replay of a dead letter: it does not become another one."""
    earlier_attempts: Sequence[Attempt] = ()
    """The attempts of earlier runs, if it is the replay of a dead letter; with times as if by the
    clock of this process."""
    reads_ahead = False
    """False: the client reads at its own pace, and back-pressure reaches the upstream."""

    def outlive_client(self) -> bool:
        """Return False: without a capture, only the client wants the response."""
        return False

    def waited_for_client(self, now: float) -> float:
        """Return the seconds up to *now* spent waiting for the client's own bytes."""
        waiting = now - self.waiting_since if self.waiting_since else 0.0
        return self.client_wait + waiting

    def expire(self) -> None:
        """End the attempt under way, or the wait for one: the exchange's time is over.

        The timeout covers everything up to the response's head; later calls do nothing.
        """
        if not self.code:
            self.expired = True
            self.expire_attempt()
            if self.queue_entry is not None:
                self.queue_entry.give_up(ThrottleCause.DEADLINE)

    def expire_attempt(self) -> None:
        """End the attempt under way: its own time is over. Does nothing once a head is relayed."""
        if not self.code:
            self.attempt_expired = True
            if self.stream is not None:
                self.stream.fail(FailureKind.TIMEOUT)

    @property
    def client_timeout_passed(self) -> bool:
        """Whether the exchange expired by the client's timeout, shorter than the route's."""
        asked, granted = self.client_timeout, self.route.settings.timeout
        return self.expired and asked is not None and (granted is None or asked < granted)

    @abstractmethod
    def sends_once(self, name: bytes) -> bool:
        """Whether the upstream gets the client's own field *name* (in lower case) once.

        Two idempotency keys count as none: it is unknown which of them the upstream goes by. Nor
        does a key count that is empty, that the route removes, or that it sets for every caller.
        """

    @property
    @abstractmethod
    def host(self) -> bytes:
        """The Host of the request, with its port, as sent; empty if there is none."""

    @property
    @abstractmethod
    def scheme(self) -> str:
        """The scheme of the client's connection: http or https."""

    @property
    @abstractmethod
    def was_cut_by_drain(self) -> bool:
        """Whether it was cancelled because the drain's time is up, and not by its client."""

    @abstractmethod
    def request_bytes(
        self, authority: bytes, base_path: str, whole: bytes | None, *, preserve_host: bool
    ) -> bytes:
        """Write the head as it goes on the wire to an upstream at *authority*.

        *whole* is the body if all of it goes out with the head; None if it follows
        in pieces.

        Two calls with the same arguments give the same bytes: no attempt can
        be told from another.
        """

    @abstractmethod
    def answer_options(self) -> None:
        """Answer ``OPTIONS *``: what this proxy itself can do."""

    @abstractmethod
    def answer_fallback(self, fallback: FallbackSettings) -> None:
        """Give the client the route's fixed answer in place of a failure."""

    @abstractmethod
    def add_date(self, head: ResponseHead) -> None:
        """Add a Date, the time of its arrival, to a response that has none (RFC 9110 6.6.1)."""

    @abstractmethod
    async def answer_kept(self, response: KeptResponse) -> None:
        """Relay the kept response of the first request with this key, as fast as the client reads.

        Returns when the client has read it.
        """

    @property
    @abstractmethod
    def is_behind(self) -> bool:
        """Whether the client has yet to read what was written to it: back-pressure."""

    @abstractmethod
    async def caught_up(self) -> None:
        """Wait until the client has read what was written; one that reads nothing is cut off.

        The route's idle timeout says after how long.
        """

    @abstractmethod
    def detach_client(self) -> None:
        """Go on without the client, which has left, for the sake of the idempotency key."""

    @abstractmethod
    def begin_wait(self, reason: str) -> None:
        """Begin to wait for *reason* (``queue`` or ``backoff``); a client that leaves ends it."""

    @abstractmethod
    def end_wait(self) -> None:
        """End the wait that :meth:`begin_wait` began."""

    @abstractmethod
    def client_ip(self) -> str:
        """Return the client's address, as trusted proxies report it; empty on a unix socket."""

    @abstractmethod
    def caller(self) -> str:
        """Return the caller for fair shares of memory and disk: the network of the client's IP."""

    @abstractmethod
    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Relay the head and *pieces*, the body so far. No retry is possible after this."""

    @abstractmethod
    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """Relay more of the body."""

    @abstractmethod
    def relay_tunnel(self, head: ResponseHead, tail: bytes) -> None:
        """Relay the upstream's protocol switch: from here on bytes go both ways."""

    @abstractmethod
    def pause_client_reading(self, *, paused: bool) -> None:
        """Stop reading from the client's end of a tunnel if *paused*, else read on."""

    @abstractmethod
    def relay_cut(self) -> None:
        """End a response whose body broke off, so that the client can tell."""


class OutgoingExchange(Exchange):
    """The half of an exchange that faces the upstream: the text of the outgoing request."""

    __slots__ = ("_rest", "head", "http_1_0", "id_line")

    head: RequestHead
    http_1_0: bool
    """Whether the client speaks HTTP/1.0."""
    id_line: bytes
    """The request's id as a field."""
    _rest: bytes
    """Everything after Host, once it was written; empty before."""

    @abstractmethod
    def identity_lines(self) -> bytes:
        """Return the lines that tell the upstream who the client is."""

    @property
    def host(self) -> bytes:
        """The Host of the request, as sent."""
        return self.head.host

    def sends_once(self, name: bytes) -> bool:
        """Whether the upstream gets the client's own field *name* once."""
        return self.head.sends_once(name, self.route.request_edits)

    def request_bytes(
        self, authority: bytes, base_path: str, whole: bytes | None, *, preserve_host: bool
    ) -> bytes:
        """Write the head as it goes on the wire; see :meth:`Exchange.request_bytes`."""
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
            target = rewrite_target(target, strip_prefix, base_path)
        start = f"{self.method} {target} HTTP/1.1\r\nHost: "
        return start.encode("utf-8", "surrogateescape") + host + b"\r\n" + rest
