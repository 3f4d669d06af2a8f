"""Screens: show responses as plain text, as JSON, or in colour on a terminal."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from typing import Protocol

import click

from proxy.cli.render.tables import Cell, Page, Tone, page_lines, text_of
from proxy.cli.untrusted_json import UntrustedJson

_SEPARATOR = "-" * 8
"""The line between the texts of two responses."""

PageRenderer = Callable[[UntrustedJson], Page]
"""Renders the content of a response as a page."""


class Screen(Protocol):
    """Shows responses of the admin listener; entered as a context while one follows another."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, content: dict[str, object]) -> None:
        """Show the content of a response."""

    def show_error(self, text: str) -> None:
        """Show *text*, the reason why there is no response."""


def screen_for(render: PageRenderer, *, plain_text: bool, as_json: bool) -> Screen:
    """Return the screen that the options ask for, or that suits standard output."""
    if as_json:
        return _JsonScreen()
    if has_colours(plain_text=plain_text):
        from proxy.cli.render.colours import ColourScreen  # noqa: PLC0415 - rich may be missing

        return ColourScreen(render)
    return _PlainScreen(render)


def has_colours(*, plain_text: bool) -> bool:
    """Return whether standard output is to be in colour."""
    no_colour = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain_text or no_colour or not sys.stdout.isatty():
        return False
    try:
        import proxy.cli.render.colours  # noqa: F401, PLC0415 - no rich, no colours
    except ImportError:
        return False
    return True


def print_line(cell: Cell, *, plain_text: bool, is_error: bool = False) -> None:
    """Print one line, in the colour of its tone if the terminal has colours."""
    click.echo(styled(cell) if has_colours(plain_text=plain_text) else cell.text, err=is_error)


def styled(cell: Cell) -> str:
    """Return the text of *cell* with the codes that a terminal shows its tone by."""
    match cell.tone:
        case Tone.PLAIN:
            return cell.text
        case Tone.TITLE:
            return click.style(cell.text, bold=True)
        case Tone.HEADING:
            return click.style(cell.text, underline=True)
    return click.style(cell.text, fg=cell.tone.value)


class _RepeatedScreen:
    """Remembers whether one response follows another."""

    _is_repeated = False

    def __enter__(self) -> None:
        self._is_repeated = True

    def __exit__(self, *_: object) -> None:
        self._is_repeated = False


class _PlainScreen(_RepeatedScreen):
    """Shows text without escape codes, as wide as the terminal, or COLUMNS, or 80."""

    def __init__(self, render: PageRenderer) -> None:
        self._render = render

    def show(self, content: dict[str, object]) -> None:
        width = shutil.get_terminal_size().columns
        page = self._render(UntrustedJson(content))
        click.echo("\n".join(text_of(line) for line in page_lines(page, width)))
        self._separate()

    def show_error(self, text: str) -> None:
        click.echo(text)
        self._separate()

    def _separate(self) -> None:
        if self._is_repeated:
            click.echo(_SEPARATOR)


class _JsonScreen(_RepeatedScreen):
    """Shows responses as JSON; on one line each if one follows another."""

    def show(self, content: dict[str, object]) -> None:
        click.echo(json.dumps(content, indent=None if self._is_repeated else 2))

    def show_error(self, text: str) -> None:
        click.echo(text, err=True)
