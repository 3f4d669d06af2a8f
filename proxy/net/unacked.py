"""How much of what was written has not arrived yet.

A slow peer must be told from a silent one. Our own buffer does not show it: the
kernel takes megabytes at once and reports room only when a third of them is
gone. But it knows, at any time, how many bytes the peer has not acknowledged.
"""

import asyncio
import fcntl
import struct
import termios


def unacked_bytes(transport: asyncio.WriteTransport | None) -> int:
    """Bytes in our buffer and in the kernel's; a change means that the peer reads."""
    if transport is None:
        return 0
    waiting = transport.get_write_buffer_size()
    sock = transport.get_extra_info("socket")
    try:
        (unacknowledged,) = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))
    except (OSError, ValueError, TypeError):  # closed, or not a kind of socket that can tell
        return waiting
    return waiting + int(unacknowledged)
