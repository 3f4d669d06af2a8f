"""``holdfast reload``: have a running proxy read its configuration again, and say what changed."""

import http.client
import json

import click

from proxy.cli.admin_client import AdminClient, AdminResponse
from proxy.cli.options import client_options, json_option
from proxy.cli.untrusted_json import UntrustedJson, legible

_EXAMPLE = "\b\nExample:\n  holdfast reload"

_TIMEOUT = 120.0
"""Seconds for the proxy to respond: workers reload one after the other."""
_MOST_BYTES = 16 * 1024**2
"""Bytes of the response: a file of many routes may be all new."""
_WIDEST = 60
"""Characters of a value that are shown."""


@click.command(epilog=_EXAMPLE)
@json_option
@client_options
def reload(client: AdminClient, *, as_json: bool) -> None:
    """Have the proxy read its files again, and say what changed.

    If they have a fault, it goes on as before, and the faults are printed as check prints
    them. A change of listen, admin, workers, store or state_dir needs a restart.
    Exit code 0: reloaded, 1: refused, or no answer, 2: wrong usage.
    """
    response = client.send("POST", "/-/reload", timeout=_TIMEOUT, max_bytes=_MOST_BYTES)
    is_done = response.status == http.client.OK and response.text("result") == "reloaded"
    if not is_done and response.problem != "config":
        raise client.error_for(response)
    if as_json:
        click.echo(json.dumps(response.content, indent=2))
    else:
        click.echo("\n".join(_done_lines(response) if is_done else _refused_lines(response)))
    raise SystemExit(0 if is_done else 1)


def _done_lines(response: AdminResponse) -> list[str]:
    lines = [legible(line) for line in response.texts("warnings")]
    changes = response.parts("changes")
    lines += map(_change, changes)
    files = ", ".join(legible(name) for name in response.texts("files"))
    if changes:
        number = "1 change" if len(changes) == 1 else f"{len(changes)} changes"
        return [*lines, f"{files}: reloaded, {number}"]
    if files:
        return [*lines, f"{files}: reloaded, nothing changed"]
    return [*lines, "nothing changed: it runs without a file, restart it with another --upstream"]


def _change(change: UntrustedJson) -> str:
    line = f"{change.text('change')} {change.text('path')}"
    if change.text("change") != "changed":
        return line
    before, after = change.written("from"), change.written("to")
    if before == after:
        return f"{line}: {before}, with another value"
    return f"{line}: {_cut(before)}, now {_cut(after)}"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _refused_lines(response: AdminResponse) -> list[str]:
    lines = [legible(line) for name in ("faults", "warnings") for line in response.texts(name)]
    return [*lines, "not reloaded: the configuration before it stays in force"]
