"""A client that sends what it is told, byte for byte, and reads strictly."""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from tests.support.messages import Response, read_response, read_response_head
from tests.support.virtual import in_virtual_time
from tests.support.waiting import PATIENCE
from tests.support.wire import End, Wire


class RawClient:
    """One connection to the proxy."""

    def __init__(
        self,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        path: str = "",
        tls: ssl.SSLContext | None = None,
        server_name: str = "localhost",
        receive_buffer: int | None = None,
        source: str = "",
    ) -> None:
        """To *port* of *host* (an address), or to the unix socket at *path*.

        From the address *source*, if that matters: 127.0.0.2 is another caller than 127.0.0.1.
        """
        self.wire = Wire()
        self._host = host
        self._port = port
        self._path = path
        self._tls = tls
        self._server_name = server_name if tls is not None else None
        self._receive_buffer = receive_buffer
        self._source = source

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if in_virtual_time():
            await loop.create_connection(
                self._take_wire, self._host, self._port, local_addr=(self._source or self._host, 0)
            )
            return self
        if self._path:
            await loop.create_unix_connection(
                self._take_wire, self._path, ssl=self._tls, server_hostname=self._server_name
            )
            return self
        sock = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET)
        sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        try:
            if self._source:
                sock.bind((self._source, 0))
            await loop.sock_connect(sock, (self._host, self._port))
        except BaseException:
            sock.close()
            raise
        await loop.create_connection(
            self._take_wire, sock=sock, ssl=self._tls, server_hostname=self._server_name
        )
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        # The suite makes tens of thousands of these within a minute. Closed with FIN, each
        # would keep its port for that long, and the search for a free one takes ever longer.
        self.wire.reset()
        await self.wire.close_and_wait()

    def _take_wire(self) -> Wire:
        return self.wire

    # Sending.

    async def send(self, *pieces: bytes) -> None:
        """Send *pieces*, each on its own: the proxy reads one before the next goes out."""
        for index, piece in enumerate(pieces):
            if index:
                # The proxy shares our loop: it reads what is there before we go on.
                await asyncio.sleep(0)
            self.wire.write(piece)
        await self.wire.drain()

    async def send_by_the_byte(self, data: bytes, size: int = 1) -> None:
        """Send *data* in pieces of *size* bytes."""
        await self.send(*(data[start : start + size] for start in range(0, len(data), size)))

    async def request(
        self, method: str, target: str, *fields: str, body: bytes | None = None
    ) -> Response:
        """Send a well-formed request and read its response."""
        await self.send(request(method, target, *fields, body=body))
        return await self.response(method)

    async def get(self, target: str = "/", *fields: str) -> Response:
        """GET *target*; *fields* as ``Name: value``."""
        return await self.request("GET", target, *fields)

    # Reading.

    async def response(self, method: str = "GET") -> Response:
        """The next final response; *method* decides whether it has a body."""
        return await read_response(self.wire, method)

    async def responses(self, methods: Iterable[str]) -> list[Response]:
        """The responses to several pipelined requests."""
        return [await self.response(method) for method in methods]

    async def interim(self) -> Response:
        """The next head, which must be that of a 1xx."""
        response = await read_response_head(self.wire)
        assert response.status < 200
        return response

    async def ended(self, within: float = PATIENCE) -> End:
        """How the proxy ended the connection, once it has."""
        return await self.wire.ended(within)

    @property
    def is_silent(self) -> bool:
        """Whether nothing is unread and the connection is open."""
        return not self.wire.unread and self.wire.end is None


def request(method: str, target: str, *fields: str, body: bytes | None = None) -> bytes:
    """A well-formed request; Host and Content-Length are added unless they are in *fields*."""
    names = {line.partition(":")[0].lower() for line in fields}
    lines = list(fields)
    if "host" not in names:
        lines.insert(0, "Host: a.example")
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        lines.append(f"Content-Length: {len(body)}")
    head = "".join(f"{line}\r\n" for line in (f"{method} {target} HTTP/1.1", *lines, ""))
    return head.encode("latin-1") + (body or b"")
