"""Client that drops dead letters, one or many, and prints what is gone and what is not."""

from collections.abc import Sequence

import click

from proxy.cli.admin_client import AdminClient
from proxy.cli.kept.dead_letter_client import (
    PAGE_SIZE,
    drop_dead_letters,
    request_dead_letters,
    some_ids,
)
from proxy.cli.kept.dead_letter_selection import SelectedDeadLetters
from proxy.cli.questions import STOPPED
from proxy.cli.render.progress import progress
from proxy.cli.render.tables import Cell, Tone


def drop_one(client: AdminClient, dead_letter_id: str, *, dry_run: bool) -> None:
    """Drop a dead letter, or only say that it would be dropped; raise if that cannot be."""
    path = f"/dead-letters/{dead_letter_id}"
    if not dry_run:
        request_dead_letters(client, "DELETE", path)
        click.echo(f"dropped {dead_letter_id}")
        return
    if request_dead_letters(client, "GET", path).text("state") == _REPLAYING:
        raise click.ClickException(f"would not be dropped: {_BUSY}")
    click.echo("would be dropped")


def tell_drop(selected: SelectedDeadLetters) -> int:
    """Say which dead letters would be dropped; return the exit status: 0 if all would be."""
    busy = 0
    for number, dead_letter in enumerate(selected.dead_letters, 1):
        is_busy = dead_letter.text("state") == _REPLAYING
        busy += is_busy
        would = f"would not be dropped: {_BUSY}" if is_busy else "would be dropped"
        click.echo(f"{number}/{len(selected.dead_letters)} {dead_letter.text('id')} {would}")
    click.echo(f"{selected.describe()}.")
    total = len(selected.dead_letters)
    click.echo(f"{total - busy} of {total} would be dropped; nothing was dropped")
    return int(bool(busy))


def drop_all(client: AdminClient, route: str | None, ids: Sequence[str]) -> int:
    """Drop dead letters, the oldest first; return the exit status: 0 if all are gone.

    Ctrl-C ends it between two requests. Then, and if the proxy does not answer any more, it is
    told what is done and what is not.
    """
    batches = -(-len(ids) // PAGE_SIZE)
    done = dropped = 0
    try:
        if batches == 1:
            dropped = sum(drop_dead_letters(client, route, ids))
        else:
            with progress("dropping", batches, plain_text=False) as step:
                for number in drop_dead_letters(client, route, ids):
                    done += 1
                    dropped += number
                    step(Cell(f"dropped {number}", Tone.GOOD))
    except KeyboardInterrupt:
        _tell_rest(ids, done, dropped, "stopped")
        return STOPPED
    except click.ClickException as error:
        _tell_rest(ids, done, dropped, "the proxy does not answer")
        error.show()
        return 1
    if dropped == len(ids):
        click.echo(f"dropped {dropped}")
        return 0
    click.echo(f"dropped {dropped} of {len(ids)}: the others are being sent again, or were gone")
    return 1


_REPLAYING = "replaying"
_BUSY = "it is being sent again just now"


def _tell_rest(ids: Sequence[str], done: int, dropped: int, cause: str) -> None:
    """Tell what is gone, and name what is not."""
    begun, rest = ids[done * PAGE_SIZE :][:PAGE_SIZE], ids[(done + 1) * PAGE_SIZE :]
    click.echo(f"{cause}: dropped {dropped} of {len(ids)}, {len(rest)} not tried", err=True)
    if begun:
        click.echo(f"may be gone, the proxy does not stop: {some_ids(begun)}", err=True)
    if rest:
        click.echo(f"not tried: {some_ids(rest)}", err=True)
