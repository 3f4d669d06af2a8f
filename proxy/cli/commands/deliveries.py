"""``holdfast deliveries``: list, show, retry and cancel what was handed off."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from proxy.cli.admin_client import AdminClient
from proxy.cli.kept.delivery_client import (
    PAGE_SIZE,
    DeliveryFilter,
    RetryProgress,
    all_to_send,
    describe,
    no_deliveries,
    request_deliveries,
)
from proxy.cli.options import client_options
from proxy.cli.questions import confirm
from proxy.cli.render.kept.delivery_pages import delivery_list, delivery_page
from proxy.cli.render.screens import screen_for

_EXAMPLE_ID = "d_7QkUq0pWbK3yC1hZxXnE4g"
_STATES = ("waiting", "sending", "retrying", "delivered", "failed", "cancelled")


def _valid_id(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from proxy.policy.dead_letter import read_delivery_id  # noqa: PLC0415 - keeps --help fast

    if value is None:
        return None
    delivery_id = read_delivery_id(value)
    if delivery_id is None:
        raise click.BadParameter(
            "write d_ and 22 characters, as Holdfast-Delivery has them", ctx, parameter
        )
    return delivery_id


_delivery_argument = click.argument("delivery_id", metavar="ID", callback=_valid_id)
_plain_option = click.option("--plain", is_flag=True, help="Plain text, without colours.")
_json_option = click.option(
    "--json", "as_json", is_flag=True, help="The JSON of the admin listener, unchanged."
)
_FILTERS = (
    click.option("--route", metavar="ROUTE", help="Only those of this route."),
    click.option("--state", type=click.Choice(_STATES), help="Only those in this state."),
    click.option(
        "--why", "reason", metavar="REASON", help="Only those with this reason, such as gave_up."
    ),
)


def _filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--route``, ``--state`` and ``--why``."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.group(epilog="\b\nExample:\n  holdfast deliveries list --state failed")
def deliveries() -> None:
    """Look at deliveries, send them now, or cancel them.

    A delivery is a request that was accepted with 202 on a route with hand_off, and is sent in
    the background. ID is what the client got as Holdfast-Delivery.
    """


@deliveries.command(
    "list", epilog="\b\nExample:\n  holdfast deliveries list --route orders --oldest"
)
@_filter_options
@click.option("--oldest", is_flag=True, help="The oldest ones first, not the newest.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, PAGE_SIZE),
    help="Show at most so many.",
)
@_plain_option
@_json_option
@client_options
def list_(
    *,
    route: str | None,
    state: str | None,
    reason: str | None,
    oldest: bool,
    limit: int,
    plain: bool,
    as_json: bool,
    client: AdminClient,
) -> None:
    """List deliveries, the newest ones first.

    Times are UTC. "next or why" says when it is sent next or what it waits for, and of one that
    failed why, and whether it may have run. In a pipe text is 80 characters wide, or as COLUMNS
    says: long names of routes are cut.
    """
    which = DeliveryFilter(route, state, reason)
    order = "oldest" if oldest else "newest"
    page = request_deliveries(client, "GET", which.path(order=order, limit=limit))
    if not as_json and not page.parts("deliveries"):
        click.echo(no_deliveries(client, which))
        return
    render = partial(delivery_list, order=order)
    screen_for(render, plain_text=plain, as_json=as_json).show(page.content)


@deliveries.command(epilog=f"\b\nExample:\n  holdfast deliveries show {_EXAMPLE_ID}")
@_delivery_argument
@_plain_option
@_json_option
@client_options
def show(*, delivery_id: str, plain: bool, as_json: bool, client: AdminClient) -> None:
    """Show a delivery: its state, when it is sent next, each attempt, its header fields.

    Neither its body nor its credentials are shown.
    """
    response = request_deliveries(client, "GET", f"/deliveries/{delivery_id}")
    screen_for(delivery_page, plain_text=plain, as_json=as_json).show(response.content)


@deliveries.command(
    epilog="\b\nExamples:\n"
    f"  holdfast deliveries retry {_EXAMPLE_ID}\n"
    "  holdfast deliveries retry --all --route orders --state failed --dry-run"
)
@click.argument("delivery_id", metavar="[ID]", required=False, callback=_valid_id)
@click.option(
    "--all", "everything", is_flag=True, help="All that wait, are retried, or have failed."
)
@_filter_options
@click.option("--force", is_flag=True, help="Send it even if it may have run.")
@click.option(
    "--dry-run", is_flag=True, help="Only say which would be sent, and which not and why."
)
@click.option(
    "--yes", is_flag=True, help="With --all: do not ask; required where there is no terminal."
)
@_plain_option
@_json_option
@client_options
def retry(
    *,
    delivery_id: str | None,
    everything: bool,
    route: str | None,
    state: str | None,
    reason: str | None,
    force: bool,
    dry_run: bool,
    yes: bool,
    plain: bool,
    as_json: bool,
    client: AdminClient,
) -> None:
    """Send a delivery now, or all of them, in place of waiting for the schedule.

    One that failed begins anew, under its id and its key. One that may have run and is not
    repeatable is not sent without --force; --all leaves such ones out, and says how many. Throttles
    and an upstream that is down still hold it back.
    --all says how many there are, of which routes and in which states, and asks. Ctrl-C stops it;
    it names those that were not tried.
    Exit code 0: all that were asked for are sent now (or would be), 1: not all, or you answered
    no, 2: wrong usage, 130: stopped by Ctrl-C.
    """
    if (delivery_id is None) != everything:
        raise click.UsageError("name one delivery, or write --all")
    for name, value in (("--route", route), ("--state", state), ("--why", reason)):
        if value is not None and not everything:
            raise click.UsageError(f"{name} goes with --all")
    retries = RetryProgress(force, dry_run, client, plain_text=plain, as_json=as_json)
    if delivery_id is not None:
        sys.exit(retries.retry_one(delivery_id))
    which = DeliveryFilter(route, state, reason)
    selected = all_to_send(client, which)
    if not selected:
        click.echo(no_deliveries(client, which), err=as_json)
        return
    plan = "All will be sent now, but for those that may have run: --force sends them, too."
    if force:
        plan = "All will be sent now, those that may have run as well."
    if not (yes or dry_run):
        confirm(describe(selected), plan, "Send them?")
    sys.exit(retries.retry_all([each.text("id") for each in selected]))


@deliveries.command(epilog=f"\b\nExample:\n  holdfast deliveries cancel {_EXAMPLE_ID}")
@_delivery_argument
@click.option("--dry-run", is_flag=True, help="Only say whether it would be cancelled.")
@client_options
def cancel(*, delivery_id: str, dry_run: bool, client: AdminClient) -> None:
    """End a delivery that waits or is retried: it is not sent any more.

    This cannot be undone. One that is being sent just now, or has ended, is not cancelled.
    Exit code 0: cancelled (or would be), 1: not, 2: wrong usage.
    """
    path = f"/deliveries/{delivery_id}"
    if not dry_run:
        request_deliveries(client, "DELETE", path)
        click.echo(f"cancelled {delivery_id}")
        return
    state = request_deliveries(client, "GET", path).text("state")
    if state not in {"waiting", "retrying"}:
        raise click.ClickException(f"would not be cancelled: it is {state}")
    click.echo("would be cancelled")
