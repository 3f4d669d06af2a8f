"""Pages of deliveries: a table of many, one in full, and the table of ``status``."""

from collections.abc import Iterator

from proxy.cli.render.kept.run_lines import labelled, run_lines
from proxy.cli.render.number_format import long_duration, short_count
from proxy.cli.render.tables import Cell, Column, Line, Page, Table, Tone
from proxy.cli.untrusted_json import UntrustedJson, printable

_COLUMNS = (
    Column("id", is_text=True, is_whole=True),
    Column("accepted", is_text=True, is_whole=True),
    Column("route", is_text=True),
    Column("state", is_text=True),
    Column("tries"),
    Column("next or why", is_text=True),
)
_TONES = {
    "delivered": Tone.GOOD,
    "failed": Tone.BAD,
    "retrying": Tone.WARNING,
    "cancelled": Tone.WARNING,
}
_STATES = ("waiting", "sending", "retrying", "delivered", "failed", "cancelled")
_LINES = {"open": Tone.GOOD, "ramping": Tone.WARNING, "closed": Tone.BAD}


# The list.


def delivery_list(page: UntrustedJson, order: str) -> Page:
    """Return the page with a table of deliveries."""
    deliveries = page.parts("deliveries")
    title = f"Deliveries, the {order} first (UTC)"
    if "next" in page:
        title = f"The {order} {len(deliveries)} deliveries (UTC); for more use --limit, or filters"
    return Page([], [Table(title, _COLUMNS, [_row(delivery) for delivery in deliveries])])


def _row(delivery: UntrustedJson) -> tuple[Cell, ...]:
    state = delivery.text("state")
    return (
        Cell(delivery.text("id")),
        Cell(_minute(delivery.text("accepted"))),
        Cell(delivery.text("route")),
        Cell(state, _TONES.get(state, Tone.PLAIN)),
        Cell(short_count(delivery.count("tries"))),
        _next_or_reason(delivery),
    )


def _minute(date: str) -> str:
    return date[5:16].replace("T", " ")


def _next_or_reason(delivery: UntrustedJson) -> Cell:
    """Return when it is sent next, or what it waits for; of one that has ended, why."""
    if delivery.text("deferred"):
        return Cell(delivery.text("deferred"), Tone.WARNING)
    if "next_attempt" in delivery:
        return Cell(_minute(delivery.text("next_attempt")))
    if delivery.text("state") != "failed":
        status = delivery.part("response").count("status")
        return Cell(str(status) if status else "")
    ran = ", maybe ran" if delivery.is_true("may_have_run") else ""
    return Cell(f"{delivery.text('why')}{ran}", Tone.BAD)


# One delivery in full.


def delivery_page(delivery: UntrustedJson) -> Page:
    """Return the page with all of one delivery that is shown."""
    return Page(
        [
            *_summary(delivery),
            *run_lines(delivery, first="while its client waited or first try", later="try"),
            (),
            (Cell(f"{delivery.text('method')} {delivery.text('target')}"),),
            *(labelled(name, value) for name, value in delivery.pairs("headers")),
            labelled("body", f"{delivery.count('body_bytes')} bytes, not shown"),
        ]
    )


def _summary(delivery: UntrustedJson) -> Iterator[Line]:
    state = delivery.text("state")
    yield labelled("id", delivery.text("id"))
    yield labelled("state", state, _TONES.get(state, Tone.PLAIN))
    yield labelled(
        "route", f"{delivery.text('route')}, to the upstream {delivery.text('upstream')}"
    )
    yield labelled("accepted", delivery.text("accepted"))
    if "next_attempt" in delivery:
        yield labelled("next attempt", delivery.text("next_attempt"))
    if "gives_up" in delivery:
        yield labelled("gives up", delivery.text("gives_up"))
    if "ended" in delivery:
        ended = f"{delivery.text('ended')}, kept until {delivery.text('expires')}"
        yield labelled("ended", ended)
    attempts, tries = delivery.count("attempts"), delivery.count("tries")
    yield labelled("tries", f"{tries}, of which {attempts} count")
    if delivery.text("deferred"):
        yield labelled("waits for", delivery.text("deferred"), Tone.WARNING)
    if delivery.text("why"):
        error = f" ({delivery.text('error')})" if delivery.text("error") else ""
        tone = Tone.BAD if state == "failed" else Tone.PLAIN
        yield labelled("why", f"{delivery.text('why')}{error}", tone)
    yield from _ran(delivery, state)
    status = delivery.part("response").count("status")
    if status:
        yield labelled("answer", str(status))
    if delivery.text("record"):
        yield labelled("key", f"holdfast keys show {delivery.text('record')}")
    if delivery.is_true("key_added"):
        yield labelled("key", "its id, added for the upstream")
    yield labelled("request id", delivery.text("request_id"))
    yield labelled("client", delivery.text("client"))


def _ran(delivery: UntrustedJson, state: str) -> Iterator[Line]:
    if state == "delivered":
        return
    if delivery.is_true("may_have_run"):
        yield labelled("may have run", "maybe", Tone.WARNING)
    else:
        yield labelled("may have run", "no", Tone.GOOD)


# The table of ``status``.


def delivery_table(status: UntrustedJson) -> Table:
    """Return a table with a row for each route that has deliveries; empty without any."""
    deliveries = status.part("deliveries")
    routes = list(deliveries.part("routes").members())
    lines = deliveries.part("lines")
    columns = [Column("route", is_text=True), Column("open"), Column("oldest")]
    columns += [Column(state) for state in _STATES if _is_used(state, routes)]
    columns += [Column("line", is_text=True), Column("next")]
    table = Table("Deliveries", columns)
    for name, route in routes:
        table.rows.append(_status_row(name, route, lines, routes))
    return table


_Named = tuple[str, UntrustedJson]


def _is_used(state: str, routes: list[_Named]) -> bool:
    return any(route.part("states").count(state) for _, route in routes)


def _status_row(
    name: str, route: UntrustedJson, lines: UntrustedJson, routes: list[_Named]
) -> list[Cell]:
    states = route.part("states")
    oldest, soonest = route.number("oldest_seconds"), route.number("next_seconds")
    line = lines.text(route.text("upstream"))
    cells = [
        Cell(printable(name)),
        Cell(short_count(route.count("open"))),
        Cell("-" if oldest is None else long_duration(oldest)),
    ]
    for state in _STATES:
        if _is_used(state, routes):
            count = states.count(state)
            tone = _TONES.get(state, Tone.PLAIN) if count else Tone.PLAIN
            cells.append(Cell(short_count(count), tone))
    due = "-" if soonest is None else f"in {long_duration(soonest)}" if soonest > 0 else "now"
    return [*cells, Cell(line or "-", _LINES.get(line, Tone.PLAIN)), Cell(due)]
