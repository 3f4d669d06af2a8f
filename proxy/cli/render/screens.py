"""Where answers are shown: as plain text, as JSON, or in colour on a terminal."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

import click

from proxy.cli.render.tables import Cell, Page, plain
from proxy.cli.untrusted_json import UntrustedJson

_SEPARATOR = "-" * 8
"""Between the texts of two looks."""

Look = Callable[[UntrustedJson], Page]
"""How a person wants to see an answer."""


class Screen(Protocol):
    """Shows what the listener told; it is entered while one answer follows another."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    def show(self, content: dict[str, object]) -> None:
        """Show it."""

    def complain(self, text: str) -> None:
        """Say why there is nothing to show."""


def screen_for(look: Look, *, plain_text: bool, as_json: bool) -> Screen:
    """The one that was asked for, or that suits standard output."""
    if as_json:
        return _JsonScreen()
    if has_colours(plain_text=plain_text):
        from proxy.cli.render.colours import ColourScreen  # noqa: PLC0415 - may be missing elsewhere

        return ColourScreen(look)
    return _PlainScreen(look)


def has_colours(*, plain_text: bool) -> bool:
    """Whether standard output is to be in colour."""
    no_colour = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain_text or no_colour or not sys.stdout.isatty():
        return False
    try:
        import proxy.cli.render.colours  # noqa: F401, PLC0415 - no rich, no colours
    except ImportError:
        return False
    return True


def say(cell: Cell, *, plain_text: bool, is_error: bool = False) -> None:
    """One line by itself."""
    has_colour = cell.tone.value and has_colours(plain_text=plain_text)
    text = click.style(cell.text, fg=cell.tone.value) if has_colour else cell.text
    click.echo(text, err=is_error)


class _Entered:
    """Knows whether one answer follows another."""

    _many = False

    def __enter__(self) -> None:
        self._many = True

    def __exit__(self, *_: object) -> None:
        self._many = False


class _PlainScreen(_Entered):
    """Text without a single escape code, as wide as the terminal, or COLUMNS, or 80."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def show(self, content: dict[str, object]) -> None:
        width = shutil.get_terminal_size().columns
        click.echo("\n".join(_lines(self._look(UntrustedJson(content)), width)))
        self._separate()

    def complain(self, text: str) -> None:
        click.echo(text)
        self._separate()

    def _separate(self) -> None:
        if self._many:
            click.echo(_SEPARATOR)


def _lines(page: Page, width: int) -> list[str]:
    lines = ["".join(cell.text for cell in line) for line in page.lines]
    for table in page.tables:
        lines += [*([""] if lines else []), *plain(table, width)]
    return lines


class _JsonScreen(_Entered):
    """What the listener said; one line each if there are many."""

    def show(self, content: dict[str, object]) -> None:
        click.echo(json.dumps(content, indent=None if self._many else 2))

    def complain(self, text: str) -> None:
        click.echo(text, err=True)
