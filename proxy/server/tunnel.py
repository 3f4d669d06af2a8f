"""The client's end of a connection that has switched protocols (WebSocket)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.server.exchange import ClientExchange


class Tunnel:
    """Takes the place of aiohttp's payload parser: bytes in, bytes on, unread."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: "ClientExchange") -> None:
        self._exchange = exchange

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Bytes from the client. Never the end: that is a closed connection."""
        self._exchange.from_tunnel(data)
        return False, b""

    def feed_eof(self) -> None:
        """The client is gone; its exchange hears of it by being cancelled."""
