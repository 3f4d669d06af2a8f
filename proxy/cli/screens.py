"""Where answers are shown: as plain text, as JSON, or in colour on a terminal."""

import json
import os
import shutil
import sys
from types import TracebackType
from typing import Protocol

import click

from proxy.cli.overview import Overview, overview
from proxy.cli.tables import plain
from proxy.cli.told import Told

_SEPARATOR = "-" * 8
"""Between the texts of two looks."""


class Screen(Protocol):
    """Shows what ``/status`` told; it is entered while one answer follows another."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    def show(self, status: dict[str, object]) -> None:
        """Show it."""

    def complain(self, text: str) -> None:
        """Say why there is nothing to show."""


def screen_for(*, plain_text: bool, as_json: bool) -> Screen:
    """The one that was asked for, or that suits standard output."""
    if as_json:
        return _JsonScreen()
    no_colour = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if not (plain_text or no_colour) and sys.stdout.isatty():
        try:
            from proxy.cli.colours import ColourScreen  # noqa: PLC0415 - may be missing, see below
        except ImportError:  # no rich, no colours
            pass
        else:
            return ColourScreen()
    return _PlainScreen()


class _Entered:
    """Knows whether one answer follows another."""

    _many = False

    def __enter__(self) -> None:
        self._many = True

    def __exit__(self, *_: object) -> None:
        self._many = False


class _PlainScreen(_Entered):
    """Text without a single escape code, as wide as the terminal, or COLUMNS, or 80."""

    def show(self, status: dict[str, object]) -> None:
        width = shutil.get_terminal_size().columns
        click.echo("\n".join(_lines(overview(Told(status)), width)))
        self._separate()

    def complain(self, text: str) -> None:
        click.echo(text)
        self._separate()

    def _separate(self) -> None:
        if self._many:
            click.echo(_SEPARATOR)


def _lines(shown: Overview, width: int) -> list[str]:
    lines = ["".join(cell.text for cell in line) for line in shown.lines]
    for table in shown.tables:
        lines += ["", *plain(table, width)]
    return lines


class _JsonScreen(_Entered):
    """What the listener said; one line each if there are many."""

    def show(self, status: dict[str, object]) -> None:
        click.echo(json.dumps(status, indent=None if self._many else 2))

    def complain(self, text: str) -> None:
        click.echo(text, err=True)
