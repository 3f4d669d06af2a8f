"""Bind the addresses that clients connect to, without accepting connections yet."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from proxy.net.listen_socket import address_of, bind
from proxy.policy.settings import Listen

BACKLOG = 1024
"""Connections that wait in the system's queue until the supervisor accepts them."""


class BoundAddresses:
    """The sockets that listen, each with the number of its entry in ``listen``."""

    def __init__(self) -> None:
        self.sockets: list[tuple[socket.socket, int]] = []
        self._files: list[Path] = []
        """The files of the unix sockets among them, to be removed at the end."""

    async def bind(self, addresses: Sequence[Listen]) -> None:
        """Bind all *addresses*, or none. Raises OSError."""
        try:
            for which, address in enumerate(addresses):
                for sock in await self._bound(address):
                    self.sockets.append((sock, which))
            for sock, _ in self.sockets:
                sock.listen(BACKLOG)
        except BaseException:
            self.close()
            raise

    async def _bound(self, address: Listen) -> list[socket.socket]:
        sockets = await bind(address)
        if address.path:
            self._files.append(Path(address.path))
        return sockets

    @property
    def bound(self) -> list[str]:
        """The addresses in use, with the ports that the system chose."""
        return [address_of(sock.getsockname()) for sock, _ in self.sockets]

    def close(self) -> None:
        """Stop listening; the system resets the connections in the backlog."""
        for sock, _ in self.sockets:
            sock.close()
        self.sockets.clear()
        while self._files:
            with suppress(OSError):
                self._files.pop().unlink(missing_ok=True)
