"""``holdfast status``: routes, failures, limits and upstreams at a glance."""

import os
import select
import sys
from collections.abc import Sequence
from functools import partial

import click

from proxy.cli.admin_client import AdminClient
from proxy.cli.options import client_options
from proxy.cli.render.screens import Screen, has_colours, screen_for
from proxy.cli.render.status_page import Order, status_page
from proxy.cli.status_client import request_status, require_routes
from proxy.cli.untrusted_json import legible

_EXAMPLE = """\b
Examples:
  holdfast status
  holdfast status --watch --sort latency
  holdfast status --route charges --route search
  holdfast status --json | jq '.trouble, .last_minute.routes.charges'"""

_REFRESH_INTERVAL = 1.0
"""Seconds between two requests of ``--watch`` where one text follows another."""


@click.command(epilog=_EXAMPLE)
@click.option("--watch", is_flag=True, help="Look again every second; keys scroll and sort.")
@click.option(
    "--route",
    "routes",
    multiple=True,
    metavar="ROUTE",
    help="Only this route, and its upstreams. May be repeated.",
)
@click.option(
    "--sort",
    type=click.Choice([order.value for order in Order]),
    default=Order.TROUBLE.value,
    show_default=True,
    help="What comes first among routes, by the last minute.",
)
@click.option("--plain", is_flag=True, help="Plain text, as in a pipe or with NO_COLOR set.")
@click.option("--json", "as_json", is_flag=True, help="The JSON of the admin listener, unchanged.")
@client_options
def status(
    client: AdminClient,
    *,
    watch: bool,
    routes: tuple[str, ...],
    sort: str,
    plain: bool,
    as_json: bool,
) -> None:
    """Show what goes on: trouble, routes, failures, limits and upstreams.

    The last minute stands beside the totals since the start. With --watch: arrows,
    j and k, page up and down, home and end scroll, s sorts by something else, q or
    Ctrl-C ends. In a pipe text is 80 characters wide, or as COLUMNS says. Exit code
    0: shown, 1: no answer, or no such route, 2: wrong usage.
    """
    if plain and as_json:
        raise click.UsageError("--plain and --json are two formats, write one of them")
    if as_json and routes:
        raise click.UsageError("--json shows all routes, select one with: jq '.routes[\"NAME\"]'")
    ask = partial(_ask, client, routes)
    order = Order(sort)
    render = partial(status_page, order=order, only=routes)
    if not watch:
        screen_for(render, plain_text=plain, as_json=as_json).show(ask())
        return
    try:
        if _is_full_screen(plain=plain, as_json=as_json):
            from proxy.cli.watching import watch as watch_screen  # noqa: PLC0415 - with a terminal only

            watch_screen(
                ask,
                of=legible(client.admin),
                order=order,
                only=routes,
                has_colours=has_colours(plain_text=False),
            )
        else:
            _watch(screen_for(render, plain_text=plain, as_json=as_json), ask)
    except KeyboardInterrupt:
        return  # Ctrl-C is a way to end --watch, and no failure


def _is_full_screen(*, plain: bool, as_json: bool) -> bool:
    """Return whether there is a terminal on which text can be replaced."""
    return not (plain or as_json) and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _watch(screen: Screen, ask: "partial[dict[str, object]]") -> None:
    """Show one response after another. An unreachable proxy is an error only at first."""
    content = ask()
    with screen:
        screen.show(content)
        while True:
            select.select([], [], [], _REFRESH_INTERVAL)
            try:
                screen.show(ask())
            except click.ClickException as error:  # the proxy may be back in a moment
                screen.show_error(error.message)


def _ask(client: AdminClient, wanted: Sequence[str]) -> dict[str, object]:
    response = request_status(client)
    require_routes(response, wanted)
    return response.content
