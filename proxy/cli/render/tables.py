"""Pages, lines and tables: their content, and their layout in lines of a given width.

A cell has a tone instead of a colour, so that the same lines can be drawn with colours
(``colours.py``, ``full_screen.py``) and without. Everything is ASCII. A table fits the given width:
columns that matter less are left out, which its title says, then long names are cut, and sentences
go on in the next line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from textwrap import wrap

_GAP = "  "
_MIN_SENTENCE = 24
"""Characters of a sentence that a line has room for at least."""
_GOOD_WIDTH = 18
"""Characters of a name for which columns that matter less give way."""
_CUT = ".."


class Tone(Enum):
    """How good a cell's value is, or what else it is; the values are styles of a terminal."""

    PLAIN = ""
    GOOD = "green"
    WARNING = "yellow"
    BAD = "red"
    TITLE = "bold"
    HEADING = "underline"


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
    least: int = 8
    """Characters of a text that are always shown, if it may be cut."""
    wraps: bool = False
    """Whether the text goes on in the next line instead of being cut; the last column only."""
    group: str = ""
    """What stands above this column and its neighbours of the same group."""
    optional: int = 0
    """Where the table is too wide, those with the highest number are left out first; 0: never."""


@dataclass(frozen=True, slots=True)
class Table:
    """A title, columns, and rows with one cell per column."""

    title: str
    columns: Sequence[Column]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    quiet: int = 0
    """Rows that are left out, because there is nothing to see in them."""


Line = Sequence[Cell]
"""The cells of a line, printed one after another."""


@dataclass(frozen=True, slots=True)
class Page:
    """The whole output: lines, tables below them, and notes at the end."""

    lines: Sequence[Line]
    tables: Sequence[Table] = ()
    notes: Sequence[Line] = ()


def page_lines(page: Page, width: int, *, wraps: bool = False) -> list[Line]:
    """Return all lines of *page*, laid out for *width* characters.

    What is in no table keeps its lines, so that they can be copied, unless *wraps*.
    """

    def wrapped(lines: Sequence[Line]) -> list[Line]:
        return [piece for line in lines for piece in wrap_line(line, width)] if wraps else [*lines]

    parts = [wrapped(page.lines), *(lay_out(table, width) for table in page.tables)]
    parts.append(wrapped(page.notes))
    found: list[Line] = []
    for part in filter(None, parts):
        found += [*([()] if found else []), *part]
    return found


def text_of(line: Line) -> str:
    """Return *line* without its tones."""
    return "".join(cell.text for cell in line).rstrip()


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


def wrap_line(line: Line, width: int) -> list[Line]:
    """Break *line* between words where it is longer than *width*; the rest is indented."""
    rows: list[list[Cell]] = [[]]
    used = 0
    for cell in line:
        for number, word in enumerate(cell.text.split(" ")):
            piece = f" {word}" if number else word
            if used and used + len(piece) > width:
                rows.append([Cell(_GAP)])
                used, piece = len(_GAP), word
            rows[-1].append(Cell(piece, cell.tone))
            used += len(piece)
    return [tuple(row) for row in rows]


# Tables.


def lay_out(table: Table, max_width: int) -> list[Line]:
    """Return the lines of a table: title and groups, headings, rows."""
    shown = _columns_that_fit(table, max_width)
    columns = [table.columns[at] for at in shown]
    rows = [[row[at] for at in shown] for row in table.rows]
    wide = _widths(columns, rows, max_width)
    dropped = len(table.columns) - len(shown)
    notes = [f"+{dropped} {'column' if dropped == 1 else 'columns'} if wider"] if dropped else []
    notes += [f"{table.quiet} quiet ones left out"] if table.quiet else []
    more = f" ({', '.join(notes)})" if notes else ""
    lines: list[Line] = list(_title_lines(f"{table.title}{more}", columns, wide))
    if any(column.heading for column in columns):
        lines.append(
            _row_line([Cell(column.heading, Tone.HEADING) for column in columns], columns, wide)
        )
    for row in rows:
        lines += _row_lines(row, columns, wide)
    return lines


def _natural_widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[int]:
    return [
        max(len(text) for text in (column.heading, *(row[at].text for row in rows)))
        for at, column in enumerate(columns)
    ]


def _least_width(column: Column, natural: int) -> int:
    if column.wraps:
        return min(natural, _MIN_SENTENCE)
    return min(natural, column.least) if column.is_text and not column.is_whole else natural


