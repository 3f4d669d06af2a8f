"""Selection of dead letters by route and caller, and the safeguards for many at once."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from proxy.cli.admin_client import AdminClient
from proxy.cli.dead_letter_client import all_dead_letters
from proxy.cli.untrusted_json import UntrustedJson, legible

NO_CALLER = "none"
"""The caller of dead letters whose request came without credentials."""
_NAMED = 5
"""The number of routes or callers that a message names; there may be very many."""


@dataclass(frozen=True, slots=True)
class SelectedDeadLetters:
    """The dead letters that a command acts on."""

    dead_letters: Sequence[UntrustedJson]

    @property
    def ids(self) -> list[str]:
        """The ids of the dead letters, the oldest first."""
        return [dead_letter.text("id") for dead_letter in self.dead_letters]

    def describe(self) -> str:
        """Describe how many dead letters there are, and of which routes."""
        routes = Counter(legible(dead_letter.text("route")) for dead_letter in self.dead_letters)
        number = len(self.dead_letters)
        return f"{number} dead letter{'' if number == 1 else 's'} ({_counted(routes)})"


def select_dead_letters(
    client: AdminClient, route: str | None, caller: str | None
) -> SelectedDeadLetters:
    """Return the dead letters of *route* and of *caller*; None stands for all."""
    dead_letters = all_dead_letters(client, route)
    return SelectedDeadLetters(
        [each for each in dead_letters if caller is None or _caller(each) == caller]
    )


def confirm_drop(selected: SelectedDeadLetters, *, yes: bool) -> None:
    """Ask the user on a terminal; raise if there is no terminal, or if the user says no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{selected.describe()} would be deleted for good: write --yes to drop them without "
            "being asked, or export them first"
        )
    click.echo(f"{selected.describe()} will be deleted for good.", err=True)
    if not click.confirm("Drop them?", err=True):
        raise click.ClickException("nothing was dropped")


def refuse_mixed_callers(selected: SelectedDeadLetters, headers: Iterable[tuple[str, str]]) -> None:
    """Raise if the credential in *headers* would be sent with the dead letters of several callers.

    All of them would be sent as requests of that one caller.
    """
    given = {name.lower(): name for name, _ in headers}
    credentials = {
        name for dead_letter in selected.dead_letters for name in dead_letter.texts("credentials")
    }
    fields = [name for lower, name in given.items() if lower in credentials]
    callers = Counter(_caller(dead_letter) for dead_letter in selected.dead_letters)
    if not fields or len(callers) <= 1:
        return
    raise click.UsageError(
        f"{' and '.join(fields)} would be sent with the letters of {len(callers)} callers"
        f" ({_counted(callers)}), as if all were of one: add --caller ID for those of one caller,"
        f" or leave out the -H"
    )


def _caller(dead_letter: UntrustedJson) -> str:
    return dead_letter.text("caller") or NO_CALLER


def _counted(counts: Counter[str]) -> str:
    """Format counts, the most frequent name first."""
    named = [f"{name}: {count}" for name, count in counts.most_common(_NAMED)]
    others = len(counts) - len(named)
    return ", ".join([*named, *([f"and {others} more"] if others else [])])
