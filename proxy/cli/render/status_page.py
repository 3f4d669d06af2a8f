"""The page of ``holdfast status``: the process, what is wrong, then tables, trouble first."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

from proxy.cli.render.kept.delivery_pages import delivery_table
from proxy.cli.render.number_format import long_duration, plural, short_count
from proxy.cli.render.status_tables import (
    Row,
    failures_table,
    keys_table,
    lately_name,
    letters_table,
    not_retried_table,
    refused,
    requests,
    retries_table,
    routes_table,
    throttles_table,
    upstreams_table,
    workers_table,
)
from proxy.cli.render.tables import Cell, Column, Line, Page, Table, Tone
from proxy.cli.untrusted_json import UntrustedJson

_UNUSED = {"throttle": "throttle", "idempotency": "idempotency", "dead_letters": "dead_letter"}
"""Features that have a table of their own: their member of ``/status`` → their key in a file."""
_LEVELS = {"bad": 2, "warning": 1}


class Order(StrEnum):
    """What routes are sorted by; what is highest comes first, and trouble before all."""

    TROUBLE = "trouble"
    NAME = "name"
    RATE = "rate"
    ERRORS = "errors"
    REFUSED = "refused"
    LATENCY = "latency"


def status_page(
    status: UntrustedJson,
    *,
    before: UntrustedJson | None = None,
    order: Order = Order.TROUBLE,
    only: Sequence[str] = (),
) -> Page:
    """Return the page for the content of ``/status``.

    *before* is the content that was shown last: changes since then are marked. With *only* some
    routes are shown, those of these names, and what belongs to them.
    """
    trouble = [one for one in status.parts("trouble") if not only or one.text("name") in only]
    lately = status.part("last_minute")
    name = lately_name(lately.number("seconds") or 0.0)
    routes = _sorted(_routes(status, before, only), trouble, order)
    upstreams = _upstreams(status, routes, is_narrow=bool(only))
    tables = (
        routes_table(routes, name),
        *_trouble_first(
            (
                not_retried_table(routes, name),
                letters_table(routes, name),
                delivery_table(status),
                throttles_table(_throttled(routes, upstreams), name),
                upstreams_table(upstreams, status.part("addresses"), name),
                failures_table(routes, name),
                retries_table(routes, name),
                keys_table(routes, name),
            ),
            trouble,
        ),
        workers_table(status.parts("workers")),
    )
    lines = list(_lines(status))
    if before is not None:
        lines.append(_changes(status, before))
    shown = [table for table in tables if table.rows]
    if trouble:
        shown.insert(0, _trouble_table(trouble))
    elif "trouble" in status:
        lines.append((Cell(f"no trouble in the {name}", Tone.GOOD),))
    notes = [*_notes(status), *(() if only else _unused([*routes, *upstreams]))]
    return Page(lines, shown, notes)


# The process.


def _lines(status: UntrustedJson) -> Iterator[Line]:
    state = status.text("state")
    uptime = long_duration(status.number("uptime_seconds") or 0.0)
    in_flight = sum(route.count("in_flight") for _, route in status.part("routes").members())
    yield (
        Cell(f"holdfast {status.text('version')}: "),
        Cell(state, Tone.GOOD if state == "ready" else Tone.WARNING),
        Cell(f", up {uptime}, {plural(status.count('connections'), 'connection')}"),
        Cell(f", {short_count(in_flight)} in flight"),
    )
    restarts = status.count("worker_restarts")
    if "workers" in status:
        yield (
            Cell(f"workers: {len(status.parts('workers'))}, "),
            Cell(plural(restarts, "restart"), Tone.WARNING if restarts else Tone.PLAIN),
        )
    yield _store(status.part("store"))


def _notes(status: UntrustedJson) -> Iterator[Line]:
    """Yield what is seldom looked for."""
    reloads = status.part("reloads")
    failed = reloads.count("failure")
    yield (
        Cell(f"reloads: {reloads.count('success')} good, "),
        Cell(f"{failed} refused", Tone.WARNING if failed else Tone.PLAIN),
    )
    keys, known = status.part("keys"), status.part("known_keys")
    if keys.count("in_flight") or keys.count("waiting"):
        yield (Cell(f"keys: {keys.count('in_flight')} in flight, {keys.count('waiting')} waiting"),)
    if known.count("count"):
        yield _known_keys(known)
    elif "known_keys" not in status and _has_keys(status):
        yield (Cell("keys that are held in the store are not counted here: holdfast keys list"),)
    lost = status.count("access_log_dropped")
    if lost:
        yield (Cell(f"access log: {plural(lost, 'line')} lost", Tone.WARNING),)


def _has_keys(status: UntrustedJson) -> bool:
    return any("idempotency" in route for _, route in status.part("routes").members())


def _known_keys(keys: UntrustedJson) -> Line:
    """Format the number of known keys, the age of the oldest, and how many are held."""
    oldest, held = keys.number("oldest_seconds"), keys.count("held")
    age = "" if oldest is None else f", the oldest of {long_duration(oldest)} ago"
    return (
        Cell(f"known keys: {keys.count('count')}{age}, "),
        Cell(f"{held} held", Tone.WARNING if held else Tone.PLAIN),
    )


def _store(store: UntrustedJson) -> Line:
    state, url = store.text("state"), store.text("url")
    if not state:
        return (Cell(f"store: {url or 'memory'} of this process"),)
    errors = sum(count for _, count in store.part("errors").counts())
    return (
        Cell("store: "),
        Cell(state, Tone.GOOD if state == "up" else Tone.BAD),
        Cell(f", {url}, " if url else ", "),
        Cell(plural(errors, "error"), Tone.WARNING if errors else Tone.PLAIN),
    )


def _unused(rows: Sequence[Row]) -> Iterator[Line]:
    """Yield a line that says what has no table because no route or upstream has it."""
    missing = [key for part, key in _UNUSED.items() if not any(part in row.total for row in rows)]
    if missing:
        yield (Cell(f"not used: {', '.join(missing)}"),)


def _changes(status: UntrustedJson, before: UntrustedJson) -> Line:
    """Say what was counted since the last look."""
    counted: tuple[tuple[str, Callable[[UntrustedJson], int], Tone], ...] = (
        ("request", requests, Tone.PLAIN),
        ("error", lambda route: route.count("errors"), Tone.BAD),
        ("refusal", refused, Tone.WARNING),
        ("dead letter", lambda route: route.part("dead_letters").count("kept"), Tone.WARNING),
        ("lost letter", lambda route: route.part("dead_letters").count("lost"), Tone.BAD),
    )
    cells: list[Cell] = []
    for noun, count, tone in counted:
        new = _total(status, count) - _total(before, count)
        if new > 0:
            text = plural(new, noun)
            cells += [Cell(", +" if cells else "+"), Cell(text, tone)]
    return (Cell("since the last look: "), *(cells or [Cell("nothing new")]))


def _total(status: UntrustedJson, count: Callable[[UntrustedJson], int]) -> int:
    return sum(count(route) for _, route in status.part("routes").members())


# Trouble.


def _trouble_table(trouble: Sequence[UntrustedJson]) -> Table:
    """Return a table with a sentence for each thing that is wrong."""
    columns = (
        Column("", is_text=True),
        Column("", is_text=True),
        Column("", is_text=True, wraps=True),
    )
    table = Table("Trouble", columns)
    for one in trouble:
        is_bad = one.text("level") == "bad"
        tone = Tone.BAD if is_bad else Tone.WARNING
        about = " ".join(filter(None, (one.text("about"), one.text("name"))))
        mark = Cell("!!" if is_bad else "!", tone)
        table.rows.append((mark, Cell(about, tone), Cell(one.text("text"))))
    return table


_SHOWN_IN = {
    "budget": "Not retried",
    "letters_lost": "Dead letters",
    "letters_waiting": "Dead letters",
    "refused": "Throttles",
    "paused": "Throttles",
    "breaker_open": "Upstreams",
    "breaker_half_open": "Upstreams",
    "connect": "Upstreams",
    "errors": "Failed attempts",
}
"""The table that has more about a kind of trouble."""


def _trouble_first(tables: Iterable[Table], trouble: Sequence[UntrustedJson]) -> list[Table]:
    """Sort tables in which there is trouble before the others, the worst first."""
    ranks: dict[str, int] = {}
    for one in trouble:
        title = _SHOWN_IN.get(one.text("reason"), "")
        ranks[title] = max(ranks.get(title, 0), _LEVELS.get(one.text("level"), 0))
    return sorted(tables, key=lambda table: ranks.get(table.title, 0), reverse=True)


# Rows.


def _routes(status: UntrustedJson, before: UntrustedJson | None, only: Sequence[str]) -> list[Row]:
    """Return the routes; that of requests which no route took only if there are any."""
    recent = status.part("last_minute").part("routes")
    earlier = None if before is None else before.part("routes")
    return [
        Row(
            name,
            route,
            recent.part(name),
            earlier.part(name) if earlier is not None and name in earlier else None,
        )
        for name, route in status.part("routes").members()
        if (name in only if only else not name.startswith("_") or requests(route))
    ]


def _sorted(rows: list[Row], trouble: Sequence[UntrustedJson], order: Order) -> list[Row]:
    if order is Order.NAME:
        return sorted(rows, key=lambda row: row.name)
    ranks: dict[str, int] = {}
    for one in trouble:
        if one.text("about") == "route":
            name = one.raw_text("name") or ""
            ranks[name] = max(ranks.get(name, 0), _LEVELS.get(one.text("level"), 0))

    def value(row: Row) -> float:
        lately = row.lately
        whole = requests(lately) or 1
        match order:
            case Order.RATE:
                return lately.number("requests_per_second") or 0.0
            case Order.ERRORS:
                return lately.count("errors") / whole
            case Order.REFUSED:
                return refused(lately) / whole
            case Order.LATENCY:
                return lately.part("duration_ms").number("p95") or 0.0
        return ranks.get(row.name, 0)

    return sorted(rows, key=value, reverse=True)


def _upstreams(status: UntrustedJson, routes: Sequence[Row], *, is_narrow: bool) -> list[Row]:
    """Return all upstreams, or only those of *routes*; those that were never called included."""
    totals, recent = status.part("upstreams"), status.part("last_minute").part("upstreams")
    names = dict.fromkeys(
        [
            *(name for name, _ in status.part("addresses").members()),
            *(name for name, _ in totals.members()),
        ]
    )
    wanted = {name for row in routes for name in row.total.texts("upstreams")}
    return [
        Row(name, totals.part(name), recent.part(name))
        for name in names
        if not is_narrow or name in wanted
    ]


def _throttled(routes: Sequence[Row], upstreams: Sequence[Row]) -> list[Row]:
    """Return routes and upstreams with a throttle; the prefix tells equal names apart."""
    return [
        Row(f"{kind} {row.name}", row.total, row.lately)
        for kind, rows in (("route", routes), ("upstream", upstreams))
        for row in rows
        if "throttle" in row.total
    ]
