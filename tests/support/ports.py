"""Ports that nobody else gets, and those behind which nobody answers."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

from tests.support.virtual import in_virtual_time, virtual_loop
from tests.support.waiting import PATIENCE

_virtual_ports = count(20_000)
"""Ports that a virtual loop gives to nobody by itself."""


def held_port(port: int = 0) -> socket.socket:
    """A socket that keeps a port of 127.0.0.1 from everybody but the one who is told of it.

    It does not listen: who knocks is refused until a server listens there, which shares the port
    with it by ``SO_REUSEADDR``, as all do. Nobody gets it who asks for any, nor another holder.
    """
    sock = socket.socket()
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not before: holders do not share
    return sock


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port of 127.0.0.1 that refuses connections, and that nobody else gets meanwhile."""
    if in_virtual_time():
        yield next(_virtual_ports)
        return
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@contextmanager
def black_hole(port: int = 0) -> Iterator[int]:
    """A port of 127.0.0.1 that takes no connection and does not say so.

    Its queue is full and nobody empties it, so the system ignores who knocks. A free one,
    unless one is named that somebody else has just given up.
    """
    loop = virtual_loop()
    if loop is not None:
        port = port or next(_virtual_ports)
        loop.unreachable.add(("127.0.0.1", port))
        yield port
        loop.unreachable.remove(("127.0.0.1", port))
        return
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(0)
        address = listening.getsockname()
        first = stack.enter_context(socket.socket())
        first.settimeout(PATIENCE)
        first.connect(address)
        for _ in range(3):
            knocking = stack.enter_context(socket.socket())
            knocking.setblocking(False)  # noqa: FBT003 - the socket module's signature
            knocking.connect_ex(address)
        yield address[1]
