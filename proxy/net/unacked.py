"""Unacknowledged bytes: how much of what was written has not reached the peer yet.

An idle timer must tell a slow peer from a silent one. The transport's write buffer does not
show it: the kernel takes megabytes at once and reports space only when a third of them is
gone. But the kernel knows, at any time, how many bytes the peer has not acknowledged.
"""

import asyncio
import fcntl
import struct
import termios


def unacked_bytes(transport: asyncio.WriteTransport | None) -> int:
    """Count the bytes in the transport's buffer and the kernel's; a change means the peer reads."""
    if transport is None:
        return 0
    buffered = transport.get_write_buffer_size()
    sock = transport.get_extra_info("socket")
    try:
        (unacknowledged,) = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))
    except (OSError, ValueError, TypeError):  # closed, or a kind of socket without TIOCOUTQ
        return buffered
    return buffered + int(unacknowledged)
