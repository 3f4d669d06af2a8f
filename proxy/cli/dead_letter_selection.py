"""Which dead letters a command is about, and whether it may be about all of them at once."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from proxy.cli.dead_letter_client import every_letter
from proxy.cli.untrusted_json import UntrustedJson, legible

NOBODY = "none"
"""Stands for the caller of letters that came without credentials."""
_NAMED = 5
"""Routes or callers that are named; there may be very many."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Letters that a command is about."""

    letters: Sequence[UntrustedJson]

    @property
    def ids(self) -> list[str]:
        """The oldest first."""
        return [letter.text("id") for letter in self.letters]

    def described(self) -> str:
        """How many there are, and of which routes."""
        routes = Counter(legible(letter.text("route")) for letter in self.letters)
        number = len(self.letters)
        return f"{number} dead letter{'' if number == 1 else 's'} ({_counted(routes)})"


def chosen(route: str | None, caller: str | None, admin: str, token: str | None) -> Chosen:
    """The letters of *route* and of *caller*, or all."""
    letters = every_letter(route, admin, token)
    return Chosen([one for one in letters if caller is None or _caller(one) == caller])


def confirm_drop(letters: Chosen, *, yes: bool) -> None:
    """Ask on a terminal; raise where nobody can be asked, or the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{letters.described()} would be gone for good: write --yes to drop them without being"
            " asked, or export them first"
        )
    click.echo(f"{letters.described()} will be gone for good.", err=True)
    if not click.confirm("Drop them?", err=True):
        raise click.ClickException("nothing was dropped")


def refuse_to_mix(letters: Chosen, headers: Iterable[tuple[str, str]]) -> None:
    """Raise if *headers* would make one caller of several: their letters would go as its own."""
    given = {name.lower(): name for name, _ in headers}
    telling = {name for letter in letters.letters for name in letter.texts("credentials")}
    fields = [name for lower, name in given.items() if lower in telling]
    callers = Counter(_caller(letter) for letter in letters.letters)
    if not fields or len(callers) <= 1:
        return
    raise click.UsageError(
        f"{' and '.join(fields)} would be sent with the letters of {len(callers)} callers"
        f" ({_counted(callers)}), as if all were of one: add --caller ID for those of one caller,"
        f" or leave out the -H"
    )


def _caller(letter: UntrustedJson) -> str:
    return letter.text("caller") or NOBODY


def _counted(counts: Counter[str]) -> str:
    """The most frequent first."""
    named = [f"{name}: {count}" for name, count in counts.most_common(_NAMED)]
    others = len(counts) - len(named)
    return ", ".join([*named, *([f"and {others} more"] if others else [])])
