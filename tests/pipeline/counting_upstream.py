"""An upstream that only notes when each request arrives, in a process of its own.

It prints its port, and when its standard input ends, a line for each request: seconds (monotonic)
and its target. Requests have no body, and come one at a time on each connection.
"""

import asyncio
import sys
import time
from typing import cast

import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Counting(asyncio.Protocol):
    """One connection."""

    def __init__(self, arrivals: list[tuple[float, bytes]]) -> None:
        self._arrivals = arrivals
        self._transport: asyncio.WriteTransport | None = None
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        if not self._head:
            self._arrivals.append((time.monotonic(), data.split(b" ", 2)[1]))
        self._head += data
        if self._head.endswith(b"\r\n\r\n") and self._transport is not None:
            self._head = b""
            self._transport.write(ANSWER)


async def serve() -> None:
    """Until nobody is interested any more."""
    arrivals: list[tuple[float, bytes]] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Counting(arrivals), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    sys.stdout.writelines(f"{moment:.6f} {target.decode()}\n" for moment, target in arrivals)


if __name__ == "__main__":
    uvloop.run(serve())
