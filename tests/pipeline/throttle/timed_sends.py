"""``python -m proxy``, and beside it a file with the moments of each request that is sent.

With that a test can tell a call that was sent too early from one whose neighbour was late because
the machine was busy. Everything else is the proxy as it is. The first argument is the file; it
gets a line for each request: when its permit was counted, when it was sent (both in seconds,
monotonic), and its target.

A limit is promised of the moments that it counts: nobody can answer for how long the process stands
still between two of its instructions. All the more a permit must be counted when its call is sent,
and not in an earlier iteration of the event loop: then it has no line, but ends the process.
"""

import asyncio
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from proxy.cli import main
from proxy.policy.throttle.wait_queue import Reservation, Waiter, WaitQueue
from proxy.upstream.call import Call
from proxy.upstream.connection import UpstreamConnection

PROGRAM = "tests.pipeline.throttle.timed_sends"

_take = WaitQueue.take
_commit = Reservation.commit
_send = UpstreamConnection.send


@dataclass(frozen=True, slots=True)
class Send:
    """A request that was sent, and when: seconds of the monotonic clock."""

    counted: float
    sent: float
    target: str


def read_sends(file: Path) -> list[Send]:
    """What the program has written, in the order of sending."""
    lines = (line.split() for line in file.read_text().splitlines())
    return [Send(float(counted), float(sent), target) for counted, sent, target in lines]


class _Permit:
    """When the permit was counted that is to be used in this iteration of the event loop."""

    def __init__(self) -> None:
        self._counted: float | None = None

    def count(self, moment: float) -> None:
        if self._counted is None:
            asyncio.get_running_loop().call_soon(self._lapse)
        self._counted = moment

    def _lapse(self) -> None:
        self._counted = None

    def use(self) -> float:
        counted = self._counted
        if counted is None:
            os.write(2, b"a request is sent without a permit that is counted now\n")
            os._exit(70)
        return counted


def _timed(file: int) -> None:
    permit = _Permit()

    def take(queue: WaitQueue[Waiter], now: float) -> Reservation | None:
        reservation = _take(queue, now)
        if reservation is not None:
            permit.count(now)
        return reservation

    def commit(reservation: Reservation, now: float) -> bool:
        is_counted = _commit(reservation, now)
        if is_counted:
            permit.count(now)
        return is_counted

    def send(
        connection: UpstreamConnection, call: Call, head: bytes, body: bytes, *, more: bool
    ) -> bool:
        moment = time.monotonic()
        was_sent = _send(connection, call, head, body, more=more)
        if was_sent:
            os.write(file, b"%.9f %.9f %s\n" % (permit.use(), moment, head.split(b" ", 2)[1]))
        return was_sent

    # Each calls what it takes the place of.
    WaitQueue.take = take  # type: ignore[method-assign, assignment]  # it watches the real one
    Reservation.commit = commit  # type: ignore[method-assign, assignment]  # it watches the real one
    UpstreamConnection.send = send  # type: ignore[method-assign, assignment]  # it watches the real one


if __name__ == "__main__":
    _timed(os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    main(prog_name="holdfast")
