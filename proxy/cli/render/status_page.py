"""The page of ``holdfast status``: a few lines on the process, then tables.

Only features in use have a column: without throttles there is no queue, without idempotency
there are no duplicates. Green is good, yellow worth a look, red a reason to act.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from proxy.cli.render.delivery_pages import delivery_table
from proxy.cli.render.number_format import (
    long_duration,
    percentage,
    plural,
    short_count,
    short_duration,
)
from proxy.cli.render.tables import Cell, Column, Line, Page, Table, Tone
from proxy.cli.untrusted_json import UntrustedJson, printable

_MANY_ERRORS = 0.05
"""The share of failed requests from which the cell is red."""
_FEW_RECOVERIES = 0.5
"""The share of successful retries below which the cell is yellow."""
_DASH = Cell("-")


def status_page(status: UntrustedJson) -> Page:
    """Return the page for the content of ``/status``."""
    # The row of requests that no route matched is shown only if there are any.
    routes = [
        (name, route)
        for name, route in status.part("routes").members()
        if not name.startswith("_") or _requests(route)
    ]
    upstreams = status.part("upstreams")
    tables = (
        _table("Routes", "route", routes, _TOTALS),
        _table("Now", "route", routes, _now(upstreams)),
        _table("Failed attempts", "route", [each for each in routes if _failed(each[1])], _FAILED),
        _table("Dead letters", "route", _with_part("dead_letters", routes), _DEAD_LETTERS),
        delivery_table(status),
        _table("Throttles", "of", _throttled(routes, upstreams), _THROTTLES),
        _addresses(status.part("addresses")),
        _workers(status.parts("workers")),
    )
    return Page(list(_lines(status)), [table for table in tables if table.rows])


# The process.


def _lines(status: UntrustedJson) -> Iterator[Line]:
    state = status.text("state")
    uptime = long_duration(status.number("uptime_seconds") or 0.0)
    reloads = status.part("reloads")
    yield (
        Cell(f"holdfast {status.text('version')}: "),
        Cell(state, Tone.GOOD if state == "ready" else Tone.WARNING),
        Cell(f", up {uptime}, {plural(status.count('connections'), 'connection')}"),
    )
    failed = reloads.count("failure")
    yield (
        Cell(f"reloads: {reloads.count('success')} good, "),
        Cell(f"{failed} refused", Tone.WARNING if failed else Tone.PLAIN),
    )
    restarts = status.count("worker_restarts")
    if "workers" in status:
        yield (
            Cell(f"workers: {len(status.parts('workers'))}, "),
            Cell(plural(restarts, "restart"), Tone.WARNING if restarts else Tone.PLAIN),
        )
    yield (
        _store(status.part("store"))
        if "store" in status
        else (Cell("store: memory of this process"),)
    )
    keys, known = status.part("keys"), status.part("known_keys")
    if keys.count("in_flight") or keys.count("waiting"):
        yield (Cell(f"keys: {keys.count('in_flight')} in flight, {keys.count('waiting')} waiting"),)
    if known.count("count"):
        yield _known_keys(known)
    lost = status.count("access_log_dropped")
    if lost:
        yield (Cell(f"access log: {plural(lost, 'line')} lost", Tone.WARNING),)


def _known_keys(keys: UntrustedJson) -> Line:
    """Format the number of known keys, the age of the oldest, and how many are held."""
    oldest, held = keys.number("oldest_seconds"), keys.count("held")
    age = "" if oldest is None else f", the oldest of {long_duration(oldest)} ago"
    return (
        Cell(f"known keys: {keys.count('count')}{age}, "),
        Cell(f"{held} held", Tone.WARNING if held else Tone.PLAIN),
    )


def _store(store: UntrustedJson) -> Line:
    state = store.text("state")
    errors = sum(count for _, count in store.part("errors").counts())
    return (
        Cell("store: "),
        Cell(state, Tone.GOOD if state == "up" else Tone.BAD),
        Cell(", "),
        Cell(plural(errors, "error"), Tone.WARNING if errors else Tone.PLAIN),
    )


# Tables: a field makes the cell of a row, or None if the row has no such value.

_Named = tuple[str, UntrustedJson]


@dataclass(frozen=True, slots=True)
class _Field:
    heading: str
    cell: Callable[[UntrustedJson], Cell | None]
    needs: str = ""
    """The member without which a row has no such value."""
    is_text: bool = False

    def of(self, stats: UntrustedJson) -> Cell | None:
        return self.cell(stats) if not self.needs or self.needs in stats else None


def _table(title: str, row_heading: str, rows: Sequence[_Named], fields: Sequence[_Field]) -> Table:
    """Return a table with the *rows*, and a column for each field that any of them has."""
    shown = [
        (field, cells) for field in fields if any(cells := [field.of(stats) for _, stats in rows])
    ]
    columns = [Column(row_heading, is_text=True)]
    columns += [Column(field.heading, is_text=field.is_text) for field, _ in shown]
    table = Table(title, columns)
    if shown:
        for at, (name, _) in enumerate(rows):
            table.rows.append([Cell(printable(name)), *(cells[at] or _DASH for _, cells in shown)])
    return table


def _count(count: int, if_any: Tone, if_none: Tone = Tone.PLAIN) -> Cell:
    return Cell(short_count(count), if_any if count else if_none)


def _with_part(part: str, rows: Iterator[_Named] | Sequence[_Named]) -> list[_Named]:
    """Return those of *rows* that have such a part."""
    return [(name, stats) for name, stats in rows if part in stats]


# Totals since the start.


def _requests(route: UntrustedJson) -> int:
    return sum(count for _, count in route.part("requests").counts())


def _rate(part: int, whole: int, at_none: Tone, limit: float, from_limit: Tone) -> Cell:
    """Return a share in the tone for none, or for *limit* and above; yellow in between."""
    if not whole:
        return _DASH
    tone = from_limit if part / whole >= limit else Tone.WARNING
    return Cell(percentage(part, whole), tone if part else at_none)


def _error_rate(route: UntrustedJson) -> Cell:
    return _rate(route.count("errors"), _requests(route), Tone.GOOD, _MANY_ERRORS, Tone.BAD)


def _recovery_rate(route: UntrustedJson) -> Cell:
    """Return the share of retries that succeeded."""
    retries, recovered = route.count("retries"), route.count("recovered")
    return _rate(recovered, retries, Tone.BAD, _FEW_RECOVERIES, Tone.GOOD)


def _quantiles(figures: UntrustedJson) -> Cell:
    """Return the median and the 95th percentile."""
    median, most = figures.number("p50"), figures.number("p95")
    return (
        _DASH
        if median is None or most is None
        else Cell(f"{short_duration(median)}/{short_duration(most)}")
    )


def _duplicates(route: UntrustedJson) -> Cell:
    """Return the share of keyed requests that got the response of another one."""
    results = dict(route.part("idempotency").counts())
    again = results.get("replayed", 0) + results.get("joined", 0)
    return Cell(percentage(again, sum(results.values())))


_TOTALS = (
    _Field("requests", lambda route: Cell(short_count(_requests(route)))),
    _Field("errors", _error_rate),
    _Field("retries", lambda route: Cell(short_count(route.count("retries"))), needs="retries"),
    _Field("worked", _recovery_rate, needs="retries"),
    _Field("waits p50/p95", lambda route: _quantiles(route.part("wait_ms")), needs="retries"),
    _Field("duplicates", _duplicates, needs="idempotency"),
)


# The present state.


def _paused(stats: UntrustedJson) -> Cell:
    """Return how long the throttle is still paused, as the upstream asked."""
    throttle = stats.part("throttle")
    if not throttle.count("paused"):
        return Cell("no")
    left = throttle.number("paused_for_seconds") or 0.0
    return Cell(f"for {short_duration(left * 1000)}", Tone.WARNING)


def _throttle_count(heading: str, name: str, tone: Tone) -> _Field:
    return _Field(
        heading, lambda stats: _count(stats.part("throttle").count(name), tone), needs="throttle"
    )


_QUEUE = (
    _throttle_count("queue", "waiting", Tone.WARNING),
    _Field("paused", _paused, needs="throttle"),
)
_THROTTLES = (
    _throttle_count("passed", "passed", Tone.PLAIN),
    _throttle_count("delayed", "delayed", Tone.PLAIN),
    _throttle_count("refused", "refused", Tone.WARNING),
    *_QUEUE,
    _Field("waits p50/p95", lambda stats: _quantiles(stats.part("throttle").part("wait_ms"))),
)


def _throttled(routes: Sequence[_Named], upstreams: UntrustedJson) -> list[_Named]:
    """Return routes and upstreams with a throttle; the prefix tells equal names apart."""
    return [
        *((f"route {name}", stats) for name, stats in _with_part("throttle", routes)),
        *(
            (f"upstream {name}", stats)
            for name, stats in _with_part("throttle", upstreams.members())
        ),
    ]


_BREAKERS = {"closed": Tone.GOOD, "half_open": Tone.WARNING, "open": Tone.BAD}


def _breaker(stats: UntrustedJson) -> Cell | None:
    word = stats.text("breaker")
    return Cell(word.replace("_", "-"), _BREAKERS.get(word, Tone.PLAIN)) if word else None


def _budget(upstream: UntrustedJson) -> Cell | None:
    """Return the number of retries that the budget would allow now."""
    left = upstream.number("budget_remaining")
    return None if left is None else Cell(f"{left:.0f}", Tone.GOOD if left >= 1 else Tone.BAD)


def _now(upstreams: UntrustedJson) -> tuple[_Field, ...]:
    def first(route: UntrustedJson) -> UntrustedJson:
        """Return the route's own upstream; others are only fallbacks."""
        names = route.texts("upstreams")
        return upstreams.part(names[0]) if names else UntrustedJson(None)

    return (
        _Field("in flight", lambda route: Cell(short_count(route.count("in_flight")))),
        *_QUEUE,
        _Field("breaker", lambda route: _breaker(first(route))),
        _Field("budget", lambda route: _budget(first(route)), needs="retries"),
    )


