"""An upstream for large bodies: reads each request to its end before it answers.

nginx answers a POST that it does nothing with before the body has come, which is no
upload. ``/stall/SECONDS`` stops reading for so long when the first bytes have come,
``/bytes/COUNT`` answers with so many, everything else with ``ok``.
"""

import re
import socket
import sys
import threading
import time

PIECE = 256 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def serve(port: int) -> None:
    """Serve until ended, each connection by a thread of its own."""
    with socket.create_server(("127.0.0.1", port), backlog=1024) as listener:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=_converse, args=(sock,), daemon=True).start()


def _converse(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray(PIECE)
    unread = b""
    with sock:
        try:
            while head_and_more := _head(sock, unread):
                head, more = head_and_more
                unread = _answer(sock, head, more, buffer)
        except OSError:
            return  # the proxy left


def _head(sock: socket.socket, unread: bytes) -> tuple[bytes, bytes] | None:
    while b"\r\n\r\n" not in unread:
        data = sock.recv(65536)
        if not data:
            return None
        unread += data
    head, _, more = unread.partition(b"\r\n\r\n")
    return head, more


def _answer(sock: socket.socket, head: bytes, more: bytes, buffer: bytearray) -> bytes:
    """Answer one request; returns what came behind it."""
    target = head.split(b" ", 2)[1]
    if target.startswith(b"/stall/"):
        time.sleep(float(target.removeprefix(b"/stall/")))
    found = _LENGTH.search(head)
    length = int(found[1]) if found else 0
    left = length - len(more)
    while left > 0:
        received = sock.recv_into(buffer)
        if not received:
            raise ConnectionResetError
        left -= received
    if target.startswith(b"/bytes/"):
        _send(sock, int(target.removeprefix(b"/bytes/")), memoryview(buffer))
    else:
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    return more[length:]


def _send(sock: socket.socket, size: int, piece: memoryview) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
    while size > 0:
        sock.sendall(piece[:size])
        size -= len(piece)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
