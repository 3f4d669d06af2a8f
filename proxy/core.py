"""What every room of the house knows: time, one request's life, its recorder.

A leaf: it imports :mod:`proxy.policy` and nothing else of ours.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from random import getrandbits, random
from secrets import randbits
from typing import Protocol

from proxy.http.header_edits import compile_edits
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import KeptResponse, ResponseHead
from proxy.policy.attempt import Attempt, FailureKind, RetryDelay
from proxy.policy.caller_fields import SingleFields
from proxy.policy.dead_letter import DeadLetter, dead_letter_id
from proxy.policy.reasons import KeyResult, VerdictReason
from proxy.policy.settings import FallbackSettings, RouteSettings
from proxy.policy.throttle.wait_queue import ThrottleCause

RawHeaders = tuple[tuple[bytes, bytes], ...]


class Clock(Protocol):
    """Time and chance. Handed in, so that a test can say what they are."""

    def monotonic(self) -> float:
        """Seconds that never go backwards: for waits, deadlines and durations."""

    def wall(self) -> float:
        """Seconds since the epoch: only to read or write dates."""

    def roll(self) -> float:
        """Chance, for waits that shall not all be alike: from 0 up to, not including, 1."""


class SystemClock:
    """The machine's own clock."""

    # Static methods of C functions: a call costs what the function costs.
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    roll = staticmethod(random)


def new_request_id() -> str:
    """A name that no other request of this or another process has."""
    return _RUN + str(next(_numbers))


# One part tells the runs of all processes apart, the other the requests of one
# run. Drawing 128 bits for each request costs three times as much.
_RUN = f"{getrandbits(96):024x}-"
_numbers = count(1)


def new_token() -> str:
    """What shows that somebody is who it was before. Nobody outside gets to know it."""
    return _OWNER + str(next(_tokens))


_OWNER = f"{getrandbits(128):032x}-"
_tokens = count(1)


def new_letter_id(wall: float) -> str:
    """The id of a dead letter that is written at *wall*; nobody can guess one."""
    return dead_letter_id(int(wall * 1000), randbits(36))


class Refused(Exception):
    """A request that ends here, with an answer of our own."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class KeyLost(Refused):
    """A request that may not be sent, since its idempotency key may be another one's by now."""

    def __init__(self) -> None:
        super().__init__(_KEY_LOST)


_KEY_LOST = Refusal(
    RefusalReason.STORE,
    "The store could not be told in time that this request still runs, so another one may have its "
    "key. Send it again later.",
)


class RequestBody(Protocol):
    """A request body on its way in."""

    length: int
    """Bytes in all, or CHUNKED."""
    lost: VerdictReason | None
    """Why it could not be sent a second time; None as long as it could."""

    def will_be_kept(self) -> bool:
        """Whether it could be sent a second time once it was sent, as far as one can tell."""

    def begin(self) -> bytes | None:
        """From its first byte, for one attempt: the whole body if it goes out with the head.

        None if it is read in pieces. What the first attempt got, all the others get.
        """

    def hold(self) -> None:
        """It will be sent again: nothing of it is given up before :meth:`begin`."""

    def whole(self) -> bytes | None:
        """All of it, before it is first sent, if it is here; None: :meth:`read_whole` has it.

        It is kept as long as it may be needed.
        """

    async def read_whole(self) -> bytes:
        """All of it, before it is first sent; it is kept as long as it may be needed.

        Raises :class:`Refused` as :meth:`read` does, and if there is no room for it.
        """

    def kept(self) -> bytes | None:
        """All of it, if all has come and was kept; None if not."""

    async def rest(self) -> bytes | None:
        """The same once all has come, for which nobody else may be reading it.

        Raises :class:`Refused` as :meth:`read` does.
        """

    def is_behind(self) -> bool:
        """Whether it is waited for, and has brought less than the rate it must keep to lately."""

    def stop(self, refusal: Refusal) -> None:
        """Wait for it no longer: whoever reads it gets *refusal*."""

    async def read(self) -> bytes:
        """The next piece, or nothing at the end.

        Raises :class:`Refused` if the body is malformed, too large, or silent
        for longer than the route allows.
        """


class Recorder(Protocol):
    """Told what happened on one route. Must not raise and must not wait."""

    def started(self) -> None:
        """A request was matched to this route."""

    def attempted(self, attempt: Attempt) -> None:
        """An attempt ended."""

    def judged(self, why: VerdictReason) -> None:
        """It was decided whether another attempt follows."""

    def waited(self, pause: RetryDelay) -> None:
        """A wait between two attempts is over."""

    def keyed(self, result: KeyResult) -> None:
        """It is known what an idempotency key means for a request."""

    def lettered(self, *, kept: bool) -> None:
        """A request failed for good, and is kept as a dead letter; or could not be."""

    def disconnected(self, phase: str) -> None:
        """The client left during *phase*: body, queue, backoff, upstream or response."""

    def finished(self, exchange: "Exchange") -> None:
        """The request is over; its ``code`` and ``attempts`` are final."""


class ThrottleRecorder(Protocol):
    """Told what one throttle decided. Must not raise and must not wait."""

    def passed(self) -> None:
        """An attempt went through at once."""

    def delayed(self, seconds: float) -> None:
        """An attempt went through after a wait."""

    def refused(self) -> None:
        """An attempt was refused."""


