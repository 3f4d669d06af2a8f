"""The client's end of a connection that has switched protocols (WebSocket)."""

from collections.abc import Callable


class Tunnel:
    """Takes the place of aiohttp's payload parser: hands bytes on unread."""

    __slots__ = ("_forward",)

    def __init__(self, forward: Callable[[bytes], None]) -> None:
        """*forward* gets every piece that the client sends."""
        self._forward = forward

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Forward bytes from the client. Never the end: that is a closed connection."""
        self._forward(data)
        return False, b""

    def feed_eof(self) -> None:
        """Do nothing: the client is gone, and its exchange is cancelled for that."""
