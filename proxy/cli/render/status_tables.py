"""The tables of ``holdfast status``: what happened in the last minute beside the totals.

Only features in use have a table or a column: without throttles there is no queue, without
idempotency there are no duplicates. Green is good, yellow worth a look, red a reason to act.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from proxy.cli.render.number_format import (
    long_duration,
    percentage,
    short_count,
    short_duration,
    short_rate,
)
from proxy.cli.render.tables import Cell, Column, Table, Tone
from proxy.cli.untrusted_json import UntrustedJson, printable

_MANY_ERRORS = 0.05
"""The share of failed requests from which the cell is red."""
_FEW_RECOVERIES = 0.5
"""The share of successful retries below which the cell is yellow."""
_MANY_ROWS = 10
"""The number of rows above which quiet ones are left out."""
_DASH = Cell("-")
_ALL = "total"
_NOW = "now"


@dataclass(frozen=True, slots=True)
class Row:
    """A route or an upstream: its totals, what happened lately, and the totals last shown."""

    name: str
    """Unescaped; for look-ups."""
    total: UntrustedJson
    lately: UntrustedJson
    before: UntrustedJson | None = None
    """None if nothing was shown before, or this was not there."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column: makes the cell of a row, or None if the row has no such value."""

    heading: str
    cell: Callable[[Row], Cell | None]
    group: str = ""
    optional: int = 0
    wraps: bool = False
    is_text: bool = False


def lately_name(seconds: float) -> str:
    """Name the window: a process that is younger than a minute does not claim to know one."""
    return "last minute" if 55 <= seconds <= 65 else f"last {seconds:.0f} s"


def _table(
    title: str,
    row_heading: str,
    rows: Sequence[Row],
    fields: Sequence[Field],
    is_quiet: Callable[[Row], bool] | None = None,
) -> Table:
    """Return a table with the *rows*, and a column for each field that any of them has.

    Of very many rows those that are quiet are left out, so that the tables below stay in reach.
    """
    whole = len(rows)
    if is_quiet is not None and whole > _MANY_ROWS:
        rows = sorted(rows, key=is_quiet)
        rows = rows[: max(_MANY_ROWS, sum(not is_quiet(row) for row in rows))]
    shown = [(field, cells) for field in fields if any(cells := [field.cell(row) for row in rows])]
    columns = [Column(row_heading, is_text=True)]
    columns += [
        Column(
            field.heading,
            is_text=field.is_text,
            wraps=field.wraps,
            group=field.group,
            optional=field.optional,
        )
        for field, _ in shown
    ]
    table = Table(title, columns, quiet=whole - len(rows))
    if shown:
        for at, row in enumerate(rows):
            table.rows.append(
                [Cell(printable(row.name)), *(cells[at] or _DASH for _, cells in shown)]
            )
    return table


def _count(count: int, if_any: Tone, if_none: Tone = Tone.PLAIN) -> Cell:
    return Cell(short_count(count), if_any if count else if_none)


def _sum(counts: UntrustedJson) -> int:
    return sum(count for _, count in counts.counts())


def requests(route: UntrustedJson) -> int:
    """Return how many requests of *route* were answered."""
    return _sum(route.part("requests"))


def refused(route: UntrustedJson) -> int:
    """Return how many requests of *route* were refused."""
    return _sum(route.part("refused"))


# Routes.


def routes_table(rows: Sequence[Row], lately: str) -> Table:
    """Return the table of requests, errors, refusals and latencies per route."""
    return _table("Routes", "route", rows, _route_fields(lately))


def _rate(part: int, whole: int, at_none: Tone, limit: float, from_limit: Tone) -> Cell:
    """Return a share in the tone for none, or for *limit* and above; yellow in between."""
    if not whole:
        return _DASH
    tone = from_limit if part / whole >= limit else Tone.WARNING
    return Cell(percentage(part, whole), tone if part else at_none)


def _error_rate(route: UntrustedJson) -> Cell:
    return _rate(route.count("errors"), requests(route), Tone.GOOD, _MANY_ERRORS, Tone.BAD)


def _refusal_rate(route: UntrustedJson) -> Cell:
    return _rate(refused(route), requests(route), Tone.GOOD, _MANY_ERRORS, Tone.WARNING)


