import asyncio
import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proxy.observe.logs.line_writer import LineWriter
from tests.support.waiting import PATIENCE
from tests.support.witness import Stopwatch

FULL_DEVICE = Path("/dev/full")
"""Linux: every write fails as on a full disk."""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a thread makes it true, without an event
            await asyncio.sleep(0.005)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        try:
            os.close(fd)
        except OSError as error:  # a test closed it already
            assert error.errno == errno.EBADF  # noqa: PT017 - a fixture, not an expectation


async def test_lines_arrive_in_order_without_waiting_for_close(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        writer = LineWriter(file.fileno())
    expected = "".join(f"{number}\n" for number in range(500))
    for line in expected.splitlines(keepends=True):
        writer.write(line)
    await until(lambda: path.stat().st_size == len(expected))
    assert path.read_text() == expected
    writer.close()


async def test_close_writes_what_is_waiting(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        writer = LineWriter(file.fileno())
    writer.write("last words\n")
    writer.close()
    assert path.read_text() == "last words\n"
    writer.write("too late\n")
    writer.close()
    assert writer.dropped == 1


async def test_a_reader_that_left_costs_lines_only(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer = LineWriter(writing)
    os.close(reading)
    for _ in range(3):
        writer.write("nobody listens\n")
    await until(lambda: writer.dropped == 3)
    writer.write("still nobody\n")
    writer.close()
    assert writer.dropped == 4


async def test_a_closed_stdout_costs_lines_only(pipe: tuple[int, int]) -> None:
    _, writing = pipe
    os.close(writing)
    writer = LineWriter(writing)
    writer.write("into the void\n")
    writer.close()
    assert writer.dropped == 1


async def run_with_stdout(stdout: int, *steps: str) -> tuple[int | None, str]:
    """Run *steps* in a process of its own, with a writer on its stdout.

    Its exit status, and how many lines it lost.
    """
    script = "\n".join(
        (
            "import asyncio, resource, signal, sys",
            "from proxy.observe.logs.line_writer import LineWriter",
            "async def serve():",
            "    writer = LineWriter(1)",
            *(f"    {step}" for step in steps),
            "    writer.close()",
            "    print(writer.dropped, file=sys.stderr)",
            "asyncio.run(serve())",
        )
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    _, errors = await process.communicate()
    return process.returncode, errors.decode().strip()


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "non-blocking"])
async def test_a_reader_that_stalls_never_makes_the_loop_wait(
    *, pipe: tuple[int, int], blocking: bool
) -> None:
    reading, writing = pipe
    os.set_blocking(writing, blocking)
    writer = LineWriter(writing)
    line = "x" * 1023 + "\n"
    slowest = 0.0
    for _ in range(8 * 1024):  # twice what may wait
        watch = Stopwatch()
        writer.write(line)
        slowest = max(slowest, watch.seconds)
        await asyncio.sleep(0)
    assert slowest < 0.5
    lost = writer.dropped
    assert 3 * 1024 < lost < 5 * 1024

    watch = Stopwatch()
    writer.close(within=0.05)
    assert watch.seconds < 1.0, "a stuck reader does not delay the exit"

    # It reads again: what was waiting arrives whole, and nothing of it is lost.
    received = 0
    while received < (8 * 1024 - lost) * len(line):
        received += len(await asyncio.to_thread(os.read, reading, 1 << 20))
    assert writer.dropped == lost


FIVE_LINES = (
    "for _ in range(5):",
    "    writer.write('line\\n')",
    "    await asyncio.sleep(0.03)",
)


async def test_a_pipe_without_a_reader_does_not_end_the_process() -> None:
    reading, broken = os.pipe()
    os.close(reading)
    with os.fdopen(broken, "wb") as stdout:
        assert await run_with_stdout(stdout.fileno(), *FIVE_LINES) == (0, "5")


if FULL_DEVICE.exists():  # not everywhere, and the pipe's case is close to it

    async def test_a_full_disk_does_not_end_the_process() -> None:
        with os.fdopen(os.open(FULL_DEVICE, os.O_WRONLY), "wb") as stdout:
            assert await run_with_stdout(stdout.fileno(), *FIVE_LINES) == (0, "5")


async def test_a_line_that_broke_off_does_not_swallow_the_next(tmp_path: Path) -> None:
    """A disk that fills up in the middle of a line, and is cleared later."""
    path = tmp_path / "log"
    with path.open("wb") as stdout:
        result = await run_with_stdout(
            stdout.fileno(),
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)",
            "resource.setrlimit(resource.RLIMIT_FSIZE, (14, resource.RLIM_INFINITY))",
            "writer.write('first\\n')",
            "writer.write('second, too long\\n')",
            "writer.write('third\\n')",
            "while not writer.dropped:",
            "    await asyncio.sleep(0.005)",
            "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)",
            "writer.write('fourth\\n')",
        )
    assert result == (0, "2")
    assert path.read_text() == "first\nsecond, \nfourth\n"
