"""What commands ask ``/status`` for, and what they say of a route that there is not."""

import http.client
from collections.abc import Iterable

import click

from proxy.cli.admin_client import AdminClient, AdminResponse
from proxy.cli.untrusted_json import legible, printable
from proxy.config.diagnostics.nearest import nearest

_TIMEOUT = 10.0
"""Seconds for a proxy under load to respond."""
_MAX_BYTES = 64 * 1024 * 1024
"""Bytes that are read: a route takes about two KiB."""
_MOST_NAMED = 10
"""Routes that a message names; there may be very many."""


def request_status(client: AdminClient) -> AdminResponse:
    """Return what goes on in the proxy; raises click's errors."""
    response = client.send("GET", "/status", timeout=_TIMEOUT, max_bytes=_MAX_BYTES)
    if response.status != http.client.OK or not isinstance(response.content.get("routes"), dict):
        raise client.error_for(response)
    return response


def require_routes(status: AdminResponse, wanted: Iterable[str]) -> None:
    """Raise an error of one line if one of the *wanted* routes is not configured."""
    known = route_names(status)
    for name in wanted:
        if name not in known:
            raise click.ClickException(unknown_route(name, known))


def route_names(status: AdminResponse) -> list[str]:
    """Return the names of all routes, unescaped; that of what no route took is not one."""
    names = (name for name, _ in status.part("routes").members())
    return [name for name in names if not name.startswith("_")]


def unknown_route(name: str, known: list[str]) -> str:
    """Say that no route is called *name*, and which one may be meant."""
    near = nearest(name, known)
    if near:
        return f'no route is called "{legible(name)}", did you mean "{printable(near)}"?'
    names = [printable(route) for route in known[:_MOST_NAMED]]
    if len(known) > _MOST_NAMED:
        names.append(f"and {len(known) - _MOST_NAMED} more")
    return f'no route is called "{legible(name)}", there are: {", ".join(names) or "none"}'