def _per_second(stats: UntrustedJson, name: str) -> Cell:
    return Cell(short_rate(stats.number(name) or 0.0))


def _quantiles(figures: UntrustedJson) -> Cell:
    """Return the median and the 95th percentile."""
    median, most = figures.number("p50"), figures.number("p95")
    return (
        _DASH
        if median is None or most is None
        else Cell(f"{short_duration(median)}/{short_duration(most)}")
    )


def _new_requests(row: Row) -> Cell | None:
    """Return how many requests there were since the last look."""
    if row.before is None:
        return None
    new = requests(row.total) - requests(row.before)
    return Cell(f"+{short_count(new)}" if new > 0 else "")


def _refused_ever(row: Row) -> Cell | None:
    return _refusal_rate(row.total) if refused(row.total) else None


def _route_fields(lately: str) -> tuple[Field, ...]:
    return (
        Field("req/s", lambda row: _per_second(row.lately, "requests_per_second"), lately),
        Field("errors", lambda row: _error_rate(row.lately), lately),
        Field("refused", lambda row: _refusal_rate(row.lately), lately),
        Field("p50/p95", lambda row: _quantiles(row.lately.part("duration_ms")), lately),
        Field(
            "in flight", lambda row: Cell(short_count(row.total.count("in_flight"))), "", optional=5
        ),
        Field("requests", lambda row: Cell(short_count(requests(row.total))), _ALL, optional=1),
        Field("new", _new_requests, _ALL, optional=4),
        Field("errors", lambda row: _error_rate(row.total), _ALL, optional=2),
        Field("refused", _refused_ever, _ALL, optional=3),
    )


# Retries.


def retries_table(rows: Sequence[Row], lately: str) -> Table:
    """Return the table of retries, and how many of them helped."""
    retried = [row for row in rows if row.total.count("retries")]
    return _table("Retries", "route", retried, _retry_fields(lately))


def _recovery_rate(route: UntrustedJson) -> Cell:
    """Return the share of retries that succeeded."""
    retries, recovered = route.count("retries"), route.count("recovered")
    return _rate(recovered, retries, Tone.BAD, _FEW_RECOVERIES, Tone.GOOD)


def _retry_fields(lately: str) -> tuple[Field, ...]:
    def of(group: str, part: Callable[[Row], UntrustedJson], optional: int) -> Iterator[Field]:
        yield Field("retries", lambda row: Cell(short_count(part(row).count("retries"))), group)
        yield Field("worked", lambda row: _recovery_rate(part(row)), group)
        yield Field(
            "waits p50/p95", lambda row: _quantiles(part(row).part("wait_ms")), group, optional
        )

    return (*of(lately, lambda row: row.lately, 1), *of(_ALL, lambda row: row.total, 2))


_FINE = ("success", "recovered", "retried")


def not_retried_table(rows: Sequence[Row], lately: str) -> Table:
    """Return why attempts were the last of their request, though they failed, and how often."""
    table = Table(
        "Not retried",
        (
            Column("route", is_text=True),
            Column("reason", is_text=True, is_whole=True),
            Column(lately),
            Column(_ALL),
        ),
    )
    for row in rows:
        recent = dict(row.lately.part("verdicts").counts())
        reasons = Counter(dict(row.total.part("verdicts").counts()))
        for reason, count in reasons.most_common():
            if reason not in _FINE and count:
                just_now = recent.get(reason, 0)
                tone = Tone.WARNING if just_now else Tone.PLAIN
                table.rows.append(
                    (
                        Cell(printable(row.name)),
                        Cell(reason),
                        Cell(f"x{short_count(just_now)}" if just_now else "-", tone),
                        Cell(f"x{short_count(count)}"),
                    )
                )
    return table


# Failed attempts.


def failures_table(rows: Sequence[Row], lately: str) -> Table:
    """Return the table of failed attempts by category."""
    failed = [row for row in rows if _endings(row.total)]
    fields = (
        *(_category(name, tone, lately, _lately_of) for name, tone in _CATEGORIES.items()),
        *(_category(name, tone, _ALL, _total_of) for name, tone in _CATEGORIES.items()),
        Field("which", lambda row: Cell(_which(row.total)), is_text=True, wraps=True),
    )
    return _table("Failed attempts", "route", failed, fields)


