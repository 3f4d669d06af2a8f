"""``python -m proxy``, and beside it a file with the moment in which each request is sent.

With that a test can tell a call that was sent too early from one whose neighbour arrived late
because the machine was busy. Everything else is the proxy as it is. The first argument is the
file; it gets a line for each request: seconds (monotonic) and its target.
"""

import os
import sys
import time

from proxy.cli import main
from proxy.upstream.call import Call
from proxy.upstream.connection import UpstreamConnection

_send = UpstreamConnection.send


def _timed(file: int) -> None:
    def send(
        connection: UpstreamConnection, call: Call, head: bytes, body: bytes, *, more: bool
    ) -> bool:
        moment = time.monotonic()
        was_sent = _send(connection, call, head, body, more=more)
        if was_sent:
            os.write(file, b"%.6f %s\n" % (moment, head.split(b" ", 2)[1]))
        return was_sent

    UpstreamConnection.send = send  # type: ignore[method-assign, assignment]  # it calls what it takes the place of


if __name__ == "__main__":
    _timed(os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    main(prog_name="holdfast")
