"""Listening sockets: binding them, the stale file of a unix socket, the text of an address.

The client listeners and the admin listener accept the same kinds of address and
share these rules.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxy.policy.settings import Listen

SocketName = str | tuple[str, int] | tuple[str, int, int, int]
"""What ``getsockname`` returns: a path, or host and port (and more for IPv6)."""


_FIRST_FREE_PORT = 1024
"""The first port that a process without privileges may usually listen on."""

_NO_FILE = {
    errno.ENOENT: "there is no such folder, create it or write another path",
    errno.ENOTDIR: "a part of the path is no folder, correct it",
    errno.EACCES: "this process may not write to that folder, allow it or write another path",
    errno.EROFS: "the file system is read-only, write another path",
    errno.EADDRINUSE: "another process listens there, stop it or write another path",
    errno.EEXIST: "the file there is no socket and is not replaced, write another path",
}
_NO_PORT = {
    errno.EADDRINUSE: "another process listens there, stop it or write another port",
    errno.EADDRNOTAVAIL: "this machine has no such address, write one of its own, or 0.0.0.0",
    errno.EACCES: "this process may not listen there, write another port",
}
"""What prevents listening, in words for the person who started the process."""


class CannotListen(OSError):
    """An address cannot be listened on; the text says which, why, and what to do."""


@contextmanager
def explained(address: Listen) -> Iterator[None]:
    """Raise :class:`CannotListen` in place of what the system says about *address*."""
    try:
        yield
    except CannotListen:
        raise
    except socket.gaierror:
        raise CannotListen(
            f"cannot listen on {address}: the name has no address, write 127.0.0.1:{address.port} "
            "(say)"
        ) from None
    except OSError as error:
        number = error.errno or 0
        reason = (_NO_FILE if address.path else _NO_PORT).get(number)
        if number == errno.EACCES and 0 < address.port < _FIRST_FREE_PORT:
            reason = (
                f"ports below {_FIRST_FREE_PORT} need a privilege, write another port or grant "
                "CAP_NET_BIND_SERVICE"
            )
        known = reason or os.strerror(number).lower()
        raise CannotListen(f"cannot listen on {address}: {known}") from None


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
    """Return the sockets for *address*, bound but not listening. Raises CannotListen."""
    with explained(address):
        return _bind_file(address.path) if address.path else await _bind_port(address)


def _bind_file(path: str) -> list[socket.socket]:
    remove_stale_socket(path)
    sock = _new_socket(socket.AF_UNIX)
    try:
        sock.bind(path)
    except OSError:
        sock.close()
        raise
    return [sock]


async def _bind_port(address: Listen) -> list[socket.socket]:
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
        except OSError:
            for opened in sockets:
                opened.close()
            raise
    return sockets


def _new_socket(family: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
    return sock
