"""Several processes that write to one pipe: no line is written into another."""

import asyncio
import os
import subprocess
import sys

from tests.support.proxies import ROOT

LINES = 100
LONG = 9000
"""More than a pipe takes in one piece."""

WRITER = """
import asyncio, os, sys
from proxy.observe.logs.line_writer import LineWriter

letter, turns, ready, go, lines, long = sys.argv[1], *map(int, sys.argv[2:])

async def write():
    writer = LineWriter(1, turns)
    for _ in range(lines):
        writer.write(letter * long + "\\n")
        await asyncio.sleep(0.001)  # several batches
    writer.close(10.0)

os.write(ready, b"!")
os.read(go, 1)
asyncio.run(write())
"""


def read_slowly(pipe: int) -> bytes:
    """All of it, little by little: the pipe is full, and whoever writes waits in mid-line."""
    pieces = []
    while piece := os.read(pipe, 1000):
        pieces.append(piece)
    return b"".join(pieces)


async def test_lines_of_several_processes_stay_whole() -> None:
    (reading, writing), (is_ready, ready), (go, start) = (os.pipe() for _ in range(3))
    log_lock = os.memfd_create("turns")
    numbers = [str(number) for number in (log_lock, ready, go, LINES, LONG)]
    writers = [
        subprocess.Popen(  # noqa: ASYNC220 - it comes back at once
            [sys.executable, "-c", WRITER, letter, *numbers],
            cwd=ROOT,
            stdout=writing,
            pass_fds=(log_lock, ready, go),
        )
        for letter in "ab"
    ]
    for descriptor in (writing, ready, go):
        os.close(descriptor)
    for _ in writers:
        assert await asyncio.to_thread(os.read, is_ready, 1) == b"!"
    os.write(start, b"go")
    written = await asyncio.to_thread(read_slowly, reading)
    for writer in writers:
        assert await asyncio.to_thread(writer.wait) == 0
    for descriptor in (reading, is_ready, start, log_lock):
        os.close(descriptor)
    lines = written.splitlines()
    assert sorted(lines) == [b"a" * LONG] * LINES + [b"b" * LONG] * LINES
