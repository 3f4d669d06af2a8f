"""The keys of a terminal: what they send, and a terminal that hands them over one by one."""

import os
import re
import sys
import termios
import tty
from contextlib import suppress
from enum import Enum
from typing import Any, Self


class KeyPress(Enum):
    """What a key means while something is watched."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    SORT = "sort"
    QUIT = "quit"


_KEYS = {
    **dict.fromkeys((b"\x1b[A", b"\x1bOA", b"k"), KeyPress.UP),
    **dict.fromkeys((b"\x1b[B", b"\x1bOB", b"j", b"\r", b"\n"), KeyPress.DOWN),
    **dict.fromkeys((b"\x1b[5~", b"b"), KeyPress.PAGE_UP),
    **dict.fromkeys((b"\x1b[6~", b" "), KeyPress.PAGE_DOWN),
    **dict.fromkeys((b"\x1b[H", b"\x1b[1~", b"\x1bOH", b"g"), KeyPress.HOME),
    **dict.fromkeys((b"\x1b[F", b"\x1b[4~", b"\x1bOF", b"G"), KeyPress.END),
    b"s": KeyPress.SORT,
    **dict.fromkeys((b"q", b"Q", b"\x04"), KeyPress.QUIT),
}
_ONE = re.compile(rb"\x1b\[[0-9;]*[~A-Za-z]|\x1bO[A-Za-z]|[^\x1b]")
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-9;]*|O)?\Z")
_AT_ONCE = 1024


class KeyPressReader:
    """Turns what a terminal sends into keys; a sequence may come in two pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self, data: bytes) -> list[KeyPress]:
        """Return the keys in *data*; those that have no meaning are left out."""
        data = self._rest + data
        unfinished = _UNFINISHED.search(data)
        self._rest = b"" if unfinished is None else unfinished[0]
        whole = data[: len(data) - len(self._rest)]
        return [_KEYS[sent] for sent in _ONE.findall(whole) if sent in _KEYS]


class Keyboard:
    """Standard input while keys are not echoed and need no Enter; if it is a terminal at all."""

    def __init__(self) -> None:
        self._reader = KeyPressReader()
        self._before: list[Any] | None = None
        self.descriptor: int | None = sys.stdin.fileno() if sys.stdin.isatty() else None
        """What to wait for until there are keys; None: there never are."""

    def __enter__(self) -> Self:
        if self.descriptor is not None:
            self._before = termios.tcgetattr(self.descriptor)
            tty.setcbreak(self.descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor is not None and self._before is not None:
            with suppress(OSError, termios.error):  # the terminal is gone
                termios.tcsetattr(self.descriptor, termios.TCSADRAIN, self._before)
            self._before = None

    def keys(self) -> list[KeyPress]:
        """Return the keys that were pressed; call it when the descriptor can be read."""
        if self.descriptor is None:
            return []
        data = os.read(self.descriptor, _AT_ONCE)
        if not data:  # the terminal is gone
            self.descriptor = None
        return self._reader.read(data)
