"""The exchange: one request and its outcome, as every stage of the pipeline sees it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from proxy.core.client_identity import ClientIdentity
from proxy.core.date_header import date_line
from proxy.core.ports import (
    HandOffTicket,
    OwnedKey,
    QueueEntry,
    Receiver,
    RequestBody,
    Stream,
)
from proxy.core.route import Route
from proxy.http.fields import RawHeaders
from proxy.http.forwarded import NO_FORWARDED_FIELDS
from proxy.http.outgoing_request import lines_after_host
from proxy.http.refusal import Refusal
from proxy.http.request_head import RequestHead
from proxy.http.response_head import KeptResponse, ResponseHead
from proxy.http.target import rewrite_target
from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.fair_share import network_of
from proxy.policy.reasons import KeyResult
from proxy.policy.settings import FallbackSettings, Settings
from proxy.policy.throttle.wait_queue import ThrottleCause


class Exchange(ABC):
    """One request and its outcome.

    The server makes one per request and hands it down the route's pipeline; ``replay`` makes one
    for each replay of a dead letter. The stages and the upstream see the client only through this
    object: what the client sent as attributes, what it gets through the abstract methods.

    An attribute gets its first value at birth, in ``__init__`` or from the subclass that made the
    exchange (``server/exchange.py``, ``core/clientless.py``: "maker"). After that it has these
    writers and no others:

    =================  ==============================  ===========================================
    attribute          who writes it                   when
    =================  ==============================  ===========================================
    method             maker                           at birth
    raw_headers        maker                           at birth
    identity, peer     maker                           at birth
    settings           maker                           at birth
    target             maker; server/admission         without its authority, before routing
    request_id         core, :meth:`set_request_id`    once the head is read
    id_line            core, :meth:`set_request_id`    once the head is read
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
    waiting_for        core, :meth:`begin_wait`        when a stage begins or ends a wait
    queue_entry        pipeline/throttle               while the attempt is in a wait queue
    owned_key          pipeline/idempotency            while the request owns its key
    capture            pipeline/idempotency            while the request owns its key
    capture            pipeline/dead_letters           while a dead letter may have to be written
    capture            pipeline/hand_off               while a failure may be handed off
    record             pipeline/idempotency            once the key is read
    known_record       replay                          at birth
    earlier_attempts   replay                          at birth
    key_result         pipeline/idempotency            once the store has answered, or refused
    key_result         pipeline/hand_off               when a delivery has the key
    dead_letter        replay; pipeline/dead_letters   at birth; once it is on disk
    hand_off           pipeline/hand_off               once it is known that it is handed off
    client_is_gone     core, :meth:`detach_client`     when the client left and its request goes on
    fallback           maker; pipeline/retry_session   when the fallback answers
    refusal            maker, ``answer``               when the proxy answers itself
    code               maker                           when a response head is relayed or made
    code               pipeline/dead_letters           when the head is known, before it is relayed
    code               pipeline/hand_off               as well; 0 if 202 takes its place
    code               delivery/dispatcher             499, when a try had no answer
    code               server/serve, replay/service    499, when the client left; or was cut
    bytes_sent         maker                           with every piece of the response's body
    duration           maker                           at the end
    =================  ==============================  ===========================================
    """

    __slots__ = (
        "_rest",
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
        "hand_off",
        "head",
        "http_1_0",
        "id_line",
        "identity",
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
        "settings",
        "started",
        "stream",
        "target",
        "upgrade",
        "waiting_for",
        "waiting_since",
    )

    def __init__(  # noqa: PLR0915, PLR0917 - a line for each thing that is known of a request
        self,
        method: str,
        target: str,
        raw_headers: RawHeaders,
        identity: ClientIdentity,
        route: Route,
        settings: Settings,
        started: float,
    ) -> None:
        self.method = method
        self.target = target
        """Path and query exactly as received, without an authority."""
        self.raw_headers = raw_headers
        """Header fields as received."""
        self.identity = identity
        """Who the client is."""
        self.peer = identity.peer
        """The address of the client's connection, for the log; empty on a unix socket."""
        self.route = route
        self.settings = settings
        """The configuration that was in force when the request came."""
        self.started = started
        """Monotonic seconds."""
        self.head = _NO_HEAD
        """What the header fields mean; without any field before they are read."""
        self.http_1_0 = False
        """Whether the client speaks HTTP/1.0."""
        self.request_id = ""
        self.id_line = b""
        """The request's id as a field."""
        self.client_timeout: float | None = None
        """Seconds that the client itself grants the exchange (Holdfast-Timeout)."""
        self.body: RequestBody | None = None
        self.upgrade = False
        """Whether the client asks for a protocol switch that the route allows."""
        self.client_wait = 0.0
        """Seconds spent waiting for the client's own bytes: no deadline counts them."""
        self.waiting_since = 0.0
        """When the present wait for the client's bytes began; 0 if there is none."""
        self.attempts: list[Attempt] = []
        self.stream: Stream | None = None
        """The attempt under way, from its first byte to its last."""
        self.expired = False
        """Whether the route's timeout has passed."""
        self.attempt_expired = False
        """Whether the time for the attempt under way has passed."""
        self.waiting_for = ""
        """What the request waits for before an attempt: ``queue`` (a throttle's wait queue) or
        ``backoff``; empty if it does not wait."""
        self.queue_entry: QueueEntry | None = None
        """The request's entry in a throttle's wait queue; None if it is in none."""
        self.owned_key: OwnedKey | None = None
        """The idempotency key while this request owns it: without ownership it may not be sent."""
        self.capture: Receiver | None = None
        """Receives the upstream's response in place of the client, to keep it and relay it."""
        self.record = ""
        """The name of the record of its idempotency key; empty without one."""
        self.key_result: KeyResult | None = None
        """What the key meant for this request; None without one."""
        self.dead_letter = ""
        """The id of the dead letter that it became, or of which it is a replay; empty without
        one."""
        self.hand_off: HandOffTicket | None = None
        """How it is handed off; None if it is not."""
        self.client_is_gone = False
        """Whether the client left and the request goes on for the sake of its key alone: no attempt
        follows the one under way."""
        self.fallback = False
        """Whether the client got the route's fallback: a fixed answer, or another upstream's."""
        self.refusal: Refusal | None = None
        """Set if the proxy answered itself."""
        self.code = 0
        """Status that the client got; 499 if it left first; 0 until known."""
        self.bytes_sent = 0
        """Bytes of response body written to the client."""
        self.duration = 0.0
        """Seconds from the complete head to the last byte written; set at the end."""
        self._rest = b""
        """The outgoing request after its Host field, once it was written; empty before."""

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

    # Time.

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

    # The request, as the upstream gets it.

    def set_request_id(self, request_id: str) -> None:
        """Set the request's id, which goes to the upstream and back to the client."""
        self.request_id = request_id
        self.id_line = b"X-Request-Id: " + request_id.encode()

    @property
    def host(self) -> bytes:
        """The Host of the request, with its port, as sent; empty if there is none."""
        return self.head.host

    def sends_once(self, name: bytes) -> bool:
        """Whether the upstream gets the client's own field *name* (in lower case) once.

        Two idempotency keys count as none: it is unknown which of them the upstream goes by. Nor
        does a key count that is empty, that the route removes, or that it sets for every caller.
        """
        return self.head.sends_once(name, self.route.request_edits)

    def request_bytes(
        self, authority: bytes, base_path: str, whole: bytes | None, *, preserve_host: bool
    ) -> bytes:
        """Write the head as it goes on the wire to an upstream at *authority*.

        *whole* is the body if all of it goes out with the head; None if it follows
        in pieces.

        Two calls with the same arguments give the same bytes: no attempt can
        be told from another.
        """
        rest = self._rest
        if not rest:
            length = None if self.body is None else self.body.length
            if whole is not None and length is not None:
                length = len(whole)
            rest = self._rest = lines_after_host(
                self.method,
                self.head,
                self.route.request_edits,
                length,
                self.identity.lines(self.head, self.settings),
                self.id_line,
                upgrade=self.upgrade,
            )
        host = self.head.host if preserve_host and self.head.host else authority
        target, strip_prefix = self.target, self.route.settings.strip_prefix
        if strip_prefix or base_path:
            target = rewrite_target(target, strip_prefix, base_path)
        start = f"{self.method} {target} HTTP/1.1\r\nHost: "
        return start.encode("utf-8", "surrogateescape") + host + b"\r\n" + rest

    # The client.

    @property
    def scheme(self) -> str:
        """The scheme of the client's connection: http or https."""
        return self.identity.scheme

    def client_ip(self) -> str:
        """Return the client's address, as trusted proxies report it; empty on a unix socket."""
        return self.identity.address(self.head, self.settings)

    def caller(self) -> str:
        """Return the caller for fair shares of memory and disk: the network of the client's IP."""
        if self.head.forwarded_fields is NO_FORWARDED_FIELDS:
            return self.identity.caller
        return network_of(self.client_ip())

    def begin_wait(self, reason: str) -> None:
        """Begin to wait for *reason* (``queue`` or ``backoff``); a client that leaves ends it."""
        self.waiting_for = reason

    def end_wait(self) -> None:
        """End the wait that :meth:`begin_wait` began."""
        self.waiting_for = ""

    def outlive_client(self) -> bool:
        """Return False: without a capture, only the client wants the response."""
        return False

    def detach_client(self) -> None:
        """Go on without the client, which has left, for the sake of the idempotency key."""
        self.client_is_gone = True

    @property
    @abstractmethod
    def was_cut_by_drain(self) -> bool:
        """Whether it was cancelled because the drain's time is up, and not by its client."""

    # The response, as the client gets it.

    @abstractmethod
    def answer_options(self) -> None:
        """Answer ``OPTIONS *``: what this proxy itself can do."""

    @abstractmethod
    def answer_fallback(self, fallback: FallbackSettings) -> None:
        """Give the client the route's fixed answer in place of a failure."""

    def add_date(self, head: ResponseHead) -> None:
        """Add a Date, the time of its arrival, to a response that has none (RFC 9110 6.6.1)."""
        head.has_date = True
        head.add(date_line())

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


_NO_HEAD = RequestHead(())
