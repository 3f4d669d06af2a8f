"""A page on the whole terminal: the part of it that is in view, and how to scroll."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from proxy.cli.keyboard import KeyPress
from proxy.cli.render.screens import styled
from proxy.cli.render.tables import Cell, Line, Tone, cut, wrap_line

_ENTER = "\x1b[?1049h\x1b[?25l"
"""To the alternate screen, without a cursor."""
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_USUAL_SIZE = os.terminal_size((80, 24))
_SEPARATOR = " | "


class View:
    """Which of many lines are in view."""

    def __init__(self) -> None:
        self.first = 0

    def move(self, key: KeyPress, lines: int, height: int) -> None:
        """Scroll as *key* says, over *lines* of which *height* are in view at a time."""
        page = max(height - 1, 1)
        steps = {
            KeyPress.UP: -1,
            KeyPress.DOWN: 1,
            KeyPress.PAGE_UP: -page,
            KeyPress.PAGE_DOWN: page,
        }
        match key:
            case KeyPress.HOME:
                self.first = 0
            case KeyPress.END:
                self.first = lines
            case _:
                self.first += steps.get(key, 0)
        self.settle(lines, height)

    def settle(self, lines: int, height: int) -> None:
        """Stay within *lines*: there may be fewer than before, or more room."""
        self.first = max(min(self.first, lines - height), 0)

    def describe(self, lines: int, height: int) -> str:
        """Say what is not in view."""
        above, below = self.first, max(lines - self.first - height, 0)
        if above and below:
            return f"{above} {_rows(above)} above, {below} more below"
        if below:
            return f"{below} more {_rows(below)}: scroll"
        return f"{above} {_rows(above)} above" if above else "all rows shown"


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


def frame(
    top: Line, body: Sequence[Line], hints: Sequence[str], view: View, size: os.terminal_size
) -> list[Line]:
    """Return the lines of the whole screen: *top*, the part of *body* in view, and what to press.

    Of *hints* as many are shown as fit.
    """
    width = max(size.columns, 1)
    head = wrap_line(top, width)
    height = body_height(head, size)
    view.settle(len(body), height)
    shown = [clip(line, width) for line in body[view.first : view.first + height]]
    shown += [()] * (height - len(shown))
    foot = view.describe(len(body), height)
    for hint in hints:
        if len(foot) + len(_SEPARATOR) + len(hint) <= width:
            foot += _SEPARATOR + hint
    lines = [*head, *shown, (Cell(cut(foot, width), Tone.TITLE),)]
    return lines[: max(size.lines, 1)]


def body_height(head: Sequence[Line], size: os.terminal_size) -> int:
    """Return how many lines of the body fit between *head* and the last line."""
    return max(size.lines - len(head) - 1, 1)


def clip(line: Line, width: int) -> Line:
    """Return *line* without what is beyond *width*: a terminal would go on in the next line."""
    cells: list[Cell] = []
    for cell in line:
        cells.append(Cell(cell.text[:width], cell.tone))
        width -= len(cell.text)
        if width <= 0:
            break
    return tuple(cells)


class FullScreen:
    """The terminal of standard output, taken over while entered and given back as it was."""

    def __init__(self, *, has_colours: bool) -> None:
        self._has_colours = has_colours

    def __enter__(self) -> Self:
        self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal is gone
            self._write(_LEAVE)

    @property
    def size(self) -> os.terminal_size:
        """The size of the terminal at present."""
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            return _USUAL_SIZE
        return size if size.columns and size.lines else _USUAL_SIZE

    def draw(self, lines: Sequence[Line]) -> None:
        """Draw *lines* in place of all that is there."""
        texts = ["".join(map(self._text, line)) + _END_OF_LINE for line in lines]
        self._write(_HOME + "\r\n".join(texts) + _END_OF_SCREEN)

    def _text(self, cell: Cell) -> str:
        return styled(cell) if self._has_colours else cell.text

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
