"""Lines and tables for a person: what stands in them, and how they look as plain text.

A cell has a tone instead of a colour, so that the same tables can be drawn with colours
(``colours.py``) and without. Plain tables are ASCII, without escape codes, and fit the
width that they are given: long names give way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

_GAP = "  "
_LEAST = 8
"""Characters of a name that are always left of it."""
_CUT = ".."


class Tone(Enum):
    """What a cell is to its reader; the values are colours."""

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
    """A heading, and how its cells are set."""

    heading: str
    is_text: bool = False
    """Text is set to the left and may be cut; a number to the right, whole."""
    is_whole: bool = False
    """Not even text is cut: it is there to be copied."""


@dataclass(frozen=True, slots=True)
class Table:
    """A title, columns, and as many cells per row."""

    title: str
    columns: Sequence[Column]
    rows: list[Sequence[Cell]] = field(default_factory=list)


Line = Sequence[Cell]
"""Pieces of text that follow each other."""


@dataclass(frozen=True, slots=True)
class Page:
    """All that is shown: lines, and tables below them."""

    lines: Sequence[Line]
    tables: Sequence[Table] = ()


def cut(text: str, width: int) -> str:
    """*text* in at most *width* characters.

    It gives way in the middle: long names are often alike at their beginning, and
    sometimes at their end.
    """
    if len(text) <= width:
        return text
    if width <= len(_CUT):
        return text[:width]
    left = width - len(_CUT)
    end = left // 2
    return text[: left - end] + _CUT + (text[-end:] if end else "")


def widths(table: Table, room: int) -> list[int]:
    """How wide each column is for the whole table to have *room* characters, if that can be.

    What is missing is taken from the widest column with text, again and again.
    """
    found = [
        max(len(text) for text in (column.heading, *(row[at].text for row in table.rows)))
        for at, column in enumerate(table.columns)
    ]
    texts = [at for at, of in enumerate(table.columns) if of.is_text and not of.is_whole]
    spare = room - sum(found) - len(_GAP) * (len(found) - 1)
    while spare < 0:
        widest = max(texts, key=lambda at: found[at], default=None)
        if widest is None or found[widest] <= _LEAST:
            break
        found[widest] -= 1
        spare += 1
    return found


def plain(table: Table, room: int) -> list[str]:
    """The lines of a table without colours."""
    wide = widths(table, room)
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
