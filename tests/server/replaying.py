"""Bodies that are told apart, ways to send them, and an eye on the memory they take."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

from tests.support import RunningProxy, request, response

UNAVAILABLE = response(503, b"not now")

Framed = Callable[[bytes, int], tuple[bytes, list[bytes]]]
"""Makes a PUT of a body: its head, and the body in pieces of that many bytes."""


def body_of(size: int) -> bytes:
    """*size* bytes that are nowhere the same: lost, doubled or swapped pieces show."""
    return Random(size).randbytes(size)


def in_chunks(body: bytes, size: int) -> list[bytes]:
    """*body* in chunks of *size* bytes, the last chunk included; each as it goes on the wire."""
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return [*(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n"]


def by_length(body: bytes, size: int) -> tuple[bytes, list[bytes]]:
    """A request with a Content-Length: its head, and its body in pieces of *size*."""
    head = request("PUT", "/", f"Content-Length: {len(body)}")
    return head, [body[start : start + size] for start in range(0, len(body), size)]


def by_chunks(body: bytes, size: int) -> tuple[bytes, list[bytes]]:
    """The same with a Transfer-Encoding."""
    return request("PUT", "/", "Transfer-Encoding: chunked"), in_chunks(body, size)


def kept_by(proxy: RunningProxy) -> int:
    """Bytes that are kept now."""
    return proxy.app._listener.server.replay_memory.used


@asynccontextmanager
async def watching(proxy: RunningProxy) -> AsyncIterator[Callable[[], int]]:
    """Looks at every iteration of the loop: the most that was ever kept."""
    most = 0

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, kept_by(proxy))
            await asyncio.sleep(0)

    task = asyncio.create_task(look())
    try:
        yield lambda: most
    finally:
        task.cancel()
        await asyncio.wait((task,))
