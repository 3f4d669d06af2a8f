"""A terminal with a screen: tmux, which knows what a person would see."""

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support import PATIENCE
from tests.support.proxies import ROOT
from tests.support.tools import tool

_LOOK_EVERY = 0.05
_HEIGHT = 24
_CHANGES = ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "HOLDFAST_ADMIN", "TMUX", "TMUX_PANE")
"""Variables that change what a command shows."""
LEFT = "left with"
"""What the terminal says once the command has ended, with its exit status and how keys are read."""


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, socket: Path) -> None:
        self._tmux = (tool("tmux"), "-S", str(socket), "-f", "/dev/null")

    async def start(self, command: Sequence[str], columns: int, environ: Mapping[str, str]) -> None:
        """Run *command* on a terminal of that many columns."""
        then = f'echo "{LEFT} $?"; stty -a | grep -oE " -?(icanon|echo)\\\\b"; exec sleep 600'
        line = f"trap : INT; {shlex.join(command)}; {then}"
        shown = {name: value for name, value in os.environ.items() if name not in _CHANGES}
        size = ("-x", str(columns), "-y", str(_HEIGHT))
        settings = [part for name, value in environ.items() for part in ("-e", f"{name}={value}")]
        # Its server goes on, and would keep a pipe to us open.
        process = await asyncio.create_subprocess_exec(
            *(*self._tmux, "new-session", "-d", *size, *settings, "sh", "-c", line),
            cwd=ROOT,
            env={**shown, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert await process.wait() == 0

    async def press(self, *keys: str) -> None:
        """Press *keys*, by the names that tmux has for them."""
        await self._run("send-keys", *keys)

    async def resize(self, columns: int, rows: int) -> None:
        """Make the terminal larger or smaller."""
        await self._run("resize-window", "-x", str(columns), "-y", str(rows))

    async def screen(self, *, with_codes: bool = False) -> str:
        """What is to be seen now; *with_codes*: and in which colours."""
        return await self._run("capture-pane", "-p", *(("-e",) if with_codes else ()))

    async def until(self, seen: Callable[[str], object], *, with_codes: bool = False) -> str:
        """The screen, once *seen* finds on it what it looks for."""
        shown = ""
        try:
            async with asyncio.timeout(PATIENCE):
                while not seen(shown := await self.screen(with_codes=with_codes)):  # noqa: ASYNC110 - it is far away
                    await asyncio.sleep(_LOOK_EVERY)
        except TimeoutError:
            raise AssertionError(f"never seen; at last there was:\n{shown}") from None
        return shown

    async def pid_of_command(self) -> int:
        """The process of the command itself, which the terminal's shell has started."""
        shell = (await self._run("list-panes", "-F", "#{pane_pid}")).strip()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text()  # noqa: ASYNC240 - no disk
        return int(children.split()[0])

    async def end(self) -> None:
        """End the terminal, and whatever still runs there."""
        await self._run("kill-server")

    async def _run(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *self._tmux,
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()


@asynccontextmanager
async def terminal(
    folder: Path, command: Sequence[str], columns: int = 80, **environ: str
) -> AsyncIterator[Terminal]:
    """Run *command* on a terminal with 24 rows."""
    made = Terminal(folder / "tmux")
    await made.start(command, columns, {"PYTHONPATH": os.pathsep.join(sys.path), **environ})
    try:
        yield made
    finally:
        await made.end()
