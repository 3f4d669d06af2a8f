"""Progress of a command with many steps: a bar on a terminal, else one line per step."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count

import click

from proxy.cli.render.screens import has_colours
from proxy.cli.render.tables import Cell

Step = Callable[[Cell], None]
"""Is called after each step, with what became of it."""


def progress(what: str, total: int, *, plain_text: bool) -> AbstractContextManager[Step]:
    """Return a context with a function to call after each step: grows a bar or prints a line."""
    if has_colours(plain_text=plain_text):
        from proxy.cli.render.colours import bar  # noqa: PLC0415 - rich may be missing

        return bar(what, total)
    return _lines(total)


@contextmanager
def _lines(total: int) -> Iterator[Step]:
    numbers = count(1)
    yield lambda done: click.echo(f"{next(numbers)}/{total} {done.text}")
