"""``python -m bench.loads.pacer``: an open-loop tool for small answers.

Requests go out at fixed times, whether or not the last one was answered, and latency counts
from the time at which a request was *to be* sent: a proxy that makes others wait cannot hide it
(no coordinated omission). What the tool itself is late is in the figures, and is told as ``late``.
No package has such a tool that keeps up with these rates on one core.
"""

import gc
import json
import select
import socket
import sys
import time
from collections import deque

from bench.loads.timer import Timer

CONNECTIONS = 64


class Pacer:
    """Sends one request at each of the given times, on whichever connection is free."""

    REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"

    def __init__(self, port: int, connections: int) -> None:
        self._epoll = select.epoll()
        self._timer = Timer()
        self._epoll.register(self._timer, select.EPOLLIN)
        self._sockets: dict[int, socket.socket] = {}
        for _ in range(connections):
            sock = socket.create_connection(("127.0.0.1", port), timeout=5)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)  # noqa: FBT003 - the socket module's signature
            self._sockets[sock.fileno()] = sock
            self._epoll.register(sock, select.EPOLLIN)
        self._free = list(self._sockets)
        self._begun: dict[int, tuple[int, bytes]] = {}
        """By connection: when its request was to be sent, and what has come back."""
        self.latencies: list[int] = []
        """Nanoseconds from the time at which it was to be sent to the end of the answer."""
        self.late: list[int] = []
        """Nanoseconds that the tool itself was late, where a connection was free."""
        self.failed = 0

    def run(self, times: deque[int]) -> None:
        """Send at *times* (of the monotonic clock, nanoseconds), and wait for the answers."""
        waiting: deque[int] = deque()
        give_up = times[-1] + 10_000_000_000
        while times or waiting or self._begun:
            now = time.monotonic_ns()
            if now > give_up or not self._sockets:
                self.failed += len(times) + len(waiting) + len(self._begun)
                return
            while times and times[0] <= now:
                at = times.popleft()
                if self._free and not waiting:
                    self.late.append(time.monotonic_ns() - at)
                    self._send(at)
                else:
                    waiting.append(at)
            while waiting and self._free:
                self._send(waiting.popleft())
            if times:
                self._timer.set(times[0])
            for descriptor, _ in self._epoll.poll(1.0):
                if descriptor == self._timer.fileno():
                    self._timer.clear()
                else:
                    self._receive(descriptor)

    def close(self) -> None:
        """Close every connection."""
        for sock in self._sockets.values():
            sock.close()
        self._epoll.close()
        self._timer.close()

    def _send(self, at: int) -> None:
        descriptor = self._free.pop()
        self._begun[descriptor] = (at, b"")
        self._sockets[descriptor].send(self.REQUEST)

    def _receive(self, descriptor: int) -> None:
        try:
            data = self._sockets[descriptor].recv(65536)
        except OSError:
            data = b""
        begun = self._begun.pop(descriptor, None)
        if not data or begun is None:
            # It ended, or said something that nobody had asked for.
            self.failed += begun is not None
            self._epoll.unregister(descriptor)
            self._sockets.pop(descriptor).close()
            if descriptor in self._free:
                self._free.remove(descriptor)
            return
        at, before = begun
        answer = before + data
        if not is_complete(answer):
            self._begun[descriptor] = (at, answer)
            return
        self.latencies.append(time.monotonic_ns() - at)
        # Nor is a success without a body what the upstream sent.
        self.failed += not answer.startswith(b"HTTP/1.1 200 ") or answer.endswith(b"\r\n\r\n")
        self._free.append(descriptor)


def is_complete(answer: bytes) -> bool:
    """Whether a small answer has come to its end, by its ``Content-Length``."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        return False
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return len(body) >= int(value)
    return True


def percentile(values: list[int], part: float) -> float:
    """The value that this part of them does not exceed, in microseconds; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] / 1000 if ordered else 0.0


def schedule(rate: float, seconds: float, begin: int) -> deque[int]:
    """The times at which to send: equal distances, from *begin* on (nanoseconds)."""
    count = max(1, int(rate * seconds))
    return deque(begin + int(number / rate * 1e9) for number in range(count))


def main(port: int, rate: float, seconds: float) -> None:
    """Run once and print what was found, as one line of JSON."""
    pacer = Pacer(port, CONNECTIONS)
    gc.disable()
    # The first on each connection is slower: nobody looks at those.
    pacer.run(schedule(rate, min(0.1, seconds / 4), time.monotonic_ns() + 1_000_000))
    first = len(pacer.latencies)
    pacer.latencies.clear()
    pacer.late.clear()
    pacer.run(schedule(rate, seconds, time.monotonic_ns() + 1_000_000))
    pacer.close()
    found = {
        "requests": first + len(pacer.latencies),
        "failed": pacer.failed,
        "p50": percentile(pacer.latencies, 0.50),
        "p99": percentile(pacer.latencies, 0.99),
        "late": percentile(pacer.late, 0.50),
        "late_p99": percentile(pacer.late, 0.99),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
