"""``holdfast keys``: list idempotency keys, show one, or release one that is held."""

import http.client
import json
from datetime import datetime
from functools import partial
from urllib.parse import urlencode

import click

from proxy.cli.admin_client import AdminClient, AdminResponse
from proxy.cli.options import client_options
from proxy.cli.questions import confirm
from proxy.cli.render.number_format import long_duration

_RECORD = "5f0c2a7be1d94c3388a6d0f1e2b3c4d5"
_SHOW_EXAMPLE = f"\b\nExample:\n  holdfast keys show {_RECORD}"
_LIST_EXAMPLES = """\b
Examples:
  holdfast keys list
  holdfast keys list --state in_flight --state unstored --route charges"""
_FORCE = "Release it while its request is running, which may still take effect."
_RELEASE_EXAMPLE = f"\b\nExample:\n  holdfast keys release {_RECORD}"

_MOST_LISTED = 10_000
_MOST_PAGES = 10_000
_MOST_BYTES = 8 * 1024**2
"""Bytes of one page."""
_TIMEOUT = 15.0
"""Seconds for the proxy to respond: it may have to wait for its store more than once."""

_MEANINGS = {
    "in_flight": "its request is running; duplicates get its result",
    "done": "it has run; duplicates get its result",
    "unstored": "it has run and its result was not kept; duplicates get 409",
    "held": "it may have run, and its outcome is unknown; duplicates get 409",
}


