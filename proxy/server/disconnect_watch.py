"""Disconnect detection: notices that clients have left while nothing is read from them.

Reading stops when a client has sent more than is wanted just now, and its end is not seen then.
While a request waits, in the throttle's queue or between two attempts, the kernel watches its
connection: an epoll of our own that is woken by the other end's FIN or reset, and by nothing
else. The event loop sees that epoll as one more descriptor. So a wait ends at once when its
client leaves, and any number of waiting requests costs nothing meanwhile.

Without epoll, that is elsewhere than on Linux or with no descriptor left for it, such a client is
noticed when it is read from.
"""

import asyncio
import select
from contextlib import suppress
from typing import Protocol

_HAS_EPOLL = hasattr(select, "epoll")


class WatchedClient(Protocol):
    """A client's connection (port)."""

    transport: asyncio.Transport | None


class DisconnectWatch:
    """Aborts the connections of waiting clients whose other end is gone."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll: select.epoll | None = None
        """Opened for the first client that waits."""
        self._descriptors: dict[WatchedClient, int] = {}
        self._by_descriptor: dict[int, WatchedClient] = {}

    def watch(self, client: WatchedClient) -> None:
        """Watch the connection of *client* until :meth:`forget`."""
        transport = client.transport
        if transport is None or client in self._descriptors or not _HAS_EPOLL:
            return
        sock = transport.get_extra_info("socket")
        descriptor = -1 if sock is None else sock.fileno()
        if descriptor < 0:
            return
        try:
            if self._epoll is None:
                self._epoll = select.epoll()
                self._loop.add_reader(self._epoll.fileno(), self._check)
            self._epoll.register(descriptor, select.EPOLLRDHUP)
        except OSError:
            return  # the system is out of memory or descriptors: the request waits all the same
        self._descriptors[client] = descriptor
        self._by_descriptor[descriptor] = client

    def forget(self, client: WatchedClient) -> None:
        """Watch the connection of *client* no longer."""
        descriptor = self._descriptors.pop(client, -1)
        # A connection that was closed is forgotten by the system, and its number may be
        # another's by now.
        if descriptor >= 0 and self._by_descriptor.get(descriptor) is client:
            del self._by_descriptor[descriptor]
            if self._epoll is not None:
                with suppress(OSError):
                    self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Close the epoll: no request waits any more."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        self._descriptors.clear()
        self._by_descriptor.clear()

    def _check(self) -> None:
        if self._epoll is None:
            return
        for descriptor, _ in self._epoll.poll(0):
            client = self._by_descriptor.get(descriptor)
            if client is None:
                self._epoll.unregister(descriptor)
                continue
            transport = client.transport
            self.forget(client)
            if transport is not None:
                transport.abort()
