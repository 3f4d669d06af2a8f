"""A configured route, ready to serve, and what records its requests."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from proxy.http.header_edits import compile_edits
from proxy.http.refusal import Refusal
from proxy.policy.attempt import Attempt, RetryDelay
from proxy.policy.caller_fields import SingleFields
from proxy.policy.reasons import KeyResult, VerdictReason
from proxy.policy.settings import RouteSettings

if TYPE_CHECKING:
    # An exchange has its route, and a route says what is done with an exchange.
    from proxy.core.exchange import Exchange


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
