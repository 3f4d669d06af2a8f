"""The exchange of a dead letter that is replayed, without a client.

The replay meets the same stages as any request. No client reads its response: what matters is
its status, and whether all of it came.
"""

from proxy.core.client_identity import ClientIdentity
from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.route import Route
from proxy.http.fields import RawHeaders
from proxy.http.refusal import Refusal
from proxy.http.request_head import RequestHead, read_request_head
from proxy.http.response_head import KeptResponse, ResponseHead
from proxy.policy.caller_fields import hop_for
from proxy.policy.dead_letter import DeadLetter, attempts_of, with_headers
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


class ReplayExchange(Exchange):
    """One replay of one dead letter."""

    __slots__ = (
        "_clock",
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
        super().__init__(
            summary.method,
            summary.target,
            head.raw,
            ClientIdentity(dead_letter.peer, dead_letter.scheme),
            route,
            settings,
            clock.monotonic(),
        )
        self._clock = clock
        self.head = head
        self.set_request_id(summary.request_id)
        self.body = DeadLetterBody(dead_letter.body) if dead_letter.body else None
        self.earlier_attempts = attempts_of(dead_letter, clock.monotonic() - clock.wall())
        self.known_record = ""
        self.dead_letter = dead_letter.id
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

    @property
    def was_cut_by_drain(self) -> bool:
        """Whether the drain has run out of time for the replay."""
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

    @property
    def is_behind(self) -> bool:
        """Whether the client reads too slowly: never, since there is none."""
        return False

    async def caught_up(self) -> None:
        """Return at once: there is no client to wait for."""

    def answer_options(self) -> None:
        """Do nothing: no dead letter is an OPTIONS request to the proxy."""

    def relay_tunnel(self, head: ResponseHead, tail: bytes) -> None:
        """Do nothing: no dead letter asks for a tunnel."""

    def pause_client_reading(self, *, paused: bool) -> None:
        """Do nothing: there is no client."""
