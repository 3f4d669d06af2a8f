"""What aiohttp asks of a request, and what its connection asks of ours."""

import asyncio
from typing import Protocol

from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader

from proxy.core.ports import Stream
from proxy.http.refusal import Refusal


class ServedRequest(Protocol):
    """A request, as the connection that serves it sees it (port)."""

    message: RawRequestMessage
    payload: StreamReader
    keep_alive: bool
    """Whether another request may follow on the connection."""
    code: int
    """The status that was sent; 0 before."""
    stream: Stream | None
    """The upstream's side of the response, while it is being relayed."""
    came_in_parts: bool
    """Whether the body was incomplete when the request began to be served."""

    def refuse(self, refusal: Refusal) -> None:
        """Answer *refusal*, record it and end: the request is not served at all."""

    def break_body(self) -> None:
        """Tell the reader of the body that the rest of it is malformed."""

    def lose_client(self, exc: BaseException) -> None:
        """Tell the reader of the body that the connection is lost."""

    def cancel(self) -> None:
        """End the request where it is."""


class RequestHooks:
    """The attributes and methods of a request that aiohttp uses, for a class with slots.

    The class itself has the slot ``_task``: two classes with slots cannot be combined.
    """

    __slots__ = ()

    _task: asyncio.Task[None] | None
    """aiohttp: the connection's task; set to None when the request is over."""

    def cancel(self) -> None:
        """End the request where it is (the drain's time is up)."""
        if self._task is not None:
            self._task.cancel()

    def _finish(self) -> None:
        """aiohttp: the handler has returned."""

    def _cancel(self, exc: BaseException) -> None:
        """aiohttp: the connection is lost, in the middle of an error."""
