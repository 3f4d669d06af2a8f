"""The entry point of a worker's process, for the supervisor alone."""

import asyncio
import signal
import socket
import sys

import uvloop

from proxy.runtime.quick_imports import quick_imports

with quick_imports():
    from proxy.observe.logs import process_log
    from proxy.runtime.process_setup import prepare, settle
    from proxy.runtime.workers.worker import Worker

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Serve under the supervisor that started this process.

    The arguments are the number of this worker, and the descriptors of its channel, of the
    socket that connections are passed over, and of the file whose lock guards the log.
    """
    # The supervisor blocked these signals until now; from here on they are ignored.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    worker, channel, fd_socket, log_lock = map(int, sys.argv[1:])
    process_log.configure(sys.stderr, worker)
    prepare()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(_serve(channel, fd_socket, log_lock)))


async def _serve(channel: int, fd_socket: int, log_lock: int) -> int:
    ends = socket.socket(fileno=channel), socket.socket(fileno=fd_socket)
    return await Worker(*ends, log_lock, settle).run()
