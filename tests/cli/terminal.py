"""A command on a terminal of its own, as a person would run it."""

import asyncio
import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tests.support.proxies import ROOT

ESCAPE = "\x1b"
HOLDFAST = (sys.executable, "-m", "proxy")
WITHOUT_RICH = (
    sys.executable,
    "-c",
    "import sys; sys.modules['rich'] = None; from proxy.cli import main; main()",
)
_NOTHING: Mapping[str, str] = MappingProxyType({})
_PATIENCE = 30.0
"""Seconds after which a command that has not ended never will."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The output of a command, and its exit status."""

    status: int
    text: str

    @property
    def uncoloured(self) -> str:
        """The text without colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.text)


class KeysThenCtrlC(io.BytesIO):
    """Standard input of a CliRunner: a terminal where lines are typed, then Ctrl-C.

    A signal to a process is no substitute: between a question and the wait for its answer the
    interpreter takes note of one, and acts when the next key is pressed.
    """

    def isatty(self) -> bool:
        return True

    def read1(self, size: int | None = -1, /) -> bytes:
        del size
        line = self.readline()
        if not line:
            raise KeyboardInterrupt
        return line


async def on_terminal(
    command: Sequence[str],
    environ: Mapping[str, str] = _NOTHING,
    *,
    columns: int = 80,
    until: Callable[[str], bool] | None = None,
    typed: bytes = b"",
) -> Ended:
    """Run *command* to its end; or *until* it has printed enough, then send Ctrl-C.

    *typed* is its standard input.
    """
    return await asyncio.to_thread(_run, command, environ, columns, until, typed)


def _run(
    command: Sequence[str],
    environ: Mapping[str, str],
    columns: int,
    until: Callable[[str], bool] | None,
    typed: bytes,
) -> Ended:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env={**_plain_environ(), "TERM": "xterm-256color", **environ},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            theirs = -1
            try:
                text = _output(ours, process, until)
                status = process.wait(timeout=10)
            finally:
                process.kill()  # in vain, unless it failed
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    return Ended(status, text.decode().replace("\r\n", "\n"))


def _output(
    ours: int, process: subprocess.Popen[bytes], until: Callable[[str], bool] | None
) -> bytes:
    """Return all that *process* prints; once it has printed enough, send Ctrl-C."""
    text = b""
    end = time.monotonic() + _PATIENCE
    # The end of a terminal is an error to read from.
    while piece := _read(ours, end - time.monotonic()):
        text += piece
        if until is not None and until(text.decode(errors="replace")):
            process.send_signal(signal.SIGINT)
            until = None
    return text


def _read(descriptor: int, within: float) -> bytes:
    readable, _, _ = select.select([descriptor], [], [], max(within, 0.0))
    assert readable, f"the command did not end within {_PATIENCE} s"
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


def _plain_environ() -> dict[str, str]:
    """Return our environment without the variables that change the output's look."""
    changes = {"NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "HOLDFAST_ADMIN"}
    return {name: value for name, value in os.environ.items() if name not in changes}
