"""Exchanges without a client, and bodies that are complete: for replays and for simulations.

Such an exchange meets the same stages as any request. No client reads its response: what matters is
its status, and whether all of it came.
"""

from proxy.core.client_identity import ClientIdentity
from proxy.core.clock import Clock
from proxy.core.exchange import Exchange
from proxy.core.ports import Refused
from proxy.core.route import Route
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.request_head import RequestHead
from proxy.http.response_head import KeptResponse, ResponseHead
from proxy.policy.reasons import VerdictReason
from proxy.policy.settings import FallbackSettings, Settings

_TOO_LARGE_TO_KEEP = Refusal(
    RefusalReason.BODY_TOO_LARGE,
    "The body of a request with a key is kept, and this one is larger than buffer.",
)


class CompleteBody:
    """A body that is in memory from the start (core.ports.RequestBody).

    That of a client is a ``BufferedBody`` (``server/body``), which counts the memory it takes.
    """

    __slots__ = ("_data", "length", "lost")

    def __init__(self, data: bytes, *, too_large: bool = False) -> None:
        """A body that is *too_large* can be sent once only."""
        self._data: bytes | None = data
        self.length = len(data)
        self.lost = VerdictReason.BODY_TOO_LARGE if too_large else None
        """Why the body could not be sent a second time; None as long as it could."""

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
        data = self.whole()
        if data is None:
            raise Refused(_TOO_LARGE_TO_KEEP)
        return data

    kept = whole

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


class ClientlessExchange(Exchange):
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
        settings: Settings,
        request_id: str,
        identity: ClientIdentity,
        body: CompleteBody | None,
        client_timeout: float | None = None,
        upgrade: bool = False,
    ) -> None:
        super().__init__(method, target, head.raw, identity, route, settings, clock.monotonic())
        self._clock = clock
        self.head = head
        self.set_request_id(request_id)
        self.body = body
        self.client_timeout = client_timeout
        self.upgrade = upgrade
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

    @property
    def is_behind(self) -> bool:
        """Whether the client reads too slowly: never, since there is none."""
        return False

    async def caught_up(self) -> None:
        """Return at once: there is no client to wait for."""

    def answer_options(self) -> None:
        """Do nothing: such an exchange is no OPTIONS request to the proxy."""

    def relay_tunnel(self, head: ResponseHead, tail: bytes) -> None:
        """Record the status of a tunnel, which has no other end here."""
        del tail
        self.code = head.status

    def pause_client_reading(self, *, paused: bool) -> None:
        """Do nothing: there is no client."""
