"""Selection of dead letters by route and caller, and the safeguards for many at once."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from proxy.cli.admin_client import AdminClient
from proxy.cli.kept.dead_letter_client import all_dead_letters
from proxy.cli.kept.many_at_once import counted, routes_in_force
from proxy.cli.status_client import unknown_route
from proxy.cli.untrusted_json import UntrustedJson, legible

NO_CALLER = "none"
"""The caller of dead letters whose request came without credentials."""


@dataclass(frozen=True, slots=True)
class SelectedDeadLetters:
    """The dead letters that a command acts on."""

    dead_letters: Sequence[UntrustedJson]

    @property
    def ids(self) -> list[str]:
        """The ids of the dead letters, the oldest first."""
        return [dead_letter.text("id") for dead_letter in self.dead_letters]

    def describe(self) -> str:
        """Describe how many there are, of which routes, how old, and how many may have run."""
        routes = Counter(legible(dead_letter.text("route")) for dead_letter in self.dead_letters)
        number = len(self.dead_letters)
        ran = sum(dead_letter.is_true("may_have_run") for dead_letter in self.dead_letters)
        oldest = self.dead_letters[0].text("time")
        return (
            f"{number} dead letter{'' if number == 1 else 's'} ({counted(routes)}), the oldest of "
            f"{oldest}; {ran or 'none'} may have run"
        )


def select_dead_letters(
    client: AdminClient, route: str | None, caller: str | None
) -> SelectedDeadLetters:
    """Return the dead letters of *route* and of *caller*; None stands for all."""
    dead_letters = all_dead_letters(client, route)
    return SelectedDeadLetters(
        [each for each in dead_letters if caller is None or _caller(each) == caller]
    )


def no_dead_letters(client: AdminClient, route: str | None) -> str:
    """Say why there are no dead letters, of *route* or at all; raise if there is no such route."""
    routes = routes_in_force(client)
    if not routes:
        return "no dead letters" if route is None else f"no dead letters of route {legible(route)}"
    keeping = [name for name, each in routes.items() if "ttl" in each.part("dead_letter")]
    if route is None:
        if keeping:
            return "no dead letters"
        return (
            "no dead letters: no route keeps any, write dead_letter: true in a route to change that"
        )
    if route not in routes:
        raise click.ClickException(unknown_route(route, list(routes)))
    if route in keeping:
        return f"no dead letters of route {legible(route)}"
    return (
        f"no dead letters of route {legible(route)}: it keeps none, write dead_letter: true in it"
    )


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
        f" ({counted(callers)}), as if all were of one: add --caller ID for those of one caller,"
        f" or leave out the -H"
    )


def _caller(dead_letter: UntrustedJson) -> str:
    return dead_letter.text("caller") or NO_CALLER
