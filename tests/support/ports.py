"""Ports behind which nobody answers."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.support.waiting import PATIENCE


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port of 127.0.0.1 that refuses connections, and that nobody else gets meanwhile."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@contextmanager
def black_hole() -> Iterator[int]:
    """A port of 127.0.0.1 that takes no connection and does not say so.

    Its queue is full and nobody empties it, so the system ignores who knocks.
    """
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
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
