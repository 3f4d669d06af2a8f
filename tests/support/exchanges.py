"""Exchanges without a client or an upstream, for parts that only read, time or queue them."""

from collections.abc import Awaitable, Iterable

from proxy.core.client_identity import ClientIdentity
from proxy.core.exchange import Exchange
from proxy.core.route import Recorder, Route
from proxy.http.fields import RawHeaders
from proxy.http.refusal import Refusal
from proxy.http.response_head import KeptResponse, ResponseHead
from proxy.policy.settings import FallbackSettings, Match, RouteSettings, Settings


def _never_called(*_: object, **__: object) -> Awaitable[Refusal | None]:
    raise AssertionError("this exchange is not served")


class _NeverTold:
    """The recorder of a route that serves nothing."""

    started = attempted = judged = waited = keyed = _never_called
    dead_lettered = disconnected = finished = _never_called


def idle_route(recorder: Recorder | None = None) -> Route:
    """A route that serves nothing."""
    settings = RouteSettings(name="idle", match=Match(), upstream="nowhere")
    return Route(settings, _never_called, recorder or _NeverTold())  # type: ignore[arg-type]  # tells nothing


class UnservedExchange(Exchange):
    """A request that is not served: what would write to its client fails the test."""

    was_cut_by_drain = is_behind = False

    def __init__(
        self,
        method: str = "GET",
        target: str = "/",
        fields: Iterable[tuple[bytes, bytes]] = (),
        *,
        peer: str = "",
        started: float = 0.0,
    ) -> None:
        raw: RawHeaders = tuple(fields)
        settings = Settings(listen=(), admin=None)
        identity = ClientIdentity(peer, "http")
        super().__init__(method, target, raw, identity, idle_route(), settings, started)

    def begin_wait(self, reason: str) -> None:
        assert not self.waiting_for, "it waits already"
        super().begin_wait(reason)

    def answer_options(self) -> None:
        raise NotImplementedError

    def answer_fallback(self, fallback: FallbackSettings) -> None:
        raise NotImplementedError

    async def answer_kept(self, response: KeptResponse) -> None:
        raise NotImplementedError

    async def caught_up(self) -> None:
        raise NotImplementedError

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        raise NotImplementedError

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        raise NotImplementedError

    def relay_tunnel(self, head: ResponseHead, tail: bytes) -> None:
        raise NotImplementedError

    def pause_client_reading(self, *, paused: bool) -> None:
        raise NotImplementedError

    def relay_cut(self) -> None:
        raise NotImplementedError