@dataclass(frozen=True, slots=True)
class ThrottleState:
    """What goes on at one throttle, all its buckets together."""

    waiting: int
    """Attempts in line."""
    under_way: int
    """Attempts that passed and are not over, where their number is limited."""
    buckets: int
    """One per value of the key, as far as they are in use; one where there is no key."""
    paused: int
    """Buckets that are closed because the upstream asked us to wait."""
    paused_for: float
    """Seconds until the last of them opens."""


class StoreRecorder(Protocol):
    """Told how a shared store does. Must not raise and must not wait."""

    def operated(self, operation: str, seconds: float) -> None:
        """The store answered."""

    def failed(self, operation: str) -> None:
        """It did not, or not in time."""


class Drawer(Protocol):
    """Where dead letters go."""

    async def keep(self, letter: DeadLetter) -> bool:
        """Write it down; True once it is on disk, False if there is no room for it.

        Raises :class:`proxy.stores.StoreError` if it cannot be written, within a time of its own.
        """

    def digest(self, content: bytes) -> str:
        """Tell callers apart by *content*, such as credentials, without giving it away."""


Handler = Callable[["Exchange"], Awaitable[Refusal | None]]
"""What a route does with a request: relays a response, or says why not."""


class Route:
    """A configured route, ready to serve: built at load time, shared by requests."""

    __slots__ = (
        "handle",
        "keeps_bodies",
        "recorder",
        "request_edits",
        "response_edits",
        "settings",
        "single_fields",
        "unsafe",
    )

    def __init__(
        self,
        settings: RouteSettings,
        handle: Handler,
        recorder: Recorder,
        single_fields: SingleFields | None = None,
    ) -> None:
        self.settings = settings
        self.single_fields = single_fields
        """What its requests must not repeat; None: nothing that the route goes by."""
        self.unsafe = "auto" if settings.retry is None else settings.retry.unsafe
        retries = settings.retry is not None and settings.retry.attempts > 1
        falls_back = settings.fallback is not None and bool(settings.fallback.upstream)
        self.keeps_bodies = retries or falls_back or settings.dead_letter is not None
        """Whether what a client sends may be needed twice."""
        self.handle = handle
        self.recorder = recorder
        self.request_edits = compile_edits(settings.request_headers)
        self.response_edits = compile_edits(settings.response_headers)

    def __repr__(self) -> str:
        return f"<route {self.settings.name}>"


class Place(Protocol):
    """Where an exchange stands in line."""

    def give_up(self, cause: ThrottleCause) -> None:
        """It waits no longer: its turn has not come."""


class Pass(Protocol):
    """The right to send one request, from those who limit how many there are."""

    queued: float
    """Seconds it took to get it."""

    def hold(self) -> None:
        """The request is not sent yet: nothing is spent on it.

        In the turn in which the pass was got or used; later it means nothing.
        """

    async def use(self, deadline: float) -> None:
        """The request is sent now. Waits if that is not allowed any more, or not yet.

        Raises :class:`Refused` if it is not going to be before *deadline*.
        """

    def close(self, *, sent: bool = True) -> None:
        """The request is over; if it was not *sent*, nothing is spent on it.

        That means as little as :meth:`hold` once the turn is over.
        """


class Stream(Protocol):
    """The upstream's side of a response that is being relayed."""

    def pause(self) -> None:
        """Send no more until :meth:`resume`."""

    def resume(self) -> None:
        """Go on."""

    def fail(self, kind: FailureKind) -> None:
        """Give it up: the connection is closed, the attempt ends as *kind*."""

    def write(self, data: bytes) -> None:
        """Bytes from the client, once the connection has become a tunnel."""


class Receiver(Protocol):
    """Who gets an upstream's response as it arrives."""

    @property
    def reads_ahead(self) -> bool:
        """Whether it takes everything at once, however slowly the client reads."""

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """The head, with what has come of the body. No way back after this."""

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """More of the body."""

    def relay_cut(self) -> None:
        """The body broke off."""

    def outlive_client(self) -> bool:
        """The client has left: whether its request goes on all the same."""


class OwnedKey(Protocol):
    """An idempotency key, for the request that owns it."""

    mine_until: float
    """Monotonic seconds up to which nobody else can have it, infinite where nobody else could
    ask for it. Looked at before every send."""


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
        "client_is_gone",
        "client_wait",
        "code",
        "dead_letter",
        "duration",
        "expired",
        "fallback",
        "keeper",
        "key_result",
        "method",
        "owned_key",
        "peer",
        "place",
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
    place: Place | None
    """Where it stands in line."""
    refusal: Refusal | None
    """Set if the answer was our own."""
    fallback: bool
    """Whether the client got the route's fallback, or what another upstream said in its place."""
    keeper: Receiver | None
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
            if self.place is not None:
                self.place.give_up(ThrottleCause.DEADLINE)

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
    def hold_client(self, *, hold: bool) -> None:
        """Stop reading from the client's end of a tunnel, or go on."""

    @abstractmethod
    def relay_cut(self) -> None:
        """The body broke off: make sure that the client can tell."""
