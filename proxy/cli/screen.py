"""How commands show what they found: in colour on a terminal, else as plain text.

Plain text when asked for, when piped, under ``NO_COLOR``, and where ``rich`` is missing.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import click

GOOD, BAD, WARNING = "green", "red", "yellow"
"""The colours of success, error and what is in between."""

Cell = tuple[str, str]
"""A text and its colour; an empty colour is none."""

_NARROWEST = 40


def is_colourful(*, plain: bool) -> bool:
    """Whether to use colours and tables."""
    if plain or os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return False
    try:
        import rich  # noqa: F401, PLC0415 - only where it is used
    except ImportError:
        return False
    return True


def clean(text: str) -> str:
    """*text* without what a terminal would obey: it may come from anybody."""
    return re.sub(r"[^ -~\xa1-\uffff]", "?", text)


def table(
    titles: Sequence[str], rows: Iterable[Sequence[Cell]], *, plain: bool, flexible: int
) -> None:
    """Print a table that fits the screen; the column *flexible* gives way."""
    cells = list(rows)
    texts = [list(titles), *([clean(text) for text, _ in row] for row in cells)]
    widths = _widths(texts, flexible)
    if not is_colourful(plain=plain):
        for row in texts:
            parts = (text[:width].ljust(width) for text, width in zip(row, widths, strict=True))
            click.echo(" ".join(parts).rstrip())
        return
    from rich.console import Console  # noqa: PLC0415 - only where it is used
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for title, width in zip(titles, widths, strict=True):
        shown.add_column(title, no_wrap=True, overflow="ellipsis", width=width)
    for cell_row in cells:
        shown.add_row(*(Text(clean(text), style=colour) for text, colour in cell_row))
    Console().print(shown)


def _widths(texts: Sequence[Sequence[str]], flexible: int) -> list[int]:
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    # Through a pipe nobody knows how wide it is: what a program reads is not cut.
    if sys.stdout.isatty():
        total = max(shutil.get_terminal_size().columns, _NARROWEST)
        surplus = sum(widths) + len(widths) - 1 - total
        if surplus > 0:
            widths[flexible] = max(widths[flexible] - surplus, 4)
    return widths


def line(name: str, text: str, colour: str = "", *, plain: bool) -> None:
    """Print ``name: text``."""
    shown = clean(text)
    if colour and is_colourful(plain=plain):
        shown = click.style(shown, fg=colour)
    click.echo(f"{name}: {shown}")


@contextmanager
def progress(what: str, total: int, *, plain: bool) -> Iterator[Callable[[str, str], None]]:
    """A bar that grows; what it gives is called after each step with a line and its colour."""
    if not is_colourful(plain=plain):
        done = 0

        def step(text: str, colour: str) -> None:
            nonlocal done
            done += 1
            del colour
            click.echo(f"{done}/{total} {clean(text)}")

        yield step
        return
    from rich.progress import Progress  # noqa: PLC0415 - only where it is used
    from rich.text import Text  # noqa: PLC0415

    with Progress() as bar:
        task = bar.add_task(what, total=total)

        def advance(text: str, colour: str) -> None:
            if colour != GOOD:
                bar.console.print(Text(clean(text), style=colour))
            bar.advance(task)

        yield advance
