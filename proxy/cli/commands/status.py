"""``holdfast status``: routes, failures, limits and upstreams at a glance."""

import http.client
import select

import click

from proxy.cli.admin_client import AdminClient
from proxy.cli.options import client_options
from proxy.cli.render.screens import Screen, screen_for
from proxy.cli.render.status_page import status_page

_EXAMPLE = """\b
Examples:
  holdfast status
  holdfast status --watch
  holdfast status --json | jq .routes.charges.failures"""

_TIMEOUT = 10.0
"""Seconds for a proxy under load to respond."""
_MAX_BYTES = 64 * 1024 * 1024
"""Bytes that are read: a route takes about one KiB."""
_REFRESH_INTERVAL = 1.0
"""Seconds between two requests of ``--watch``."""


@click.command(epilog=_EXAMPLE)
@click.option("--watch", is_flag=True, help="Look again every second, until Ctrl-C.")
@click.option("--plain", is_flag=True, help="Plain text, as in a pipe or with NO_COLOR set.")
@click.option("--json", "as_json", is_flag=True, help="The JSON of the admin listener, unchanged.")
@client_options
def status(client: AdminClient, *, watch: bool, plain: bool, as_json: bool) -> None:
    """Show routes, failures, limits and upstreams.

    Counts are those since the start. In a pipe text is 80 characters wide, or
    as COLUMNS says. Exit code 0: shown, 1: no answer, 2: wrong usage.
    """
    if plain and as_json:
        raise click.UsageError("--plain and --json are two formats, write one of them")
    screen = screen_for(status_page, plain_text=plain, as_json=as_json)
    if not watch:
        screen.show(_ask(client))
        return
    try:
        _watch(screen, client)
    except KeyboardInterrupt:
        return  # Ctrl-C is the way to end --watch, and no failure


def _watch(screen: Screen, client: AdminClient) -> None:
    """Show one response after another. An unreachable proxy is an error only at first."""
    content = _ask(client)
    with screen:
        screen.show(content)
        while True:
            select.select([], [], [], _REFRESH_INTERVAL)
            try:
                screen.show(_ask(client))
            except click.ClickException as error:  # the proxy may be back in a moment
                screen.show_error(error.message)


def _ask(client: AdminClient) -> dict[str, object]:
    response = client.send("GET", "/status", timeout=_TIMEOUT, max_bytes=_MAX_BYTES)
    if response.status == http.client.OK and isinstance(response.content.get("routes"), dict):
        return response.content
    raise client.error_for(response)
