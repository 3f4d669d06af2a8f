"""What a handler returns to aiohttp when the response is already on its way."""

from typing import TYPE_CHECKING

from aiohttp.web import StreamResponse

if TYPE_CHECKING:
    from proxy.server.connection import ClientConnection


class AlreadyWritten(StreamResponse):
    """A response that needs nothing more: aiohttp only learns whether to close."""

    __slots__ = ()

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._keep_alive = keep_alive
        self._eof_sent = True

    async def prepare(self, request: object) -> None:
        """Already sent."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Already sent."""


# Two serve all requests: they carry no state.
KEEP_ALIVE = AlreadyWritten(keep_alive=True)
CLOSE = AlreadyWritten(keep_alive=False)


class LingeringClose(AlreadyWritten):
    """Closes after the client had time to read why."""

    __slots__ = ("_client",)

    def __init__(self, client: "ClientConnection") -> None:
        super().__init__(keep_alive=False)
        self._client = client

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 - aiohttp's signature
        """The answer is out: wait before the connection is closed."""
        await self._client.linger()