_CATEGORIES = {"transient": Tone.WARNING, "permanent": Tone.BAD}


def _lately_of(row: Row) -> UntrustedJson:
    return row.lately


def _total_of(row: Row) -> UntrustedJson:
    return row.total


def _category(name: str, tone: Tone, group: str, part: Callable[[Row], UntrustedJson]) -> Field:
    def cell(row: Row) -> Cell:
        return _count(_sum(part(row).part("failures").part(name)), tone, Tone.GOOD)

    return Field(name, cell, group, optional=1 if group == _ALL else 0)


def _endings(route: UntrustedJson) -> Counter[str]:
    counts: Counter[str] = Counter()
    for category in _CATEGORIES:
        counts.update(dict(route.part("failures").part(category).counts()))
    return +counts


def _which(route: UntrustedJson) -> str:
    """List kinds of failure and statuses, the most frequent first."""
    counts = _endings(route).most_common()
    return ", ".join(f"{ending} x{short_count(count)}" for ending, count in counts)


# Dead letters and keys.


def letters_table(rows: Sequence[Row], lately: str) -> Table:
    """Return the table of dead letters, where routes keep them."""
    keeping = [row for row in rows if "dead_letters" in row.total]
    fields = (
        _letter_count("waiting", "waiting", Tone.BAD),
        _letter_count("can be replayed", "replayable", Tone.WARNING),
        _losses("lost", lately, _lately_of),
        _losses("lost", _ALL, _total_of),
        _losses("expired", _ALL, _total_of),
        Field("kept", _kept_lately, lately, optional=1),
    )
    return _table("Dead letters", "route", keeping, fields, _has_no_letters)


def _has_no_letters(row: Row) -> bool:
    letters = row.total.part("dead_letters")
    return not any(letters.count(name) for name in ("waiting", "kept", "lost", "expired"))


def _letter_count(heading: str, name: str, tone: Tone) -> Field:
    return Field(
        heading, lambda row: _count(row.total.part("dead_letters").count(name), tone, Tone.GOOD)
    )


def _kept_lately(row: Row) -> Cell | None:
    kept = row.lately.part("dead_letters").count("kept")
    return Cell(short_count(kept), Tone.WARNING) if kept else None


def _losses(name: str, group: str, part: Callable[[Row], UntrustedJson]) -> Field:
    """Return a column that is shown only once it has a count: normally there is nothing to see."""

    def cell(row: Row) -> Cell | None:
        count = part(row).part("dead_letters").count(name)
        return Cell(short_count(count), Tone.BAD) if count else None

    return Field(name, cell, group)


_DUPLICATES = ("replayed", "joined")
_RAN = ("new", "bypassed", "lease_lost")


def keys_table(rows: Sequence[Row], lately: str) -> Table:
    """Return the table of requests with an idempotency key."""

    def of(group: str, part: Callable[[Row], UntrustedJson], optional: int) -> Iterator[Field]:
        def results(row: Row) -> dict[str, int]:
            return dict(part(row).part("idempotency").counts())

        def duplicates(row: Row) -> Cell:
            counts = results(row)
            return Cell(percentage(sum(counts.get(one, 0) for one in _DUPLICATES), _all(counts)))

        def others(row: Row) -> Cell:
            counts = results(row)
            known = (*_DUPLICATES, *_RAN)
            return _count(_all(counts) - sum(counts.get(one, 0) for one in known), Tone.WARNING)

        yield Field("with a key", lambda row: Cell(short_count(_all(results(row)))), group)
        yield Field("duplicates", duplicates, group, optional)
        yield Field("refused", others, group, optional)

    keyed = [row for row in rows if _sum(row.total.part("idempotency"))]
    fields = (*of(lately, _lately_of, 0), *of(_ALL, _total_of, 1))
    return _table("Idempotency keys", "route", keyed, fields)


def _all(counts: dict[str, int]) -> int:
    return sum(counts.values())


# Throttles.