# Failures.


def _failed(route: UntrustedJson) -> bool:
    return any(sum(_endings(route, category).values()) for category in _CATEGORIES)


def _endings(route: UntrustedJson, category: str) -> dict[str, int]:
    return dict(route.part("failures").part(category).counts())


def _category(name: str, tone: Tone) -> _Field:
    return _Field(name, lambda route: _count(sum(_endings(route, name).values()), tone, Tone.GOOD))


def _which(route: UntrustedJson) -> Cell:
    """Return kinds of failure and statuses, the most frequent first."""
    counts: Counter[str] = Counter()
    for category in _CATEGORIES:
        counts.update(_endings(route, category))
    return Cell(
        ", ".join(f"{ending} x{short_count(count)}" for ending, count in counts.most_common())
    )


_CATEGORIES = ("transient", "permanent")
_FAILED = (
    _category("transient", Tone.WARNING),
    _category("permanent", Tone.BAD),
    _Field("which", _which, is_text=True),
)


def _dead_letter_count(heading: str, name: str, tone: Tone) -> _Field:
    return _Field(
        heading, lambda route: _count(route.part("dead_letters").count(name), tone, Tone.GOOD)
    )


def _dead_letter_losses(name: str) -> _Field:
    """Return a column that is shown only once it has a count: normally there is nothing to see."""

    def cell(route: UntrustedJson) -> Cell | None:
        count = route.part("dead_letters").count(name)
        return _count(count, Tone.BAD) if count else None

    return _Field(name, cell)


