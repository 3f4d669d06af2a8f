"""Processes under test: from start to ready to ended, and what their clocks and memory say."""

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench import tools

ROOT = Path(__file__).parent.parent
MIB = 1024 * 1024

READY_WITHIN = 15.0
STOP_WITHIN = 5.0


@dataclass(frozen=True, slots=True)
class Running:
    """A process that answers on *port*."""

    name: str
    pid: int
    port: int
    ready_after: float
    """Seconds from start to the first answer."""
    store: "Running | None" = None
    """The Redis that it uses."""
    workers: int = 1
    """How many of its children share the work, if more than one."""

    def cpu_seconds(self) -> float:
        """User and system time so far, of all threads of this process and its children."""
        return sum(_clock(pid) for pid in self._pids())

    def children_cpu_seconds(self) -> dict[int, float]:
        """The same for each of its children, by process id."""
        return {pid: _clock(pid) for pid in _children(self.pid)}

    def resident(self) -> float:
        """MiB of memory that it and its children hold at this moment."""
        return sum(_resident(pid) for pid in self._pids()) / MIB

    def _pids(self) -> list[int]:
        return [self.pid, *_children(self.pid)]


def _clock(pid: int) -> float:
    # The process's own clock, as clock_getcpuclockid(3) would name it: nanoseconds,
    # where /proc/PID/stat counts ticks of 10 ms.
    return time.clock_gettime(~pid << 3 | 2)


def _resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def _children(pid: int) -> list[int]:
    """Ids of the processes below this one, at any depth."""
    below: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError):  # a thread that has just ended
            for child in map(int, task.read_text().split()):
                below += [child, *_children(child)]
    return below


def free_port() -> int:
    """A port that nobody uses at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def serves(path: str) -> Callable[[int], bool]:
    """Whether a GET of *path* gets a 200: some listen long before they know their routes."""
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n".encode()

    def ask(port: int) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
                sock.sendall(request)
                return sock.recv(65536).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    return ask


@contextmanager
def running(
    name: str,
    port: int,
    command: list[str],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    ready: Callable[[int], bool] = accepts,
    store: Running | None = None,
    workers: int = 1,
) -> Iterator[Running]:
    """The process, from ready to ended. What it prints goes to a file of *folder*."""
    log = folder / f"{port}.log"
    with log.open("wb") as output:
        begun = time.monotonic()
        process = subprocess.Popen(
            command,
            env=os.environ | (environment or {}),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until(ready, name, process, port, log)
        yield Running(name, process.pid, port, time.monotonic() - begun, store, workers)
    finally:
        process.terminate()
        try:
            process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until(
    ready: Callable[[int], bool], name: str, process: subprocess.Popen[bytes], port: int, log: Path
) -> None:
    give_up = time.monotonic() + READY_WITHIN
    while time.monotonic() < give_up:
        if process.poll() is not None:
            said = log.read_text(errors="replace").strip().splitlines()
            # The folder is of this run alone.
            words = said[0].replace(f"{log.parent}/", "") if said else "it said nothing"
            raise tools.BenchFailed(f"{name} ended at once: {words}")
        if ready(port):
            return
        time.sleep(0.002)
    raise tools.BenchFailed(f"{name} was not ready within {READY_WITHIN:g} s")
