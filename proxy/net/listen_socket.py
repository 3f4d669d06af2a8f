"""Listening sockets: binding them, the stale file of a unix socket, the text of an address.

The client listeners and the admin listener accept the same kinds of address and
share these rules.
"""

import asyncio
import errno
import socket
from pathlib import Path

from proxy.policy.settings import Listen

SocketName = str | tuple[str, int] | tuple[str, int, int, int]
"""What ``getsockname`` returns: a path, or host and port (and more for IPv6)."""


def address_of(name: SocketName) -> str:
    """Return ``unix:PATH``, ``HOST:PORT`` or ``[HOST]:PORT``, as in the configuration file."""
    return str(Listen(path=name) if isinstance(name, str) else Listen(*name[:2]))


def remove_stale_socket(path: str) -> None:
    """Remove a socket that an earlier process left behind, and nothing else.

    Raises OSError if the file is no socket, or if another process listens on it.
    """
    file = Path(path)
    if not file.exists():
        return
    if not file.is_socket():
        raise FileExistsError(errno.EEXIST, f"{path} is not a socket, and is not replaced")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # noqa: FBT003 - the socket module's signature
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            file.unlink()
            return
        except BlockingIOError:
            pass  # another process listens, and its backlog is full
    raise OSError(errno.EADDRINUSE, f"{path} is in use")


async def bind(address: Listen) -> list[socket.socket]:
    """Return the sockets for *address*, bound but not listening. Raises OSError."""
    if address.path:
        remove_stale_socket(address.path)
        sock = _new_socket(socket.AF_UNIX)
        sock.bind(address.path)
        return [sock]
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host or None,
        address.port,
        type=socket.SOCK_STREAM,
        flags=socket.AI_PASSIVE,
    )
    sockets = []
    for family, _, _, _, name in dict.fromkeys(found):
        sock = _new_socket(family)
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


def _new_socket(family: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
    return sock
