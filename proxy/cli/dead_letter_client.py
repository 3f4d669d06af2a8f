"""Client of the dead letters at the admin listener, and the texts of its errors."""

from collections.abc import Iterator
from urllib.parse import quote, urlencode

import click

from proxy.cli.admin_client import AdminClient, AdminResponse
from proxy.cli.status_client import request_status, route_names, unknown_route
from proxy.cli.untrusted_json import UntrustedJson, legible

PAGE_SIZE = 1000
"""Dead letters that the listener returns at a time."""
_OK = 200
_TIMEOUT = 15.0
_MAX_BYTES = 256 * 1024 * 1024

_ERROR_TEXTS = {
    "no_letter": "there is no such letter: it was sent again or dropped, has expired, or another "
    "machine has it",
    "letters": "the file of the dead letters does not answer: see the proxy's log, then try again",
}


def request_dead_letters(
    client: AdminClient, method: str, path: str, timeout: float = _TIMEOUT
) -> AdminResponse:
    """Send a request and return its response; raise an error that says what to do if it failed."""
    response = client.send(method, path, timeout=timeout, max_bytes=_MAX_BYTES)
    if response.status == _OK and response.content:
        return response
    raise click.ClickException(error_text(client, response))


def error_text(client: AdminClient, response: AdminResponse) -> str:
    """Return the error text for a response that is an error."""
    return _ERROR_TEXTS.get(response.problem) or client.error_for(response).message


def list_path(route: str | None, **others: object) -> str:
    """Return the path of the dead letters of *route*, or of all routes."""
    return f"/dead-letters?{_query(route, **others)}"


def all_dead_letters(client: AdminClient, route: str | None) -> Iterator[UntrustedJson]:
    """Yield all dead letters that exist now, the oldest first; later ones are not included."""
    after: dict[str, object] = {}
    while True:
        path = list_path(route, order="oldest", limit=PAGE_SIZE, **after)
        page = request_dead_letters(client, "GET", path)
        yield from page.parts("letters")
        next_page = page.raw_text("next")
        if next_page is None:
            return
        after = {"after": next_page}


def explain_empty_list(client: AdminClient, route: str | None) -> str:
    """Say that there are no dead letters, and why, if none would ever be kept."""
    status = request_status(client)
    routes, known = status.part("routes"), route_names(status)
    if route is not None:
        none = f"no dead letters of route {legible(route)}"
        if route not in known:
            return f"{none}: {unknown_route(route, known)}"
        keeps_some = "dead_letters" in routes.part(route)
        return none if keeps_some else f"{none}: it keeps none, dead_letter is not set"
    if any("dead_letters" in stats for _, stats in routes.members()):
        return "no dead letters"
    return "no dead letters: no route keeps any, write dead_letter: true in one that should"


def export_lines(client: AdminClient, route: str | None) -> Iterator[str]:
    """Return all dead letters in full, as one line of JSON each."""
    found = client.stream_lines(f"/dead-letters/export?{_query(route)}", timeout=_TIMEOUT)
    if isinstance(found, AdminResponse):
        raise click.ClickException(error_text(client, found))
    return found


def _query(route: str | None, **others: object) -> str:
    given = {} if route is None else {"route": route}
    return urlencode({**given, **others}, quote_via=quote)
