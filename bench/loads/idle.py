"""Connections that were used once and are kept: what each of them weighs."""

import resource
import socket
import struct
from dataclasses import dataclass

from bench import tools
from bench.loads import Figures, Plan
from bench.processes import Running

REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
SPARE = 500
"""Descriptors that both sides need besides."""


@dataclass(frozen=True, slots=True)
class Idle:
    """As many as the plan says, with one answered request on each."""

    def warmed_up(self, proxy: Running, plan: Plan) -> "Idle":  # noqa: ARG002 - one is one
        """One request: what a proxy needs once is there afterwards."""
        _used(proxy.port).close()
        return self

    def measure(self, proxy: Running, plan: Plan) -> Figures:
        """Memory in all, and for each of them."""
        count = plan.idle_connections
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if count + SPARE > soft:
            raise tools.BenchFailed(f"{count} connections need more descriptors than {soft}")
        before = proxy.resident()
        connections: list[socket.socket] = []
        try:
            connections.extend(_used(proxy.port) for _ in range(count))
            after = proxy.resident()
        except OSError as error:
            raise tools.BenchFailed(
                f"{len(connections)} of {count} connections, then: {error}"
            ) from error
        finally:
            for sock in connections:
                sock.close()
        return {"rss": after, "kib_each": (after - before) * 1024 / count}


def _used(port: int) -> socket.socket:
    """A connection on which one request was answered."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    # Reset when it is closed: thousands that linger would be in the way of the next ones.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.sendall(REQUEST)
    answer = sock.recv(65536)
    if not answer.startswith(b"HTTP/1.1 200 ") or answer.endswith(b"\r\n\r\n"):
        raise ConnectionError("a request was not answered with 200")
    return sock
