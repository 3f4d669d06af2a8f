"""What a handler returns to aiohttp when it has written its response itself."""

from collections.abc import Awaitable, Callable

from aiohttp.web import StreamResponse


class AlreadyWritten(StreamResponse):
    """A response that needs nothing more: aiohttp only learns whether to close."""

    __slots__ = ()

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._keep_alive = keep_alive
        self._eof_sent = True

    async def prepare(self, request: object) -> None:
        """Do nothing: the head is already sent."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: the body is already sent."""


# Two serve all requests: they carry no state.
KEEP_ALIVE = AlreadyWritten(keep_alive=True)
CLOSE = AlreadyWritten(keep_alive=False)


class LingeringClose(AlreadyWritten):
    """Closes the connection after its client had time to read the response."""

    __slots__ = ("_linger",)

    def __init__(self, linger: Callable[[], Awaitable[None]]) -> None:
        super().__init__(keep_alive=False)
        self._linger = linger

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 - aiohttp's signature
        """Wait before the connection is closed: the response is written."""
        await self._linger()