def _valid_record(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    from proxy.policy.idempotency.key import read_record_name  # noqa: PLC0415 - keeps --help fast

    record = read_record_name(value)
    if record is None:
        # Not quoted: the user may have typed the key itself by mistake.
        raise click.BadParameter(
            "write the 32 hexadecimal digits that keys list, and the 409, have as record",
            ctx,
            parameter,
        )
    return record


_record_argument = click.argument("record", metavar="RECORD", callback=_valid_record)


@click.group(epilog="\b\nExample:\n  holdfast keys list")
def keys() -> None:
    """Look at idempotency keys, or release one.

    RECORD is what keys list, the answer 409 and the access log have as record. Keys themselves
    are never shown: the store has digests of them.
    """


@keys.command("list", epilog=_LIST_EXAMPLES)
@click.option(
    "--state",
    "states",
    type=click.Choice([*_MEANINGS, "all"]),
    multiple=True,
    default=["held"],
    help="Only those in this state; held if none is given. May be repeated.",
)
@click.option("--route", metavar="ROUTE", help="Only those of this route.")
@click.option(
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(1, _MOST_LISTED),
    metavar="N",
    help="Show at most so many.",
)
@click.option("--plain", is_flag=True, help="Plain text, without colours.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, in the listener's words.")
@client_options
def list_(
    *,
    states: tuple[str, ...],
    route: str | None,
    limit: int,
    plain: bool,
    as_json: bool,
    client: AdminClient,
) -> None:
    """List the keys that are held, or those in other states.

    held: the request may have run, duplicates get 409 until you have found out and release it.
    With store: memory each instance has its own. If there are more keys than --limit, it is
    chance which of them are shown.
    Exit code 0: listed, 1: no such route, or no answer, 2: wrong usage.
    """
    from proxy.cli.render.key_pages import key_list  # noqa: PLC0415 - keeps --help fast
    from proxy.cli.render.screens import screen_for  # noqa: PLC0415 - as above
    from proxy.cli.status_client import request_status, require_routes  # noqa: PLC0415 - as above
    from proxy.core.clock import SystemClock  # noqa: PLC0415 - as above

    found = _listed(client, "all" if "all" in states else ",".join(states), route, limit)
    if route is not None and not found and not as_json:
        require_routes(request_status(client), [route])
    in_order = sorted(found.values(), key=lambda key: str(key.get("created")))
    content: dict[str, object] = {"keys": in_order[:limit], "more": len(found) > limit}
    render = partial(key_list, states=states, route=route, now=SystemClock().wall())
    screen_for(render, plain_text=plain, as_json=as_json).show(content)


def _listed(
    client: AdminClient, states: str, route: str | None, limit: int
) -> dict[str, dict[str, object]]:
    """Return records by their names, more than *limit* of them if there are more."""
    query = {"state": states} | ({} if route is None else {"route": route})
    found: dict[str, dict[str, object]] = {}
    # Each page is a look at some thousands of records, and may have none that was asked for.
    for _ in range(_MOST_PAGES):
        response = client.send(
            "GET", f"/keys?{urlencode(query)}", timeout=_TIMEOUT, max_bytes=_MOST_BYTES
        )
        listed = response.content.get("keys")
        if response.problem == "store":
            raise click.ClickException(_store_is_silent(client))
        if response.status != http.client.OK or not isinstance(listed, list):
            raise client.error_for(response)
        found |= {str(key.get("record")): key for key in listed if isinstance(key, dict)}
        after = response.raw_text("next")
        if after is None or len(found) > limit:
            break
        if after == query.get("after"):
            raise click.ClickException(f"{client.admin} says twice where the next page begins")
        query["after"] = after
    return found


@keys.command(epilog=_SHOW_EXAMPLE)
@_record_argument
@click.option("--json", "as_json", is_flag=True, help="The JSON of the admin listener, unchanged.")
@client_options
def show(record: str, client: AdminClient, *, as_json: bool) -> None:
    """Show what is known of a key.

    Exit code 0: shown, 1: the key is not known, or no answer, 2: wrong usage.
    """
    response = _ask(client, "GET", record)
    if as_json:
        click.echo(json.dumps(response.content, indent=2))
        return
    state = response.text("state")
    click.echo(f"record: {record}")
    click.echo(f"state: {state}")
    click.echo(f"meaning: {_MEANINGS.get(state, 'unknown to this version')}")
    click.echo(f"route: {response.text('route')}")
    click.echo(f"created: {_when(response, 'created')}")
    click.echo(f"expires: {_when(response, 'expires')}")
    lease_left = response.number("lease_left_seconds")
    if lease_left is not None:
        click.echo(f"lease: ends in {long_duration(lease_left)} unless it is renewed")
    click.echo(f"bytes: {response.number('bytes') or 0:.0f}")


@keys.command(epilog=_RELEASE_EXAMPLE)
@_record_argument
@click.option("--force", is_flag=True, help=_FORCE)
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("--yes", is_flag=True, help="Do not ask; required where there is no terminal.")
@client_options
def release(record: str, client: AdminClient, *, force: bool, dry_run: bool, yes: bool) -> None:
    """Release a key: the next request with it runs, even if the first one has run.

    Find out first whether the first one ran. It says what is known of the key, and asks. A result
    that was kept is forgotten. With --force
    a request that is running loses its key: it sends nothing more and its result is not kept,
    but what it has sent may run. If that is not known, the key is held afterwards, and a second
    release frees it.
    Exit code 0: done (or would be), 1: the key is not known, it is in flight, you answered no, or
    no answer, 2: wrong usage, 130: stopped by Ctrl-C.
    """
    if dry_run or not yes:
        _confirm_release(client, record, force=force, dry_run=dry_run)
    if dry_run:
        return
    response = _ask(client, "DELETE", record, "?force=true" if force else "")
    click.echo(f"record: {record}")
    click.echo(f"was: {response.text('was')}")
    if response.text("was") == "in_flight":
        click.echo("warning: its request was running; what it has sent may still run")
    if response.text("result") == "taken":
        now = response.text("now")
        click.echo(f"now: {now}, {_MEANINGS.get(now, 'unknown to this version')}")
        click.echo(f"to release it, find out whether it ran, then: holdfast keys release {record}")
    else:
        click.echo("free: the next request with this key runs")


def _confirm_release(client: AdminClient, record: str, *, force: bool, dry_run: bool) -> None:
    """Say what a release would do, and ask on a terminal; raise if it is not to be done."""
    shown = _ask(client, "GET", record)
    state, lease_left = shown.text("state"), shown.number("lease_left_seconds")
    if state == "in_flight" and not force:
        raise click.ClickException(_in_flight(record, lease_left or 0.0))
    text = (
        f"{record} of route {shown.text('route')}, created {_when(shown, 'created')}, is {state}: "
        f"{_MEANINGS.get(state, 'unknown to this version')}"
    )
    plan = "Released, the next request with this key runs, even if the first one has run."
    if state == "in_flight":
        plan = "With --force its request loses the key; what it has sent may still run."
    if dry_run:
        click.echo(f"{text}.\n{plan}\nNothing was released.")
        return
    confirm(text, plan, "Release it?")


def _in_flight(record: str, lease_left: float) -> str:
    return (
        f"{record} is in flight: wait for its request to end; if its owner is gone, release it "
        f"when the lease has ended, in {long_duration(lease_left)}; or take it away with --force"
    )


def _ask(client: AdminClient, method: str, record: str, query: str = "") -> AdminResponse:
    """Return the response about *record*; raise an error that says what to do if it is none."""
    response = client.send(method, f"/keys/{record}{query}", timeout=_TIMEOUT)
    if response.status == http.client.OK and response.text("record") == record:
        return response
    match response.problem:
        case "no_record":
            text = (
                f"nothing is known of {record} at {client.admin}: it has expired or was released, "
                f"and its key is free; or name another instance with --admin"
            )
        case "key_in_flight":
            text = _in_flight(record, response.number("lease_left_seconds") or 0.0)
        case "store":
            text = _store_is_silent(client)
        case _:
            raise client.error_for(response)
    raise click.ClickException(text)


def _store_is_silent(client: AdminClient) -> str:
    return f"the store of {client.admin} does not answer: see the proxy's log, then try again"


def _when(response: AdminResponse, name: str) -> str:
    """Format a date as it came, and how far away it is."""
    from proxy.core.clock import SystemClock  # noqa: PLC0415 - keeps --help fast

    text = response.text(name)
    try:
        left = datetime.fromisoformat(text).timestamp() - SystemClock().wall()
    except (ValueError, OverflowError):
        return text
    return (
        f"{text}, in {long_duration(left)}" if left > 0 else f"{text}, {long_duration(-left)} ago"
    )
