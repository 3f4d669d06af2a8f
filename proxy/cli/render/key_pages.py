"""Pages of idempotency keys: a table of their records."""

from collections.abc import Sequence
from datetime import datetime

from proxy.cli.render.number_format import long_duration, plural
from proxy.cli.render.tables import Cell, Column, Page, Table, Tone
from proxy.cli.untrusted_json import UntrustedJson, legible

_COLUMNS = (
    Column("record", is_text=True, is_whole=True),
    Column("state", is_text=True, is_whole=True),
    Column("route", is_text=True),
    Column("age"),
    Column("expires in"),
)
_TONES = {"held": Tone.BAD, "unstored": Tone.WARNING, "done": Tone.GOOD}


def key_list(page: UntrustedJson, states: Sequence[str], route: str | None, now: float) -> Page:
    """Return the page with a table of records; *states* and *route* are what was asked for."""
    keys = page.parts("keys")
    if not keys:
        found = "no keys are known" if "all" in states else f"no keys are {' or '.join(states)}"
        return Page([(Cell(found + ("" if route is None else f" of route {legible(route)}")),)])
    title = f"{plural(len(keys), 'key')}, the oldest first"
    if page.is_true("more"):
        title = f"Some {plural(len(keys), 'key')} of more; for others use --route, or --limit"
    return Page([], [Table(title, _COLUMNS, [_row(key, now) for key in keys])])


def _row(key: UntrustedJson, now: float) -> tuple[Cell, ...]:
    state = key.text("state")
    return (
        Cell(key.text("record")),
        Cell(state, _TONES.get(state, Tone.PLAIN)),
        Cell(key.text("route")),
        Cell(_span(key.text("created"), now, is_past=True)),
        Cell(_span(key.text("expires"), now, is_past=False)),
    )


def _span(date: str, now: float, *, is_past: bool) -> str:
    """Format how far away a date is; a dash if it is none."""
    try:
        seconds = datetime.fromisoformat(date).timestamp() - now
    except (ValueError, OverflowError):
        return "-"
    return long_duration(-seconds if is_past else seconds)
