"""``holdfast dlq``: dead letters, for the person who has to decide what becomes of them."""

import sys
from functools import partial

import click

from proxy.cli.asking import PAGE, ask_for, every_letter, exported, letters_of
from proxy.cli.dlq_pages import listing, whole
from proxy.cli.dlq_replays import Replays
from proxy.cli.options import admin_option, token_option
from proxy.cli.screens import screen_for

_LETTER = "18f3a2b4c5d0a1b2c3d4"


def _named(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from proxy.policy.letters import read_letter_id  # noqa: PLC0415 - keeps --help fast

    if value is None:
        return None
    letter = read_letter_id(value)
    if letter is None:
        raise click.BadParameter(
            "write the 20 hexadecimal digits that Holdfast-Dead-Letter has", ctx, parameter
        )
    return letter


def _field(
    ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> list[tuple[str, str]]:
    fields = []
    for text in value:
        name, colon, content = text.partition(":")
        if not colon or not name.strip():
            # Not quoted: it is most likely a credential.
            raise click.BadParameter("write 'Name: value'", ctx, parameter)
        fields.append((name.strip(), content.strip()))
    return fields


_letter_argument = click.argument("letter", metavar="ID", callback=_named)
_route_option = click.option("--route", metavar="ROUTE", help="Only those of this route.")
_plain_option = click.option("--plain", is_flag=True, help="Plain text, without colours.")
_json_option = click.option("--json", "as_json", is_flag=True, help="As the admin listener has it.")


@click.group(epilog="\b\nExample:\n  holdfast dlq list")
def dlq() -> None:
    """Look at dead letters, send them again, or drop them.

    A dead letter is a request that failed for good on a route with dead_letter. ID is what
    the client got as Holdfast-Dead-Letter.
    """


@dlq.command("list", epilog="\b\nExample:\n  holdfast dlq list --route charges --oldest")
@_route_option
@click.option("--oldest", is_flag=True, help="The oldest ones first, not the newest.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, PAGE),
    help="Show at most so many.",
)
@_plain_option
@_json_option
@admin_option
@token_option
def list_(
    *,
    route: str | None,
    oldest: bool,
    limit: int,
    plain: bool,
    as_json: bool,
    admin: str,
    token: str | None,
) -> None:
    """List dead letters, the newest ones first.

    "tries" are attempts used and allowed. "ran" says whether the request may have run: yes, no,
    or ? after a replay that a crash interrupted. In a pipe text is 80 characters wide, or
    as COLUMNS says: long names of routes are cut.
    """
    order = "oldest" if oldest else "newest"
    page = ask_for("GET", letters_of(route, order=order, limit=limit), admin, token)
    look = partial(listing, route=route, order=order)
    screen_for(look, plain_text=plain, as_json=as_json).show(page.content)


@dlq.command(epilog=f"\b\nExample:\n  holdfast dlq show {_LETTER}")
@_letter_argument
@_plain_option
@_json_option
@admin_option
@token_option
def show(
    *,
    letter: str,
    plain: bool,
    as_json: bool,
    admin: str,
    token: str | None,
) -> None:
    """Show all of a letter: what was sent, why it failed, each attempt.

    The body comes as text, or as hexadecimal digits where it is none.
    """
    answer = ask_for("GET", f"/dead-letters/{letter}", admin, token)
    screen_for(whole, plain_text=plain, as_json=as_json).show(answer.content)


@dlq.command(
    epilog="\b\nExamples:\n"
    f"  holdfast dlq replay {_LETTER} -H 'Authorization: Bearer TOKEN'\n"
    "  holdfast dlq replay --all --route charges"
)
@click.argument("letter", metavar="[ID]", required=False, callback=_named)
@click.option("--all", "everything", is_flag=True, help="All letters, the oldest one first.")
@_route_option
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    callback=_field,
    help="A header field to send, such as a credential that was not kept. May be repeated.",
)
@click.option("--force", is_flag=True, help="Send it though it may have run, or be uncertain.")
@_plain_option
@_json_option
@admin_option
@token_option
def replay(
    *,
    letter: str | None,
    everything: bool,
    route: str | None,
    headers: list[tuple[str, str]],
    force: bool,
    plain: bool,
    as_json: bool,
    admin: str,
    token: str | None,
) -> None:
    """Send a letter again, or all of them, through the same route and its policies.

    A letter goes away when its upstream answered below 400. Else it stays, with the new
    attempts on record. One that may have run is not sent without --force.
    Exit code 0: all that were asked for are gone, 1: not all, 2: wrong usage.
    """
    if (letter is None) != everything:
        raise click.UsageError("name one letter, or write --all")
    if route is not None and not everything:
        raise click.UsageError("--route goes with --all")
    replays = Replays(headers, force, admin, token, plain_text=plain, as_json=as_json)
    if letter is not None:
        sys.exit(not replays.one(letter))
    letters = [each.text("id") for each in every_letter(route, admin, token)]
    if not letters:
        click.echo("no dead letters")
        return
    sys.exit(not replays.all(letters))


@dlq.command(
    epilog=f"\b\nExamples:\n  holdfast dlq drop {_LETTER}\n"
    "  holdfast dlq drop --all --route charges"
)
@click.argument("letter", metavar="[ID]", required=False, callback=_named)
@click.option("--all", "everything", is_flag=True, help="All letters.")
@_route_option
@admin_option
@token_option
def drop(
    *,
    letter: str | None,
    everything: bool,
    route: str | None,
    admin: str,
    token: str | None,
) -> None:
    """Delete a letter, or all of them. There is no way back: export them first.

    Exit code 0: gone, 1: there is none, it is being sent again, or no answer, 2: wrong usage.
    """
    if (letter is None) != everything:
        raise click.UsageError("name one letter, or write --all")
    if letter is not None:
        ask_for("DELETE", f"/dead-letters/{letter}", admin, token)
        click.echo(f"dropped {letter}")
        return
    path = letters_of(route) if route is not None else letters_of(None, all="true")
    answer = ask_for("DELETE", path, admin, token)
    click.echo(f"dropped {answer.told.count('letters')}")


@dlq.command(epilog="\b\nExample:\n  holdfast dlq export > letters.jsonl")
@_route_option
@admin_option
@token_option
def export(route: str | None, admin: str, token: str | None) -> None:
    """Print all of all letters as JSON lines, the oldest one first."""
    for line in exported(route, admin, token):
        sys.stdout.write(line)
