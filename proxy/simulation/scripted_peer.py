"""An upstream in memory that treats each connection as scripted: one request, one outcome."""

import asyncio
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from typing import cast

from proxy.core.memory_transport import NO_LINGER
from proxy.policy.attempt import FailureKind
from proxy.upstream.pool import ConnectError

_HEAD_END = b"\r\n\r\n"
_CHUNKED_END = b"0\r\n\r\n"
_length = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE).search
_is_chunked = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE).search
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection"})
"""Fields of a response that the peer sets itself."""
_NO_BODY = frozenset({204, 304})
_NOT_HTTP = b"HTTP/1.1 two hundred\r\n\r\n"
_PART = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart"


@dataclass(frozen=True, slots=True)
class ScriptedOutcome:
    """What the upstream does to one attempt."""

    kind: FailureKind | None = None
    """How the attempt fails; None: a response comes."""
    status: int = 0
    fields: tuple[bytes, ...] = ()
    """Fields of the response, each as ``b"Name: value"``."""

    def response(self) -> bytes:
        """Return the response, without a body; the connection is closed after it."""
        names = [field.partition(b":")[0].strip().lower() for field in self.fields]
        fields = [f for f, name in zip(self.fields, names, strict=True) if name not in _FRAMING]
        if self.status not in _NO_BODY:
            fields.append(b"Content-Length: 0")
        head = [b"HTTP/1.1 %d Simulated" % self.status, *fields, b"Connection: close"]
        return b"\r\n".join(head) + _HEAD_END


class ScriptedPeer(asyncio.Protocol):
    """One connection to the upstream: reads a request, then does what the outcome says."""

    def __init__(self, outcome: ScriptedOutcome, on_silence: Callable[[], object]) -> None:
        """*on_silence* is called when the request is here and will get no answer."""
        self._outcome = outcome
        self._on_silence = on_silence
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._is_complete():
            self._act()

    def _is_complete(self) -> bool:
        head, end, body = self._received.partition(_HEAD_END)
        if not end:
            return False
        if _is_chunked(head):
            return body.endswith(_CHUNKED_END)
        length = _length(head)
        return length is None or len(body) >= int(length[1])

    def _act(self) -> None:
        transport, kind = self._transport, self._outcome.kind
        match kind:
            case None:
                transport.write(self._outcome.response())
                transport.close()
            case FailureKind.TIMEOUT:
                self._on_silence()
            case FailureKind.PROTOCOL:
                transport.write(_NOT_HTTP)
                transport.close()
            case _:
                if kind is FailureKind.TRUNCATED:
                    transport.write(_PART)
                sock = transport.get_extra_info("socket")
                sock.setsockopt(SOL_SOCKET, SO_LINGER, NO_LINGER)
                transport.abort()


def accept(outcome: ScriptedOutcome, on_silence: Callable[[], object]) -> ScriptedPeer:
    """Return the peer of a new connection; raise what an attempt to connect fails with."""
    match outcome.kind:
        case FailureKind.CONNECT:
            raise ConnectionRefusedError
        case FailureKind.CERTIFICATE:
            raise ssl.SSLCertVerificationError
        case FailureKind.BUSY:
            # As if all connections were in use, and none became free in time.
            raise ConnectError(FailureKind.BUSY)
    return ScriptedPeer(outcome, on_silence)