def throttles_table(rows: Sequence[Row], lately: str) -> Table:
    """Return the table of throttles; the names of *rows* tell routes and upstreams apart."""
    fields = (
        Field("queue", _queue, _NOW),
        Field("paused", _paused, _NOW),
        *_decisions(lately, _lately_of, 0),
        Field(
            "waits p50/p95",
            lambda row: _quantiles(row.lately.part("throttle").part("wait_ms")),
            lately,
            optional=2,
        ),
        *_decisions(_ALL, _total_of, 1),
    )
    throttled = [row for row in rows if "throttle" in row.total]
    return _table("Throttles", "of", throttled, fields, _has_free_way)


def _has_free_way(row: Row) -> bool:
    throttle, lately = row.total.part("throttle"), row.lately.part("throttle")
    has_queue = throttle.count("waiting") or throttle.count("paused")
    return not (has_queue or any(lately.count(name) for name in _DECISIONS))


def _queue(row: Row) -> Cell:
    return _count(row.total.part("throttle").count("waiting"), Tone.WARNING)


def _paused(row: Row) -> Cell:
    """Return how long the throttle is still paused, as the upstream asked."""
    throttle = row.total.part("throttle")
    if not throttle.count("paused"):
        return Cell("no")
    left = throttle.number("paused_for_seconds") or 0.0
    return Cell(f"for {short_duration(left * 1000)}", Tone.WARNING)


def _decisions(group: str, part: Callable[[Row], UntrustedJson], optional: int) -> Iterator[Field]:
    def of(name: str, tone: Tone) -> Field:
        def cell(row: Row) -> Cell:
            return _count(part(row).part("throttle").count(name), tone)

        return Field(name, cell, group, optional)

    return (of(name, tone) for name, tone in _DECISIONS.items())


_DECISIONS = {"passed": Tone.PLAIN, "delayed": Tone.PLAIN, "refused": Tone.WARNING}


# Upstreams.

_BREAKERS = {"closed": Tone.GOOD, "half_open": Tone.WARNING, "open": Tone.BAD}


def upstreams_table(rows: Iterable[Row], addresses: UntrustedJson, lately: str) -> Table:
    """Return a table with a row for each address of each upstream."""
    table = Table(
        "Upstreams",
        (
            Column("upstream", is_text=True),
            Column("address", is_text=True, least=21),
            Column("state", is_text=True, is_whole=True),
            Column("calls/s", group=lately),
            Column("p50/p95", group=lately, optional=1),
            Column("open", optional=2),
            Column("idle", optional=3),
            Column("budget", optional=4),
        ),
    )
    for row in rows:
        # What is about the whole upstream stands with its first address.
        whole = _upstream_cells(row)
        for address in addresses.parts(row.name):
            calls, latency, budget = whole
            table.rows.append(
                (
                    Cell(printable(row.name)),
                    Cell(address.text("address")),
                    _address_state(address),
                    calls,
                    latency,
                    *(Cell(short_count(address.count(name))) for name in ("open", "idle")),
                    budget,
                )
            )
            whole = (Cell(""),) * len(whole)
        if not addresses.parts(row.name):
            never = Cell("none known before its first call")
            table.rows.append((Cell(printable(row.name)), never, *([_DASH] * 6)))
    return table


def _upstream_cells(row: Row) -> tuple[Cell, ...]:
    """Return calls, latencies and the number of retries that the budget would allow now."""
    left = row.total.number("budget_remaining")
    budget = _DASH if left is None else Cell(f"{left:.0f}", Tone.GOOD if left >= 1 else Tone.BAD)
    calls = _per_second(row.lately, "attempts_per_second")
    return calls, _quantiles(row.lately.part("duration_ms")), budget


def _address_state(address: UntrustedJson) -> Cell:
    word = address.text("breaker")
    if word and word != "closed":
        return Cell(word.replace("_", "-"), _BREAKERS.get(word, Tone.PLAIN))
    if address.is_true("failing"):
        return Cell("failing", Tone.BAD)
    return Cell(word or "good", Tone.GOOD)


# Workers.

_WORKERS = {"ready": Tone.GOOD, "starting": Tone.WARNING, "silent": Tone.BAD}


def workers_table(workers: Sequence[UntrustedJson]) -> Table:
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