_DEAD_LETTERS = (
    _dead_letter_count("waiting", "waiting", Tone.BAD),
    _dead_letter_count("can be replayed", "replayable", Tone.WARNING),
    _dead_letter_losses("lost"),
    _dead_letter_losses("expired"),
)


# Upstreams.


def _addresses(addresses: UntrustedJson) -> Table:
    """Return a table with a row for each address of each upstream."""
    table = Table(
        "Upstreams",
        (
            Column("upstream", is_text=True),
            Column("address", is_text=True),
            Column("state", is_text=True),
            Column("open"),
            Column("idle"),
        ),
    )
    for name, _ in addresses.members():
        for address in addresses.parts(name):
            failing = address.is_true("failing")
            state = Cell("failing", Tone.BAD) if failing else Cell("good", Tone.GOOD)
            table.rows.append(
                (
                    Cell(printable(name)),
                    Cell(address.text("address")),
                    _breaker(address) or state,
                    Cell(short_count(address.count("open"))),
                    Cell(short_count(address.count("idle"))),
                )
            )
    return table


_WORKERS = {"ready": Tone.GOOD, "starting": Tone.WARNING, "silent": Tone.BAD}


def _workers(workers: Sequence[UntrustedJson]) -> Table:
    """Return a table with a row for each worker, if there are several."""
    table = Table(
        "Workers",
        (
            Column("worker"),
            Column("process"),
            Column("state", is_text=True),
            Column("up"),
            Column("connections"),
        ),
    )
    for worker in workers:
        state = worker.text("state")
        table.rows.append(
            (
                Cell(str(worker.count("number"))),
                Cell(str(worker.count("pid"))),
                Cell(state, _WORKERS.get(state, Tone.PLAIN)),
                Cell(long_duration(worker.number("uptime_seconds") or 0.0)),
                Cell(short_count(worker.count("connections"))),
            )
        )
    return table
