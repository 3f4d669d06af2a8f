"""What a request body asks of the exchange that it belongs to (ports)."""

import asyncio
from typing import Protocol

from proxy.core.route import Route
from proxy.http.request_head import RequestHead
from proxy.server.body.replay_memory import FairMemory
from proxy.server.router import Router


class UploadServer(Protocol):
    """The memory that all uploads of a process share."""

    replay_memory: FairMemory
    """For bodies that may be sent again."""
    incoming_memory: FairMemory
    """For requests that are still coming."""


class UploadClient(Protocol):
    """The connection that a body comes in by."""

    caller: str
    """The caller whose share of memory the upload takes, unless it forwards for others."""

    @property
    def server(self) -> UploadServer:
        """The server that the connection belongs to."""


class UploadExchange(Protocol):
    """The exchange of a body."""

    route: Route
    head: RequestHead
    router: Router
    client_wait: float
    """Seconds spent waiting for the client's own bytes."""
    waiting_since: float
    """When the present wait for the client's bytes began; 0 if there is none."""

    @property
    def client(self) -> UploadClient:
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
