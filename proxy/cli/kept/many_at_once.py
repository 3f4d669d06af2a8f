"""Safeguards for commands that act on many entries, and what is said where there are none."""

import http.client
import sys
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches

import click

from proxy.cli.admin_client import AdminClient
from proxy.cli.untrusted_json import UntrustedJson, legible

_MAX_CONFIG = 64 * 1024 * 1024
_NAMED = 5
"""The number of routes or callers that a message names; there may be very many."""


def confirm(what: str, plan: str, question: str, *, yes: bool) -> None:
    """Say *what* there is and what will happen to it (*plan*), and ask the user on a terminal.

    Raises if there is no terminal, or if the user says no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{what}. {plan} Write --yes to do that without being asked, or --dry-run to see it."
        )
    click.echo(f"{what}.\n{plan}", err=True)
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was done")


def counted(counts: Counter[str]) -> str:
    """Format counts, the most frequent name first."""
    named = [f"{name}: {count}" for name, count in counts.most_common(_NAMED)]
    others = len(counts) - len(named)
    return ", ".join([*named, *([f"and {others} more"] if others else [])])


def routes_in_force(client: AdminClient) -> Mapping[str, UntrustedJson]:
    """Return the routes of the configuration in force by name; none if it is not told."""
    listed = client.send("GET", "/config", max_bytes=_MAX_CONFIG)
    if listed.status != http.client.OK:
        return {}
    return {each.raw_text("name") or "": each for each in listed.parts("routes")}


def no_such_route(
    route: str, routes: Mapping[str, UntrustedJson], noun: str
) -> click.ClickException:
    """Return the error for a route that there is not; *noun* is what it would have one of."""
    alike = get_close_matches(route, routes, n=1)
    meant = f", did you mean {legible(alike[0])}?" if alike else ""
    return click.ClickException(
        f"no route is called {legible(route)}, and no {noun} is of one{meant}"
    )
