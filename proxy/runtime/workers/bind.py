"""Binding the addresses that clients connect to, without accepting anybody yet."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from proxy.net.listen_socket import address_of, bind
from proxy.policy.settings import Listen

BACKLOG = 1024
"""Clients that wait in the system until somebody accepts them."""


class BoundAddresses:
    """The sockets that listen, each with the number of its entry in ``listen``."""

    def __init__(self) -> None:
        self.sockets: list[tuple[socket.socket, int]] = []
        self._files: list[Path] = []
        """The unix sockets among them: nobody else removes these."""

    async def bind(self, addresses: Sequence[Listen]) -> None:
        """Bind all of them, or none: raises OSError."""
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
        """Stop listening: who is in the backlog is turned away."""
        for sock, _ in self.sockets:
            sock.close()
        self.sockets.clear()
        while self._files:
            with suppress(OSError):
                self._files.pop().unlink(missing_ok=True)
