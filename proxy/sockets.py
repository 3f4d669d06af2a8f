"""Sockets that listen: the file that a unix one leaves behind, and what each is called.

Clients and operators are served on the same kinds of address, and both listeners
keep to the same rules.
"""

import errno
import socket
from pathlib import Path

from proxy.policy.settings import Listen

SocketName = str | tuple[str, int] | tuple[str, int, int, int]
"""What ``getsockname`` gives: a path, or host and port and perhaps more."""


def address_of(name: SocketName) -> str:
    """``unix:PATH``, ``HOST:PORT`` or ``[HOST]:PORT``: as one writes it in the file."""
    return str(Listen(path=name) if isinstance(name, str) else Listen(*name[:2]))


def make_way(path: str) -> None:
    """Remove a socket that an earlier process left behind, and nothing else.

    Raises OSError if what is there is no socket, or if somebody listens on it.
    """
    file = Path(path)
    if not file.exists():
        return
    if not file.is_socket():
        raise FileExistsError(errno.EEXIST, f"{path} is not a socket, and is left alone")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # noqa: FBT003 - the socket module's signature
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            file.unlink()
            return
        except BlockingIOError:
            pass  # somebody listens, and is busy
    raise OSError(errno.EADDRINUSE, f"{path} is in use")
