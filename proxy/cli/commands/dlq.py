"""``holdfast dlq``: list, show, replay, drop and export dead letters."""

import sys
from functools import partial

import click

from proxy.cli.admin_client import AdminClient
from proxy.cli.kept.dead_letter_client import (
    PAGE_SIZE,
    export_lines,
    list_path,
    request_dead_letters,
)
from proxy.cli.kept.dead_letter_selection import (
    no_dead_letters,
    refuse_mixed_callers,
    select_dead_letters,
)
from proxy.cli.kept.drop_client import drop_all, drop_one, tell_drop
from proxy.cli.kept.replay_client import ReplayProgress
from proxy.cli.options import LINES, client_options, json_option, plain_option, route_option
from proxy.cli.questions import confirm
from proxy.cli.render.kept.dead_letter_pages import dead_letter_list, dead_letter_page
from proxy.cli.render.screens import screen_for

_EXAMPLE_ID = "18f3a2b4c5d0a1b2c3d4"


def _valid_id(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    del parameter  # its metavar may have brackets
    from proxy.policy.dead_letter import read_dead_letter_id  # noqa: PLC0415 - keeps --help fast

    if value is None:
        return None
    dead_letter_id = read_dead_letter_id(value)
    if dead_letter_id is None:
        raise click.BadParameter(
            "write the 20 hexadecimal digits that dlq list, and Holdfast-Dead-Letter, have",
            ctx,
            param_hint="'ID'",
        )
    return dead_letter_id


def _header_fields(
    ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> list[tuple[str, str]]:
    fields = []
    for text in value:
        name, colon, content = text.partition(":")
        if not colon or not name.strip():
            # Not quoted: the text is most likely a credential.
            raise click.BadParameter("write 'Name: value'", ctx, parameter)
        fields.append((name.strip(), content.strip()))
    return fields


_dead_letter_argument = click.argument("dead_letter_id", metavar="ID", callback=_valid_id)
_yes_option = click.option(
    "--yes", is_flag=True, help="With --all: do not ask; required where there is no terminal."
)


@click.group(epilog="\b\nExample:\n  holdfast dlq list")
def dlq() -> None:
    """Look at dead letters, send them again, or drop them.

    A dead letter is a request that failed for good on a route with dead_letter. ID is what
    the client got as Holdfast-Dead-Letter.
    """


@dlq.command("list", epilog="\b\nExample:\n  holdfast dlq list --route charges --oldest")
@route_option
@click.option("--oldest", is_flag=True, help="The oldest ones first, not the newest.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, PAGE_SIZE),
    metavar="N",
    help="Show at most so many.",
)
@plain_option
@json_option
@client_options
def list_(
    *,
    route: str | None,
    oldest: bool,
    limit: int,
    plain: bool,
    as_json: bool,
    client: AdminClient,
) -> None:
    """List dead letters, the newest ones first.

    Times are UTC. "tries" are attempts used and allowed. "ran?" says whether the request may have
    run: maybe or no; now, while it is being sent again. In a pipe text is 80 characters wide, or
    as COLUMNS says: long names of routes are cut.
    Exit code 0: listed, 1: no such route, or no answer, 2: wrong usage.
    """
    order = "oldest" if oldest else "newest"
    page = request_dead_letters(client, "GET", list_path(route, order=order, limit=limit))
    if not as_json and not page.parts("letters"):
        click.echo(no_dead_letters(client, route))
        return
    render = partial(dead_letter_list, order=order)
    screen_for(render, plain_text=plain, as_json=as_json).show(page.content)


@dlq.command(epilog=f"\b\nExample:\n  holdfast dlq show {_EXAMPLE_ID}")
@_dead_letter_argument
@plain_option
@json_option
@client_options
def show(*, dead_letter_id: str, plain: bool, as_json: bool, client: AdminClient) -> None:
    """Show all of a letter: what was sent, why it failed, each attempt.

    "explain" is the command that explains it: paste it to see the policy, and what to write for
    another outcome. The body comes as text, or as hexadecimal digits if it is not text.
    Exit code 0: shown, 1: no such letter, or no answer, 2: wrong usage.
    """
    response = request_dead_letters(client, "GET", f"/dead-letters/{dead_letter_id}")
    screen_for(dead_letter_page, plain_text=plain, as_json=as_json).show(response.content)


@dlq.command(
    epilog="\b\nExamples:\n"
    f"  holdfast dlq replay {_EXAMPLE_ID} -H 'Authorization: Bearer TOKEN'\n"
    "  holdfast dlq replay --all --route charges --dry-run"
)
@click.argument("dead_letter_id", metavar="[ID]", required=False, callback=_valid_id)
@click.option("--all", "everything", is_flag=True, help="All letters, the oldest one first.")
@route_option
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    type=LINES,
    metavar="'NAME: VALUE'",
    callback=_header_fields,
    help="A header field to send, such as a credential that was not kept. May be repeated.",
)
@click.option(
    "--caller",
    metavar="ID",
    help="Only those of this caller, as dlq show has it; none: those without credentials.",
)
@click.option("--force", is_flag=True, help="Send it even if it may have run.")
@click.option(
    "--dry-run", is_flag=True, help="Only say which would be sent, and which not and why."
)
@_yes_option
@plain_option
@json_option
@client_options
def replay(
    *,
    dead_letter_id: str | None,
    everything: bool,
    route: str | None,
    headers: list[tuple[str, str]],
    caller: str | None,
    force: bool,
    dry_run: bool,
    yes: bool,
    plain: bool,
    as_json: bool,
    client: AdminClient,
) -> None:
    """Send a letter again, or all of them, through the same route and its policies.

    A letter is deleted when its upstream answered below 400, or when its key has such a result
    already: then nothing is sent. Else it is kept, with the new attempts on record. One that may
    have run is not sent without --force. With --all, -H of a credential goes with the letters of
    one caller only.
    --all says how many letters there are, of which routes and how old, and asks. Ctrl-C stops it
    after the letter that is being sent; it names those that were not tried.
    Exit code 0: all that were asked for are gone (or would be sent), 1: not all, or you answered
    no, 2: wrong usage, 130: stopped by Ctrl-C.
    """
    if (dead_letter_id is None) != everything:
        raise click.UsageError("name one letter, or write --all")
    for name, value in (("--route", route), ("--caller", caller)):
        if value is not None and not everything:
            raise click.UsageError(f"{name} goes with --all")
    replays = ReplayProgress(headers, force, dry_run, client, plain_text=plain, as_json=as_json)
    if dead_letter_id is not None:
        sys.exit(replays.replay_one(dead_letter_id))
    selected = select_dead_letters(client, route, caller)
    if not selected.dead_letters:
        text = no_dead_letters(client, route) if caller is None else "no dead letters"
        click.echo(text, err=as_json)
        return
    refuse_mixed_callers(selected, headers)
    plan = "All will be sent again, but for those that may have run: --force sends them, too."
    if force:
        plan = "All will be sent again, those that may have run as well."
    if not (yes or dry_run):
        confirm(selected.describe(), plan, "Send them?")
    sys.exit(replays.replay_all(selected.ids))


@dlq.command(
    epilog=f"\b\nExamples:\n  holdfast dlq drop {_EXAMPLE_ID}\n"
    "  holdfast dlq drop --all --route charges --yes"
)
@click.argument("dead_letter_id", metavar="[ID]", required=False, callback=_valid_id)
@click.option("--all", "everything", is_flag=True, help="All letters.")
@route_option
@click.option("--dry-run", is_flag=True, help="Only say which would be dropped.")
@_yes_option
@client_options
def drop(
    *,
    dead_letter_id: str | None,
    everything: bool,
    route: str | None,
    dry_run: bool,
    yes: bool,
    client: AdminClient,
) -> None:
    """Delete a letter, or all of them. This cannot be undone: export them first.

    --all says how many there are, of which routes, how old, and how many may have run, and asks.
    Letters that arrive meanwhile are kept. Ctrl-C stops it; it names those that are left. The
    proxy's log has the id of each letter that is gone.
    Exit code 0: gone (or would be), 1: no such letter, it is being sent again, you answered no, or
    the proxy did not answer, 2: wrong usage, 130: stopped by Ctrl-C.
    """
    if (dead_letter_id is None) != everything:
        raise click.UsageError("name one letter, or write --all")
    if route is not None and not everything:
        raise click.UsageError("--route goes with --all")
    if dead_letter_id is not None:
        drop_one(client, dead_letter_id, dry_run=dry_run)
        return
    selected = select_dead_letters(client, route, None)
    if not selected.dead_letters:
        click.echo(no_dead_letters(client, route))
        return
    if dry_run:
        sys.exit(tell_drop(selected))
    if not yes:
        plan = "All will be deleted for good: export them first."
        confirm(selected.describe(), plan, "Drop them?")
    sys.exit(drop_all(client, route, selected.ids))


@dlq.command(epilog="\b\nExample:\n  holdfast dlq export > letters.jsonl")
@route_option
@client_options
def export(route: str | None, client: AdminClient) -> None:
    """Print all dead letters in full, as JSON lines, the oldest one first.

    Exit code 0: printed, 1: no such route, or no answer, 2: wrong usage.
    """
    is_empty = True
    for line in export_lines(client, route):
        is_empty = False
        sys.stdout.write(line)
    if is_empty:
        click.echo(no_dead_letters(client, route), err=True)
