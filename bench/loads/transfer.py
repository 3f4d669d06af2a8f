"""Large bodies, one at a time, over a plain socket: exactly so many bytes for so much CPU."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from bench import tools
from bench.loads import Figures, Plan
from bench.processes import MIB, Running

PIECE = memoryview(bytes(256 * 1024))
PATIENCE = 60.0
"""Seconds without a byte, after which the transfer has failed."""

Direction = Literal["down", "up"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """One body, over a connection of its own."""

    direction: Direction
    path: str
    mib: int

    def warmed_up(self, proxy: Running, plan: Plan) -> "Transfer":
        """One measurement that nobody looks at."""
        self.measure(proxy, plan)
        return self

    def measure(self, proxy: Running, plan: Plan) -> Figures:  # noqa: ARG002 - its bytes say how long it takes
        """What a MiB costs, and how many pass in a second."""
        before, begun = proxy.cpu_seconds(), time.monotonic()
        size = self.mib * MIB
        with connected(proxy) as client:
            if self.direction == "up":
                client.post(self.path, size)
            elif (received := client.get(self.path)) != size:
                raise tools.BenchFailed(f"{received} bytes came in place of {size}")
        took, spent = time.monotonic() - begun, proxy.cpu_seconds() - before
        return {"cpu_mib": spent / self.mib * 1e6, "mib_per_second": self.mib / took}


@dataclass(frozen=True, slots=True)
class Stall:
    """A body past a client, then one past an upstream, that stops reading for a while.

    How much memory the proxy has at most meanwhile, above what it has when idle.
    """

    def warmed_up(self, proxy: Running, plan: Plan) -> "Stall":  # noqa: ARG002 - a small one will do
        """What a proxy needs once, however large the bodies are, is there afterwards."""
        with connected(proxy) as client:
            client.get(f"/bytes/{MIB}")
            client.post("/", MIB)
        return self

    def measure(self, proxy: Running, plan: Plan) -> Figures:
        """The higher of both peaks."""
        size = plan.stall_mib * MIB
        with _peak(proxy) as peak:
            with connected(proxy) as client:
                client.get(f"/bytes/{size}", stall=plan.stall_seconds)
            with connected(proxy) as client:
                client.post(f"/stall/{plan.stall_seconds}", size)
        return {"above_idle": max(peak) - peak[0]}


@contextmanager
def _peak(proxy: Running) -> Iterator[list[float]]:
    """What it holds meanwhile, every few milliseconds; first what it held before."""
    seen = [proxy.resident()]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            seen.append(proxy.resident())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


class Client:
    """Speaks as much HTTP as it takes to move a body."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray(PIECE.nbytes)

    def get(self, path: str, stall: float = 0.0) -> int:
        """Ask for a body and throw it away; after its first bytes wait for *stall* seconds.

        Returns how many bytes it had.
        """
        self._sock.sendall(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        return self._take_answer(stall)

    def post(self, path: str, size: int) -> None:
        """Send a body of so many bytes, and wait for the answer."""
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {size}\r\n\r\n"
        self._sock.sendall(head.encode())
        while size > 0:
            self._sock.sendall(PIECE[:size])
            size -= len(PIECE)
        self._take_answer()

    def _take_answer(self, stall: float = 0.0) -> int:
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = self._sock.recv(65536)
            if not data:
                raise tools.BenchFailed("a connection ended where an answer was due")
            answer += data
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise tools.BenchFailed(f"a large body got {head.splitlines()[0].decode()}")
        time.sleep(stall)
        length = content_length(head)
        left = length - len(body)
        while left > 0:
            received = self._sock.recv_into(self._buffer)
            if not received:
                raise tools.BenchFailed(f"a large body ended {left} bytes early")
            left -= received
        return length


def content_length(head: bytes) -> int:
    """How long the body is, by its head."""
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise tools.BenchFailed("a large body came without its length")


@contextmanager
def connected(proxy: Running) -> Iterator[Client]:
    """A client with a connection of its own."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            yield Client(sock)
        except OSError as error:
            raise tools.BenchFailed(f"a large body failed: {error}") from error
