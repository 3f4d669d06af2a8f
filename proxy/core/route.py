"""A configured route, ready to serve, and the port to which its requests are recorded."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from proxy.http.header_edits import compile_edits
from proxy.http.refusal import Refusal
from proxy.policy.attempt import Attempt, RetryDelay
from proxy.policy.caller_fields import SingleFields
from proxy.policy.reasons import KeyResult, VerdictReason
from proxy.policy.settings import RouteSettings, UnsafeRetries

if TYPE_CHECKING:
    # The one cycle of this package: an exchange has its route, and a route handles exchanges.
    from proxy.core.exchange import Exchange


class Recorder(Protocol):
    """Records what happens to the requests of one route. Must not raise and must not wait.

    Implemented by ``observe`` (metrics, access log, recent requests); called by ``server``,
    ``pipeline``, ``upstream`` and ``replay``.
    """

    def started(self) -> None:
        """Count a request that was matched to this route."""

    def attempted(self, attempt: Attempt) -> None:
        """Record an attempt that has ended."""

    def judged(self, reason: VerdictReason) -> None:
        """Count a verdict: whether another attempt follows, and why."""

    def waited(self, delay: RetryDelay) -> None:
        """Record a wait between two attempts that has ended."""

    def keyed(self, result: KeyResult) -> None:
        """Count what an idempotency key meant for a request."""

    def count(self, metric: str, label: str = "") -> None:
        """Count one more under a counter of routes in the table of metrics, and its *label*."""

    def finished(self, exchange: "Exchange") -> None:
        """Record a request that has ended; its ``code`` and ``attempts`` are final."""

    def logged(self, exchange: "Exchange") -> None:
        """Log a try of a delivery: no client got an answer, so no request is counted."""


Handler = Callable[["Exchange"], Awaitable[Refusal | None]]
"""Serves one request of a route: relays a response to the client, or returns why it did not."""


class Route:
    """A configured route, ready to serve: built at load time, shared by its requests."""

    def __init__(
        self,
        settings: RouteSettings,
        handle: Handler,
        recorder: Recorder,
        single_fields: SingleFields | None = None,
    ) -> None:
        self.settings = settings
        self.single_fields = single_fields
        """Fields and parameters that its requests must not repeat; None if there are none."""
        self.unsafe = UnsafeRetries.AUTO if settings.retry is None else settings.retry.unsafe
        retries = settings.retry is not None and settings.retry.attempts > 1
        falls_back = settings.fallback is not None and bool(settings.fallback.upstream)
        keeps_failed = settings.dead_letter is not None or settings.hand_off is not None
        self.keeps_bodies = retries or falls_back or keeps_failed
        """Whether a request body is kept after it was sent, since it may be needed again."""
        self.handle = handle
        self.recorder = recorder
        self.request_edits = compile_edits(settings.request_headers)
        self.response_edits = compile_edits(settings.response_headers)

    def __repr__(self) -> str:
        return f"<route {self.settings.name}>"
