"""Pages, lines and tables: their content, and their layout as plain text.

A cell has a tone instead of a colour, so that the same tables can be drawn with colours
(``colours.py``) and without. Plain tables are ASCII, without escape codes, and fit the
given width: long names are cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

_GAP = "  "
_MIN_WIDTH = 8
"""Characters of a name that are always shown."""
_CUT = ".."


class Tone(Enum):
    """How good a cell's value is; the values are colours."""

    PLAIN = ""
    GOOD = "green"
    WARNING = "yellow"
    BAD = "red"


@dataclass(frozen=True, slots=True)
class Cell:
    """A value and how good it is."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and how its cells are aligned and cut."""

    heading: str
    is_text: bool = False
    """Whether cells are text: aligned left, may be cut. Numbers are aligned right and never cut."""
    is_whole: bool = False
    """Whether the text is never cut, because it is meant to be copied."""


@dataclass(frozen=True, slots=True)
class Table:
    """A title, columns, and rows with one cell per column."""

    title: str
    columns: Sequence[Column]
    rows: list[Sequence[Cell]] = field(default_factory=list)


Line = Sequence[Cell]
"""The cells of a line, printed one after another."""


@dataclass(frozen=True, slots=True)
class Page:
    """The whole output: lines, and tables below them."""

    lines: Sequence[Line]
    tables: Sequence[Table] = ()


def cut(text: str, width: int) -> str:
    """Cut *text* to at most *width* characters.

    Characters in the middle are left out: long names often share their beginning, and
    sometimes their end.
    """
    if len(text) <= width:
        return text
    if width <= len(_CUT):
        return text[:width]
    left = width - len(_CUT)
    end = left // 2
    return text[: left - end] + _CUT + (text[-end:] if end else "")


def widths(table: Table, max_width: int) -> list[int]:
    """Return the width of each column so that the table fits into *max_width*, if it can.

    The widest column of text is made narrower until the table fits.
    """
    found = [
        max(len(text) for text in (column.heading, *(row[at].text for row in table.rows)))
        for at, column in enumerate(table.columns)
    ]
    texts = [at for at, of in enumerate(table.columns) if of.is_text and not of.is_whole]
    spare = max_width - sum(found) - len(_GAP) * (len(found) - 1)
    while spare < 0:
        widest = max(texts, key=lambda at: found[at], default=None)
        if widest is None or found[widest] <= _MIN_WIDTH:
            break
        found[widest] -= 1
        spare += 1
    return found


def plain(table: Table, max_width: int) -> list[str]:
    """Return the lines of a table without colours."""
    wide = widths(table, max_width)
    headings = [Cell(column.heading) for column in table.columns]
    lines = [
        _GAP.join(
            _set(cell.text, width, is_text=column.is_text)
            for cell, width, column in zip(row, wide, table.columns, strict=True)
        ).rstrip()
        for row in (headings, *table.rows)
    ]
    return [table.title, *lines]


def _set(text: str, width: int, *, is_text: bool) -> str:
    return cut(text, width).ljust(width) if is_text else text.rjust(width)