def _columns_that_fit(table: Table, max_width: int) -> list[int]:
    """Return the numbers of the columns that are shown; names may still have to be cut."""
    natural = _natural_widths(table.columns, table.rows)
    wanted = [
        max(_least_width(column, width), min(width, _GOOD_WIDTH))
        for column, width in zip(table.columns, natural, strict=True)
    ]
    shown = list(range(len(table.columns)))
    while sum(wanted[at] for at in shown) + len(_GAP) * (len(shown) - 1) > max_width:
        last = max(table.columns[at].optional for at in shown)
        if not last:
            break
        shown = [at for at in shown if table.columns[at].optional != last]
    return shown


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], max_width: int) -> list[int]:
    """Return the width of each column so that the table fits into *max_width*, if it can.

    A sentence gives way first; then the widest column of text is made narrower.
    """
    found = _natural_widths(columns, rows)
    spare = max_width - sum(found) - len(_GAP) * (len(found) - 1)
    least = [_least_width(column, width) for column, width in zip(columns, found, strict=True)]
    while spare < 0:
        candidates = [at for at, width in enumerate(found) if width > least[at]]
        if not candidates:
            break
        widest = max(candidates, key=lambda at: (columns[at].wraps, found[at]))
        found[widest] -= 1
        spare += 1
    for first, missing in _narrow_groups(columns, found):
        found[first] += min(missing, max(spare, 0))
        spare -= missing
    return found


def _narrow_groups(columns: Sequence[Column], wide: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first column of each group whose name is wider than it, and by how much."""
    starts = list(accumulate((width + len(_GAP) for width in wide), initial=0))
    return [
        (starts.index(start), len(name) - (end - start))
        for start, end, name in _groups(columns, wide)
        if len(name) > end - start
    ]


def _title_lines(title: str, columns: Sequence[Column], wide: Sequence[int]) -> Iterator[Line]:
    """Yield the title, with the names of groups above their columns in the same line if it fits."""
    groups = list(_groups(columns, wide))
    if not groups:
        yield (Cell(title, Tone.TITLE),)
        return
    line: list[Cell] = []
    used = 0
    if len(title) >= groups[0][0]:
        yield (Cell(title, Tone.TITLE),)
    else:
        line, used = [Cell(title, Tone.TITLE)], len(title)
    for start, end, name in groups:
        width = end - start
        # Dashes on both sides, or none.
        has_dashes = width >= len(name) + 4
        label = f" {name} ".center(width, "-") if has_dashes else name[:width].center(width)
        line += [Cell(" " * (start - used)), Cell(label)]
        used = end
    yield tuple(line)


def _groups(columns: Sequence[Column], wide: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """Yield where each group begins and ends, and its name."""
    at = 0
    found: list[tuple[int, int, str]] = []
    for column, width in zip(columns, wide, strict=True):
        if column.group and found and found[-1][2] == column.group:
            found[-1] = (found[-1][0], at + width, column.group)
        else:
            found.append((at, at + width, column.group))
        at += width + len(_GAP)
    return ((start, end, name) for start, end, name in found if name)


def _row_lines(
    row: Sequence[Cell], columns: Sequence[Column], wide: Sequence[int]
) -> Iterator[Line]:
    """Yield the line of a row, and more of them if its last cell is a sentence that is long."""
    last, width = row[-1], wide[-1]
    first, *rest = (_wrapped(last.text, width) if columns[-1].wraps else None) or [last.text]
    yield _row_line([*row[:-1], Cell(first, last.tone)], columns, wide)
    indent = sum(wide[:-1]) + len(_GAP) * (len(wide) - 1)
    for more in rest:
        yield (Cell(" " * indent), Cell(more, last.tone))


def _wrapped(text: str, width: int) -> list[str]:
    """Break *text* between words, but not between a word and how often it came: ``503 x3``."""
    together = text.replace(" x", "\0x")
    return [line.replace("\0", " ") for line in wrap(together, width)]


def _row_line(row: Sequence[Cell], columns: Sequence[Column], wide: Sequence[int]) -> Line:
    cells: list[Cell] = []
    for number, (cell, column, width) in enumerate(zip(row, columns, wide, strict=True)):
        if number:
            cells.append(Cell(_GAP))
        text = cut(cell.text, width) if column.is_text else cell.text
        padding = Cell(" " * (width - len(text)))
        cells += (
            [Cell(text, cell.tone), padding] if column.is_text else [padding, Cell(text, cell.tone)]
        )
    return tuple(cell for cell in cells if cell.text)
