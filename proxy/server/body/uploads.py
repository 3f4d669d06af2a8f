"""What a request body asks of the exchange that it belongs to (port)."""

import asyncio
from typing import Protocol

from proxy.core.route import Route
from proxy.policy.settings import Settings
from proxy.server.ports import ExchangeConnection


class UploadExchange(Protocol):
    """The exchange of a body."""

    route: Route
    settings: Settings
    client_wait: float
    """Seconds spent waiting for the client's own bytes."""
    waiting_since: float
    """When the present wait for the client's bytes began; 0 if there is none."""

    @property
    def client(self) -> ExchangeConnection:
        """The connection that the body comes in by."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of that connection."""

    def caller(self) -> str:
        """Return the caller whose share of memory the upload takes."""

    def now(self) -> float:
        """Return monotonic seconds."""

    def waited_for_client(self, now: float) -> float:
        """Return the seconds up to *now* that were spent waiting for the client's bytes."""

    def write_interim(self, line: bytes) -> None:
        """Send the client an interim response."""
