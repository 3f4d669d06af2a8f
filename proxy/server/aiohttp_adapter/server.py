"""aiohttp's server, changed to make our connections and to run their requests without a task."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp.web import Server
from aiohttp.web_protocol import RequestHandler

from proxy.server.aiohttp_adapter.same_task import same_task

LARGEST_READ = 256 * 1024
"""Most bytes that the event loop hands over at once."""


class ReadAhead(Protocol):
    """The limit that applies to a connection while it serves a request."""

    @property
    def most_ahead(self) -> int:
        """Most bytes to parse behind a request that is being served, if no head is complete."""


class AiohttpServer(Server, ABC):
    """Runs *handler* for every request that *request_factory* makes of a parsed message."""

    router: ReadAhead

    def __init__(self, handler: Callable[..., Any], request_factory: Callable[..., Any]) -> None:
        super().__init__(handler, request_factory=request_factory, handler_cancellation=True)
        self.loop: asyncio.AbstractEventLoop = self._loop
        self.same_task = same_task(self._loop)

    def __call__(self) -> RequestHandler:
        # aiohttp's own would drop every setting in silence on any TypeError.
        return self.new_connection()

    @abstractmethod
    def new_connection(self) -> RequestHandler:
        """Make the protocol of a connection that was just accepted."""
