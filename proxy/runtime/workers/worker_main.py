"""A worker's process: what the supervisor starts. Not a command for anybody else."""

import asyncio
import signal
import socket
import sys

import uvloop

from proxy.app.lifecycle import log_to
from proxy.runtime.process_setup import prepare, settle
from proxy.runtime.workers.worker import Worker

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Serve under the supervisor that started this process.

    Told by it: the number of this worker; then the descriptors of its channel, of its door,
    and of the file by which workers take turns at the log.
    """
    # The supervisor blocked them until now; from here on they mean nothing.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    worker, channel, door, log_turns = map(int, sys.argv[1:])
    log_to(sys.stderr, worker)
    prepare()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(_serve(channel, door, log_turns)))


async def _serve(channel: int, door: int, log_turns: int) -> int:
    ends = socket.socket(fileno=channel), socket.socket(fileno=door)
    return await Worker(*ends, log_turns, settle).run()
