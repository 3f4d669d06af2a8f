"""A peer that reads is seen to read, however little."""

import asyncio
import socket
from contextlib import suppress

from proxy.net.unacked import unacked_bytes
from tests.support import both_loops, eventually

SIZE = 256 * 1024


@both_loops
async def test_what_the_peer_takes_out_of_the_kernels_buffer_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # Before it listens, or the window would not heed it.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    with theirs:
        transport.write(bytes(SIZE))
        await eventually(lambda: unacked_bytes(transport) > SIZE // 2, what="a full window")
        before = unacked_bytes(transport)
        theirs.setblocking(False)  # noqa: FBT003 - the socket module's signature
        await loop.sock_recv(theirs, 4096)
        await eventually(lambda: _read_some(theirs) or unacked_bytes(transport) < before)
        transport.abort()
        await eventually(lambda: unacked_bytes(transport) == 0, what="forgetting a closed one")


def _read_some(theirs: socket.socket) -> bool:
    """Read a little; never enough to count as true."""
    with suppress(BlockingIOError):
        theirs.recv(4096)
    return False


def test_nothing_is_unsent_where_nobody_is_connected() -> None:
    assert unacked_bytes(None) == 0
