"""A wire that a test can cut: passes bytes on between a client and a server.

In front of a server that has no TLS it adds it; it can be slow; and it can go dead, so that
nobody hears of the other again and nobody is told.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Relay:
    """Passes on what comes to its own port of 127.0.0.1."""

    def __init__(self, target: int, delay: float) -> None:
        self._target = target
        self._delay = delay
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.connections = 0
        """How many came, in all."""
        self._is_dead = False
        self._is_deaf = False

    def go_dead(self) -> None:
        """Pass nothing on any more, and say nothing."""
        self._is_dead = True

    def go_deaf(self) -> None:
        """Pass on what clients say, and nothing of what they are told."""
        self._is_deaf = True

    def hear(self) -> None:
        """Pass on both again; what was held back is lost."""
        self._is_deaf = False

    def cut(self) -> None:
        """End every connection; new ones are let in."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        there, onward = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, onward}
        self._clients.add(writer)
        try:
            async with asyncio.TaskGroup() as group:
                for source, sink in ((reader, onward), (there, writer)):
                    self._tasks.add(group.create_task(self._pass_on(source, sink)))
        finally:
            for end in (writer, onward):
                end.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await asyncio.sleep(self._delay)
                if not self._is_dead and not (self._is_deaf and sink in self._clients):
                    sink.write(data)
        except OSError:
            pass
        sink.transport.abort()

    async def close(self) -> None:
        """End everything, and leave no task behind."""
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def relay(
    target: int, *, delay: float = 0.0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Relay]:
    """A relay to port *target*, each way slower by *delay*; with *tls*, only by TLS."""
    relaying = Relay(target, delay)
    server = await asyncio.start_server(relaying.serve, "127.0.0.1", 0, ssl=tls)
    relaying.port = server.sockets[0].getsockname()[1]
    try:
        yield relaying
    finally:
        server.close()
        await relaying.close()
