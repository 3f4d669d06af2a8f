"""Binding the addresses that clients connect to, without accepting anybody yet."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from proxy.policy.settings import Listen
from proxy.sockets import address_of, make_way

BACKLOG = 1024
"""Clients that wait in the system until somebody accepts them."""


class Addresses:
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
        if address.path:
            make_way(address.path)
            sock = _new(socket.AF_UNIX)
            sock.bind(address.path)
            self._files.append(Path(address.path))
            return [sock]
        found = await asyncio.get_running_loop().getaddrinfo(
            address.host or None,
            address.port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
        sockets = []
        for family, _, _, _, name in dict.fromkeys(found):
            sock = _new(family)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                sock.bind(name)
            except OSError as error:
                for opened in sockets:
                    opened.close()
                raise OSError(error.errno, f"{error.strerror}: {address}") from None
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


def _new(family: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
    return sock
